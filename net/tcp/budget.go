package tcp

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

var errClosing = errors.New("closing")

// Budget bounds the memory that requests in flight take, over all connections
// that share it. Each class of sizes has a share of its own, so that large
// requests, which take long to arrive, do not keep small ones waiting, nor many
// small ones a large one. Within a class room is given in the order in which it
// was asked for. A request takes all its room before its body is read and needs
// no more to be finished, so waiting for room can not deadlock.
type Budget struct {
	mu     sync.Mutex
	shares [len(shareClasses)]share
}

// share is what one class has.
type share struct {
	limit, used int64
	queue       []*waiter // of those that wait, oldest first
	waiting     atomic.Int32
}

// shareClasses are the sizes up to which requests belong to a class, and the eighths of the budget that it has.
var shareClasses = [...]struct {
	upTo    int64
	eighths int64
}{{64 << 10, 1}, {2 << 20, 3}, {16 << 20, 2}, {math.MaxInt64, 2}}

type waiter struct {
	n     int64
	ready chan struct{}
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := &Budget{}
	for i := range b.shares {
		b.shares[i].limit = limit / 8 * shareClasses[i].eighths
	}
	return b
}

func (b *Budget) shareOf(n int64) *share {
	for i := range shareClasses {
		if n <= shareClasses[i].upTo {
			return &b.shares[i]
		}
	}
	panic("tcp: a request of no class")
}

// Used returns the bytes that are taken. It may exceed the limit by what small
// requests took without waiting, and by one request of each class.
func (b *Budget) Used() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.shares {
		n += b.shares[i].used
	}
	return n
}

// Waiting returns how many requests wait for room.
func (b *Budget) Waiting() (n int) {
	for i := range b.shares {
		n += int(b.shares[i].waiting.Load())
	}
	return n
}

// contended says that requests wait for room that one of n bytes takes.
func (b *Budget) contended(n int64) bool { return b.shareOf(n).waiting.Load() > 0 }

// take takes n bytes, waiting for them unless it is forced. A request larger
// than the share gets it when it is empty. It gives up when done is closed.
func (b *Budget) take(n int64, force bool, done <-chan struct{}) error {
	s := b.shareOf(n)
	b.mu.Lock()
	if force || len(s.queue) == 0 && s.fits(n) {
		s.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	s.queue = append(s.queue, w)
	s.waiting.Store(int32(len(s.queue)))
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-done:
		b.leave(s, w)
		return errClosing
	}
}

func (s *share) fits(n int64) bool { return s.used == 0 || s.used+n <= s.limit }

// leave takes w out of the line, and gives back what it has got meanwhile.
func (b *Budget) leave(s *share, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range s.queue {
		if s.queue[i] == w {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			s.admit()
			return
		}
	}
	s.used -= w.n
	s.admit()
}

// give gives n bytes back.
func (b *Budget) give(n int64) {
	s := b.shareOf(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.used -= n
	s.admit()
}

func (s *share) admit() {
	for len(s.queue) > 0 && s.fits(s.queue[0].n) {
		s.used += s.queue[0].n
		close(s.queue[0].ready)
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	s.waiting.Store(int32(len(s.queue)))
}
