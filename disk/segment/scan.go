package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"lockstep/core/record"
	"lockstep/disk"
)

// scanner walks over the batches of a segment's bytes [pos, end).
type scanner struct {
	f    io.ReaderAt
	name string // of the file, for errors
	pos  int64  // of the batch at hand
	end  int64
	// next is the base offset that the batch at hand must have, or with gaps (compaction leaves them) at least; -1 if
	// any will do. No CRC covers it, so that is the only check.
	next  int64
	gaps  bool
	epoch int32 // which the batch's is not below; no CRC covers that either
	// twice: all is read until two reads agree, because what no CRC covers is to be written down again.
	twice bool

	buf         []byte // of the file, from at on
	at          int64
	last        int     // size of the batch before, to guess how far to read ahead
	walked      int     // batches stepped over
	pooled      *[]byte // buf's memory at first
	pooledAgain *[]byte
	again       []byte // of twice
}

const (
	headerChunk = 512       // read for a header where batches are large
	scanChunk   = 64 << 10  // and where they are small, to have many at once
	smallBatch  = 8 << 10   // which is below this
	crcChunk    = 256 << 10 // read ahead where whole batches are read
	lengthEnd   = 12        // base offset and length: what of a header tells the batch's size
)

// zeros is what room prepared ahead holds.
var zeros [256 << 10]byte

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, crcChunk); return &b }}

// errZeros: there is no batch, only room that was prepared for one.
var errZeros = errors.New("zeros")

// newScanner returns a scanner; close gives its memory back.
func newScanner(f io.ReaderAt, name string, pos, end int64) *scanner {
	b := scanBuffers.Get().(*[]byte)
	return &scanner{f: f, name: name, pos: pos, end: end, next: -1, gaps: true, epoch: record.NoLeaderEpoch, buf: (*b)[:0], at: pos, pooled: b}
}

// scan returns a scanner over the first size bytes of a segment's file, at its start.
func (l *Log) scan(seg *segment, f io.ReaderAt, size int64) *scanner {
	s := newScanner(f, seg.name(logExt), 0, size)
	s.next, s.gaps = seg.base, l.mayHaveGaps()
	return s
}

// seek goes to a position at which a batch begins whose base offset is known, or -1.
func (s *scanner) seek(pos, next int64) { s.pos, s.next, s.walked = pos, next, 0 }

func (s *scanner) close() {
	scanBuffers.Put(s.pooled)
	if s.pooledAgain != nil {
		scanBuffers.Put(s.pooledAgain)
	}
}

// done says that nothing is left.
func (s *scanner) done() bool { return s.pos >= s.end }

// window returns n bytes at pos, having read ahead if they were not there.
func (s *scanner) window(n, ahead int) ([]byte, error) {
	if s.pos < s.at || s.pos+int64(n) > s.at+int64(len(s.buf)) {
		if err := s.fill(max(n, ahead)); err != nil {
			return nil, err
		}
		if len(s.buf) < n {
			return nil, corrupt(s.name, s.pos, "file ends %d bytes on, where there should be %d", len(s.buf), s.end-s.pos)
		}
	}
	from := int(s.pos - s.at)
	return s.buf[from : from+n : from+n], nil
}

// fill reads n bytes at pos, or what is left.
func (s *scanner) fill(n int) error {
	n = int(min(int64(n), s.end-s.pos))
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	s.buf, s.at = s.buf[:n], s.pos
	got, err := s.f.ReadAt(s.buf, s.pos)
	s.buf = s.buf[:got]
	if err := s.readAgain(); err != nil {
		return err
	}
	if got < n && err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s at %d: %w", s.name, s.pos, err)
	}
	return nil
}

// readAgain reads what was read again, if that is asked for, until two reads agree.
func (s *scanner) readAgain() error {
	if !s.twice || len(s.buf) == 0 {
		return nil
	}
	if s.again == nil {
		s.pooledAgain = scanBuffers.Get().(*[]byte)
		s.again = *s.pooledAgain
	}
	if len(s.again) < len(s.buf) {
		s.again = make([]byte, len(s.buf))
	}
	again := s.again[:len(s.buf)]
	for range maxReads {
		if err := readFull(s.f, again, s.at); err != nil {
			return fmt.Errorf("read %s again: %w", s.name, err)
		}
		if bytes.Equal(again, s.buf) {
			return nil
		}
		copy(s.buf, again)
	}
	return fmt.Errorf("read %s at %d: %w", s.name, s.at, errDisagree)
}

