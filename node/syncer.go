package node

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/config"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk/segment"
)

// syncer commits in groups: while one round of syncs runs, appends go on, and
// all that they wrote is covered by the next round. One goroutine runs the rounds.
type syncer struct {
	store   *segment.Store
	in      *inbox
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	wanted map[*segment.Log]bool
	wake   chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup
}

func newSyncer(store *segment.Store, in *inbox, lg *slog.Logger, m *metrics) *syncer {
	s := &syncer{store: store, in: in, log: lg, metrics: m, wanted: map[*segment.Log]bool{},
		wake: make(chan struct{}, 1), quit: make(chan struct{})}
	s.done.Go(s.run)
	return s
}

// want asks for a round that covers what is appended to a log so far.
func (s *syncer) want(logs ...*segment.Log) {
	s.mu.Lock()
	for _, l := range logs {
		s.wanted[l] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // a wake is pending
	}
}

// take empties the set of wanted logs into list[:0].
func (s *syncer) take(list []*segment.Log) []*segment.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	list = list[:0]
	for l := range s.wanted {
		list = append(list, l)
	}
	clear(s.wanted)
	return list
}

// stop ends the rounds after the one that runs.
func (s *syncer) stop() {
	close(s.quit)
	s.done.Wait()
}

// retryPause is how long a round waits after one that found no room.
const retryPause = 200 * time.Millisecond

func (s *syncer) run() {
	var wanted []*segment.Log
	for {
		select {
		case <-s.quit:
			return
		case <-s.wake:
		}
		wanted = s.take(wanted)
		if len(wanted) == 0 {
			continue
		}
		err := s.round(wanted)
		switch {
		case err == nil:
		case errors.Is(err, segment.ErrDiskFailed):
			// Rule 13: no sync is tried again. The core gives up what it has here.
			s.in.put(broker.DiskFailed{Err: err})
			return
		case errors.Is(err, segment.ErrClosed):
			return
		default:
			s.log.Error("syncing found no room; trying again", "err", err)
			select {
			case <-s.quit:
				return
			case <-time.After(retryPause):
			}
			s.want(wanted...)
		}
		clear(wanted)
	}
}

// round syncs what the logs have and tells the core.
func (s *syncer) round(wanted []*segment.Log) error {
	r := s.store.BeginSync(wanted...)
	began := time.Now()
	if err := r.Run(); err != nil {
		return err
	}
	s.metrics.synced(time.Since(began))
	mark("synced")
	ends := r.Finish()
	inputs := make([]broker.Input, len(ends))
	for i, e := range ends {
		inputs[i] = broker.Durable{Log: e.Partition, End: e.End}
	}
	s.in.put(inputs...)
	return nil
}

// flushState decides when a log whose appends do not ask for it is synced:
// by flush.messages and flush.ms.
type flushState struct {
	messages int64         // flush.messages
	interval time.Duration // flush.ms
	unsynced int64         // messages since a sync was last asked for
	timed    atomic.Bool   // a sync is timed
}

func (f *flushState) configure(c log.Config) {
	f.messages, f.interval = c.FlushMessages, c.FlushMillis
}

// appended notes an append and says whether it is time to sync.
func (f *flushState) appended(batches []record.Batch, sync bool) bool {
	if !sync {
		for _, b := range batches {
			f.unsynced += int64(b.Count())
		}
		if f.unsynced < f.messages || f.messages <= 0 {
			return false
		}
	}
	f.unsynced = 0
	return true
}

// later makes sure that what was just appended is synced within flush.ms.
func (f *flushState) later(s *syncer, l *segment.Log) {
	if f.interval <= 0 || f.interval >= config.Forever || f.timed.Swap(true) {
		return
	}
	time.AfterFunc(f.interval, func() {
		f.timed.Store(false)
		s.want(l)
	})
}

// deleter deletes logs, many in one go where many wait.
type deleter struct {
	store   *segment.Store
	storage *storage
	in      *inbox
	log     *slog.Logger

	mu      sync.Mutex
	waiting []*queue
	running bool
}

// add takes over a queue, which is resumed when its log is deleted.
func (d *deleter) add(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, q)
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *deleter) run() {
	for {
		d.mu.Lock()
		list := d.waiting
		d.waiting = nil
		d.running = len(list) > 0
		d.mu.Unlock()
		if len(list) == 0 {
			return
		}
		d.delete(list)
	}
}

func (d *deleter) delete(list []*queue) {
	ids := make([]core.Partition, len(list))
	for i, q := range list {
		ids[i] = q.id
	}
	if err := d.store.DeleteLogs(ids...); err != nil {
		d.log.Error("deleting logs failed", "logs", len(ids), "first", ids[0].String(), "err", err)
		if errors.Is(err, segment.ErrDiskFailed) {
			d.in.put(broker.DiskFailed{Err: err})
		}
	}
	inputs := make([]broker.Input, len(ids))
	for i, id := range ids {
		inputs[i] = broker.LogDeleted{Log: id}
	}
	d.in.put(inputs...)
	for _, q := range list {
		d.storage.resume(q)
	}
}
