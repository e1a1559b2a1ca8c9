package simdisk

import (
	"errors"
	"io"
	"time"

	"lockstep/disk"
)

// File is an open file.
type File struct {
	m      *FS
	ino    *inode
	name   string // when it was opened
	at     int    // in m.handles
	closed bool
}

var errClosed = errors.New("file is closed")

// begin is FS.begin for a call on an open file.
func (f *File) begin(op Op) (strike, error) {
	s := f.m.begin(op, f.name, f.ino)
	f.m.d.mix(f.ino.id)
	if f.closed {
		return s, wrap("use", f.name, errClosed)
	}
	return s, nil
}

// ReadAt implements disk.File.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	s, err := f.begin(OpRead)
	if err != nil {
		return 0, err
	}
	d := f.m.d
	if s.effect == IOError {
		return 0, wrap("read", f.name, disk.ErrIO)
	}
	n := int(max(0, min(int64(len(p)), f.ino.size-off)))
	f.ino.read(p[:n], off)
	d.cost += d.costs.PerKB * time.Duration(n) / 1024
	d.mix(uint64(off)<<20 ^ uint64(n))
	if s.effect == RotRead && n > 0 {
		at := s.chance.Intn(n)
		p[at] ^= 1 << s.chance.Intn(8)
		d.damages = append(d.damages, Damage{Name: f.name, Off: off + int64(at), N: 1, Effect: RotRead})
	}
	f.m.finish(s)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements disk.File.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	s, err := f.begin(OpWrite)
	if err != nil {
		return 0, err
	}
	n, err := f.write(p, off, &s)
	if n < len(p) || err != nil {
		return n, err
	}
	f.m.finish(s)
	return n, nil
}

// WriteVAt implements disk.File.
func (f *File) WriteVAt(bufs [][]byte, off int64) (int64, error) {
	s, err := f.begin(OpWrite)
	if err != nil {
		return 0, err
	}
	if s.effect != 0 { // the effect is one on the whole, so make it one
		var all []byte
		for _, b := range bufs {
			all = append(all, b...)
		}
		bufs = [][]byte{all}
	}
	var sum int64
	for _, b := range bufs {
		n, err := f.write(b, off+sum, &s)
		sum += int64(n)
		if n < len(b) || err != nil {
			return sum, err
		}
	}
	f.m.finish(s)
	return sum, nil
}

// write carries out a write as far as the strike and the room allow. An n short of len(p) without an error is a short write.
func (f *File) write(p []byte, off int64, s *strike) (int, error) {
	d, n := f.m.d, len(p)
	var err error
	switch s.effect {
	case IOError:
		n, err = s.chance.Intn(n+1), disk.ErrIO
	case NoSpace:
		n, err = s.chance.Intn(n+1), disk.ErrNoSpace
	case Short:
		if n > 0 {
			n = s.chance.Intn(n)
		}
	case Crash, PowerCut:
		if s.chance.Intn(2) == 0 {
			n = s.chance.Intn(n + 1)
		}
	case Misdirect:
		d.misdirect(f, p, off, s.chance)
		return len(p), nil
	}
	end := off + int64(n)
	if room := int64(d.reserve(f.ino, pagesOf(end))) * pageSize; room < end {
		n, err = int(max(0, room-off)), disk.ErrNoSpace
		d.stats.Refused++
	}
	if n > 0 {
		d.write(f.ino, p[:n], off)
	}
	d.cost += d.costs.PerKB * time.Duration(n) / 1024
	d.mix(uint64(off)<<20 ^ uint64(n))
	if s.crash() {
		f.m.die(*s)
	}
	if err != nil {
		return n, wrap("write", f.name, err)
	}
	return n, nil
}

// Truncate implements disk.File.
func (f *File) Truncate(size int64) error {
	s, err := f.begin(OpTruncate)
	if err != nil {
		return err
	}
	if s.effect == IOError {
		return wrap("truncate", f.name, disk.ErrIO)
	}
	f.m.d.truncate(f.ino, size)
	f.m.d.mix(uint64(size))
	f.m.finish(s)
	return nil
}

// Allocate implements disk.File.
func (f *File) Allocate(off, n int64) error {
	s, err := f.begin(OpAllocate)
	if err != nil {
		return err
	}
	if err := s.refuse(); err != nil {
		return wrap("allocate", f.name, err)
	}
	d := f.m.d
	had, want := f.ino.allocEnd, pagesOf(off+n)
	if d.reserve(f.ino, want) < want {
		d.used -= int64(f.ino.allocEnd - had)
		f.ino.allocEnd = had
		d.stats.Refused++
		return wrap("allocate", f.name, disk.ErrNoSpace)
	}
	if off+n > f.ino.size {
		d.resize(f.ino, off+n)
	}
	f.m.finish(s)
	return nil
}

// Sync implements disk.File.
func (f *File) Sync() error {
	s, err := f.begin(OpSync)
	if err != nil {
		return err
	}
	d := f.m.d
	d.cost += d.costs.Sync
	d.syncCost(f.ino)
	if s.effect == IOError || s.effect == IOErrorStale {
		d.failSync(f.ino, s)
		return wrap("sync", f.name, disk.ErrIO)
	}
	d.sync(f.ino)
	f.m.finish(s)
	return nil
}

func (d *Disk) syncCost(ino *inode) {
	if len(ino.dirtyPages) > 0 {
		d.cost += d.costs.SyncPerKB * time.Duration(ino.dirtySectors()) / (1024 / sectorSize)
	}
}

// Size implements disk.File.
func (f *File) Size() (int64, error) {
	s, err := f.begin(OpStat)
	if err != nil {
		return 0, err
	}
	if s.effect == IOError {
		return 0, wrap("stat", f.name, disk.ErrIO)
	}
	f.m.finish(s)
	return f.ino.size, nil
}

// Fd implements disk.File: there is no descriptor.
func (f *File) Fd() (uintptr, bool) { return 0, false }

// Close implements disk.File.
func (f *File) Close() error {
	s, err := f.begin(OpClose)
	if err != nil {
		return err
	}
	f.closed = true
	last := len(f.m.handles) - 1
	f.m.handles[f.at] = f.m.handles[last]
	f.m.handles[f.at].at = f.at
	f.m.handles = f.m.handles[:last]
	f.ino.open--
	f.m.d.unused(f.ino)
	f.m.finish(s)
	return nil
}
