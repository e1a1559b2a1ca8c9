package sim

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/record"
	"lockstep/disk/segment"
)

// logQueue carries out the effects on one log, one after another.
type logQueue struct {
	id      core.Partition
	log     *segment.Log
	queue   []broker.Effect
	busy    bool
	results []broker.Input // of the effect that is being carried out
	refuse  bool           // an append failed: later ones are dropped until a Truncate
	batches []record.Batch // scratch

	wantsSync  bool
	unsynced   int64 // records appended since the last round that asked for no sync
	flushCount int64
	flushAfter time.Duration
	flushing   *event
}

// syncState is the group commit of a host: one round at a time.
type syncState struct {
	want    []*logQueue
	logs    []*segment.Log
	round   *segment.Round
	running bool
	err     error
	ends    []segment.DurableEnd
}

// jobState is a call of perform without the closure.
type jobState struct {
	q *logQueue
	e broker.Effect
}

func (j *jobState) do(h *host) { j.q.perform(h, j.e) }

// enqueue puts an effect that storage carries out in its log's queue.
func (h *host) enqueue(e broker.Effect) {
	q := h.queueOf(e)
	if q == nil {
		return
	}
	q.queue = append(q.queue, e)
	h.pump(q)
}

// logOf names the log that an effect is about.
func logOf(e broker.Effect) (id core.Partition, ok bool) {
	switch e := e.(type) {
	case broker.Append:
		return e.Log, true
	case broker.OpenLog:
		return e.Log, true
	case broker.ConfigureLog:
		return e.Log, true
	case broker.DeleteLog:
		return e.Log, true
	case broker.Truncate:
		return e.Log, true
	case broker.ResetLog:
		return e.Log, true
	case broker.SetStart:
		return e.Log, true
	case broker.Retain:
		return e.Log, true
	case broker.SaveEpochs:
		return e.Log, true
	case broker.SaveProducers:
		return e.Log, true
	case broker.LookupTime:
		return e.Log, true
	case broker.ReadLog:
		return e.Log, true
	}
	return id, false
}

func (h *host) queueOf(e broker.Effect) *logQueue {
	id, ok := logOf(e)
	if !ok {
		return &h.small
	}
	q := h.logs[id]
	if q == nil {
		q = &logQueue{id: id}
		h.logs[id] = q
		h.order = append(h.order, q)
	}
	return q
}

// pump begins the next effect of a queue.
func (h *host) pump(q *logQueue) {
	if q.busy || len(q.queue) == 0 {
		return
	}
	e := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	if len(q.queue) == 0 {
		q.queue = nil
	}
	h.run = jobState{q, e}
	if !h.do(h.job) {
		return
	}
	q.busy = true
	x := h.later(h.cost()+h.chance.Skewed(0, 50*microsecond), evDone)
	x.more = q
}

// fireDisk is fire for what the disk has done.
func (h *host) fireDisk(e *event) {
	switch e.kind {
	case evDone:
		q := e.more.(*logQueue)
		q.busy = false
		results := q.results
		q.results = nil
		life := h.life
		for i, in := range results {
			h.step(in)
			if h.life != life {
				return
			}
			results[i] = nil
		}
		if q.results == nil {
			q.results = results[:0]
		}
		h.pump(q)
		h.beginSync()
	case evFlush:
		q := e.more.(*logQueue)
		q.flushing = nil
		h.wantSync(q)
		h.beginSync()
	case evSyncRun:
		h.runSync()
	case evSyncDone:
		h.endSync()
	}
}

