package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Batch is one parsed batch. It refers to the bytes it was parsed from, which
// nobody may change any more but through Assign and SetAppendTime. The zero
// Batch is none: IsZero is all that may be asked of it.
type Batch struct{ raw []byte }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Parse parses the batch at the start of buf and returns its size n in bytes.
// It verifies length, magic, header and CRC-32C (rule 17), and returns
// ErrTruncated, ErrLength, ErrMagic, ErrHeader or ErrCRC, wrapped. It does not
// look into the records, which may be compressed.
func Parse(buf []byte) (b Batch, n int, err error) {
	raw, h, err := frame(buf)
	if err == nil {
		err = h.checkCRC(checksum(raw))
	}
	if err != nil {
		return Batch{}, 0, err
	}
	return Batch{raw}, len(raw), nil
}

// frame cuts out the batch at the start of buf, its CRC yet unknown.
func frame(buf []byte) (raw []byte, h Header, err error) {
	h, err = ParseHeader(buf)
	if err != nil {
		return nil, h, err
	}
	n := h.Size()
	if n > len(buf) {
		return nil, h, fmt.Errorf("%w: %d of %d bytes", ErrTruncated, len(buf), n)
	}
	return buf[:n:n], h, nil
}

func (h Header) checkCRC(sum uint32) error {
	if sum != h.CRC {
		return fmt.Errorf("%w: %08x, header says %08x", ErrCRC, sum, h.CRC)
	}
	return nil
}

// ParseAll parses the batches in buf, one after another. A batch that buf ends
// inside of is no error, because the records of a Fetch response may end so:
// used tells how many bytes the batches take. If a batch is wrong, ParseAll
// returns those before it and the error.
func ParseAll(buf []byte) (batches []Batch, used int, err error) {
	for used < len(buf) {
		b, n, err := Parse(buf[used:])
		if errors.Is(err, ErrTruncated) {
			break
		}
		if err != nil {
			return batches, used, fmt.Errorf("batch %d at byte %d: %w", len(batches), used, err)
		}
		batches = append(batches, b)
		used += n
	}
	return batches, used, nil
}

// checksum computes the CRC-32C of a whole batch.
func checksum(raw []byte) uint32 { return crc32.Checksum(raw[atAttributes:], castagnoli) }

func (b Batch) int64At(at int) int64 { return int64(binary.BigEndian.Uint64(b.raw[at:])) }
func (b Batch) int32At(at int) int32 { return int32(binary.BigEndian.Uint32(b.raw[at:])) }
func (b Batch) int16At(at int) int16 { return int16(binary.BigEndian.Uint16(b.raw[at:])) }

// IsZero says that b is no batch.
func (b Batch) IsZero() bool { return b.raw == nil }

// Bytes returns the whole batch as it is stored and sent. The caller must not change it.
func (b Batch) Bytes() []byte { return b.raw }

// Size returns the size of the whole batch in bytes.
func (b Batch) Size() int { return len(b.raw) }

// Header returns all fields of the header.
func (b Batch) Header() Header { return readHeader(b.raw) }

// BaseOffset returns the offset of the first record.
func (b Batch) BaseOffset() int64 { return b.int64At(atBaseOffset) }

// LastOffset returns the offset of the last record, or where it was before compaction.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.int32At(atLastOffsetDelta)) }

// NextOffset returns the offset that follows the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// Count returns the number of records, which after compaction may be less than the offsets the batch spans.
func (b Batch) Count() int32 { return b.int32At(atCount) }

// LeaderEpoch returns the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return b.int32At(atLeaderEpoch) }

// Attributes returns the batch's flags.
func (b Batch) Attributes() Attributes { return Attributes(b.int16At(atAttributes)) }

// Codec returns the compression codec, which need not be Known unless Check passed the batch.
func (b Batch) Codec() Codec { return b.Attributes().Codec() }

// LogAppendTime says that MaxTimestamp is the time of the append and the
// timestamp of every record, not the latest of those that the producer set.
func (b Batch) LogAppendTime() bool { return b.Attributes()&AttributeLogAppendTime != 0 }

// Transactional says that the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&AttributeTransactional != 0 }

// Control says that the batch holds control records, not data.
func (b Batch) Control() bool { return b.Attributes()&AttributeControl != 0 }

// HasDeleteHorizon says that BaseTimestamp is the time until which compaction
// keeps the batch's tombstones (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&AttributeDeleteHorizon != 0 }

// BaseTimestamp returns the timestamp, in milliseconds, that those of the records are relative to.
func (b Batch) BaseTimestamp() int64 { return b.int64At(atBaseTimestamp) }

// MaxTimestamp returns the latest timestamp of the records, in milliseconds.
func (b Batch) MaxTimestamp() int64 { return b.int64At(atMaxTimestamp) }

// ProducerID returns the id of the idempotent producer, NoProducerID if there is none.
func (b Batch) ProducerID() int64 { return b.int64At(atProducerID) }

// ProducerEpoch returns the epoch of the idempotent producer.
func (b Batch) ProducerEpoch() int16 { return b.int16At(atProducerEpoch) }

// BaseSequence returns the sequence of the first record, NoSequence if the batch has none.
func (b Batch) BaseSequence() int32 { return b.int32At(atBaseSequence) }

// LastSequence returns the sequence of the last record (after 2^31-1 comes 0), NoSequence if the batch has no producer id.
func (b Batch) LastSequence() int32 { return b.Header().LastSequence() }

// Assign writes the base offset and the leader epoch into the batch's bytes,
// in place. The CRC covers neither.
func (b Batch) Assign(baseOffset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b.raw[atBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(b.raw[atLeaderEpoch:], uint32(leaderEpoch))
}

// SetAppendTime makes ms, the wall clock at the append in milliseconds, the
// timestamp of all records (message.timestamp.type=LogAppendTime), in place.
func (b Batch) SetAppendTime(ms int64) { b.setTimestamp(b.Attributes()|AttributeLogAppendTime, ms) }

// setTimestamp writes attributes and max timestamp, and the CRC that follows
// from the one that is there and from what changed. The records are not read,
// which would cost far more than the rest of a Step; and if they were damaged
// since they were checked, the CRC still says so.
func (b Batch) setTimestamp(a Attributes, maxTimestamp int64) {
	head := b.raw[atAttributes:HeaderSize]
	before := crc32.Checksum(head, castagnoli)
	binary.BigEndian.PutUint16(b.raw[atAttributes:], uint16(a))
	binary.BigEndian.PutUint64(b.raw[atMaxTimestamp:], uint64(maxTimestamp))
	changed := before ^ crc32.Checksum(head, castagnoli)
	crc := binary.BigEndian.Uint32(b.raw[atCRC:]) ^ shiftCRC(changed, len(b.raw)-HeaderSize)
	binary.BigEndian.PutUint32(b.raw[atCRC:], crc)
}
