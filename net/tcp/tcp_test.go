package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	gonet "net"
	"runtime"
	"sync"
	"testing"
	"time"

	"lockstep/net"

	"github.com/stretchr/testify/require"
)

// echo answers each frame with its bytes, when and in what order a test wants.
type echo struct {
	mu     sync.Mutex
	held   map[uint64][]heldFrame // by connection, while hold is set
	hold   bool
	closed chan error
	adm    func(head []byte, size int) (net.Admission, error)
	answer func(f net.Frame) net.Answer
}

type heldFrame struct {
	c   net.Conn
	seq uint64
	f   net.Frame
}

// echoAnswer sends a frame back, length prefix and all.
type echoAnswer struct{ f net.Frame }

func (a echoAnswer) Write(w net.Writer) error {
	p := w.Scratch()
	*p = binary.BigEndian.AppendUint32(*p, uint32(len(a.f.Bytes())))
	*p = append(*p, a.f.Bytes()...)
	_, err := w.Write(*p)
	return err
}

func (a echoAnswer) Done() { a.f.Release() }

func (h *echo) Opened(c net.Conn) net.Handler { return &echoConn{h, c} }

type echoConn struct {
	*echo
	c net.Conn
}

func (h *echoConn) Admit(head []byte, size int) (net.Admission, error) {
	if h.adm != nil {
		return h.adm(head, size)
	}
	return net.Admission{Cost: int64(size), Pipelined: true, Reuse: true}, nil
}

func (h *echoConn) Frame(seq uint64, f net.Frame) error {
	c := h.c
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold {
		h.held[c.ID()] = append(h.held[c.ID()], heldFrame{c, seq, f})
		return nil
	}
	c.Answer(seq, h.make(f), false)
	return nil
}

func (h *echo) make(f net.Frame) net.Answer {
	if h.answer != nil {
		return h.answer(f)
	}
	return echoAnswer{f}
}

func (h *echoConn) Closed(err error) {
	select {
	case h.closed <- err:
	default:
	}
}

func (h *echo) heldCount() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.held {
		n += len(l)
	}
	return n
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// start serves an echo with the given limits; the server is shut down with the test.
func start(t testing.TB, h *echo, cfg Config) *Server {
	PoisonFrames(true)
	h.held, h.closed = map[uint64][]heldFrame{}, make(chan error, 10000)
	if cfg.Log == nil {
		cfg.Log = quiet
	}
	s, err := Listen("127.0.0.1:0", h, cfg)
	require.NoError(t, err)
	s.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
	})
	return s
}

func dial(t testing.TB, s *Server) *gonet.TCPConn {
	c, err := gonet.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*gonet.TCPConn)
}

func frameBytes(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

func numbered(i, size int) []byte {
	p := bytes.Repeat([]byte{byte(i)}, max(size, net.HeadSize))
	binary.BigEndian.PutUint64(p, uint64(i))
	return p
}

func expect(t testing.TB, r io.Reader, payload []byte) {
	got := make([]byte, 4+len(payload))
	_, err := io.ReadFull(r, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(frameBytes(payload), got), "an answer differs")
}

func closedWith(t testing.TB, h *echo, want error) {
	if err := <-h.closed; want == nil {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, want)
	}
}

// TestFramesOfAllSizesComeBackInOrder: pipelined, in one stream, cut at any place.
func TestFramesOfAllSizesComeBackInOrder(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{Budget: NewBudget(8 << 20)})
	c := dial(t, s)
	sizes := []int{8, 9, 100, 499, 500, 504, 508, 512, 513, 4096, 5000, 65535, 65536, 65537, 70000, 1 << 20, 1<<20 + 1, 3 << 20, 20, 30 << 20, 8}
	go func() {
		var stream []byte
		for i, size := range sizes {
			stream = append(stream, frameBytes(numbered(i, size))...)
		}
		for chunk := 1; len(stream) > 0; chunk = chunk*3%100003 + 1 {
			n := min(chunk, len(stream))
			if _, err := c.Write(stream[:n]); err != nil {
				return
			}
			stream = stream[n:]
		}
	}()
	for i, size := range sizes {
		expect(t, c, numbered(i, size))
	}
	c.Close()
	closedWith(t, h, nil)
	require.Zero(t, s.cfg.Budget.Used())
}

