//go:build unix

package file

import (
	"os"
	"path/filepath"
	"slices"

	"lockstep/disk"

	"golang.org/x/sys/unix"
)

// FS is a directory tree of the machine's file system.
type FS struct {
	root string
	dir  int // the root, open from the start so that SyncAll learns of every failed write-back since then
}

var _ disk.FS = (*FS)(nil)

// Open returns the tree under a directory, which it makes, with its parents, if it is not there.
func Open(root string) (*FS, error) {
	made := !isDir(root)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, wrap("mkdir", root, err)
	}
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, wrap("open", root, err)
	}
	fs := &FS{root: root, dir: dir}
	if made { // rule 14
		if err := fs.syncDir(filepath.Dir(filepath.Clean(root))); err != nil {
			unix.Close(dir)
			return nil, err
		}
	}
	return fs, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// Root returns the directory's name.
func (fs *FS) Root() string { return fs.root }

// Close gives up the directory. Files stay open.
func (fs *FS) Close() error { return wrap("close", fs.root, unix.Close(fs.dir)) }

func (fs *FS) path(name string) string { return filepath.Join(fs.root, filepath.FromSlash(name)) }

// Open implements disk.FS.
func (fs *FS) Open(name string, flag disk.Flag) (disk.File, error) {
	mode := unix.O_RDWR | unix.O_CLOEXEC
	if flag&disk.Create != 0 {
		if _, err := fail("open"); err != nil {
			return nil, wrap("open", name, err)
		}
		mode |= unix.O_CREAT
		if flag&disk.Exclusive != 0 {
			mode |= unix.O_EXCL
		}
	}
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Open(fs.path(name), mode, 0o644)
		return err
	})
	if err != nil {
		return nil, wrap("open", name, err)
	}
	return &File{fd: fd, name: name}, nil
}

// Mkdir implements disk.FS.
func (fs *FS) Mkdir(name string) error {
	return wrap("mkdir", name, unix.Mkdir(fs.path(name), 0o755))
}

// Rename implements disk.FS.
func (fs *FS) Rename(oldName, newName string) error {
	return wrap("rename", oldName, unix.Rename(fs.path(oldName), fs.path(newName)))
}

// Remove implements disk.FS.
func (fs *FS) Remove(name string) error {
	err := unix.Unlink(fs.path(name))
	if err == unix.EISDIR || err == unix.EPERM {
		err = unix.Rmdir(fs.path(name))
	}
	return wrap("remove", name, err)
}

// List implements disk.FS.
func (fs *FS) List(dir string) ([]string, error) {
	f, err := os.Open(fs.path(dir))
	if err != nil {
		return nil, wrap("list", dir, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, wrap("list", dir, err)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements disk.FS.
func (fs *FS) Stat(name string) (disk.Info, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Stat(fs.path(name), &st) }); err != nil {
		return disk.Info{}, wrap("stat", name, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return disk.Info{Dir: true}, nil
	}
	return disk.Info{Size: st.Size}, nil
}

// SyncDir implements disk.FS.
func (fs *FS) SyncDir(dir string) error {
	if _, err := fail("syncdir"); err != nil {
		return wrap("sync directory", dir, err)
	}
	return fs.syncDir(fs.path(dir))
}

func (fs *FS) syncDir(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open directory", path, err)
	}
	defer unix.Close(fd)
	return wrap("sync directory", path, again(func() error { return unix.Fsync(fd) }))
}

// SyncAll implements disk.FS.
func (fs *FS) SyncAll() error {
	if _, err := fail("syncall"); err != nil {
		return wrap("sync", fs.root, err)
	}
	return fs.syncAll()
}

// syncTree is SyncAll for systems without a call that does it and tells of errors: file by file, then directory by directory.
func (fs *FS) syncTree() error {
	return filepath.WalkDir(fs.root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err): // deleted meanwhile
			return nil
		case err != nil:
			return wrap("list", path, err)
		case entry.IsDir():
			return fs.syncDir(path)
		}
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			return nil
		} else if err != nil {
			return wrap("open", path, err)
		}
		defer unix.Close(fd)
		return wrap("sync", path, again(func() error { return dataSync(fd) }))
	})
}

// Lock implements disk.FS.
func (fs *FS) Lock(name string) (func() error, error) {
	f, err := fs.Open(name, disk.Create)
	if err != nil {
		return nil, err
	}
	fd := f.(*File).fd
	err = again(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			err = disk.ErrLocked
		}
		return nil, wrap("lock", name, err)
	}
	return f.Close, nil
}

// Free implements disk.FS.
func (fs *FS) Free() (int64, error) {
	var st unix.Statfs_t
	if err := again(func() error { return unix.Fstatfs(fs.dir, &st) }); err != nil {
		return 0, wrap("statfs", fs.root, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
