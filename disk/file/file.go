//go:build unix

package file

import (
	"io"

	"lockstep/disk"

	"golang.org/x/sys/unix"
)

// File is an open file.
type File struct {
	fd   int
	name string
}

var _ disk.File = (*File)(nil)

// ReadAt implements disk.File.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		var k int
		err := again(func() (err error) {
			k, err = unix.Pread(f.fd, p[n:], off+int64(n))
			return err
		})
		if err != nil {
			return n, wrap("read", f.name, err)
		}
		if k == 0 {
			return n, io.EOF
		}
		n += k
	}
	return n, nil
}

// WriteAt implements disk.File.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	short, err := fail("write")
	if err != nil {
		return 0, wrap("write", f.name, err)
	}
	if short {
		n, _ := unix.Pwrite(f.fd, p[:len(p)/2], off)
		return max(n, 0), nil
	}
	n := 0
	for n < len(p) {
		k, err := unix.Pwrite(f.fd, p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, wrap("write", f.name, err)
		}
		if k == 0 {
			return n, wrap("write", f.name, io.ErrShortWrite)
		}
		n += k
	}
	return n, nil
}

// WriteVAt implements disk.File.
func (f *File) WriteVAt(bufs [][]byte, off int64) (int64, error) {
	short, err := fail("write")
	if err != nil {
		return 0, wrap("write", f.name, err)
	}
	if short && len(bufs) > 0 {
		n, _ := unix.Pwrite(f.fd, bufs[0][:len(bufs[0])/2], off)
		return int64(max(n, 0)), nil
	}
	var sum int64
	for len(bufs) > 0 {
		n, err := writev(f.fd, bufs[:min(len(bufs), maxBuffers)], off+sum)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return sum, wrap("write", f.name, err)
		}
		sum += int64(n)
		rest := skip(bufs, n)
		if n == 0 && len(rest) > 0 {
			return sum, wrap("write", f.name, io.ErrShortWrite)
		}
		bufs = rest
	}
	return sum, nil
}

// maxBuffers is IOV_MAX, the most buffers that one pwritev takes.
const maxBuffers = 1024

// skip returns what of bufs is left after n bytes, without changing the caller's slices.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n == 0 {
		return bufs
	}
	rest := append([][]byte{}, bufs...)
	rest[0] = rest[0][n:]
	return rest
}

// Truncate implements disk.File.
func (f *File) Truncate(size int64) error {
	return wrap("truncate", f.name, again(func() error { return unix.Ftruncate(f.fd, size) }))
}

// Allocate implements disk.File.
func (f *File) Allocate(off, n int64) error {
	if _, err := fail("allocate"); err != nil {
		return wrap("allocate", f.name, err)
	}
	return wrap("allocate", f.name, f.allocate(off, n))
}

// grow makes the file reach to size at least; the room is not reserved.
func (f *File) grow(size int64) error {
	now, err := f.Size()
	if err != nil || now >= size {
		return err
	}
	return unix.Ftruncate(f.fd, size)
}

// Sync implements disk.File.
func (f *File) Sync() error {
	if _, err := fail("sync"); err != nil {
		return wrap("sync", f.name, err)
	}
	return wrap("sync", f.name, again(func() error { return dataSync(f.fd) }))
}

// Size implements disk.File.
func (f *File) Size() (int64, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return 0, wrap("stat", f.name, err)
	}
	return st.Size, nil
}

// Fd implements disk.File.
func (f *File) Fd() (uintptr, bool) { return uintptr(f.fd), true }

// Close implements disk.File.
func (f *File) Close() error { return wrap("close", f.name, unix.Close(f.fd)) }