// TestAnswersLeaveInOrderOfRequests, in whatever order they are made.
func TestAnswersLeaveInOrderOfRequests(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{})
	c := dial(t, s)
	const n = 20
	for i := range n {
		_, err := c.Write(frameBytes(numbered(i, 100)))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return h.heldCount() == n }, 10*time.Second, time.Millisecond)
	h.mu.Lock()
	var held []heldFrame
	for _, held = range h.held {
	}
	h.mu.Unlock()
	for i := range n {
		x := held[(i*7+3)%n]
		if (i*7+3)%n == 5 {
			x.f.Release()
			x.c.Answer(x.seq, nil, false) // one that gets no answer holds up nobody
			continue
		}
		x.c.Answer(x.seq, echoAnswer{x.f}, false)
	}
	for i := range n {
		if i != 5 {
			expect(t, c, numbered(i, 100))
		}
	}
}

// TestReadingStopsWithManyOutstanding: a client that pipelines without end is not read without end.
func TestReadingStopsWithManyOutstanding(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{MaxOutstanding: 5})
	c := dial(t, s)
	for i := range 50 {
		_, err := c.Write(frameBytes(numbered(i, 100)))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return h.heldCount() == 5 }, 10*time.Second, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, 5, h.heldCount())
	h.mu.Lock()
	h.hold = false
	var held []heldFrame
	for _, held = range h.held {
	}
	h.mu.Unlock()
	for _, x := range held {
		x.c.Answer(x.seq, echoAnswer{x.f}, false)
	}
	for i := range 50 {
		expect(t, c, numbered(i, 100))
	}
}

// TestOtherRequestsAreReadOneByOne: what may not be pipelined holds the next back until its answer is out.
func TestOtherRequestsAreReadOneByOne(t *testing.T) {
	h := &echo{hold: true, adm: func(_ []byte, size int) (net.Admission, error) { return net.Admission{Cost: int64(size)}, nil }}
	s := start(t, h, Config{})
	c := dial(t, s)
	_, err := c.Write(append(frameBytes(numbered(0, 100)), frameBytes(numbered(1, 100))...))
	require.NoError(t, err)
	for i := range 2 {
		require.Eventually(t, func() bool { return h.heldCount() == i+1 }, 10*time.Second, time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, i+1, h.heldCount())
		h.mu.Lock()
		x := h.held[firstKey(h.held)][i]
		h.mu.Unlock()
		x.c.Answer(x.seq, echoAnswer{x.f}, false)
		expect(t, c, numbered(i, 100))
	}
}

func firstKey(m map[uint64][]heldFrame) uint64 {
	for k := range m {
		return k
	}
	return 0
}

// TestBadLengthsCloseTheConnection: 2 GB, negative, too short for a head; nobody else notices.
func TestBadLengthsCloseTheConnection(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{MaxFrameBytes: 1 << 20})
	good := dial(t, s)
	for _, prefix := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 7}, {0, 0, 0, 0}, {0, 0x10, 0, 1}} {
		c := dial(t, s)
		_, err := c.Write(append(prefix, "some bytes that follow"...))
		require.NoError(t, err)
		closedWith(t, h, ErrFrameSize)
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	_, err := good.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, good, numbered(1, 100))
}

// TestRefusedHeadClosesBeforeTheBody: a request that the handler does not want is not received.
func TestRefusedHeadClosesBeforeTheBody(t *testing.T) {
	refused := errors.New("refused")
	h := &echo{adm: func(head []byte, size int) (net.Admission, error) {
		require.Equal(t, []byte("headhead"), head)
		require.Equal(t, 1000, size)
		return net.Admission{}, refused
	}}
	s := start(t, h, Config{})
	_, err := dial(t, s).Write([]byte("\x00\x00\x03\xe8headhead"))
	require.NoError(t, err)
	closedWith(t, h, refused)
}

// TestClaimedLengthsCostLittle: 100 connections claim 100 MB each and send a little of it.
func TestClaimedLengthsCostLittle(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{Budget: NewBudget(1 << 30)})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	claim := binary.BigEndian.AppendUint32(nil, 100<<20)
	for range 100 {
		_, err := dial(t, s).Write(append(bytes.Clone(claim), make([]byte, 1000)...))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return s.Conns() == 100 }, 10*time.Second, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100*(firstStep+16<<10)))
	require.Zero(t, s.cfg.Budget.Used(), "what has not arrived takes nothing from others")
}

