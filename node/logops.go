package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/disk/segment"
	"lockstep/disk/snapshot"
)

// executor carries out the effects on the disk and puts their results into the inbox.
type executor struct {
	store     *segment.Store
	fs        disk.FS
	in        *inbox
	storage   *storage
	syncer    *syncer
	deleter   *deleter
	compactor *compactor
	snapshots *snapshot.Store
	log       *slog.Logger
	unread    *complaints
	metrics   *metrics
	device    func() (total int64, err error) // size of the device
	quit      <-chan struct{}                 // closed when the node stops
}

// run carries out jobs of one queue, in order.
func (x *executor) run(q *queue, jobs []job) (passedOn bool) {
	for len(jobs) > 0 {
		if _, ok := jobs[0].effect.(broker.Append); ok {
			n := appendRun(jobs)
			x.append(q, jobs[:n])
			jobs = jobs[n:]
			continue
		}
		if _, ok := jobs[0].effect.(broker.DeleteLog); ok {
			x.deleter.add(q)
			return true
		}
		x.one(q, jobs[0].effect)
		jobs = jobs[1:]
	}
	return false
}

// one carries out an effect that is not an Append.
func (x *executor) one(q *queue, e broker.Effect) {
	switch e := e.(type) {
	case broker.SaveState:
		x.saveState(e)
	case broker.SaveSnapshot:
		x.saveSnapshot(e)
	case broker.DropSnapshots:
		x.dropSnapshots(e)
	case broker.MeasureLogs:
		x.measure(e)
	case broker.OpenLog:
		x.openLog(q, e)
	default:
		l := x.store.Log(q.id)
		if l == nil {
			x.noLog(e)
			return
		}
		x.onLog(q, l, e)
	}
}

// onLog carries out an effect on an open log.
func (x *executor) onLog(q *queue, l *segment.Log, e broker.Effect) {
	switch e := e.(type) {
	case broker.ConfigureLog:
		l.Configure(e.Config)
		q.flush.configure(e.Config)
	case broker.SyncLog:
		x.syncer.want(l)
	case broker.Truncate:
		x.truncate(q, l, e)
	case broker.ResetLog:
		x.reset(q, l, e)
	case broker.SetStart:
		x.setStart(l, e)
	case broker.Retain:
		x.retain(l, e)
	case broker.Compact:
		x.compactor.add(l, e)
	case broker.SaveEpochs:
		err := x.untilThereIsRoom(fast, "saving a leader-epoch history", func() error { return l.SaveEpochs(e.Epochs) })
		if err != nil {
			x.failed(e.Log, "saving the leader-epoch history", err)
		}
	case broker.SaveProducers:
		if err := l.SaveProducers(e.Offset, e.Snapshot); err != nil {
			// It only saves the next start some reading.
			x.log.Warn("saving producer state failed", "log", e.Log.String(), "err", err)
		}
	case broker.LookupTime:
		r, err := l.LookupTime(e.Timestamp, e.Limit)
		x.reportDamage(e.Log, err)
		x.in.put(broker.TimeFound{Token: e.Token, Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: r.LeaderEpoch, Err: err})
	case broker.ReadLog:
		b, err := l.ReadBatches(e.From, e.Limit, e.MaxBytes)
		x.reportDamage(e.Log, err)
		x.in.put(broker.LogRead{Token: e.Token, Batches: b, Err: err})
	default:
		panic(fmt.Sprintf("node: unknown effect %T", e))
	}
}

func (x *executor) reportDamage(id core.Partition, err error) {
	reportDamage(x.in, x.unread, x.log, id, err)
}

// noLog answers an effect on a log that is not open, where it has an answer.
func (x *executor) noLog(e broker.Effect) {
	switch e := e.(type) {
	case broker.LookupTime:
		x.in.put(broker.TimeFound{Token: e.Token, Offset: -1, Timestamp: -1, LeaderEpoch: -1, Err: segment.ErrNoLog})
	case broker.ReadLog:
		x.in.put(broker.LogRead{Token: e.Token, Err: segment.ErrNoLog})
	case broker.Compact:
		x.in.put(broker.Compacted{Log: e.Log})
	default:
		x.log.Warn("effect on a log that is not open", "log", broker.LogOf(e).String(), "effect", fmt.Sprintf("%T", e))
	}
}

func (x *executor) openLog(q *queue, e broker.OpenLog) {
	began := time.Now()
	_, state, err := x.store.OpenLog(e.Log, e.Topic, e.Config)
	q.flush.configure(e.Config)
	q.dropping = false
	x.metrics.opened(time.Since(began))
	x.in.put(broker.LogOpened{Log: e.Log, State: state, Err: err, Later: errors.Is(err, disk.ErrNoSpace)})
}

