package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	gonet "net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockstep/net"
)

// Config is the limits of a listener. Zero values take the defaults.
type Config struct {
	MaxFrameBytes  int           // of one request (socket.request.max.bytes); default 100 MiB
	MaxOutstanding int           // unanswered requests a connection; default 64
	IdleTimeout    time.Duration // without a request (connections.max.idle.ms); default 10 min
	FirstTimeout   time.Duration // until the first request has come; default IdleTimeout
	// StallTimeout is how long a frame that has begun may make no progress (64 KiB or
	// an eighth of it, or its end), and an answer may not be taken; default 15 s.
	StallTimeout time.Duration
	Budget       *Budget // of the memory of requests; nil is without bound
	SendBuffer   int     // socket.send.buffer.bytes; 0 or less leaves it to the system
	RecvBuffer   int     // socket.receive.buffer.bytes; 0 or less leaves it to the system
	Log          *slog.Logger
}

func (c *Config) setDefaults() {
	if c.MaxFrameBytes == 0 {
		c.MaxFrameBytes = 100 << 20
	}
	if c.MaxOutstanding == 0 {
		c.MaxOutstanding = 64
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 10 * time.Minute
	}
	if c.FirstTimeout == 0 {
		c.FirstTimeout = c.IdleTimeout
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = 15 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// lastID is the id of the youngest connection of the process.
var lastID atomic.Uint64

// Server accepts connections on one address.
type Server struct {
	cfg      Config
	acceptor net.Acceptor
	listener *gonet.TCPListener
	now      atomic.Int64 // the janitor's clock, in nanoseconds; never 0
	start    time.Time
	stop     chan struct{}
	once     sync.Once
	tasks    sync.WaitGroup // accepting, cleaning
	readers  sync.WaitGroup // connections

	mu      sync.Mutex
	conns   map[uint64]*conn
	perIP   map[string]int
	closing bool
	refused int // connections since the last log line
	// SetLimits sets these.
	maxConns, maxPerIP int
}

// Listen binds addr ("host:port", port 0 takes a free one) and serves it until
// Close or Shutdown.
func Listen(addr string, a net.Acceptor, cfg Config) (*Server, error) {
	cfg.setDefaults()
	l, err := gonet.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	s := &Server{
		cfg: cfg, acceptor: a, listener: l.(*gonet.TCPListener), start: time.Now(), stop: make(chan struct{}),
		conns: make(map[uint64]*conn), perIP: make(map[string]int), maxConns: math.MaxInt, maxPerIP: math.MaxInt,
	}
	s.now.Store(1)
	return s, nil
}

// Serve begins to accept. Until then, connections wait in the system's backlog.
func (s *Server) Serve() {
	s.tasks.Go(s.accept)
	s.tasks.Go(s.watch)
}

// SetLimits bounds the connections: in all (max.connections) and of one address
// (max.connections.per.ip). Those that are open stay. There is no bound until it is called.
func (s *Server) SetLimits(conns, perIP int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxConns, s.maxPerIP = conns, perIP
}

// Addr is the address that was bound.
func (s *Server) Addr() netip.AddrPort { return s.listener.Addr().(*gonet.TCPAddr).AddrPort() }

// Conns returns how many connections are open.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// acceptLogPause is how long one failure to accept is logged for all: without descriptors it fails ten times a second.
const acceptLogPause = 10 * time.Second

// accept takes connections until the listener is closed.
func (s *Server) accept() {
	var logged time.Time
	for {
		sock, err := s.listener.AcceptTCP()
		if err == nil {
			s.admit(sock)
			continue
		}
		if errors.Is(err, gonet.ErrClosed) {
			return
		}
		// Out of descriptors, or the connection was gone before we took it.
		if !errors.Is(err, syscall.ECONNABORTED) && time.Since(logged) > acceptLogPause {
			logged = time.Now()
			s.cfg.Log.Warn("accepting a connection failed", "addr", s.Addr(), "err", err)
		}
		select {
		case <-s.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// admit begins to serve a connection, unless there are too many.
func (s *Server) admit(sock *gonet.TCPConn) {
	host := "unknown"
	if a, ok := sock.RemoteAddr().(*gonet.TCPAddr); ok {
		host = a.AddrPort().Addr().Unmap().String()
	}
	if s.cfg.SendBuffer > 0 {
		sock.SetWriteBuffer(s.cfg.SendBuffer)
	}
	if s.cfg.RecvBuffer > 0 {
		sock.SetReadBuffer(s.cfg.RecvBuffer)
	}
	c, err := newConn(lastID.Add(1), s, sock, host)
	if err == nil {
		err = fail("accept")
	}
	if err != nil || !s.add(c) {
		sock.Close()
		return
	}
	go func() {
		defer s.readers.Done()
		c.handler = s.acceptor.Opened(c)
		c.read()
	}()
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	if len(s.conns) >= s.maxConns || s.perIP[c.host] >= s.maxPerIP {
		if s.refused++; s.refused == 1 { // the janitor reports the rest
			s.cfg.Log.Warn("connection refused: too many", "host", c.host, "connections", len(s.conns), "of_this_host", s.perIP[c.host])
		}
		return false
	}
	s.conns[c.id] = c
	s.perIP[c.host]++
	s.readers.Add(1)
	c.wait(false)
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.perIP[c.host]--; s.perIP[c.host] == 0 {
		delete(s.perIP, c.host)
	}
}

// watch is the janitor: it sets the coarse clock and closes what makes no
// progress. So the paths of bytes need no timers.
func (s *Server) watch() {
	every := max(time.Millisecond, min(time.Second, s.cfg.StallTimeout/8, s.cfg.IdleTimeout/8, s.cfg.FirstTimeout/8))
	t := time.NewTicker(every)
	defer t.Stop()
	ticks := 0
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.now.Store(int64(time.Since(s.start)) + 1)
		for _, c := range s.list() {
			if err := c.overdue(s.now.Load()); err != nil {
				c.Close(err)
			}
		}
		if ticks++; ticks%10 == 0 {
			s.reportRefused()
		}
	}
}

func (s *Server) reportRefused() {
	s.mu.Lock()
	n := s.refused
	s.refused = 0
	s.mu.Unlock()
	if n > 1 {
		s.cfg.Log.Warn("more connections refused: too many", "refused", n-1)
	}
}

func (s *Server) list() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// lingerTimeout is how long the other side has to close after its last answer.
const lingerTimeout = 2 * time.Second

// overdue says why the connection is to be closed at now, if it is.
func (c *conn) overdue(now int64) error {
	stall := int64(c.srv.cfg.StallTimeout)
	if at := c.writeAt.Load(); at != 0 {
		if c.isLingering() {
			if now-at > min(stall, int64(lingerTimeout)) {
				return ErrShutdown
			}
		} else if now-at > stall {
			return ErrSlowReader
		}
	}
	at := c.readAt.Load()
	switch {
	case at == 0:
	case c.partial.Load():
		if now-at > stall {
			return ErrStalled
		}
	case now-at > int64(c.patience()) && c.outstanding() == 0:
		return ErrIdle
	}
	if c.hogs(now) {
		return ErrSlowSender
	}
	return nil
}

// patience is how long the next request may take to begin.
func (c *conn) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == 0 {
		return c.srv.cfg.FirstTimeout
	}
	return c.srv.cfg.IdleTimeout
}

// hogs says that a frame arrives too slowly for the memory it holds, while others wait for that.
func (c *conn) hogs(now int64) bool {
	at, b := c.roomAt.Load(), c.srv.cfg.Budget
	held := time.Duration(now - at)
	return b != nil && at != 0 && held > min(roomPatience, c.srv.cfg.StallTimeout) && b.contended(c.cost.Load()) &&
		float64(c.came.Load()) < held.Seconds()*minRate
}

// Close stops accepting; connections go on.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.listener.Close()
}

// Shutdown stops accepting, lets every connection finish the requests it has
// taken, and closes it; when ctx is done, the rest are closed at once. It
// returns when the last Handler call has.
func (s *Server) Shutdown(ctx context.Context) { s.end(ctx, false) }

// Finish is Shutdown when no more answers will be made: only those that are
// made already are still sent.
func (s *Server) Finish(ctx context.Context) { s.end(ctx, true) }

func (s *Server) end(ctx context.Context, final bool) {
	s.Close()
	for _, c := range s.list() {
		c.drain(final, ErrShutdown)
	}
	gone := make(chan struct{})
	go func() {
		s.readers.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
		for _, c := range s.list() {
			c.Close(ErrShutdown)
		}
		<-gone
	}
	s.once.Do(func() { close(s.stop) })
	s.tasks.Wait()
}
