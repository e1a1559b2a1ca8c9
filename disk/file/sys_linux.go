package file

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

func dataSync(fd int) error { return unix.Fdatasync(fd) }

func writev(fd int, bufs [][]byte, off int64) (int, error) { return unix.Pwritev(fd, bufs, off) }

func (f *File) allocate(off, n int64) error {
	err := again(func() error { return unix.Fallocate(f.fd, 0, off, n) })
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return f.grow(off + n)
	}
	return err
}

// tellsErrors says whether syncfs reports failed write-backs, which it does since Linux 5.8.
var tellsErrors = sync.OnceValue(func() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 8
})

func (fs *FS) syncAll() error {
	if !tellsErrors() {
		return fs.syncTree()
	}
	return wrap("syncfs", fs.root, again(func() error { return unix.Syncfs(fs.dir) }))
}
