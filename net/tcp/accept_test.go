package tcp

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFailuresToAcceptAreLoggedOnce(t *testing.T) {
	var out syncBuffer
	s := start(t, &echo{}, Config{Log: slog.New(slog.NewTextHandler(&out, nil))})
	require.NoError(t, s.listener.SetDeadline(time.Now().Add(-time.Second))) // fails as often as it is tried
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "accepting a connection failed") }, 10*time.Second, time.Millisecond)
	time.Sleep(350 * time.Millisecond)
	require.NoError(t, s.listener.SetDeadline(time.Time{}))
	c := dial(t, s)
	_, err := c.Write(frameBytes(numbered(1, 100)))
	require.NoError(t, err)
	expect(t, c, numbered(1, 100))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
