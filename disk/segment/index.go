package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"lockstep/disk"
)

// entry is one entry of a segment's sparse index, which serves lookups by
// offset, by position and by time. It names the first byte of a batch.
type entry struct {
	rel          uint32 // base offset of the batch, less that of the segment
	pos          uint32
	maxTimestamp int64 // of all batches of the segment before this one
}

// An entry is stored in 20 bytes, big endian: rel, pos, maxTimestamp, and the
// CRC-32C of these, begun with the segment's base offset. Index files are never synced: an entry is
// believed if its CRC is right and the batch it names is there, and an index
// that is missing, short or broken is made anew from the segment.
const (
	entrySize    = 20
	flushEntries = 64   // written when so many are pending
	maxPending   = 4096 // where they cannot be written, the index only gets sparser
	searchBlock  = 64   // entries read at once at the end of a search
	// rebuildAfter is how many batches a lookup walks over before the index is held to have lost something.
	rebuildAfter = 4096
)

const noTimestamp = math.MinInt64 // below every timestamp

// errIndex: the index is broken. It is not damage of the log: the segment is still all there.
var errIndex = errors.New("index is broken")

func (e entry) encode(b []byte, base int64) {
	binary.BigEndian.PutUint32(b, e.rel)
	binary.BigEndian.PutUint32(b[4:], e.pos)
	binary.BigEndian.PutUint64(b[8:], uint64(e.maxTimestamp))
	binary.BigEndian.PutUint32(b[16:], entryCRC(b, base))
}

func entryCRC(b []byte, base int64) uint32 {
	return crc32.Update(uint32(base)^uint32(base>>32), castagnoli, b[:16])
}

func decodeEntry(b []byte, base int64) (entry, bool) {
	e := entry{
		rel:          binary.BigEndian.Uint32(b),
		pos:          binary.BigEndian.Uint32(b[4:]),
		maxTimestamp: int64(binary.BigEndian.Uint64(b[8:])),
	}
	return e, binary.BigEndian.Uint32(b[16:]) == entryCRC(b, base)
}

// above says of an entry that it lies after what is sought.
type above func(e entry) bool

// floorPending returns the last pending entry that is not above. known is false if that may be one in the file instead.
// l.mu is held.
func (seg *segment) floorPending(a above) (e entry, known bool) {
	for i := len(seg.pending) - 1; i >= 0; i-- {
		if !a(seg.pending[i]) {
			return seg.pending[i], true
		}
	}
	return entry{maxTimestamp: noTimestamp}, seg.indexed == 0
}

// floor returns the last entry that is not above, or the implicit one at the segment's first byte. near says about where among the
// entries that is, from 0 to 1.
func (l *Log) floor(seg *segment, near float64, a above) (entry, error) {
	first := entry{maxTimestamp: noTimestamp}
	if err := l.countIndex(seg); err != nil {
		return first, err
	}
	l.mu.Lock()
	e, known := seg.floorPending(a)
	count := seg.indexed
	l.mu.Unlock()
	if known {
		return e, nil
	}
	f, err := l.store.files.acquire(&seg.index, seg, indexExt, 0)
	if err != nil {
		return first, fmt.Errorf("%w: %v", errIndex, err)
	}
	defer l.store.files.release(&seg.index)
	x := search{f: f, base: seg.base, hi: count, best: first}
	if err := x.run(int(near*float64(count)), a); err != nil {
		return first, err
	}
	return x.best, nil
}

// search looks for the last entry in an index file that is not above.
type search struct {
	f      io.ReaderAt
	base   int64
	lo, hi int   // entries below lo are not above, those from hi on are
	best   entry // the one before lo
	block  [searchBlock * entrySize]byte
}

// run searches, first about where the entry is guessed to be, which mostly takes one read.
func (x *search) run(guess int, a above) error {
	guess = min(max(guess, x.lo), x.hi)
	if err := x.narrow(max(x.lo, guess-searchBlock/2), a); err != nil {
		return err
	}
	for x.hi > x.lo {
		from := x.lo
		if x.hi-x.lo > searchBlock {
			from = x.lo + (x.hi-x.lo)/2
		}
		if err := x.narrow(from, a); err != nil {
			return err
		}
	}
	return nil
}

// narrow looks at a block of entries.
func (x *search) narrow(from int, a above) error {
	n := min(searchBlock, x.hi-from)
	if n <= 0 {
		return nil
	}
	if err := readFull(x.f, x.block[:n*entrySize], int64(from)*entrySize); err != nil {
		return fmt.Errorf("%w: %v", errIndex, err)
	}
	for i := range n {
		e, ok := decodeEntry(x.block[i*entrySize:], x.base)
		if !ok {
			return fmt.Errorf("%w: CRC of entry %d", errIndex, from+i)
		}
		if a(e) {
			x.hi = from + i
			return nil
		}
		x.lo, x.best = from+i+1, e
	}
	return nil
}

