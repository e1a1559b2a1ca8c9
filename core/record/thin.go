package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Brief is what compaction looks at of a record. Its key is valid during the call that it is given to.
type Brief struct {
	Offset    int64
	Key       []byte // nil is null
	Tombstone bool   // the value is null
}

func (c *cursor) brief(f *fields) Brief {
	return Brief{
		Offset:    c.header.BaseOffset + int64(f.offsetDelta),
		Key:       slice(c.buf, f.key, f.keyLen),
		Tombstone: f.valueLen < 0,
	}
}

// Briefs calls visit for the records of a batch, in order, until it returns false.
func (b Batch) Briefs(d Decompressor, lim Limits, visit func(Brief) bool) error {
	plain, owned, err := b.plain(d, lim)
	if err != nil {
		return err
	}
	if owned {
		defer d.Release(plain)
	}
	c := cursor{header: b.Header(), buf: plain, lastDelta: -1}
	var f fields
	for !c.done() {
		if _, err := c.step(&f); err != nil {
			return err
		}
		if !visit(c.brief(&f)) {
			return nil
		}
	}
	return nil
}

// Hollow returns a batch without records that spans the offsets of h's, and the sequences if it keeps its producer: what
// compaction leaves where nothing else says where a log or a producer has got to.
func (h Header) Hollow(keepProducer bool) Batch {
	h.Length, h.Count = HeaderSize-lengthFrom, 0
	h.Attributes &^= codecMask | AttributeDeleteHorizon
	h.BaseTimestamp = h.MaxTimestamp
	if !keepProducer {
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = NoProducerID, NoProducerEpoch, NoSequence
		h.Attributes &= attributesOfNoProducers
	}
	raw := make([]byte, HeaderSize)
	h.write(raw)
	binary.BigEndian.PutUint32(raw[atCRC:], checksum(raw))
	return Batch{raw}
}

// Thinner takes records out of batches, as compaction does. What is left keeps its offsets, and the batch its base
// offset, last offset, epoch, producer and sequences.
type Thinner struct {
	Decompressor Decompressor
	Compressor   Compressor
	Limits       Limits

	kept []part
	buf  []byte
}

// part is the place of a record that stays, and its timestamp as it is stored.
type part struct {
	from, to  int
	timestamp int64
}

// Thinned is what Thin leaves of a batch.
type Thinned struct {
	Batch   Batch // the very batch that it was if it did not change; valid until the next call of Thin
	Changed bool
	Kept    int // records
	Removed int
	// Tombstones says that there are some among the records that were kept.
	Tombstones bool
}

// Thin returns the batch with those of its records that keep says, which is asked once for each, in order. If a
// tombstone is among them and the batch has no delete horizon yet, it is given one (KIP-534): horizon, in milliseconds, 0
// for none. Where no record is left there is no batch either; see Hollow.
func (t *Thinner) Thin(b Batch, horizon int64, keep func(Brief) bool) (Thinned, error) {
	plain, owned, err := b.plain(t.Decompressor, t.Limits)
	if err != nil {
		return Thinned{}, err
	}
	if owned {
		defer t.Decompressor.Release(plain)
	}
	h := b.Header()
	latest, tombstones, err := t.choose(h, plain, keep)
	if err != nil {
		return Thinned{}, err
	}
	out := Thinned{Kept: len(t.kept), Removed: int(h.Count) - len(t.kept), Tombstones: tombstones}
	if out.Kept == 0 {
		out.Changed = out.Removed > 0
		return out, nil
	}
	if !tombstones || h.Attributes&AttributeDeleteHorizon != 0 || !t.shiftable(horizon) {
		horizon = 0
	}
	if out.Removed == 0 && horizon == 0 {
		out.Batch = b
		return out, nil
	}
	out.Changed = true
	if h.Attributes&AttributeLogAppendTime == 0 {
		h.MaxTimestamp = latest
	}
	out.Batch, err = t.rebuild(h, plain, horizon)
	return out, err
}

// choose notes the records that stay: the latest timestamp among them, and whether a tombstone is.
func (t *Thinner) choose(h Header, plain []byte, keep func(Brief) bool) (latest int64, tombstones bool, err error) {
	t.kept, latest = t.kept[:0], NoTimestamp
	c := cursor{header: h, buf: plain, lastDelta: -1}
	var f fields
	for !c.done() {
		from := c.at
		timestamp, err := c.step(&f)
		if err != nil {
			return 0, false, err
		}
		r := c.brief(&f)
		if !keep(r) {
			continue
		}
		stored, _ := addTimestamp(h.BaseTimestamp, f.timestampDelta)
		t.kept = append(t.kept, part{from, c.at, stored})
		latest, tombstones = max(latest, timestamp), tombstones || r.Tombstone
	}
	return latest, tombstones, nil
}

// shiftable says that the timestamps can be stored relative to another base.
func (t *Thinner) shiftable(base int64) bool {
	for _, p := range t.kept {
		if d := p.timestamp - base; base <= 0 || (d < 0) != (p.timestamp < base) {
			return false
		}
	}
	return true
}

// rebuild makes the batch of the records that stay.
func (t *Thinner) rebuild(h Header, plain []byte, horizon int64) (Batch, error) {
	t.buf = append(t.buf[:0], make([]byte, HeaderSize)...)
	for _, p := range t.kept {
		if horizon == 0 {
			t.buf = append(t.buf, plain[p.from:p.to]...)
		} else {
			t.buf = appendShifted(t.buf, plain[p.from:p.to], p.timestamp-horizon)
		}
	}
	if horizon != 0 {
		h.BaseTimestamp = horizon
		h.Attributes |= AttributeDeleteHorizon
	}
	raw := t.buf
	if codec := h.Attributes.Codec(); codec != Uncompressed {
		if t.Compressor == nil {
			return Batch{}, fmt.Errorf("%w: %v", ErrCodec, codec)
		}
		var err error
		if raw, err = t.Compressor.Compress(make([]byte, HeaderSize, HeaderSize+len(raw)/2), codec, raw[HeaderSize:]); err != nil {
			return Batch{}, fmt.Errorf("compress records with %v: %w", codec, err)
		}
	}
	if len(raw) > math.MaxInt32 {
		return Batch{}, fmt.Errorf("%w: a batch of %d bytes", ErrTooLarge, len(raw))
	}
	h.Count, h.Length = int32(len(t.kept)), int32(len(raw)-lengthFrom)
	h.write(raw)
	binary.BigEndian.PutUint32(raw[atCRC:], checksum(raw))
	return Batch{raw}, nil
}

// appendShifted appends a record with another timestamp delta. It was parsed before.
func appendShifted(dst, rec []byte, delta int64) []byte {
	_, body := varint(rec, 0)
	_, rest := varlong(rec, body+1)
	dst = appendVarint(dst, int64(1+varintSize(delta)+len(rec)-rest))
	dst = append(dst, rec[body])
	dst = appendVarint(dst, delta)
	return append(dst, rec[rest:]...)
}