// maxAppendBytes bounds what is written in one call, so that the core hears of it in time.
const maxAppendBytes = 8 << 20

// appendRun returns how many of the jobs at the start are appends that are written together.
func appendRun(jobs []job) int {
	bytes := 0
	for i := range jobs {
		a, ok := jobs[i].effect.(broker.Append)
		if !ok {
			return i
		}
		for _, b := range a.Batches {
			bytes += b.Size()
		}
		if bytes > maxAppendBytes && i > 0 {
			return i
		}
	}
	return len(jobs)
}

// append writes the batches of several appends in one call, straight from where they lie.
func (x *executor) append(q *queue, jobs []job) {
	defer func() {
		for i := range jobs {
			jobs[i].done()
		}
	}()
	if q.dropping {
		return
	}
	batches, sync := gather(jobs)
	l := x.store.Log(q.id)
	if l == nil {
		q.dropping, q.droppingTo = true, 0
		x.in.put(broker.AppendFailed{Log: q.id, Err: segment.ErrNoLog})
		return
	}
	rolled, err := l.Append(batches)
	if err != nil {
		_, end := l.Bounds()
		q.dropping, q.droppingTo = true, end
		x.in.put(broker.AppendFailed{Log: q.id, End: end, Err: err})
		return
	}
	mark("appended")
	end := batches[len(batches)-1].NextOffset()
	x.in.put(broker.Written{Log: q.id, End: end, Rolled: rolled})
	if q.flush.appended(batches, sync || rolled) {
		x.syncer.want(l)
	} else {
		q.flush.later(x.syncer, l)
	}
}

// gather joins the batches of appends, and says whether one of them wants to be synced at once.
func gather(jobs []job) (batches []record.Batch, sync bool) {
	if len(jobs) == 1 {
		a := jobs[0].effect.(broker.Append)
		return a.Batches, a.Sync
	}
	for i := range jobs {
		a := jobs[i].effect.(broker.Append)
		batches = append(batches, a.Batches...)
		sync = sync || a.Sync
	}
	return batches, sync
}

func (x *executor) truncate(q *queue, l *segment.Log, e broker.Truncate) {
	var end int64
	err := x.untilThereIsRoom(slow, "truncating a log", func() (err error) {
		end, err = l.Truncate(e.To)
		return err
	})
	if err != nil {
		x.failed(e.Log, "truncating", err)
		return
	}
	if e.To <= q.droppingTo {
		q.dropping = false
	}
	x.in.put(broker.Truncated{Log: e.Log, End: end})
}

// reset empties a log, which begins and ends at e.Start then.
func (x *executor) reset(q *queue, l *segment.Log, e broker.ResetLog) {
	err := x.untilThereIsRoom(slow, "emptying a log", func() error { return l.Reset(e.Start) })
	if err != nil {
		x.failed(e.Log, "emptying", err)
		return
	}
	q.dropping = false
	x.in.put(broker.Truncated{Log: e.Log, End: e.Start})
}

func (x *executor) setStart(l *segment.Log, e broker.SetStart) {
	var start int64
	err := x.untilThereIsRoom(slow, "moving the first offset", func() (err error) {
		start, err = l.SetStart(e.Start, e.Producers)
		return err
	})
	if err != nil {
		x.failed(e.Log, "moving the first offset", err)
		start, _ = l.Bounds()
	}
	x.in.put(broker.StartMoved{Log: e.Log, Start: start})
}

func (x *executor) retain(l *segment.Log, e broker.Retain) {
	before, _ := l.Bounds()
	start, err := l.Retain(e.Limit, e.Wall)
	if err != nil {
		x.failed(e.Log, "deleting old segments", err)
		return
	}
	if start != before {
		x.in.put(broker.StartMoved{Log: e.Log, Start: start})
	}
}

// failed reports that something on a log went wrong which has no answer of its
// own. Without room it may go better later; else the log is set aside.
func (x *executor) failed(id core.Partition, doing string, err error) {
	x.log.Error(doing+" failed", "log", id.String(), "err", err)
	switch {
	case errors.Is(err, segment.ErrDiskFailed):
		x.in.put(broker.DiskFailed{Err: err})
	case errors.Is(err, disk.ErrNoSpace), errors.Is(err, segment.ErrClosed):
	default:
		x.in.put(broker.LogFailed{Log: id, Err: fmt.Errorf("%s: %w", doing, err)})
	}
}