// header parses the header of the batch at pos. What it says is not checked by a CRC. An error that is not an I/O error is a
// CorruptError, or errZeros.
func (s *scanner) header() (h record.Header, err error) {
	if h, err = s.parseHeader(); errors.Is(err, ErrCorrupt) {
		err = s.confirm(func() error { h, err = s.parseHeader(); return err })
	}
	return h, err
}

// batch parses the batch at pos, CRC and all (museum C04: length alone makes no
// batch). It stays valid until the next call. Errors are as header's.
func (s *scanner) batch() (b record.Batch, err error) {
	if b, err = s.parseBatch(); errors.Is(err, ErrCorrupt) {
		err = s.confirm(func() error { b, err = s.parseBatch(); return err })
	}
	return b, err
}

// confirm parses again, from bytes read again, until that succeeds or reads agree that it does not: a wrong bit may come
// from the reading alone, and nothing must be cut or set aside for that.
func (s *scanner) confirm(parse func() error) error {
	var last []byte
	agreed := 0
	for range maxReads {
		s.buf, s.at = s.buf[:0], s.pos
		err := parse()
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
		if agreed++; last == nil || !bytes.Equal(s.buf, last) {
			agreed = 0
		}
		if agreed == 2 {
			return err
		}
		last = append(last[:0], s.buf...)
	}
	return fmt.Errorf("read %s at %d: %w: reads do not agree", s.name, s.pos, disk.ErrIO)
}

func (s *scanner) parseHeader() (record.Header, error) {
	if s.end-s.pos < record.HeaderSize {
		return record.Header{}, s.tail()
	}
	ahead := headerChunk
	if s.last > 0 && s.last < smallBatch {
		ahead = scanChunk
	}
	b, err := s.window(record.HeaderSize, ahead)
	if err != nil {
		return record.Header{}, err
	}
	h, err := record.ParseHeader(b)
	switch {
	case err != nil && allZero(b):
		return h, errZeros
	case err != nil:
		return h, corrupt(s.name, s.pos, "%v", err)
	case int64(h.Size()) > s.end-s.pos:
		return h, corrupt(s.name, s.pos, "batch of %d bytes, %d are left", h.Size(), s.end-s.pos)
	}
	return h, s.follows(h.BaseOffset)
}

// follows checks the base offset of the batch at hand.
func (s *scanner) follows(base int64) error {
	if s.next < 0 || base == s.next || base > s.next && s.gaps {
		return nil
	}
	return corrupt(s.name, s.pos, "batch at offset %d, where %d should be", base, s.next)
}

func (s *scanner) parseBatch() (record.Batch, error) {
	if s.end-s.pos < record.HeaderSize {
		return record.Batch{}, s.tail()
	}
	b, err := s.window(lengthEnd, crcChunk)
	if err != nil {
		return record.Batch{}, err
	}
	size := int64(lengthEnd) + int64(int32(binary.BigEndian.Uint32(b[8:])))
	if size < record.HeaderSize || size > s.end-s.pos {
		_, err := s.parseHeader() // which says it better
		if err == nil {
			err = corrupt(s.name, s.pos, "batch of %d bytes", size)
		}
		return record.Batch{}, err
	}
	if b, err = s.window(int(size), crcChunk); err != nil {
		return record.Batch{}, err
	}
	batch, _, err := record.Parse(b)
	if err != nil {
		return record.Batch{}, corrupt(s.name, s.pos, "%v", err)
	}
	if e := batch.LeaderEpoch(); e < s.epoch {
		return batch, corrupt(s.name, s.pos, "batch of epoch %d after one of epoch %d", e, s.epoch)
	}
	return batch, s.follows(batch.BaseOffset())
}

// tail is the error where less than a header is left.
func (s *scanner) tail() error {
	b, err := s.window(int(s.end-s.pos), 0)
	switch {
	case err != nil:
		return err
	case allZero(b):
		return errZeros
	}
	return corrupt(s.name, s.pos, "%d bytes are less than a batch", len(b))
}

// step goes to the next batch, after one of a size and the offset that follows on it.
func (s *scanner) step(size int, next int64) {
	s.pos += int64(size)
	s.next = next
	s.last = size
	s.walked++
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