// perform does the work of one effect. It runs inside Disk.Run, so it may not return.
func (q *logQueue) perform(h *host, e broker.Effect) {
	tell := func(in broker.Input) { q.results = append(q.results, in) }
	switch e := e.(type) {
	case broker.Append:
		q.append(h, &e)
	case broker.OpenLog:
		tell(q.open(h, &e))
	case broker.DeleteLog:
		q.delete(h)
		tell(broker.LogDeleted{Log: q.id})
	case broker.SaveState:
		if err := h.store.SaveState(e.State); err != nil {
			tell(broker.DiskFailed{Err: err})
			return
		}
		tell(broker.StateSaved{Token: e.Token})
	case broker.MeasureLogs:
		tell(h.measure(e.Token))
	case broker.LookupTime:
		tell(q.lookup(&e))
	case broker.ReadLog:
		tell(q.read(&e))
	default:
		if q.log == nil {
			return
		}
		if in := q.change(h, e); in != nil {
			tell(in)
		}
	}
}

func (q *logQueue) open(h *host, e *broker.OpenLog) broker.Input {
	q.configure(e.Config.FlushMessages, e.Config.FlushMillis)
	l, state, err := h.store.OpenLog(e.Log, e.Topic, e.Config)
	q.log = l
	h.w.oracle.opened(h, q, e.Topic, &state, err)
	return broker.LogOpened{Log: e.Log, State: state, Err: err}
}

func (q *logQueue) configure(count int64, after time.Duration) {
	q.flushCount, q.flushAfter = count, after
}

// append writes an Append and those that wait right behind it, as one.
func (q *logQueue) append(h *host, e *broker.Append) {
	q.batches = append(q.batches[:0], e.Batches...)
	sync := e.Sync
	for len(q.queue) > 0 {
		next, ok := q.queue[0].(broker.Append)
		if !ok {
			break
		}
		q.batches = append(q.batches, next.Batches...)
		sync = sync || next.Sync
		q.queue = q.queue[1:]
	}
	if q.refuse || q.log == nil {
		return
	}
	h.w.oracle.appending(h, q, q.batches)
	rolled, err := q.log.Append(q.batches)
	_, end := q.log.Bounds()
	if err != nil {
		q.refuse = true
		h.w.oracle.appendFailed(h, q, end)
		q.results = append(q.results, broker.AppendFailed{Log: q.id, End: end, Err: err})
		return
	}
	h.w.oracle.appended(q, end)
	q.results = append(q.results, broker.Written{Log: q.id, End: end, Rolled: rolled})
	for _, b := range q.batches {
		q.unsynced += int64(b.Count())
	}
	if sync || q.flushCount > 0 && q.unsynced >= q.flushCount {
		h.wantSync(q)
	} else if q.flushAfter > 0 && q.flushAfter < 24*time.Hour && q.flushing == nil {
		q.flushing = h.later(int64(q.flushAfter), evFlush)
		q.flushing.more = q
	}
}

func (q *logQueue) delete(h *host) {
	q.log, q.refuse = nil, false
	if err := h.store.DeleteLogs(q.id); err != nil {
		h.w.event(h.lane, "log", "delete: "+err.Error())
	}
	h.w.oracle.deleted(h, q)
}

// change carries out an effect that changes an open log, and returns its answer, if it has one.
func (q *logQueue) change(h *host, e broker.Effect) broker.Input {
	switch e := e.(type) {
	case broker.ConfigureLog:
		q.configure(e.Config.FlushMessages, e.Config.FlushMillis)
		q.log.Configure(e.Config)
	case broker.Truncate:
		end, err := q.log.Truncate(e.To)
		if err != nil {
			return broker.LogFailed{Log: q.id, Err: err}
		}
		q.refuse = false
		h.w.oracle.truncated(h, q, end)
		return broker.Truncated{Log: q.id, End: end}
	case broker.SetStart:
		start, err := q.log.SetStart(e.Start)
		if err != nil {
			return broker.LogFailed{Log: q.id, Err: err}
		}
		return broker.StartMoved{Log: q.id, Start: start}
	case broker.Retain:
		was, _ := q.log.Bounds()
		start, err := q.log.Retain(e.Limit, e.Wall)
		if err != nil {
			return broker.LogFailed{Log: q.id, Err: err}
		}
		if start != was {
			return broker.StartMoved{Log: q.id, Start: start}
		}
	case broker.SaveEpochs:
		if err := q.log.SaveEpochs(e.Epochs); err != nil {
			return broker.LogFailed{Log: q.id, Err: err}
		}
	case broker.SaveProducers:
		if err := q.log.SaveProducers(e.Offset, e.Snapshot); err != nil {
			return nil // what is missing is replayed
		}
	}
	return nil
}

