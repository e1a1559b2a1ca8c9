//go:build unix && !linux

package file

import "golang.org/x/sys/unix"

func dataSync(fd int) error { return unix.Fsync(fd) }

func writev(fd int, bufs [][]byte, off int64) (int, error) { return unix.Pwrite(fd, bufs[0], off) }

func (f *File) allocate(off, n int64) error { return f.grow(off + n) }

func (fs *FS) syncAll() error { return fs.syncTree() }