// TestBudgetHoldsSendersBack: what does not fit is not read, and comes in when there is room.
func TestBudgetHoldsSendersBack(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{Budget: NewBudget(8 << 20)}) // of which three eighths are for this size
	const size = 1400 << 10
	conns := make([]*gonet.TCPConn, 5)
	for i := range conns {
		conns[i] = dial(t, s)
		go conns[i].Write(frameBytes(numbered(i, size)))
	}
	for served := 0; served < len(conns); {
		require.Eventually(t, func() bool { return h.heldCount() >= min(2, len(conns)-served) }, 10*time.Second, time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		h.mu.Lock()
		held := h.held
		h.held = map[uint64][]heldFrame{}
		h.mu.Unlock()
		require.LessOrEqual(t, len(held), 2, "the budget has room for two")
		require.LessOrEqual(t, s.cfg.Budget.Used(), int64(3<<20))
		for _, l := range held {
			served += len(l)
			for _, x := range l {
				x.c.Answer(x.seq, echoAnswer{x.f}, false)
			}
		}
	}
	for i, c := range conns {
		expect(t, c, numbered(i, size))
	}
	require.Eventually(t, func() bool { return s.cfg.Budget.Used() == 0 }, 10*time.Second, time.Millisecond)
}

// TestSmallRequestsPassAFullBudget, so that producers do not keep others from asking for metadata.
func TestSmallRequestsPassAFullBudget(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{Budget: NewBudget(1 << 20)})
	for range 3 {
		go dial(t, s).Write(frameBytes(numbered(0, 1<<20)))
	}
	require.Eventually(t, func() bool { return h.heldCount() == 1 && s.cfg.Budget.Waiting() == 2 }, 10*time.Second, time.Millisecond)
	h.mu.Lock()
	h.hold = false
	h.mu.Unlock()
	c := dial(t, s)
	_, err := c.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, c, numbered(1, 100))
}

// TestStalledFramesAreGivenUp: a sender that stops within a frame, or drips, loses
// its connection and what the budget gave it; idle connections stay.
func TestStalledFramesAreGivenUp(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{Budget: NewBudget(1 << 20), StallTimeout: 80 * time.Millisecond})
	idle := dial(t, s)
	for name, part := range map[string][]byte{
		"prefix": {0, 0}, "head": {0, 0, 1, 0, 1, 2, 3}, "body": frameBytes(numbered(0, 50000))[:40000], "large": frameBytes(numbered(0, 1<<20))[:500000],
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			_, err := c.Write(part)
			require.NoError(t, err)
			stop := make(chan struct{})
			defer close(stop)
			if name != "prefix" {
				go func() { // a byte now and then does not help
					for {
						select {
						case <-stop:
							return
						case <-time.After(10 * time.Millisecond):
							if _, err := c.Write([]byte{1}); err != nil {
								return
							}
						}
					}
				}()
			}
			closedWith(t, h, ErrStalled)
			require.Zero(t, s.cfg.Budget.Used())
		})
	}
	_, err := idle.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, idle, numbered(1, 100))
}

// TestLargeFramesMustComeSteadily: a large frame that comes in small stretches would hold the memory of many others for hours.
func TestLargeFramesMustComeSteadily(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{StallTimeout: 300 * time.Millisecond, Budget: NewBudget(20 << 20)})
	slow := dial(t, s)
	go func() {
		rest := frameBytes(numbered(0, 16<<20))
		for err := error(nil); err == nil && len(rest) > 0; time.Sleep(20 * time.Millisecond) {
			n := min(len(rest), firstStep+firstStep/8)
			_, err = slow.Write(rest[:n])
			rest = rest[n:]
		}
	}()
	require.Eventually(t, func() bool { return s.cfg.Budget.Used() > 0 }, 10*time.Second, time.Millisecond)
	waiting := dial(t, s)
	_, err := waiting.Write(frameBytes(numbered(1, 5<<20)))
	require.NoError(t, err)
	closedWith(t, h, ErrStalled)
	expect(t, waiting, numbered(1, 5<<20))
}

// TestSlowReadersAreGivenUp: who does not take its answers loses the connection, and holds up nobody.
func TestSlowReadersAreGivenUp(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{StallTimeout: 500 * time.Millisecond, SendBuffer: 8 << 10})
	slow := dial(t, s)
	require.NoError(t, slow.SetReadBuffer(8<<10))
	go func() {
		for i := 0; ; i++ {
			if _, err := slow.Write(frameBytes(numbered(i, 1<<20))); err != nil {
				return
			}
		}
	}()
	good := dial(t, s)
	_, err := good.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, good, numbered(1, 100))
	closedWith(t, h, ErrSlowReader)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{IdleTimeout: 200 * time.Millisecond})
	waits := dial(t, s)
	_, err := waits.Write(frameBytes(numbered(0, 100)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.heldCount() == 1 }, 10*time.Second, time.Millisecond)
	dial(t, s)
	closedWith(t, h, ErrIdle)
	h.mu.Lock()
	x := h.held[firstKey(h.held)][0]
	h.mu.Unlock()
	x.c.Answer(x.seq, echoAnswer{x.f}, false)
	expect(t, waits, numbered(0, 100)) // one that waits for its answer is not idle
}

