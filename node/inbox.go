package node

import (
	"sync"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
)

// event is an input for the core, with what the host needs to remember of a request.
type event struct {
	in  broker.Input
	req *request // of a broker.Request
}

// inbox is the queue of inputs to the core. Results of effects always fit, for
// they are as many as the effects; requests wait while it is full, which stops
// the reading of their connections.
type inbox struct {
	mu     sync.Mutex
	events []event
	asleep bool // the taker waits for wake
	wake   chan struct{}
	room   sync.Cond
	limit  int       // of events, for requests
	queued int       // requests that wait for room
	since  time.Time // when what is queued began to be
	closed bool
}

func newInbox(limit int) *inbox {
	b := &inbox{wake: make(chan struct{}, 1), limit: limit}
	b.room.L = &b.mu
	return b
}

// put adds inputs. It never waits.
func (b *inbox) put(inputs ...broker.Input) {
	b.mu.Lock()
	b.begin()
	for _, in := range inputs {
		b.events = append(b.events, event{in: in})
	}
	b.ring()
	b.mu.Unlock()
}

// putRequest adds a request, waiting while the inbox is full. It reports false if the core takes no more.
func (b *inbox) putRequest(e event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.events) >= b.limit && !b.closed {
		b.queued++
		b.room.Wait()
		b.queued--
	}
	if b.closed {
		return false
	}
	b.begin()
	b.events = append(b.events, e)
	b.ring()
	return true
}

// begin notes since when there is something in the queue.
func (b *inbox) begin() {
	if len(b.events) == 0 {
		b.since = time.Now()
	}
}

func (b *inbox) ring() {
	if b.asleep {
		b.asleep = false
		b.wake <- struct{}{} // there is room: asleep says that it was not rung yet
	}
}

// take swaps the queue for an empty slice. If there is nothing, it returns nil,
// and wake will ring once there is.
func (b *inbox) take(empty []event) []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == 0 {
		b.asleep = true
		return nil
	}
	taken := b.events
	b.events = empty[:0]
	if b.queued > 0 {
		b.room.Broadcast()
	}
	return taken
}

// awake says that the taker goes on without having been rung.
func (b *inbox) awake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asleep {
		b.asleep = false
		return
	}
	<-b.wake // it was rung meanwhile
}

// close refuses requests from now on.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}

// stuck returns for how long there has been something that was not taken.
func (b *inbox) stuck() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == 0 {
		return 0
	}
	return time.Since(b.since)
}

func (b *inbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events)
}

// Core is the machine that is stepped: a *broker.Broker, or a test's own.
type Core interface {
	Step(now core.Time, in broker.Input, out *broker.Effects)
	Deadline() core.Time
}