func (q *logQueue) lookup(e *broker.LookupTime) broker.Input {
	if q.log == nil {
		return broker.TimeFound{Token: e.Token, Offset: -1, Err: segment.ErrNoLog}
	}
	r, err := q.log.LookupTime(e.Timestamp, e.Limit)
	return broker.TimeFound{Token: e.Token, Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: r.LeaderEpoch, Err: err}
}

func (q *logQueue) read(e *broker.ReadLog) broker.Input {
	if q.log == nil {
		return broker.LogRead{Token: e.Token, Err: segment.ErrNoLog}
	}
	batches, err := q.log.ReadBatches(e.From, e.Limit, e.MaxBytes)
	return broker.LogRead{Token: e.Token, Batches: batches, Err: err}
}

func (h *host) measure(t broker.Token) broker.Input {
	m := broker.LogsMeasured{Token: t, Total: 1 << 40, Free: 1 << 39}
	for _, q := range h.order {
		if q.log != nil {
			m.Sizes = append(m.Sizes, broker.LogSize{Log: q.id, Size: q.log.Size()})
		}
	}
	slices.SortFunc(m.Sizes, func(a, b broker.LogSize) int { return a.Log.Compare(b.Log) })
	return m
}

// wantSync asks for a log to be in the next round.
func (h *host) wantSync(q *logQueue) {
	q.unsynced = 0
	if !q.wantsSync && q.log != nil {
		q.wantsSync = true
		h.sync.want = append(h.sync.want, q)
	}
}

// beginSync begins a round of group commit if one is wanted and none is under way.
func (h *host) beginSync() {
	s := &h.sync
	if s.running || len(s.want) == 0 {
		return
	}
	s.logs = s.logs[:0]
	for _, q := range s.want {
		q.wantsSync = false
		if q.log != nil {
			s.logs = append(s.logs, q.log)
		}
	}
	s.want = s.want[:0]
	if len(s.logs) == 0 {
		return
	}
	if !h.do(func() { s.round = h.store.BeginSync(s.logs...) }) {
		return
	}
	s.running = true
	h.later(h.cost()+h.chance.Skewed(0, 100*microsecond), evSyncRun)
}

// runSync is the moment at which the disk really syncs.
func (h *host) runSync() {
	s := &h.sync
	if !h.do(func() { s.err = s.round.Run() }) {
		return
	}
	h.later(h.cost(), evSyncDone)
}

func (h *host) endSync() {
	s := &h.sync
	s.running = false
	if s.err != nil {
		err := s.err
		s.err = nil
		h.syncFailed(err)
		return
	}
	if !h.do(func() { s.ends = s.round.Finish() }) {
		return
	}
	life := h.life
	for _, d := range s.ends {
		h.w.oracle.durable(h, d.Partition, d.End)
		h.step(broker.Durable{Log: d.Partition, End: d.End})
		if h.life != life {
			return
		}
	}
	h.beginSync()
}

// syncFailed tells the broker of a failed sync (rule 13), or tries again where nothing was lost.
func (h *host) syncFailed(err error) {
	if h.store.Failed() != nil {
		h.step(broker.DiskFailed{Err: err})
		return
	}
	for _, q := range h.order {
		if q.log != nil && q.log.UnsyncedBytes() > 0 {
			h.wantSync(q)
		}
	}
	h.sync.running = true // not at once: there is no room on the disk
	h.later(50*millisecond, evSyncRun)
	if !h.do(func() { h.sync.round = h.store.BeginSync() }) {
		return
	}
}
