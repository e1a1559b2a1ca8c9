// Package snapshot keeps the snapshots of the metadata in a data directory: one
// file each, under a name that says up to where it reaches. A file appears
// whole or not at all (rule 14), and damage is reported, never taken for an
// older state (rule 15).
//
// It is plain blocking code over a disk.FS, for the production host and the
// simulator alike, and may import disk and the plain standard library.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"lockstep/disk"
)

// Dir is the directory of the snapshots within the data directory.
const Dir = "metadata-snapshots"

const (
	ext = ".snapshot"
	tmp = ".tmp"

	// magic begins a file; then come the CRC-32C of the content (4 bytes, big
	// endian) and the content.
	magic    = "LKSNAP\x00\x01"
	headSize = len(magic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCorrupt says that a snapshot's file is not what was written.
var ErrCorrupt = errors.New("snapshot is damaged")

// ID names a snapshot: it holds what the records below Offset made, the last of them of Epoch.
type ID struct {
	Offset int64
	Epoch  int32
}

func (id ID) file() string { return fmt.Sprintf("%s/%020d-%010d%s", Dir, id.Offset, id.Epoch, ext) }

// parse is the inverse of file, for a name within Dir.
func parse(name string) (ID, bool) {
	var id ID
	if _, err := fmt.Sscanf(name, "%020d-%010d"+ext, &id.Offset, &id.Epoch); err != nil {
		return ID{}, false
	}
	return id, id.file() == Dir+"/"+name
}

// Store is the snapshots of one data directory. Its methods exclude each other.
type Store struct{ fs disk.FS }

// Open opens the snapshots of a data directory, and removes what an unfinished Save left.
func Open(fs disk.FS) (*Store, error) {
	err := fs.Mkdir(Dir)
	if err == nil {
		err = fs.SyncDir(".")
	} else if errors.Is(err, disk.ErrExist) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("making the directory of snapshots: %w", err)
	}
	names, err := fs.List(Dir)
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, tmp) {
			if err := fs.Remove(Dir + "/" + name); err != nil {
				return nil, fmt.Errorf("removing an unfinished snapshot: %w", err)
			}
		}
	}
	return &Store{fs: fs}, nil
}

// list returns the snapshots there are, oldest first.
func (s *Store) list() ([]ID, error) {
	names, err := s.fs.List(Dir)
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var ids []ID
	for _, name := range names { // ascending, and so are the zero-padded numbers
		if id, ok := parse(name); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Newest returns the newest snapshot; ok is false if there is none.
func (s *Store) Newest() (id ID, content []byte, ok bool, err error) {
	ids, err := s.list()
	if err != nil || len(ids) == 0 {
		return ID{}, nil, false, err
	}
	id = ids[len(ids)-1]
	content, err = s.load(id)
	return id, content, err == nil, err
}

func (s *Store) load(id ID) ([]byte, error) {
	name := id.file()
	info, err := s.fs.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size < int64(headSize) {
		return nil, fmt.Errorf("%s: %w: %d bytes", name, ErrCorrupt, info.Size)
	}
	f, err := s.fs.Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, info.Size)
	if n, err := f.ReadAt(buf, 0); n < len(buf) {
		return nil, fmt.Errorf("%s: reading %d bytes: %w", name, len(buf), err)
	}
	sum := binary.BigEndian.Uint32(buf[len(magic):])
	if string(buf[:len(magic)]) != magic || crc32.Checksum(buf[headSize:], castagnoli) != sum {
		return nil, fmt.Errorf("%s: %w", name, ErrCorrupt)
	}
	return buf[headSize:], nil
}

// SyncError says that a sync failed while a snapshot was stored: nothing is
// known of what it covered (rule 13).
type SyncError struct{ Err error }

// Error implements error.
func (e *SyncError) Error() string { return fmt.Sprintf("syncing a snapshot: %v", e.Err) }

// Unwrap returns the cause.
func (e *SyncError) Unwrap() error { return e.Err }

// Save stores a snapshot durably. If it fails, what was there before is as it
// was, but after a *SyncError nobody knows.
func (s *Store) Save(id ID, content []byte) error {
	name := id.file()
	if err := s.write(name+tmp, content); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	if err := s.fs.Rename(name+tmp, name); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	if err := s.fs.SyncDir(Dir); err != nil {
		return &SyncError{Err: err}
	}
	return nil
}

func (s *Store) write(name string, content []byte) error {
	f, err := s.fs.Open(name, disk.Create)
	if err != nil {
		return err
	}
	defer f.Close()
	head := binary.BigEndian.AppendUint32([]byte(magic), crc32.Checksum(content, castagnoli))
	if err = f.Truncate(0); err == nil {
		var n int64
		n, err = f.WriteVAt([][]byte{head, content}, 0)
		if want := int64(len(head) + len(content)); err == nil && n != want {
			err = fmt.Errorf("%d of %d bytes were written: %w", n, want, disk.ErrIO)
		}
	}
	if err != nil {
		s.fs.Remove(name)
		return err
	}
	if err := f.Sync(); err != nil {
		return &SyncError{Err: err}
	}
	return nil
}

// Drop deletes all snapshots but one. What it leaves behind after an error the next one deletes.
func (s *Store) Drop(keep ID) error {
	ids, err := s.list()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id != keep {
			if err := s.fs.Remove(id.file()); err != nil && !errors.Is(err, disk.ErrNotExist) {
				return fmt.Errorf("dropping %s: %w", id.file(), err)
			}
		}
	}
	return nil
}