// TestConnectionsWithoutAFirstRequestAreClosed: also where those that have sent one may be silent for as long as they like.
func TestConnectionsWithoutAFirstRequestAreClosed(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{IdleTimeout: time.Hour, FirstTimeout: 200 * time.Millisecond})
	known := dial(t, s)
	_, err := known.Write(frameBytes(numbered(0, 100)))
	require.NoError(t, err)
	expect(t, known, numbered(0, 100))
	dial(t, s) // after it, so that it has been silent for less long
	closedWith(t, h, ErrIdle)
	require.Equal(t, 1, s.Conns())
	_, err = known.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, known, numbered(1, 100))
}

func TestConnectionLimits(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{})
	s.SetLimits(3, 3)
	conns := []*gonet.TCPConn{dial(t, s), dial(t, s), dial(t, s)}
	require.Eventually(t, func() bool { return s.Conns() == 3 }, 10*time.Second, time.Millisecond)
	_, err := dial(t, s).Read(make([]byte, 1))
	require.Error(t, err)
	conns[0].Close()
	closedWith(t, h, nil)
	c := dial(t, s)
	_, err = c.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, c, numbered(1, 100))

	perIP := start(t, &echo{}, Config{})
	perIP.SetLimits(10, 1)
	dial(t, perIP)
	require.Eventually(t, func() bool { return perIP.Conns() == 1 }, 10*time.Second, time.Millisecond)
	_, err = dial(t, perIP).Read(make([]byte, 1))
	require.Error(t, err)
}

// TestManyIdleConnections: 2,000 of them cost little, and the last is served.
func TestManyIdleConnections(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{})
	var before, after runtime.MemStats
	runtime.GC() // twice, for what earlier tests left in pools
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]*gonet.TCPConn, 2000)
	for i := range conns {
		conns[i] = dial(t, s)
		_, err := conns[i].Write(frameBytes(numbered(i, 100)))
		require.NoError(t, err)
	}
	for i, c := range conns {
		expect(t, c, numbered(i, 100))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perConn := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / int64(len(conns))
	t.Logf("%d bytes a connection, both its ends", perConn)
	require.Less(t, perConn, int64(20<<10))
}

// TestCloseInMidResponse: the client goes while it is being answered; every frame is released.
func TestCloseInMidResponse(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{Budget: NewBudget(64 << 20)})
	for range 20 {
		c := dial(t, s)
		for i := range 3 {
			_, err := c.Write(frameBytes(numbered(i, 1<<20)))
			require.NoError(t, err)
		}
		_, err := c.Read(make([]byte, 1000))
		require.NoError(t, err)
		c.SetLinger(0)
		c.Close()
		<-h.closed
	}
	require.Eventually(t, func() bool { return s.cfg.Budget.Used() == 0 && s.Conns() == 0 }, 10*time.Second, time.Millisecond)
}

// TestHalfFrameThenClose is an error of that connection, told to the handler.
func TestHalfFrameThenClose(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{Budget: NewBudget(1 << 20)})
	whole := frameBytes(numbered(0, 70000))
	for _, n := range []int{1, 4, 8, 12, 600, 69000} {
		c := dial(t, s)
		_, err := c.Write(whole[:n])
		require.NoError(t, err)
		c.Close()
		closedWith(t, h, io.ErrUnexpectedEOF)
	}
	require.Zero(t, s.cfg.Budget.Used())
}

func TestFrameClasses(t *testing.T) {
	last := -1
	for size := 1; size <= 1<<maxClassBits; size += 1 + size/7 {
		class, capacity := classOf(size)
		require.GreaterOrEqual(t, capacity, size)
		require.GreaterOrEqual(t, class, last)
		require.Less(t, class, classes)
		if size > 1<<minClassBits {
			require.LessOrEqual(t, capacity, size+size/4+1)
		}
		again, same := classOf(capacity)
		require.Equal(t, []int{class, capacity}, []int{again, same})
		last = class
	}
	class, _ := classOf(1<<maxClassBits + 1)
	require.Equal(t, -1, class)
}

func TestFrameReleasedTooOftenPanics(t *testing.T) {
	f := newFrame(10, true)
	f.Retain()
	f.Release()
	f.Release()
	require.Panics(t, f.Release)
	require.Panics(t, f.Retain)
}
