package sim

import (
	"errors"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/config"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/disk/segment"
	"lockstep/disk/snapshot"
)

// logQueue carries out the effects on one log, one after another.
type logQueue struct {
	id         core.Partition
	log        *segment.Log
	queue      []broker.Effect
	busy       bool
	results    []broker.Input // of the effect that is being carried out
	pause      Time           // before the next effect
	dropping   bool           // an append failed: later ones are dropped until a Truncate to where the log ended then
	droppingTo int64
	batches    []record.Batch // scratch

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

// jobs are the functions that run inside Disk.Run all the time, made once.
type jobs struct {
	perform, begin, run, finish func()
	// of perform:
	q *logQueue
	e broker.Effect
}

func (j *jobs) init(h *host) {
	s := &h.sync
	j.perform = func() { j.q.perform(h, j.e) }
	j.begin = func() { s.round = h.store.BeginSync(s.logs...) }
	j.run = func() { s.err = s.round.Run() }
	j.finish = func() { s.ends = s.round.Finish() }
}

// enqueue puts an effect that storage carries out in its log's queue.
func (h *host) enqueue(e broker.Effect) {
	q := h.queueOf(e)
	q.queue = append(q.queue, e)
	h.pump(q)
}

func (h *host) queueOf(e broker.Effect) *logQueue {
	switch e.(type) { // what is not on a log has queues of its own
	case broker.SaveState:
		return &h.special[0]
	case broker.SaveSnapshot, broker.DropSnapshots:
		return &h.special[1]
	case broker.MeasureLogs:
		return &h.special[2]
	}
	id := broker.LogOf(e)
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
	h.jobs.q, h.jobs.e = q, e
	if !h.do(h.jobs.perform) {
		return
	}
	q.busy = true
	x := h.later(h.cost()+h.chance.Skewed(microsecond, 100*microsecond)+q.pause, evDone)
	x.more = q
	q.pause = 0
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
		if h.life == life {
			h.beginSync()
		}
	case evFlush:
		q := e.more.(*logQueue)
		q.flushing = nil
		h.wantSync(q)
		h.beginSync()
	case evSyncRun:
		h.runSync()
	case evSyncDone:
		h.endSync()
	case evSyncAgain:
		h.syncAgain()
	case evHouse:
		h.keepHouse()
	case evClean:
		h.nextPass()
	case evCleanOn:
		h.goOn(e.more.(*compaction))
	case evCleaned:
		h.cleaned(e.more.(*compaction))
	}
}

// retryPause is how long what found no room on the disk waits before it is tried again.
const retryPause = 200 * millisecond

// perform does the work of one effect. It runs inside Disk.Run, so it may not return.
func (q *logQueue) perform(h *host, e broker.Effect) {
	switch e := e.(type) {
	case broker.Append:
		q.append(h, &e)
	case broker.OpenLog:
		q.tell(q.open(h, &e))
	case broker.DeleteLog:
		q.delete(h)
	case broker.SaveState:
		err := h.store.SaveState(e.State)
		if err == nil {
			h.reign.saved = e.State
		}
		q.save(e, err, broker.StateSaved{Token: e.Token})
	case broker.SaveSnapshot:
		err := h.snapshots.Save(snapshot.ID(e.Snapshot.SnapshotID), e.Snapshot.Bytes)
		q.save(e, err, broker.SnapshotSaved{Token: e.Token})
	case broker.DropSnapshots:
		if err := h.snapshots.Drop(snapshot.ID(e.Keep)); err != nil {
			h.w.event(h.lane, "log", "dropping snapshots: "+err.Error())
		}
	case broker.MeasureLogs:
		q.tell(h.measure(e.Token))
	case broker.LookupTime:
		q.lookup(h, &e)
	case broker.ReadLog:
		q.read(h, &e)
	default:
		if q.log != nil {
			q.change(h, e)
		}
	}
}

func (q *logQueue) tell(in broker.Input) { q.results = append(q.results, in) }

// save ends a save: without room it is tried again until there is, for the core waits for it (rule 11).
func (q *logQueue) save(e broker.Effect, err error, saved broker.Input) {
	switch {
	case err == nil:
		q.tell(saved)
	case errors.Is(err, disk.ErrNoSpace):
		q.queue = append([]broker.Effect{e}, q.queue...)
		q.pause = retryPause
	default:
		q.tell(broker.DiskFailed{Err: err})
	}
}

