package node

import (
	"sync"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/net"
)

// job is one effect on the disk that waits to be carried out.
type job struct {
	effect broker.Effect
	frame  net.Frame // of an Append: where its batches lie; nil if they are the core's own
}

// done lets go of what the job refers to.
func (j *job) done() {
	if j.frame != nil {
		j.frame.Release()
		j.frame = nil
	}
}

// class is a kind of job: those that only write pages must not wait for those
// that may read from the disk or sync it.
type class int

const (
	fast class = iota // appends
	slow              // everything else
	classes
)

// How many goroutines carry out the jobs of a class at most. An append copies
// memory, but may be held up by the system when too many pages are dirty.
var workers = [classes]int{fast: 8, slow: 16}

func (j *job) class() class {
	switch j.effect.(type) {
	case broker.Append, broker.SyncLog, broker.SaveEpochs, broker.SaveProducers, broker.ConfigureLog:
		return fast
	}
	return slow
}

// queue holds the jobs of one log, which are carried out one after another.
type queue struct {
	id   core.Partition
	jobs []job
	busy bool // a worker has it, or it waits for one
	// Of the worker that has it:
	dropping   bool  // an append failed, and appends are dropped until a truncation
	droppingTo int64 // where the log ended then
	flush      flushState
}

// storage carries out the effects on the disk: in order for one log, at once for different ones.
type storage struct {
	// run carries out jobs of one class of one queue, in order. It reports whether
	// somebody else has the queue now, who will resume it.
	run func(q *queue, jobs []job) (passedOn bool)

	mu      sync.Mutex
	idle    sync.Cond
	queues  map[core.Partition]*queue
	special [specials]*queue
	busy    int          // queues with jobs
	running [classes]int // workers there are
	idling  [classes]int // workers that wait for a queue
	next    [classes]chan *queue
	ready   [classes][]*queue // queues that wait for a worker
	quit    chan struct{}
}

// Some effects are not on a log; they have queues of their own.
const (
	stateQueue = iota
	snapshotQueue
	measureQueue
	specials
)

func newStorage(run func(*queue, []job) bool) *storage {
	s := &storage{run: run, queues: map[core.Partition]*queue{}, quit: make(chan struct{})}
	s.idle.L = &s.mu
	for c := range s.next {
		s.next[c] = make(chan *queue, workers[c])
	}
	for i := range s.special {
		s.special[i] = &queue{}
	}
	return s
}

// submit takes over jobs, in the order in which they were emitted.
func (s *storage) submit(jobs []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		q := s.queueOf(j.effect)
		q.jobs = append(q.jobs, j)
		if !q.busy {
			q.busy = true
			s.busy++
			s.schedule(q)
		}
	}
}

func (s *storage) queueOf(e broker.Effect) *queue {
	switch e := e.(type) {
	case broker.SaveState:
		return s.special[stateQueue]
	case broker.SaveSnapshot, broker.DropSnapshots:
		return s.special[snapshotQueue]
	case broker.MeasureLogs:
		return s.special[measureQueue]
	default:
		id := broker.LogOf(e)
		q := s.queues[id]
		if q == nil {
			q = &queue{id: id}
			s.queues[id] = q
		}
		return q
	}
}

// schedule finds a worker for a queue that has jobs.
func (s *storage) schedule(q *queue) {
	c := q.jobs[0].class()
	switch {
	case s.idling[c] > 0:
		s.idling[c]--
		s.next[c] <- q // there is room for as many as there are workers
	case s.running[c] < workers[c]:
		s.running[c]++
		go s.work(c, q)
	default:
		s.ready[c] = append(s.ready[c], q)
	}
}

// work carries out jobs of one class, of one queue after another. A worker that
// has nothing to do waits, and keeps its stack.
func (s *storage) work(c class, q *queue) {
	var batch []job
	for {
		batch = s.take(c, q, batch)
		if len(batch) > 0 {
			passedOn := s.run(q, batch)
			clear(batch)
			if !passedOn {
				continue
			}
		}
		var over bool
		if q, over = s.nextReady(c); q != nil {
			continue
		}
		if over {
			return
		}
		select {
		case q = <-s.next[c]:
		case <-s.quit:
			return
		}
	}
}

// nextReady returns a queue that waits for a worker. If there is none, the worker is idle now, or over if there are too many.
func (s *storage) nextReady(c class) (q *queue, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.popReady(c); q != nil {
		return q, false
	}
	if s.running[c] > workers[c] {
		s.running[c]--
		return nil, true
	}
	s.idling[c]++
	return nil, false
}

func (s *storage) popReady(c class) *queue {
	list := s.ready[c]
	if len(list) == 0 {
		return nil
	}
	q := list[0]
	list[0] = nil
	s.ready[c] = list[1:]
	return q
}

// standIn lets another worker do the jobs of a class while one waits for something that others' jobs may bring about, as
// deleting makes room; back says that it waits no more.
func (s *storage) standIn(c class) (back func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[c]--
	if q := s.popReady(c); q != nil {
		s.running[c]++
		go s.work(c, q)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[c]++
	}
}

// maxTake bounds the jobs that are taken at a time, so that the core hears of the first ones.
const maxTake = 256

// take moves the next jobs of class c from a queue to batch[:0]. If there are none, the worker has to do with the
// queue no more: it is passed on, or has nothing to do.
func (s *storage) take(c class, q *queue, batch []job) []job {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = batch[:0]
	for _, j := range q.jobs {
		if len(batch) == maxTake || j.class() != c {
			break
		}
		batch = append(batch, j)
		if _, ok := j.effect.(broker.DeleteLog); ok {
			break // what follows waits for it
		}
	}
	if len(batch) > 0 {
		n := copy(q.jobs, q.jobs[len(batch):])
		clear(q.jobs[n:])
		q.jobs = q.jobs[:n]
		return batch
	}
	if len(q.jobs) > 0 {
		s.schedule(q)
		return batch
	}
	s.release(q)
	return batch
}

// resume takes a queue back that was passed on. A log that was deleted needs no queue any more, unless it has jobs.
func (s *storage) resume(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.jobs) > 0 {
		s.schedule(q)
		return
	}
	delete(s.queues, q.id)
	s.release(q)
}

// release says that a queue has no jobs.
func (s *storage) release(q *queue) {
	q.busy = false
	if s.busy--; s.busy == 0 {
		s.idle.Broadcast()
	}
}

// wait returns when every job is carried out.
func (s *storage) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy > 0 {
		s.idle.Wait()
	}
}

// close ends the workers. There must be no jobs any more.
func (s *storage) close() { close(s.quit) }

// logs returns the logs that there were effects on, and that are not deleted since.
func (s *storage) logs() []core.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]core.Partition, 0, len(s.queues))
	for id := range s.queues {
		ids = append(ids, id)
	}
	return ids
}

// backlog returns how many logs have jobs.
func (s *storage) backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}
