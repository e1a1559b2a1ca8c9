package load

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run whose answer is refused ends, though more requests wait for room in the window.
func TestRefusedAnswerEndsARun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, 4*5)) // the window is full
		_, _ = conn.Write([]byte{0, 0, 0, 1, 7})
		_, _ = io.Copy(io.Discard, conn) // until the client goes
	}()
	refused := errors.New("refused")
	run := Run{Addr: l.Addr().String(), Requests: 1000, Window: 4, Frame: func(int) []byte { return []byte{0, 0, 0, 1, 1} },
		Check: func([]byte, int) error { return refused }}
	_, err = run.Do()
	require.ErrorIs(t, err, refused)
}