// failed reports that something on a log went wrong which has no answer of its own. Without room it is tried
// again until there is, for what comes after it depends on it (rules 2 and 16); else the log is set aside.
func (q *logQueue) failed(h *host, e broker.Effect, err error) {
	h.w.event(h.lane, "log", q.id.String()+": "+err.Error())
	switch {
	case errors.Is(err, segment.ErrDiskFailed):
		q.tell(broker.DiskFailed{Err: err})
	case errors.Is(err, disk.ErrNoSpace):
		q.queue = append([]broker.Effect{e}, q.queue...)
		q.pause = retryPause
	case errors.Is(err, segment.ErrClosed):
	default:
		h.w.oracle.setAside(h, q.id)
		q.tell(broker.LogFailed{Log: q.id, Err: err})
	}
}

// damage tells the core of a log that cannot be read where it should be.
func (q *logQueue) damage(h *host, err error) {
	if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, disk.ErrIO) {
		h.w.oracle.setAside(h, q.id)
		q.tell(broker.LogFailed{Log: q.id, Err: err})
	}
}

func (q *logQueue) open(h *host, e *broker.OpenLog) broker.Input {
	q.configure(e.Config.FlushMessages, e.Config.FlushMillis)
	l, state, err := h.store.OpenLog(e.Log, e.Topic, e.Config)
	q.log = l
	q.dropping = false
	h.w.oracle.opened(h, q, e.Topic, &state, err)
	return broker.LogOpened{Log: e.Log, State: state, Err: err, Later: errors.Is(err, disk.ErrNoSpace)}
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
	if q.dropping {
		return
	}
	if q.log == nil {
		q.dropping, q.droppingTo = true, 0
		q.tell(broker.AppendFailed{Log: q.id, Err: segment.ErrNoLog})
		return
	}
	h.w.oracle.appending(h, q, q.batches)
	rolled, err := q.log.Append(q.batches)
	if err != nil {
		_, end := q.log.Bounds()
		q.dropping, q.droppingTo = true, end
		h.w.oracle.appendFailed(h, q, end)
		q.tell(broker.AppendFailed{Log: q.id, End: end, Err: err})
		return
	}
	end := q.batches[len(q.batches)-1].NextOffset()
	h.w.oracle.appended(h, q, end)
	q.tell(broker.Written{Log: q.id, End: end, Rolled: rolled})
	q.flush(h, sync || rolled)
}

// flush asks for a sync now, by flush.messages, or by flush.ms.
func (q *logQueue) flush(h *host, sync bool) {
	for _, b := range q.batches {
		q.unsynced += int64(b.Count())
	}
	switch {
	case sync || q.flushCount > 0 && q.unsynced >= q.flushCount:
		h.wantSync(q)
	case q.flushAfter > 0 && q.flushAfter < config.Forever && q.flushing == nil:
		q.flushing = h.later(int64(q.flushAfter), evFlush)
		q.flushing.more = q
	}
}

// delete deletes the log. Its queue goes with it: a log of that id does not come again.
func (q *logQueue) delete(h *host) {
	q.log = nil
	h.w.oracle.deleting(h, q)
	if err := h.store.DeleteLogs(q.id); err != nil {
		h.w.event(h.lane, "log", "deleting a log: "+err.Error())
		if errors.Is(err, segment.ErrDiskFailed) {
			q.tell(broker.DiskFailed{Err: err})
		}
	}
	h.w.oracle.deleted(h, q)
	q.tell(broker.LogDeleted{Log: q.id})
}

