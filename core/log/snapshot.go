package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"lockstep/core"
)

// A snapshot is: the magic, a version byte, the CRC-32C of what follows (big endian), and then varints: exactFrom, the
// producers in the order of their last offsets, what is kept to undo the uncommitted tail, and the transactions
// whose markers are not committed. Equal tables have equal snapshots.
const (
	snapshotMagic   = "LKPT"
	snapshotVersion = 1
	snapshotHead    = len(snapshotMagic) + 1 + 4
)

// Errors of LoadSnapshot.
var (
	ErrSnapshot        = errors.New("producer snapshot is damaged")
	ErrSnapshotVersion = errors.New("producer snapshot has a version that is not known")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Flags of an undo in a snapshot.
const (
	undoCreated = 1 << iota
	undoReplaced
	undoMarker
	undoDropped
	undoEvicted
)

// Snapshot returns the table's encoding.
func (p *Producers) Snapshot() []byte {
	w := writer{buf: make([]byte, snapshotHead, snapshotHead+32+64*p.Len())}
	if p == nil {
		p = &Producers{}
	}
	w.int(p.exactFrom)
	w.int(int64(len(p.byID)))
	for e := p.head; e != nil; e = e.next {
		w.producer(e)
	}
	w.int(int64(len(p.undo) - p.undoHead))
	for i := p.undoHead; i < len(p.undo); i++ {
		w.undo(&p.undo[i])
	}
	w.int(int64(len(p.completed)))
	for _, s := range p.completed {
		w.int(s.first)
		w.int(s.last)
	}
	copy(w.buf, snapshotMagic)
	w.buf[len(snapshotMagic)] = snapshotVersion
	binary.BigEndian.PutUint32(w.buf[snapshotHead-4:], crc32.Checksum(w.buf[snapshotHead:], castagnoli))
	return w.buf
}

// LoadSnapshot returns the table that a snapshot holds. It fails with ErrSnapshot or ErrSnapshotVersion, wrapped.
func LoadSnapshot(b []byte) (*Producers, error) {
	if len(b) < snapshotHead || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("%w: no magic in %d bytes", ErrSnapshot, len(b))
	}
	if v := b[len(snapshotMagic)]; v != snapshotVersion {
		return nil, fmt.Errorf("%w: %d", ErrSnapshotVersion, v)
	}
	if got, want := crc32.Checksum(b[snapshotHead:], castagnoli), binary.BigEndian.Uint32(b[snapshotHead-4:]); got != want {
		return nil, fmt.Errorf("%w: CRC is %08x, not %08x", ErrSnapshot, got, want)
	}
	r := reader{buf: b[snapshotHead:]}
	p := NewProducers(0)
	p.exactFrom = r.int()
	for range r.count() {
		p.load(r.producer(), &r)
	}
	for range r.count() {
		p.undo = append(p.undo, r.undo())
	}
	for range r.count() {
		p.completed = append(p.completed, txnSpan{first: r.int(), last: r.int()})
	}
	if r.bad || len(r.buf) > 0 {
		return nil, fmt.Errorf("%w: %d bytes are left over", ErrSnapshot, len(r.buf))
	}
	p.reopen(1<<63 - 1)
	return p, nil
}

// load adds a producer that was read.
func (p *Producers) load(e *producer, r *reader) {
	if p.byID[e.id] != nil || p.tail != nil && p.tail.lastOffset > e.lastOffset {
		r.bad = true
	}
	if r.bad {
		return
	}
	p.insert(e)
	p.linkLast(e)
}

// writer appends varints.
type writer struct{ buf []byte }

func (w *writer) int(v int64) { w.buf = binary.AppendVarint(w.buf, v) }

func (w *writer) batch(b *Batch) {
	w.int(int64(b.FirstSequence))
	w.int(int64(b.LastSequence))
	w.int(b.Base)
	w.int(b.Last - b.Base)
	w.int(b.Timestamp)
}

func (w *writer) batches(list []Batch) {
	w.int(int64(len(list)))
	for i := range list {
		w.batch(&list[i])
	}
}

func (w *writer) producer(e *producer) {
	w.int(e.id)
	w.int(int64(e.epoch))
	w.int(e.lastOffset)
	w.int(e.txnFirst)
	w.int(int64(e.seen))
	w.batches(e.batches)
}

func (w *writer) undo(u *undo) {
	var flags int64
	for i, set := range []bool{u.created, u.replaced, u.marker, u.hasDropped, u.evicted != nil} {
		if set {
			flags |= 1 << i
		}
	}
	w.int(flags)
	w.int(u.offset)
	w.int(u.id)
	w.int(u.lastOffset)
	w.int(u.txnFirst)
	if u.replaced {
		w.int(int64(u.epoch))
		w.batches(u.batches)
	}
	if u.hasDropped {
		w.batch(&u.dropped)
	}
	if u.evicted != nil {
		w.producer(u.evicted)
	}
}

// reader reads what writer wrote; bad once it could not.
type reader struct {
	buf []byte
	bad bool
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.buf)
	if n <= 0 || r.bad {
		r.bad, r.buf = true, nil
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// count reads the length of a list, each element of which takes a byte or more.
func (r *reader) count() int {
	n := r.int()
	if n < 0 || n > int64(len(r.buf)) {
		r.bad = true
		return 0
	}
	return int(n)
}

// within reads a number that must lie between two bounds.
func (r *reader) within(low, high int64) int64 {
	v := r.int()
	if v < low || v > high {
		r.bad = true
	}
	return v
}

func (r *reader) batch() Batch {
	b := Batch{FirstSequence: int32(r.within(-1, 1<<31-1)), LastSequence: int32(r.within(-1, 1<<31-1)), Base: r.int()}
	b.Last = b.Base + r.int()
	b.Timestamp = r.int()
	return b
}

func (r *reader) batches() []Batch {
	n := r.within(0, window)
	if n == 0 || r.bad {
		return nil
	}
	list := make([]Batch, 0, window)
	for range n {
		list = append(list, r.batch())
	}
	return list
}

func (r *reader) producer() *producer {
	return &producer{
		id: r.int(), epoch: int16(r.within(-1<<15, 1<<15-1)), lastOffset: r.int(), txnFirst: r.int(),
		seen: core.WallMillis(r.int()), batches: r.batches(),
	}
}

func (r *reader) undo() undo {
	flags := r.within(0, 1<<5-1)
	u := undo{
		created: flags&undoCreated != 0, replaced: flags&undoReplaced != 0, marker: flags&undoMarker != 0,
		hasDropped: flags&undoDropped != 0,
		offset:     r.int(), id: r.int(), lastOffset: r.int(), txnFirst: r.int(),
	}
	if u.replaced {
		u.epoch, u.batches = int16(r.within(-1<<15, 1<<15-1)), r.batches()
	}
	if u.hasDropped {
		u.dropped = r.batch()
	}
	if flags&undoEvicted != 0 {
		u.evicted = r.producer()
	}
	return u
}
