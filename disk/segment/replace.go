package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"

	"lockstep/disk"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const tmpSuffix = ".tmp"

// sealMagic begins the small files that are replaced as a whole: magic, CRC-32C
// of what follows (4 bytes, big endian), format version (1 byte), the content.
const (
	sealMagic   = "LKSF"
	sealVersion = 1
	sealCRC     = len(sealMagic)
	sealHead    = sealCRC + 4
)

func seal(content []byte) []byte {
	b := make([]byte, sealHead, sealHead+1+len(content))
	copy(b, sealMagic)
	b = append(append(b, sealVersion), content...)
	binary.BigEndian.PutUint32(b[sealCRC:], crc32.Checksum(b[sealHead:], castagnoli))
	return b
}

func unseal(name string, b []byte) ([]byte, error) {
	if len(b) <= sealHead || string(b[:sealCRC]) != sealMagic {
		return nil, corrupt(name, 0, "no magic in %d bytes", len(b))
	}
	want := binary.BigEndian.Uint32(b[sealCRC:])
	if got := crc32.Checksum(b[sealHead:], castagnoli); got != want {
		return nil, corrupt(name, int64(sealHead), "CRC is %08x, not %08x", got, want)
	}
	if v := b[sealHead]; v != sealVersion {
		return nil, fmt.Errorf("%s: %w: version %d", name, ErrFormat, v)
	}
	return b[sealHead+1:], nil
}

// replaceFile durably and atomically makes content the content of a file
// (rule 14: write, sync, rename, sync the directory). No room leaves the old
// file as it was; a failed sync is the Store's end (rule 13).
func (s *Store) replaceFile(name string, content []byte) error {
	f, err := s.replaceOpen(name, content)
	if err != nil {
		return err
	}
	return f.Close()
}

// replaceOpen is replaceFile, and returns the new file open.
func (s *Store) replaceOpen(name string, content []byte) (disk.File, error) {
	f, err := s.writeFile(name+tmpSuffix, content)
	if err != nil {
		return nil, err
	}
	if err = f.Sync(); err != nil {
		err = s.syncFailed(err)
	} else if err = s.fs.Rename(name+tmpSuffix, name); err == nil {
		if err = s.fs.SyncDir(path.Dir(name)); err != nil {
			err = s.syncFailed(err)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// writeFile writes a whole file, not synced, and returns it open. It leaves nothing behind if it fails.
func (s *Store) writeFile(name string, content []byte) (disk.File, error) {
	f, err := s.fs.Open(name, disk.Create)
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(0); err == nil {
		err = writeFull(f, content, 0)
	}
	if err != nil {
		f.Close()
		s.fs.Remove(name)
		return nil, err
	}
	return f, nil
}

// writeFull is WriteAt that takes a short write for what it is.
func writeFull(f disk.File, p []byte, off int64) error {
	n, err := f.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = errShortWrite
	}
	return err
}

var errShortWrite = fmt.Errorf("%w: short write", disk.ErrIO)

// readFile returns the content of a file, nil if there is none.
func readFile(fs disk.FS, name string) ([]byte, error) {
	f, err := fs.Open(name, 0)
	if errors.Is(err, disk.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("read %s: %d of %d bytes: %w", name, n, size, err)
	}
	return b, nil
}

// maxReads is how often what looks damaged is read again: a wrong bit may come from the reading alone.
const maxReads = 8

// removeIfThere removes a file that need not exist.
func removeIfThere(fs disk.FS, name string) error {
	err := fs.Remove(name)
	if errors.Is(err, disk.ErrNotExist) {
		return nil
	}
	return err
}
