package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// HeaderSize is the size of a batch's header in bytes; the records follow it.
const HeaderSize = 61

// MaxSize is the largest size of a whole batch in bytes.
const MaxSize = math.MaxInt32

// What stands for "none" in the fields of a batch.
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoLeaderEpoch   int32 = -1
	NoTimestamp     int64 = -1
)

// Where the fields of the header are. The CRC covers all from atAttributes on,
// so neither the base offset nor the leader epoch.
const (
	atBaseOffset      = 0
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	magic2     = 2
	lengthFrom = atLeaderEpoch // the length field counts the bytes from here on
)

// Attributes are the flags of a batch.
type Attributes int16

// The bits of Attributes.
const (
	codecMask               Attributes = 7
	AttributeLogAppendTime  Attributes = 1 << 3
	AttributeTransactional  Attributes = 1 << 4
	AttributeControl        Attributes = 1 << 5
	AttributeDeleteHorizon  Attributes = 1 << 6 // KIP-534: the base timestamp is a delete horizon
	attributesOfNoProducers            = AttributeControl | AttributeLogAppendTime | AttributeDeleteHorizon
)

// Codec returns the compression codec, which need not be Known.
func (a Attributes) Codec() Codec { return Codec(a & codecMask) }

// Header is the header of a batch: all of its 61 bytes.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after this field
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   int64 // milliseconds; timestamps of records are relative to it
	MaxTimestamp    int64 // milliseconds
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// ParseHeader reads the header at the start of buf and checks everything that
// can be checked without the records: ErrTruncated if buf is shorter than a
// header, ErrLength, ErrMagic, ErrHeader. It does not look at the CRC, so
// what it returns is not yet to be believed; a scan over a segment steps by Size.
func ParseHeader(buf []byte) (Header, error) {
	if len(buf) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes are less than a header", ErrTruncated, len(buf))
	}
	h := readHeader(buf)
	return h, h.check()
}

// readHeader reads the fields as they are.
func readHeader(buf []byte) Header {
	_ = buf[HeaderSize-1]
	be := binary.BigEndian
	return Header{
		BaseOffset:      int64(be.Uint64(buf[atBaseOffset:])),
		Length:          int32(be.Uint32(buf[atLength:])),
		LeaderEpoch:     int32(be.Uint32(buf[atLeaderEpoch:])),
		Magic:           int8(buf[atMagic]),
		CRC:             be.Uint32(buf[atCRC:]),
		Attributes:      Attributes(be.Uint16(buf[atAttributes:])),
		LastOffsetDelta: int32(be.Uint32(buf[atLastOffsetDelta:])),
		BaseTimestamp:   int64(be.Uint64(buf[atBaseTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(buf[atMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(buf[atProducerID:])),
		ProducerEpoch:   int16(be.Uint16(buf[atProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(buf[atBaseSequence:])),
		Count:           int32(be.Uint32(buf[atCount:])),
	}
}

// write writes the fields to the first HeaderSize bytes of buf.
func (h Header) write(buf []byte) {
	_ = buf[HeaderSize-1]
	be := binary.BigEndian
	be.PutUint64(buf[atBaseOffset:], uint64(h.BaseOffset))
	be.PutUint32(buf[atLength:], uint32(h.Length))
	be.PutUint32(buf[atLeaderEpoch:], uint32(h.LeaderEpoch))
	buf[atMagic] = byte(h.Magic)
	be.PutUint32(buf[atCRC:], h.CRC)
	be.PutUint16(buf[atAttributes:], uint16(h.Attributes))
	be.PutUint32(buf[atLastOffsetDelta:], uint32(h.LastOffsetDelta))
	be.PutUint64(buf[atBaseTimestamp:], uint64(h.BaseTimestamp))
	be.PutUint64(buf[atMaxTimestamp:], uint64(h.MaxTimestamp))
	be.PutUint64(buf[atProducerID:], uint64(h.ProducerID))
	be.PutUint16(buf[atProducerEpoch:], uint16(h.ProducerEpoch))
	be.PutUint32(buf[atBaseSequence:], uint32(h.BaseSequence))
	be.PutUint32(buf[atCount:], uint32(h.Count))
}

// check says what is wrong with the header. What only producers must keep to
// is checked in Check: compaction leaves gaps and batches without records.
func (h Header) check() error {
	const overhead = HeaderSize - lengthFrom
	switch {
	case h.Length < overhead || h.Length > MaxSize-lengthFrom:
		return fmt.Errorf("%w: %d", ErrLength, h.Length)
	case h.Magic != magic2:
		return fmt.Errorf("%w: %d", ErrMagic, h.Magic)
	case h.BaseOffset < 0:
		return fmt.Errorf("%w: base offset %d", ErrHeader, h.BaseOffset)
	case h.LastOffsetDelta < 0 || h.BaseOffset > math.MaxInt64-1-int64(h.LastOffsetDelta):
		return fmt.Errorf("%w: base offset %d, last offset delta %d", ErrHeader, h.BaseOffset, h.LastOffsetDelta)
	case h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrHeader, h.Count, h.LastOffsetDelta)
	}
	return nil
}

// Size returns the size of the whole batch in bytes.
func (h Header) Size() int { return lengthFrom + int(h.Length) }

// LastOffset returns the offset of the last record, or where it was before compaction.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset returns the offset that follows the batch.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence returns the sequence of the last record, NoSequence if the
// batch has no producer id (some clients count up the sequence even so).
func (h Header) LastSequence() int32 {
	if h.ProducerID < 0 || h.BaseSequence < 0 {
		return NoSequence
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}

// AddSequence returns the sequence n records after seq; after 2^31-1 comes 0.
func AddSequence(seq, n int32) int32 { return int32((uint32(seq) + uint32(n)) & math.MaxInt32) }
