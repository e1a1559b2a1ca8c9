package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Builder builds batches, one after another. Set the fields, Add records,
// Build; the fields stay for the next batch.
type Builder struct {
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Attributes    Attributes // flags; the codec comes from Codec
	Codec         Codec
	Compressor    Compressor // needed unless Codec is Uncompressed

	buf       []byte // room for the header, then the records, uncompressed
	baseTime  int64
	maxTime   int64
	lastDelta int32
	count     int32
	err       error // of the first Add that failed
}

// NewBuilder returns a Builder of an uncompressed batch at offset 0 that has
// no leader epoch and no producer.
func NewBuilder() *Builder {
	return &Builder{
		LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID,
		ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence,
	}
}

// Reset forgets the records, not the fields.
func (b *Builder) Reset() {
	b.buf, b.baseTime, b.maxTime, b.lastDelta, b.count, b.err = b.buf[:0], 0, 0, 0, 0, nil
}

// Grow makes room for n more bytes of records.
func (b *Builder) Grow(n int) { b.buf = slices.Grow(b.buf, HeaderSize-min(HeaderSize, len(b.buf))+n) }

// Count returns how many records were added.
func (b *Builder) Count() int { return int(b.count) }

// Size returns the size that the batch has so far in bytes, before compression.
func (b *Builder) Size() int { return max(len(b.buf), HeaderSize) }

// Add adds a record at the next offset. The record's own Offset is not looked at.
func (b *Builder) Add(r Record) *Builder {
	r.Offset = b.BaseOffset
	if b.count > 0 {
		r.Offset += int64(b.lastDelta) + 1
	}
	return b.AddAt(r)
}

// AddAt adds a record at its Offset, which must be above that of the record
// before and not below BaseOffset: what compaction leaves has gaps.
func (b *Builder) AddAt(r Record) *Builder {
	if b.err != nil {
		return b
	}
	delta := r.Offset - b.BaseOffset
	if delta < 0 || delta > math.MaxInt32 || b.count > 0 && delta <= int64(b.lastDelta) {
		b.err = fmt.Errorf("%w: offset %d in a batch at %d", ErrOffsets, r.Offset, b.BaseOffset)
		return b
	}
	if b.count == 0 {
		b.Grow(0)
		b.buf = b.buf[:HeaderSize]
		b.baseTime, b.maxTime = r.Timestamp, NoTimestamp
	}
	timeDelta := r.Timestamp - b.baseTime
	if (timeDelta < 0) != (r.Timestamp < b.baseTime) {
		b.err = fmt.Errorf("%w: timestamp %d is too far from %d", ErrRecord, r.Timestamp, b.baseTime)
		return b
	}
	size := bodySize(&r, timeDelta, delta)
	if len(b.buf)+size > MaxSize-varintMax {
		b.err = fmt.Errorf("%w: a batch of over %d bytes", ErrTooLarge, MaxSize)
		return b
	}
	b.buf = appendRecord(b.buf, &r, size, timeDelta, delta)
	b.maxTime = max(b.maxTime, r.Timestamp)
	b.lastDelta = int32(delta)
	b.count++
	return b
}

// varintMax is the largest size of a record's length field in bytes.
const varintMax = 5

// bodySize returns the size of a record in bytes, without its length field.
func bodySize(r *Record, timeDelta, offsetDelta int64) int {
	n := 1 + varintSize(timeDelta) + varintSize(offsetDelta) + bytesSize(r.Key) + bytesSize(r.Value) +
		varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		n += varintSize(int64(len(r.Headers[i].Key))) + len(r.Headers[i].Key) + bytesSize(r.Headers[i].Value)
	}
	return n
}

func bytesSize(p []byte) int {
	if p == nil {
		return 1
	}
	return varintSize(int64(len(p))) + len(p)
}

func appendRecord(dst []byte, r *Record, size int, timeDelta, offsetDelta int64) []byte {
	dst = appendVarint(dst, int64(size))
	dst = append(dst, byte(r.Attributes))
	dst = appendVarint(dst, timeDelta)
	dst = appendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = appendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = appendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendBytes(dst, r.Headers[i].Value)
	}
	return dst
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int64(len(p))), p...)
}

// Build returns the batch and forgets its records. It fails if an Add did
// (ErrOffsets, ErrRecord, ErrTooLarge), if there is no record (ErrCount), or
// with what the Compressor says.
func (b *Builder) Build() (Batch, error) {
	defer b.Reset()
	if b.err != nil {
		return Batch{}, b.err
	}
	if b.count == 0 {
		return Batch{}, fmt.Errorf("%w: no records", ErrCount)
	}
	raw, err := b.compressed()
	if err != nil {
		return Batch{}, err
	}
	h := Header{
		BaseOffset: b.BaseOffset, Length: int32(len(raw) - lengthFrom), LeaderEpoch: b.LeaderEpoch, Magic: magic2,
		Attributes: b.Attributes&^codecMask | Attributes(b.Codec), LastOffsetDelta: b.lastDelta,
		BaseTimestamp: b.baseTime, MaxTimestamp: b.maxTime,
		ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch, BaseSequence: b.BaseSequence, Count: b.count,
	}
	if err := h.check(); err != nil {
		return Batch{}, err
	}
	h.write(raw)
	binary.BigEndian.PutUint32(raw[atCRC:], checksum(raw))
	return Batch{raw}, nil
}

// compressed returns the batch's bytes, whose header is not yet written.
func (b *Builder) compressed() ([]byte, error) {
	if b.Codec == Uncompressed {
		raw := b.buf[:len(b.buf):len(b.buf)]
		b.buf = nil // it is the batch's now
		return raw, nil
	}
	if !b.Codec.Known() || b.Compressor == nil {
		return nil, fmt.Errorf("%w: %v", ErrCodec, b.Codec)
	}
	raw, err := b.Compressor.Compress(make([]byte, HeaderSize, HeaderSize+len(b.buf)/2), b.Codec, b.buf[HeaderSize:])
	if err != nil {
		return nil, fmt.Errorf("compress records with %v: %w", b.Codec, err)
	}
	if len(raw) > MaxSize {
		return nil, fmt.Errorf("%w: a batch of %d bytes", ErrTooLarge, len(raw))
	}
	return raw, nil
}
