// Package disk says what storage needs of a file system, as one small
// interface. disk/file implements it with real files, the simulator with
// files that forget, tear, rot and fill up. Code over it is plain blocking
// code; all of it may be called from several goroutines at once.
//
// Names are slash-separated and relative to the file system's root, which is
// the broker's data directory; "." is the root itself.
package disk

import "errors"

// Errors that an FS or a File returns, wrapped with the call and the name.
var (
	ErrNotExist = errors.New("file does not exist")
	ErrExist    = errors.New("file exists")
	ErrNoSpace  = errors.New("no space left on device")
	ErrIO       = errors.New("input/output error")
	ErrLocked   = errors.New("locked by another process")
)

// Flag says how Open opens.
type Flag int

// Flags for Open. Files are always open for reading and writing.
const (
	Create    Flag = 1 << iota // make the file if it is not there
	Exclusive                  // with Create: fail with ErrExist if it is there
)

// FS is one directory tree on one device.
type FS interface {
	// Open opens a file. Without Create a missing file is ErrNotExist.
	Open(name string, flag Flag) (File, error)
	// Mkdir makes one directory; its parent must exist. ErrExist if it is there.
	Mkdir(name string) error
	// Rename moves old to new, replacing a file that is there (POSIX). It is
	// durable only after SyncDir of the directory (of both, if two).
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// List returns the names in a directory in ascending byte order.
	List(dir string) ([]string, error)
	// Stat returns a file's size in bytes, or whether it is a directory.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
	// SyncAll makes everything written so far to any file and directory of
	// this file system durable (Linux syncfs). Like Sync, when it fails
	// nothing is known of what it covered.
	SyncAll() error
	// Lock takes an exclusive lock on the tree until Close of the returned
	// release or the end of the process; ErrLocked if another has it.
	Lock(name string) (release func() error, err error)
	// Free returns the bytes that can still be written.
	Free() (int64, error)
}

// Info is what Stat tells.
type Info struct {
	Size int64 // bytes; 0 for a directory
	Dir  bool
}

// File is an open file.
type File interface {
	// ReadAt is io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt is io.WriterAt: n < len(p) comes with an error, but a caller
	// must not rely on the device's good manners and checks n too.
	WriteAt(p []byte, off int64) (int, error)
	// WriteVAt writes the buffers one after another at off, in one call where
	// the system can (pwritev). It returns the bytes written in all.
	WriteVAt(bufs [][]byte, off int64) (int64, error)
	// Truncate sets the size.
	Truncate(size int64) error
	// Allocate reserves room for bytes [off, off+n) without changing what is
	// read there or the file's size beyond off+n; a file grows with zeros.
	Allocate(off, n int64) error
	// Sync makes the file's data and size durable (fdatasync). When it fails,
	// what it covered is unknown, and a later success says nothing about it.
	Sync() error
	// Size returns the size in bytes.
	Size() (int64, error)
	// Fd returns the descriptor for sendfile, or false where there is none.
	Fd() (uintptr, bool)
	// Close closes; it does not sync.
	Close() error
}
