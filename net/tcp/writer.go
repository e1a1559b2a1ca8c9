package tcp

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"

	"lockstep/net"
)

const (
	// coalesce is how many bytes of answers are gathered before they are sent.
	coalesce = 64 << 10
	// gather is the size up to which a stretch of a file is copied among other bytes
	// that are sent: a copy costs less than two more calls of the system.
	gather = 32 << 10
	// direct is the size from which bytes are sent from where they are and not gathered.
	direct = 8 << 10
	// keepScratch bounds what a pooled writer keeps.
	keepScratch = 128 << 10
	// batchAnswers is how many answers are taken at a time.
	batchAnswers = 16
	copyChunk    = 256 << 10
)

// writer sends the answers of one connection at a time, while there are some: an
// idle connection has none.
type writer struct {
	c       *conn
	pending []byte // not sent yet
	scratch []byte
	op      writeOp
	sent    int // since progress was last noted
}

// idleWriters bounds the writing goroutines that wait for a connection with
// something to write. Those that wait keep their stacks and buffers.
const idleWriters = 16

var (
	idle       atomic.Int32
	nextWriter = make(chan *conn)
)

// startWriting finds a goroutine to write what is ready. There is at most one a connection.
func startWriting(c *conn) {
	select {
	case nextWriter <- c:
	default:
		go runWriter(c)
	}
}

// runWriter writes for one connection after another.
func runWriter(c *conn) {
	w := &writer{}
	w.op.init()
	for {
		w.c = c
		c.write(w)
		w.c, w.pending = nil, w.pending[:0]
		if cap(w.scratch) > keepScratch {
			w.scratch = nil
		}
		if idle.Add(1) > idleWriters {
			idle.Add(-1)
			return
		}
		c = <-nextWriter
		idle.Add(-1)
	}
}

// write sends answers until none is ready.
func (c *conn) write(w *writer) {
	var batch [batchAnswers]slot
	for {
		n := c.takeReady(batch[:])
		if n == 0 {
			return
		}
		c.writeAt.Store(c.srv.now.Load())
		last, err := w.writeBatch(batch[:n])
		c.writeAt.Store(0)
		for i := range batch[:n] {
			if a := batch[i].answer; a != nil {
				a.Done()
			}
			batch[i] = slot{}
		}
		c.wrote(n)
		if err != nil {
			c.Close(err)
		} else if last {
			c.linger()
		}
	}
}

// takeReady copies the answers that may be sent now. None means that this
// goroutine is over: Answer starts the next.
func (c *conn) takeReady(batch []slot) int {
	c.mu.Lock()
	n := 0
	for !c.closed && !c.lingering && n < len(batch) && c.head+uint64(n) < c.next {
		s := *c.slot(c.head + uint64(n))
		if !s.ready {
			break
		}
		batch[n] = s
		n++
	}
	if n > 0 {
		c.mu.Unlock()
		return n
	}
	c.writing = false
	var left []net.Answer
	if c.closed {
		left = c.takeAnswers()
	}
	finished := c.draining && !c.closed && !c.lingering && (c.head == c.next || c.final)
	c.mu.Unlock()
	for _, a := range left {
		a.Done()
	}
	if finished {
		c.Close(ErrShutdown)
	}
	return 0
}

// wrote frees the slots of n answers that are out.
func (c *conn) wrote(n int) {
	c.mu.Lock()
	for range n {
		*c.slot(c.head) = slot{}
		c.head++
	}
	c.room.Broadcast()
	c.mu.Unlock()
}

// writeBatch sends answers. last says that the connection ends after them.
func (w *writer) writeBatch(batch []slot) (last bool, err error) {
	if err := fail("write"); err != nil {
		return false, err
	}
	for _, s := range batch {
		if s.answer != nil {
			if err := s.answer.Write(w); err != nil {
				return false, err
			}
		}
		if s.last {
			last = true
			break
		}
	}
	return last, w.flush(false)
}

// linger ends the connection after a last answer: the other side sees the end
// of the stream, and some time later, should it stay, the janitor closes it.
// Closing at once would let unread requests turn into a reset that may overtake the answer.
func (c *conn) linger() {
	c.mu.Lock()
	c.draining, c.lingering = true, true
	c.room.Broadcast()
	c.mu.Unlock()
	c.writeAt.Store(c.srv.now.Load())
	if err := c.sock.CloseWrite(); err != nil {
		c.Close(err)
	}
}

// Scratch implements net.Writer.
func (w *writer) Scratch() *[]byte {
	w.scratch = w.scratch[:0]
	return &w.scratch
}

// Write implements net.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if len(p) < direct && len(w.pending)+len(p) <= coalesce {
		w.pending = append(w.pending, p...)
		return len(p), nil
	}
	if err := w.flush(true); err != nil {
		return 0, err
	}
	if len(p) < direct {
		w.pending = append(w.pending, p...)
		return len(p), nil
	}
	return len(p), w.sendBytes(p, false)
}

// SendFile implements net.Writer.
func (w *writer) SendFile(f net.File, off, n int64) error {
	if n == 0 {
		return nil
	}
	if n <= gather {
		return w.gatherFile(f, off, int(n))
	}
	if err := w.flush(true); err != nil {
		return err
	}
	return w.sendFile(f, off, n)
}

// gatherFile puts a short stretch of a file among the bytes that are pending.
func (w *writer) gatherFile(f net.File, off int64, n int) error {
	if len(w.pending)+n > coalesce {
		if err := w.flush(true); err != nil {
			return err
		}
	}
	at := len(w.pending)
	w.pending = slices.Grow(w.pending, n)[:at+n]
	for at < len(w.pending) {
		got, err := f.ReadAt(w.pending[at:], off)
		if got == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		at, off = at+got, off+int64(got)
	}
	return nil
}

// copyFile sends bytes of a file that has no descriptor, through memory.
func (w *writer) copyFile(f net.File, off, n int64) error {
	buf := make([]byte, min(n, copyChunk))
	for n > 0 {
		got, err := f.ReadAt(buf[:min(n, copyChunk)], off)
		if got == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if err := w.sendBytes(buf[:got], false); err != nil {
			return err
		}
		off, n = off+int64(got), n-int64(got)
	}
	return nil
}

// flush sends what is pending.
func (w *writer) flush(more bool) error {
	if len(w.pending) == 0 {
		return nil
	}
	err := w.sendBytes(w.pending, more)
	w.pending = w.pending[:0]
	return err
}

// progress notes that n bytes were taken.
func (w *writer) progress(n int) {
	if w.sent += n; w.sent >= coalesce {
		w.sent = 0
		w.c.writeAt.Store(w.c.srv.now.Load())
	}
}