// change carries out an effect that changes an open log.
func (q *logQueue) change(h *host, e broker.Effect) {
	switch e := e.(type) {
	case broker.ConfigureLog:
		q.configure(e.Config.FlushMessages, e.Config.FlushMillis)
		q.log.Configure(e.Config)
	case broker.SyncLog:
		h.wantSync(q)
	case broker.Truncate:
		q.truncate(h, e)
	case broker.ResetLog:
		q.reset(h, e)
	case broker.SetStart:
		h.w.oracle.movingStart(h, q, e.Start)
		if start, err := q.log.SetStart(e.Start, e.Producers); err != nil {
			q.failed(h, e, err)
		} else {
			h.w.oracle.startMoved(h, q, start)
			q.tell(broker.StartMoved{Log: q.id, Start: start})
		}
	case broker.Retain:
		before, _ := q.log.Bounds()
		if start, err := q.log.Retain(e.Limit, e.Wall); errors.Is(err, disk.ErrNoSpace) {
			h.w.event(h.lane, "log", "retention: "+err.Error()) // it comes again anyway
		} else if err != nil {
			q.failed(h, e, err)
		} else if start != before {
			h.w.oracle.startMoved(h, q, start)
			q.tell(broker.StartMoved{Log: q.id, Start: start})
		}
	case broker.Compact:
		q.compact(h, e)
	case broker.SaveEpochs:
		if err := q.log.SaveEpochs(e.Epochs); err != nil {
			q.failed(h, e, err)
		}
	case broker.SaveProducers:
		if err := q.log.SaveProducers(e.Offset, e.Snapshot); err != nil { // what is missing is replayed
			h.w.event(h.lane, "log", "saving producers: "+err.Error())
		}
	}
}

func (q *logQueue) truncate(h *host, e broker.Truncate) {
	h.w.oracle.truncating(h, q, e.To)
	end, err := q.log.Truncate(e.To)
	if err != nil {
		q.failed(h, e, err)
		return
	}
	if e.To <= q.droppingTo {
		q.dropping = false
	}
	h.w.oracle.truncated(h, q, end)
	q.tell(broker.Truncated{Log: q.id, End: end})
}

// reset empties a log, which begins and ends at e.Start then.
func (q *logQueue) reset(h *host, e broker.ResetLog) {
	h.w.oracle.restarting(h, q, e.Start)
	if err := q.log.Reset(e.Start); err != nil {
		q.failed(h, e, err)
		return
	}
	q.dropping = false
	h.w.oracle.reset(h, q, e.Start)
	q.tell(broker.Truncated{Log: q.id, End: e.Start})
}

func (q *logQueue) lookup(h *host, e *broker.LookupTime) {
	if q.log == nil {
		q.tell(broker.TimeFound{Token: e.Token, Offset: -1, Timestamp: -1, LeaderEpoch: -1, Err: segment.ErrNoLog})
		return
	}
	r, err := q.log.LookupTime(e.Timestamp, e.Limit)
	q.damage(h, err)
	q.tell(broker.TimeFound{Token: e.Token, Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: r.LeaderEpoch, Err: err})
}

func (q *logQueue) read(h *host, e *broker.ReadLog) {
	if q.log == nil {
		q.tell(broker.LogRead{Token: e.Token, Err: segment.ErrNoLog})
		return
	}
	batches, err := q.log.ReadBatches(e.From, e.Limit, e.MaxBytes)
	q.damage(h, err)
	q.tell(broker.LogRead{Token: e.Token, Batches: batches, Err: err})
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
	if !h.do(h.jobs.begin) {
		return
	}
	s.running = true
	h.later(h.cost()+h.chance.Skewed(microsecond, 100*microsecond), evSyncRun)
}

// runSync is the moment at which the disk really syncs.
func (h *host) runSync() {
	if !h.do(h.jobs.run) {
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
	if !h.do(h.jobs.finish) {
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

// syncFailed tells the broker of a failed sync (rule 13); what only found no room is tried again.
func (h *host) syncFailed(err error) {
	if errors.Is(err, segment.ErrDiskFailed) {
		h.step(broker.DiskFailed{Err: err})
		return
	}
	h.w.event(h.lane, "log", "sync: "+err.Error())
	h.sync.running = true
	h.later(retryPause, evSyncAgain)
}

// syncAgain begins another round for the logs of one that found no room.
func (h *host) syncAgain() {
	h.sync.running = false
	for _, l := range h.sync.logs {
		if q := h.logs[l.Partition()]; q != nil && q.log == l {
			h.wantSync(q)
		}
	}
	h.beginSync()
}

// housekeeping is how often recovery points are noted.
const housekeeping = second

func (h *host) keepHouse() {
	var err error
	if !h.do(func() { err = h.store.Checkpoint(nil) }) {
		return
	}
	h.later(h.cost()+housekeeping, evHouse)
	if errors.Is(err, segment.ErrDiskFailed) {
		h.step(broker.DiskFailed{Err: err})
	}
}
