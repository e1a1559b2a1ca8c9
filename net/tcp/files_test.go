package tcp

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"lockstep/net"

	"github.com/stretchr/testify/require"
)

// fileAnswer sends a stretch of a file between a head and a tail.
type fileAnswer struct {
	echoAnswer
	file   net.File
	off, n int64
}

func (a fileAnswer) Write(w net.Writer) error {
	head := w.Scratch()
	*head = binary.BigEndian.AppendUint32(*head, uint32(a.n+8))
	*head = append(*head, "headtail"...)
	if _, err := w.Write((*head)[:8]); err != nil {
		return err
	}
	if err := w.SendFile(a.file, a.off, a.n); err != nil {
		return err
	}
	_, err := w.Write((*head)[8:])
	return err
}

type osFile struct {
	*os.File
	noFd bool
}

func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), !f.noFd }

// TestFilesAreSentWhole: by sendfile and without a descriptor, at any offset and
// length, pipelined, to a reader that is slower than the writer.
func TestFilesAreSentWhole(t *testing.T) {
	content := make([]byte, 5<<20)
	for i := range content {
		content[i] = byte(i * 2654435761 >> 13)
	}
	path := filepath.Join(t.TempDir(), "segment")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for _, noFd := range []bool{false, true} {
		t.Run(fmt.Sprint("noFd=", noFd), func(t *testing.T) {
			h := &echo{answer: func(f net.Frame) net.Answer {
				off, n := binary.BigEndian.Uint64(f.Bytes()), binary.BigEndian.Uint64(f.Bytes()[8:])
				return fileAnswer{echoAnswer{f}, osFile{file, noFd}, int64(off), int64(n)}
			}}
			s := start(t, h, Config{SendBuffer: 128 << 10})
			c := dial(t, s)
			stretches := [][2]int{{0, 0}, {0, 1}, {1, 4095}, {4096, 65536}, {5000, gather - 1}, {5000, gather}, {5000, gather + 1}, {4097, 1 << 20}, {100, 5<<20 - 200}, {5<<20 - 1, 1}}
			go func() {
				for _, x := range stretches {
					p := binary.BigEndian.AppendUint64(nil, uint64(x[0]))
					c.Write(frameBytes(binary.BigEndian.AppendUint64(p, uint64(x[1]))))
				}
			}()
			for _, x := range stretches {
				want := append([]byte("head"), content[x[0]:x[0]+x[1]]...)
				expect(t, c, append(want, "tail"...))
			}
			// Beyond the end: what was promised can not be sent, so the connection ends.
			p := binary.BigEndian.AppendUint64(nil, 5<<20-10)
			_, err := c.Write(frameBytes(binary.BigEndian.AppendUint64(p, 20)))
			require.NoError(t, err)
			closedWith(t, h, io.ErrUnexpectedEOF)
		})
	}
}
