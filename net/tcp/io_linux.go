package tcp

import (
	"io"

	"lockstep/net"

	"golang.org/x/sys/unix"
)

// readOp is one read in progress. Its callback is made once a connection, so
// that reading allocates nothing.
type readOp struct {
	dst, extra []byte
	n          int
	err        error
	fn         func(fd uintptr) bool
}

func (op *readOp) init() {
	op.fn = func(fd uintptr) bool {
		for {
			if len(op.extra) == 0 {
				op.n, op.err = unix.Read(int(fd), op.dst)
			} else {
				op.n, op.err = unix.Readv(int(fd), [][]byte{op.dst, op.extra})
			}
			if op.err != unix.EINTR {
				return op.err != unix.EAGAIN
			}
		}
	}
}

// recv reads at least one byte into dst, and what more has arrived into extra.
func (c *conn) recv(dst, extra []byte) (int, error) {
	op := &c.rd
	op.dst, op.extra = dst, extra
	err := c.raw.Read(op.fn)
	op.dst, op.extra = nil, nil
	if err == nil {
		err = op.err
	}
	if err != nil {
		return 0, err
	}
	if op.n == 0 {
		return 0, io.EOF
	}
	return op.n, nil
}

// writeOp is one write in progress.
type writeOp struct {
	buf   []byte
	flags int
	from  int // descriptor for sendfile
	off   int64
	left  int
	n     int
	err   error
	send  func(fd uintptr) bool
	file  func(fd uintptr) bool
}

func (op *writeOp) init() {
	op.send = func(fd uintptr) bool {
		for {
			op.n, op.err = unix.SendmsgN(int(fd), op.buf, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT|op.flags)
			if op.err != unix.EINTR {
				return op.err != unix.EAGAIN
			}
		}
	}
	op.file = func(fd uintptr) bool {
		for {
			op.n, op.err = unix.Sendfile(int(fd), op.from, &op.off, op.left)
			if op.err != unix.EINTR {
				return op.err != unix.EAGAIN
			}
		}
	}
}

// sendBytes sends all of p. more says that other bytes follow at once, so that
// the kernel need not send a small segment.
func (w *writer) sendBytes(p []byte, more bool) error {
	op := &w.op
	op.flags = 0
	if more {
		op.flags = unix.MSG_MORE
	}
	for len(p) > 0 {
		op.buf = p
		err := w.c.raw.Write(op.send)
		op.buf = nil
		if err == nil {
			err = op.err
		}
		if err != nil {
			return err
		}
		p = p[op.n:]
		w.progress(op.n)
	}
	return nil
}

// sendChunk bounds one call of sendfile, so that progress is seen.
const sendChunk = 1 << 20

// sendFile sends bytes of a file without their passing through the program.
func (w *writer) sendFile(f net.File, off, n int64) error {
	fd, ok := f.Fd()
	if !ok {
		return w.copyFile(f, off, n)
	}
	op := &w.op
	for n > 0 {
		op.from, op.off, op.left = int(fd), off, int(min(n, sendChunk))
		err := w.c.raw.Write(op.file)
		if err == nil {
			err = op.err
		}
		if err != nil {
			return err
		}
		if op.n == 0 {
			return io.ErrUnexpectedEOF // the file is shorter than it was
		}
		off, n = off+int64(op.n), n-int64(op.n)
		w.progress(op.n)
	}
	return nil
}
