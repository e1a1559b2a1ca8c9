//go:build !linux

package tcp

import "lockstep/net"

type readOp struct{}

func (*readOp) init() {}

// recv reads at least one byte into dst.
func (c *conn) recv(dst, _ []byte) (int, error) { return c.sock.Read(dst) }

type writeOp struct{}

func (*writeOp) init() {}

func (w *writer) sendBytes(p []byte, _ bool) error {
	n, err := w.c.sock.Write(p)
	w.progress(n)
	return err
}

func (w *writer) sendFile(f net.File, off, n int64) error { return w.copyFile(f, off, n) }
