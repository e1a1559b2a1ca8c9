package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"lockstep/net"
)

const (
	// firstStep is how much of a frame a new connection is given memory for before
	// it arrives. A connection that delivers its frames is trusted with twice the largest.
	firstStep = 64 << 10
	// stepFactor is how many times what has arrived memory may be given for.
	stepFactor = 16
	// progressParts is into how many parts a large frame is divided, each of which must arrive within StallTimeout: it
	// holds memory that others wait for, so it may not come arbitrarily slowly.
	progressParts = 8
	// smallFrame is the size up to which a connection that has nothing else in
	// flight gets memory without waiting, so that heavy producers do not keep
	// others from asking for metadata. It is below what would matter in sum.
	smallFrame = 16 << 10
	// minRate is how many bytes a second must have arrived of a frame that others wait for, from roomPatience after it got
	// its room on. Else a few that trickle in, each in time, keep all others waiting for long.
	minRate      = 1 << 20
	roomPatience = 2 * time.Second

	prefixSize = 4
)

// read reads frames until the connection ends.
func (c *conn) read() {
	var err error
	for err == nil && c.waitRoom(c.srv.cfg.MaxOutstanding) {
		err = c.readFrame()
	}
	if err == nil {
		// Draining: what is outstanding is still answered, and closes the connection.
		c.mu.Lock()
		for !c.closed {
			c.room.Wait()
		}
		c.mu.Unlock()
	}
	c.end(err)
}

// readFrame reads one frame and gives it to the handler.
func (c *conn) readFrame() error {
	size, err := c.readHead()
	if err != nil {
		return err
	}
	if err := fail("frame"); err != nil {
		return err
	}
	head := c.in[c.inR+prefixSize : c.inR+prefixSize+net.HeadSize]
	adm, err := c.handler.Admit(head, size)
	if err != nil {
		return err
	}
	f, err := c.readBody(size, adm)
	if err != nil {
		return err
	}
	c.trust = max(c.trust, min(2*size, c.srv.cfg.MaxFrameBytes))
	seq := c.reserve()
	if err := c.handler.Frame(seq, f); err != nil {
		return err
	}
	if !adm.Pipelined {
		c.waitRoom(1)
	}
	return nil
}

// readHead waits for a frame to begin and returns its size, when its first HeadSize bytes are in c.in.
func (c *conn) readHead() (size int, err error) {
	if err := c.need(prefixSize); err != nil {
		return 0, err
	}
	n := int32(binary.BigEndian.Uint32(c.in[c.inR:]))
	if n < net.HeadSize || int(n) > c.srv.cfg.MaxFrameBytes {
		return 0, fmt.Errorf("%w: %d bytes are announced, %d to %d are allowed", ErrFrameSize, n, net.HeadSize, c.srv.cfg.MaxFrameBytes)
	}
	return int(n), c.need(prefixSize + net.HeadSize)
}

// need reads until n bytes are in c.in.
func (c *conn) need(n int) error {
	if c.inW-c.inR >= n {
		return nil
	}
	copy(c.in[:], c.in[c.inR:c.inW])
	c.inW, c.inR = c.inW-c.inR, 0
	c.wait(c.inW > 0)
	for c.inW < n {
		got, err := c.recv(c.in[c.inW:], nil)
		if c.inW == 0 && got > 0 {
			c.wait(true)
		}
		c.inW += got
		if err != nil {
			return cut(err, c.inW > 0)
		}
	}
	return nil
}

// cut makes the end of the stream inside a frame an error.
func cut(err error, inside bool) error {
	if errors.Is(err, io.EOF) && inside {
		return io.ErrUnexpectedEOF
	}
	if errors.Is(err, syscall.ECONNRESET) && !inside {
		return io.EOF // as good a way to leave as any
	}
	return err
}

// readBody reads a frame of size bytes, whose head is in c.in. Its memory is given as
// it arrives: a length that is only claimed costs firstStep at most.
func (c *conn) readBody(size int, adm net.Admission) (*frame, error) {
	step := min(size, c.trust)
	f := newFrame(step, adm.Reuse)
	if step == size {
		if err := c.pay(f, size, adm.Cost); err != nil {
			f.Release()
			return nil, err
		}
	}
	c.inR += prefixSize
	have := 0
	for {
		n := copy(f.buf[have:], c.in[c.inR:c.inW])
		c.inR, have = c.inR+n, have+n
		if err := c.fill(f.buf, have, size); err != nil {
			f.Release()
			return nil, err
		}
		have = len(f.buf)
		if have == size {
			c.partial.Store(false)
			c.readAt.Store(0)
			c.roomAt.Store(0)
			return f, nil
		}
		if f.budget == nil {
			if err := c.pay(f, size, adm.Cost); err != nil {
				f.Release()
				return nil, err
			}
		}
		f = f.grow(have, min(size, have*stepFactor))
	}
}

// pay takes the cost of a frame from the budget, waiting for it while other
// requests have it. The wait is ours, not the sender's: it does not count as a stall.
func (c *conn) pay(f *frame, size int, cost int64) error {
	b := c.srv.cfg.Budget
	if b == nil {
		return nil
	}
	c.readAt.Store(0)
	force := size <= smallFrame && c.outstanding() == 0
	if err := b.take(cost, force, c.done); err != nil {
		return err
	}
	f.charge(b, cost)
	c.cost.Store(cost)
	c.came.Store(0)
	c.roomAt.Store(c.srv.now.Load())
	return nil
}

// fill reads until buf, of which have bytes are there, is full. It is of a frame of size bytes. What arrives beyond
// goes to c.in.
func (c *conn) fill(buf []byte, have, size int) error {
	mark, stretch := have, max(firstStep, size/progressParts)
	c.wait(true)
	for have < len(buf) {
		n, err := c.recv(buf[have:], c.in[:])
		if over := have + n - len(buf); over > 0 {
			c.inR, c.inW = 0, over
			n -= over
		}
		have += n
		c.came.Add(int64(n))
		if err != nil {
			return cut(err, true)
		}
		// Only a good stretch counts as progress, so that a byte now and then does not.
		if have-mark >= stretch {
			mark = have
			c.wait(true)
		}
	}
	return nil
}

// wait tells the janitor that from now on bytes are waited for, within a frame or between two.
func (c *conn) wait(partial bool) {
	c.partial.Store(partial)
	c.readAt.Store(c.srv.now.Load())
}
