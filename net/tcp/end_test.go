package tcp

import (
	"context"
	"io"
	gonet "net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastAnswerArrivesBeforeTheEnd: what follows it is not answered, and the connection ends.
func TestLastAnswerArrivesBeforeTheEnd(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{StallTimeout: 50 * time.Millisecond})
	c := dial(t, s)
	for i := range 3 {
		_, err := c.Write(frameBytes(numbered(i, 100)))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return h.heldCount() == 3 }, 10*time.Second, time.Millisecond)
	h.mu.Lock()
	held := h.held[firstKey(h.held)]
	h.mu.Unlock()
	for i := len(held) - 1; i >= 0; i-- {
		held[i].c.Answer(held[i].seq, echoAnswer{held[i].f}, i == 1)
	}
	expect(t, c, numbered(0, 100))
	expect(t, c, numbered(1, 100))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	<-h.closed
}

// TestShutdownFinishesWhatWasTaken: requests taken are answered, then connections end; idle ones at once.
func TestShutdownFinishesWhatWasTaken(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{})
	idle, busy, stuck := dial(t, s), dial(t, s), dial(t, s)
	for _, c := range []*gonet.TCPConn{busy, stuck} {
		_, err := c.Write(frameBytes(numbered(1, 100)))
		require.NoError(t, err)
		n := h.heldCount()
		require.Eventually(t, func() bool { return h.heldCount() > n || n > 0 }, 10*time.Second, time.Millisecond)
	}
	require.Eventually(t, func() bool { return h.heldCount() == 2 && s.Conns() == 3 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Shutdown(ctx)
		close(done)
	}()
	_, err := idle.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	h.mu.Lock()
	for _, l := range h.held {
		if l[0].c.(*conn).sock.RemoteAddr().String() == busy.LocalAddr().String() {
			l[0].c.Answer(l[0].seq, echoAnswer{l[0].f}, false)
		}
	}
	h.mu.Unlock()
	expect(t, busy, numbered(1, 100))
	_, err = busy.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	cancel()
	<-done
	_, err = stuck.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = gonet.Dial("tcp", s.Addr().String())
	require.Error(t, err)
}
