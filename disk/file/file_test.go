//go:build unix

package file

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"lockstep/disk"

	"github.com/pingcap/failpoint"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func open(t *testing.T) *FS {
	fs, err := Open(filepath.Join(t.TempDir(), "a", "b"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fs.Close()) })
	return fs
}

func TestTree(t *testing.T) {
	fs := open(t)
	require.NoError(t, fs.Mkdir("d"))
	require.ErrorIs(t, fs.Mkdir("d"), disk.ErrExist)
	require.ErrorIs(t, fs.Mkdir("x/y"), disk.ErrNotExist)
	_, err := fs.Open("d/f", 0)
	require.ErrorIs(t, err, disk.ErrNotExist)
	f, err := fs.Open("d/f", disk.Create|disk.Exclusive)
	require.NoError(t, err)
	_, err = fs.Open("d/f", disk.Create|disk.Exclusive)
	require.ErrorIs(t, err, disk.ErrExist)
	require.ErrorIs(t, fs.Remove("d"), disk.ErrExist, "it is not empty")
	_, err = f.WriteAt([]byte("hello"), 3)
	require.NoError(t, err)
	info, err := fs.Stat("d/f")
	require.NoError(t, err)
	require.Equal(t, disk.Info{Size: 8}, info)
	info, err = fs.Stat("d")
	require.NoError(t, err)
	require.Equal(t, disk.Info{Dir: true}, info)
	for _, name := range []string{"d/b", "d/a", "d/B"} {
		g, err := fs.Open(name, disk.Create)
		require.NoError(t, err)
		require.NoError(t, g.Close())
	}
	names, err := fs.List("d")
	require.NoError(t, err)
	require.Equal(t, []string{"B", "a", "b", "f"}, names)
	require.NoError(t, fs.Rename("d/f", "d/a"))
	require.ErrorIs(t, fs.Rename("d/f", "d/a"), disk.ErrNotExist)
	b := make([]byte, 8)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00hello", string(b))
	require.NoError(t, fs.Remove("d/a"))
	require.ErrorIs(t, fs.Remove("d/a"), disk.ErrNotExist)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err, "an open file is there, removed or not")
	require.NoError(t, f.Close())
	require.NoError(t, fs.Remove("d/b"))
	require.NoError(t, fs.Remove("d/B"))
	require.NoError(t, fs.Remove("d"))
	require.NoError(t, fs.SyncDir("."))
	require.ErrorIs(t, fs.SyncDir("d"), disk.ErrNotExist)
	require.NoError(t, fs.SyncAll())
	require.NoError(t, fs.syncTree())
	free, err := fs.Free()
	require.NoError(t, err)
	require.Positive(t, free)
}

func TestFile(t *testing.T) {
	fs := open(t)
	f, err := fs.Open("f", disk.Create)
	require.NoError(t, err)
	var bufs [][]byte
	var want []byte
	for i := range 3000 { // more than one pwritev takes
		b := bytes.Repeat([]byte{byte(i)}, i%7)
		bufs, want = append(bufs, b), append(want, b...)
	}
	n, err := f.WriteVAt(bufs, 100)
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.Len(t, bufs[6], 6, "the caller's slices are as they were")
	got := make([]byte, len(want))
	_, err = f.ReadAt(got, 100)
	require.NoError(t, err)
	require.Equal(t, want, got)
	k, err := f.ReadAt(got, 200)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, len(want)-100, k)
	require.NoError(t, f.Allocate(50, 50_000))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 50_050, size)
	_, err = f.ReadAt(got, 100)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, f.Truncate(10))
	size, err = f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 10, size)
	require.NoError(t, f.Sync())
	fd, ok := f.Fd()
	require.True(t, ok)
	require.NotZero(t, fd)
	require.NoError(t, f.Close())
	require.Error(t, f.Close())
}

func TestSkip(t *testing.T) {
	bufs := [][]byte{[]byte("ab"), {}, []byte("cde")}
	for n := range 6 {
		rest := skip(bufs, n)
		require.Equal(t, "abcde"[n:], string(bytes.Join(rest, nil)))
	}
	require.Equal(t, "ab", string(bufs[0]))
}

// TestLock locks the directory of another process, which is this test again.
func TestLock(t *testing.T) {
	if root := os.Getenv("LOCK_TEST_ROOT"); root != "" {
		fs, err := Open(root)
		require.NoError(t, err)
		_, err = fs.Lock("lock")
		require.ErrorIs(t, err, disk.ErrLocked)
		return
	}
	fs := open(t)
	release, err := fs.Lock("lock")
	require.NoError(t, err)
	_, err = fs.Lock("lock")
	require.ErrorIs(t, err, disk.ErrLocked)
	again := exec.Command(os.Args[0], "-test.run=^TestLock$")
	again.Env = append(os.Environ(), "LOCK_TEST_ROOT="+fs.Root())
	out, err := again.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, release())
	release, err = fs.Lock("lock")
	require.NoError(t, err)
	require.NoError(t, release())
}

func TestFailpoints(t *testing.T) {
	failing = true
	defer func() { failing = false }()
	fs := open(t)
	f, err := fs.Open("f", disk.Create)
	require.NoError(t, err)
	calls := map[string]func() error{
		"open":     func() error { _, err := fs.Open("g", disk.Create); return err },
		"write":    func() error { _, err := f.WriteAt([]byte("0123456789"), 0); return err },
		"allocate": func() error { return f.Allocate(0, 100) },
		"sync":     f.Sync,
		"syncdir":  func() error { return fs.SyncDir(".") },
		"syncall":  fs.SyncAll,
	}
	for point, call := range calls {
		require.NoError(t, call(), point)
		for term, want := range map[string]error{`1*return("EIO")`: disk.ErrIO, `1*return("ENOSPC")`: disk.ErrNoSpace} {
			require.NoError(t, failpoint.Enable("lockstep/disk/file/"+point, term))
			require.ErrorIs(t, call(), want, point)
			require.NoError(t, call(), "once only")
		}
		require.NoError(t, failpoint.Disable("lockstep/disk/file/"+point))
	}
	require.NoError(t, failpoint.Enable("lockstep/disk/file/write", `return("short")`))
	n, err := f.WriteAt([]byte("0123456789"), 0)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	m, err := f.WriteVAt([][]byte{[]byte("0123456789")}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 5, m)
	require.NoError(t, failpoint.Enable("lockstep/disk/file/sync", `sleep(20)`))
	start := time.Now()
	require.NoError(t, f.Sync())
	require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	require.NoError(t, failpoint.Disable("lockstep/disk/file/sync"))
	require.NoError(t, failpoint.Disable("lockstep/disk/file/write"))
	require.False(t, errors.Is(f.Close(), disk.ErrIO))
}

// TestReadOnlyIsSaidSo: it counts as a failed disk, and says what it is.
func TestReadOnlyIsSaidSo(t *testing.T) {
	err := wrap("open", "lock", unix.EROFS)
	require.ErrorIs(t, err, disk.ErrIO)
	require.ErrorContains(t, err, "read-only")
}