func readFull(f io.ReaderAt, b []byte, off int64) error {
	if n, err := f.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("read %d bytes at %d: got %d: %w", len(b), off, n, err)
	}
	return nil
}

// countIndex finds out how many entries a segment's index file has, if that is not known.
func (l *Log) countIndex(seg *segment) error {
	l.mu.Lock()
	known := seg.indexed >= 0
	l.mu.Unlock()
	if known {
		return nil
	}
	count := 0
	f, err := l.store.files.acquire(&seg.index, seg, indexExt, 0)
	switch {
	case errors.Is(err, disk.ErrNotExist):
	case err != nil:
		return err
	default:
		size, err := f.Size()
		l.store.files.release(&seg.index)
		if err != nil {
			return err
		}
		count = int(size / entrySize)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if seg.indexed < 0 {
		seg.indexed = count
	}
	return nil
}

// flushIndex writes pending entries if there are at least atLeast. If that fails they stay: lookups find
// them in memory. l.op is held.
func (l *Log) flushIndex(seg *segment, atLeast int) {
	if len(seg.pending) < max(atLeast, 1) || l.countIndex(seg) != nil {
		return
	}
	b := make([]byte, len(seg.pending)*entrySize)
	for i, e := range seg.pending {
		e.encode(b[i*entrySize:], seg.base)
	}
	f, err := l.store.files.acquire(&seg.index, seg, indexExt, disk.Create)
	if err != nil {
		return
	}
	defer l.store.files.release(&seg.index)
	if writeFull(f, b, int64(seg.indexed)*entrySize) != nil {
		return
	}
	l.mu.Lock()
	seg.indexed += len(seg.pending)
	seg.pending = nil
	l.mu.Unlock()
}

// cutIndex drops the entries at or after a position from the file. l.op is held, or the log is being recovered.
func (l *Log) cutIndex(seg *segment, pos int64) error {
	if err := l.countIndex(seg); err != nil {
		return err
	}
	l.mu.Lock()
	for n := len(seg.pending); n > 0 && int64(seg.pending[n-1].pos) >= pos; n-- {
		seg.pending = seg.pending[:n-1]
	}
	count := seg.indexed
	l.mu.Unlock()
	if count == 0 {
		return nil
	}
	f, err := l.store.files.acquire(&seg.index, seg, indexExt, 0)
	if err != nil {
		return err
	}
	defer l.store.files.release(&seg.index)
	keep := lowerEntries(f, seg.base, count, pos)
	if err := f.Truncate(int64(keep) * entrySize); err != nil {
		return err
	}
	l.mu.Lock()
	seg.indexed = keep
	l.mu.Unlock()
	return nil
}

// lowerEntries counts the entries that name positions below pos, 0 if the index is broken on the way.
func lowerEntries(f io.ReaderAt, base int64, count int, pos int64) int {
	lo, hi := 0, count
	var b [entrySize]byte
	for lo < hi {
		mid := lo + (hi-lo)/2
		if readFull(f, b[:], int64(mid)*entrySize) != nil {
			return 0
		}
		switch e, ok := decodeEntry(b[:], base); {
		case !ok:
			return 0
		case int64(e.pos) < pos:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo
}

// rebuildIndex makes a segment's index anew. l.op must not be held.
func (l *Log) rebuildIndex(seg *segment) {
	l.op.Lock()
	defer l.op.Unlock()
	if l.store.usable() != nil || seg.isRemoved() {
		return
	}
	entries, err := l.indexOf(seg)
	if err != nil {
		return // the lookup that asked for it walked, and whoever reads the damaged place is told
	}
	b := make([]byte, len(entries)*entrySize)
	for i, e := range entries {
		e.encode(b[i*entrySize:], seg.base)
	}
	l.mu.Lock() // until it is written there is none, and lookups walk
	seg.indexed, seg.pending = 0, nil
	l.mu.Unlock()
	f, err := l.store.files.acquire(&seg.index, seg, indexExt, disk.Create)
	if err != nil {
		return
	}
	defer l.store.files.release(&seg.index)
	if f.Truncate(0) != nil || writeFull(f, b, 0) != nil {
		return
	}
	l.mu.Lock()
	seg.indexed = len(entries)
	l.mu.Unlock()
}

// indexOf walks over a whole segment and returns its index.
func (l *Log) indexOf(seg *segment) ([]entry, error) {
	f, err := l.acquire(seg)
	if err != nil {
		return nil, err
	}
	defer l.release(seg)
	l.mu.Lock()
	size, interval := seg.size, l.indexInterval()
	l.mu.Unlock()
	s := l.scan(seg, f, size)
	defer s.close()
	mirror := segment{base: seg.base, maxTimestamp: noTimestamp}
	var all []entry
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return nil, err
		}
		mirror.add(h.BaseOffset, h.Size(), latestIn(h.Count, h.MaxTimestamp), interval)
		all = append(all, mirror.pending...)
		mirror.pending = mirror.pending[:0]
		s.step(h.Size(), h.NextOffset())
	}
	return all, nil
}
