package tcp

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// frame is the memory of one request.
type frame struct {
	buf    []byte
	refs   atomic.Int32
	budget *Budget // nil if not counted
	cost   int64
	class  int // of the pool it returns to, -1 if to none
}

// Frames are pooled by size, four sizes to each power of two, so that at most a
// fifth is wasted. Larger ones are rare enough to be left to the collector.
const (
	minClassBits = 12 // 4 KiB
	maxClassBits = 24 // 16 MiB
	classes      = (maxClassBits-minClassBits)*4 + 1
)

var pools [classes]sync.Pool

var poison atomic.Bool

// PoisonFrames makes released frames unreadable, so that a test notices who kept one.
func PoisonFrames(on bool) { poison.Store(on) }

// classOf returns the smallest class that holds size bytes, and its size; -1 if there is none.
func classOf(size int) (class, capacity int) {
	if size <= 1<<minClassBits {
		return 0, 1 << minClassBits
	}
	if size > 1<<maxClassBits {
		return -1, size
	}
	b := bits.Len(uint(size-1)) - 1 // 2^b < size <= 2^(b+1)
	quarter := 1 << (b - 2)
	n := (size - 1 - 1<<b) / quarter // 0..3
	return (b-minClassBits)*4 + n + 1, 1<<b + (n+1)*quarter
}

// newFrame returns a frame of size bytes with one reference.
func newFrame(size int, reuse bool) *frame {
	class, capacity := -1, size
	if reuse {
		class, capacity = classOf(size)
	}
	if class >= 0 {
		if f, ok := pools[class].Get().(*frame); ok {
			f.buf = f.buf[:size]
			f.refs.Store(1)
			return f
		}
	}
	f := &frame{buf: make([]byte, size, capacity), class: class}
	f.refs.Store(1)
	return f
}

// grow returns a frame of size bytes that begins with the first have bytes of f, in place of f.
func (f *frame) grow(have, size int) *frame {
	g := newFrame(size, f.class >= 0)
	copy(g.buf, f.buf[:have])
	g.budget, g.cost, f.budget = f.budget, f.cost, nil
	f.Release()
	return g
}

// charge makes f hold cost bytes of a budget, which it has taken.
func (f *frame) charge(b *Budget, cost int64) { f.budget, f.cost = b, cost }

// Bytes returns the frame without its length prefix.
func (f *frame) Bytes() []byte { return f.buf }

// Retain adds a reference.
func (f *frame) Retain() {
	if f.refs.Add(1) <= 1 {
		panic("tcp: a released frame is retained")
	}
}

// Release takes one reference back; the last gives the memory back.
func (f *frame) Release() {
	n := f.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic("tcp: a frame is released too often")
	}
	if b := f.budget; b != nil {
		f.budget = nil
		b.give(f.cost)
	}
	if poison.Load() && f.class >= 0 {
		for i := range f.buf {
			f.buf[i] = 0xdd
		}
	}
	if f.class >= 0 {
		pools[f.class].Put(f)
	}
}
