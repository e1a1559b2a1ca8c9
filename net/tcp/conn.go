package tcp

import (
	"errors"
	"io"
	gonet "net"
	"sync"
	"sync/atomic"
	"syscall"

	"lockstep/net"
)

// Why the server itself closes a connection; Handler.Closed gets these, wrapped.
var (
	ErrFrameSize  = errors.New("frame size out of bounds")
	ErrStalled    = errors.New("a frame stopped arriving")
	ErrSlowSender = errors.New("a frame arrives too slowly, and others wait for its memory")
	ErrSlowReader = errors.New("answers are not taken")
	ErrIdle       = errors.New("idle")
	ErrShutdown   = errors.New("the broker is stopping")
)

// conn is one connection.
type conn struct {
	id   uint64
	srv  *Server
	sock *gonet.TCPConn
	raw  syscall.RawConn
	host string

	// Of the reading goroutine alone.
	handler net.Handler
	in      [512]byte // what arrived and is not part of a frame yet: in[inR:inW]
	inR     int
	inW     int
	trust   int // a frame up to this size gets its memory before it arrives
	rd      readOp

	mu        sync.Mutex
	room      sync.Cond // signalled when answers went out, or at the end
	slots     []slot    // ring of the requests that are not answered and out
	head      uint64    // seq of the oldest of them
	next      uint64    // seq of the next frame
	writing   bool      // a goroutine is writing
	closed    bool
	draining  bool // no more frames are taken
	final     bool // no more answers will be made
	lingering bool // the last answer is out, the other side may close
	err       error

	done chan struct{} // closed with the connection

	// Watched by the janitor, in ticks of Server.now.
	readAt  atomic.Int64 // last progress of reading; 0 while it does not wait for bytes
	partial atomic.Bool  // a frame has begun to arrive
	writeAt atomic.Int64 // last progress of writing; 0 while nothing is written

	// Of a frame that has its room in the budget and is still arriving, for the janitor.
	roomAt atomic.Int64 // when it got it, as readAt; 0 while there is none
	cost   atomic.Int64 // how much
	came   atomic.Int64 // bytes that arrived since
}

// slot is a request that waits for its answer to be made or sent.
type slot struct {
	answer net.Answer
	ready  bool
	last   bool // close after this answer
}

func newConn(id uint64, s *Server, sock *gonet.TCPConn, host string) (*conn, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{id: id, srv: s, sock: sock, raw: raw, host: host, trust: firstStep, done: make(chan struct{})}
	c.room.L = &c.mu
	c.rd.init()
	return c, nil
}

// ID implements net.Conn.
func (c *conn) ID() uint64 { return c.id }

// Host implements net.Conn.
func (c *conn) Host() string { return c.host }

// Close implements net.Conn.
func (c *conn) Close(err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.err = true, err
	var left []net.Answer
	if !c.writing {
		left = c.takeAnswers()
	}
	close(c.done)
	c.room.Broadcast()
	c.mu.Unlock()
	c.sock.Close()
	for _, a := range left {
		a.Done()
	}
}

// takeAnswers empties the slots of a closed connection.
func (c *conn) takeAnswers() []net.Answer {
	var left []net.Answer
	for ; c.head < c.next; c.head++ {
		s := c.slot(c.head)
		if s.answer != nil {
			left = append(left, s.answer)
		}
		*s = slot{}
	}
	return left
}

func (c *conn) slot(seq uint64) *slot { return &c.slots[seq&uint64(len(c.slots)-1)] }

// reserve makes a slot for the next frame and returns its seq.
func (c *conn) reserve() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.next - c.head; n == uint64(len(c.slots)) {
		grown := make([]slot, max(4, 2*len(c.slots)))
		for seq := c.head; seq < c.next; seq++ {
			grown[seq&uint64(len(grown)-1)] = *c.slot(seq)
		}
		c.slots = grown
	}
	seq := c.next
	c.next++
	return seq
}

// waitRoom waits until fewer than limit requests are outstanding. It reports
// whether the connection is to be read on.
func (c *conn) waitRoom(limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed && !c.draining && c.next-c.head >= uint64(limit) {
		c.room.Wait()
	}
	return !c.closed && !c.draining
}

func (c *conn) outstanding() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.next - c.head)
}

func (c *conn) isLingering() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lingering
}

// Answer implements net.Conn.
func (c *conn) Answer(seq uint64, a net.Answer, last bool) {
	c.mu.Lock()
	if c.closed || seq < c.head || seq >= c.next || c.slot(seq).ready {
		closed := c.closed
		c.mu.Unlock()
		if a != nil {
			a.Done()
		}
		if !closed {
			c.Close(errors.New("tcp: a request was answered twice"))
		}
		return
	}
	*c.slot(seq) = slot{answer: a, ready: true, last: last}
	start := !c.writing && seq == c.head
	if start {
		c.writing = true
	}
	c.mu.Unlock()
	if start {
		startWriting(c)
	}
}

// drain lets the connection take no more frames, and closes it once all that
// it took are answered; if final, once those are out whose answers are made.
func (c *conn) drain(final bool, err error) {
	c.mu.Lock()
	c.draining, c.final = true, c.final || final
	idle := !c.writing && (c.next == c.head || c.final)
	c.room.Broadcast()
	c.mu.Unlock()
	if idle {
		c.Close(err)
	}
}

// end tells the handler that the connection is gone; the reading goroutine calls it last.
func (c *conn) end(err error) {
	c.Close(err)
	c.mu.Lock()
	err = c.err
	c.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.srv.remove(c)
	c.handler.Closed(err)
}
