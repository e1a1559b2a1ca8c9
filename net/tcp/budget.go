package tcp

import (
	"errors"
	"sync"
)

var errClosing = errors.New("closing")

// Budget bounds the memory that requests in flight take, over all connections
// that share it. Room is given in the order in which it was asked for, so a
// large request is not passed by small ones for ever. A request takes all its
// room before its body is read and needs no more to be finished, so waiting for
// room can not deadlock.
type Budget struct {
	mu    sync.Mutex
	limit int64
	used  int64
	queue []*waiter // of those that wait, oldest first
}

type waiter struct {
	n     int64
	ready chan struct{}
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns the bytes that are taken. It may exceed the limit by what small
// requests took without waiting.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Waiting returns how many requests wait for room.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// take takes n bytes, waiting for them unless it is forced. A request larger
// than the budget gets it when it is empty. It gives up when done is closed.
func (b *Budget) take(n int64, force bool, done <-chan struct{}) error {
	b.mu.Lock()
	if force || len(b.queue) == 0 && b.fits(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-done:
		b.leave(w)
		return errClosing
	}
}

func (b *Budget) fits(n int64) bool { return b.used == 0 || b.used+n <= b.limit }

// leave takes w out of the line, and gives back what it has got meanwhile.
func (b *Budget) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queue {
		if b.queue[i] == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.admit()
			return
		}
	}
	b.used -= w.n
	b.admit()
}

// give gives n bytes back.
func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.admit()
}

func (b *Budget) admit() {
	for len(b.queue) > 0 && b.fits(b.queue[0].n) {
		b.used += b.queue[0].n
		close(b.queue[0].ready)
		b.queue[0] = nil
		b.queue = b.queue[1:]
	}
}
