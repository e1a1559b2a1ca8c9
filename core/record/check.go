package record

import (
	"fmt"
	"math"
)

// Info is what validation of a batch's records found.
type Info struct {
	NullKeys     bool  // some record has no key (a compacted topic refuses it)
	FirstNullKey int32 // the index of the first such record in the batch, if NullKeys
	// MinTimestamp and MaxTimestamp are the earliest and latest timestamps that
	// the producer set, in milliseconds; NoTimestamp if it set none.
	MinTimestamp, MaxTimestamp int64
}

// Checked is what checking made of the records field of one partition of a Produce request.
type Checked struct {
	Batch Batch
	Info  Info
	Err   error // it did not pass; one of the package's errors, wrapped
}

// Check does what a broker does with the records of one partition in a Produce
// request: they must be exactly one batch, of magic 2, whose CRC is right, not
// a control batch, from offset 0 on without gaps, whose producer fields go
// together and whose records, decompressed by d within lim, are well formed.
// What depends on a topic's settings (size, keys, timestamps, zstd in old
// versions of Produce) is for the caller to decide, from Batch and Info.
//
// Like Kafka's broker it corrects one field rather than refuse the batch: a
// max timestamp that is not that of the records, which ListOffsets and
// retention rely on, is set right in records, in place, with the CRC.
func Check(records []byte, d Decompressor, lim Limits) Checked {
	b, n, err := Parse(records)
	if err != nil {
		if len(records) == 0 {
			err = fmt.Errorf("%w: no records", ErrOneBatch)
		}
		return Checked{Err: err}
	}
	if n != len(records) {
		return Checked{Err: fmt.Errorf("%w: %d bytes follow the first", ErrOneBatch, len(records)-n)}
	}
	h := b.Header()
	if err := h.checkProduced(); err != nil {
		return Checked{Err: err}
	}
	plain, owned, err := b.plain(d, lim)
	if err != nil {
		return Checked{Err: err}
	}
	info, err := checkRecords(plain, &h)
	if owned {
		d.Release(plain)
	}
	if err != nil {
		return Checked{Err: err}
	}
	if info.MaxTimestamp != h.MaxTimestamp {
		b.setTimestamp(h.Attributes, info.MaxTimestamp)
	}
	return Checked{Batch: b, Info: info}
}

// checkProduced checks what a header must be when it comes from a producer.
func (h Header) checkProduced() error {
	switch {
	case h.Attributes&AttributeControl != 0:
		return ErrControl
	case h.Attributes&AttributeLogAppendTime != 0:
		return ErrTimestampType
	case h.Attributes&AttributeDeleteHorizon != 0:
		return fmt.Errorf("%w: clients may not set a delete horizon", ErrHeader)
	case h.BaseOffset != 0:
		return fmt.Errorf("%w: base offset %d", ErrOffsets, h.BaseOffset)
	case h.Count < 1:
		return fmt.Errorf("%w: no records", ErrCount)
	case h.LastOffsetDelta != h.Count-1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrOffsets, h.Count, h.LastOffsetDelta)
	case h.ProducerID >= 0 && (h.ProducerEpoch < 0 || h.BaseSequence < 0):
		return fmt.Errorf("%w: id %d, epoch %d, sequence %d", ErrProducer, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.ProducerID < 0 && h.Attributes&AttributeTransactional != 0:
		return fmt.Errorf("%w: transactional without producer id", ErrProducer)
	case !h.Attributes.Codec().Known():
		return fmt.Errorf("%w: %v", ErrCodec, h.Attributes.Codec())
	}
	return nil
}

// checkRecords walks the records of a producer's batch without copying or allocating.
func checkRecords(buf []byte, h *Header) (Info, error) {
	info := Info{MinTimestamp: math.MaxInt64, MaxTimestamp: NoTimestamp}
	var f fields
	at := 0
	for i := int32(0); i < h.Count; i++ {
		if at == len(buf) {
			return Info{}, fmt.Errorf("%w: %d of %d", ErrCount, i, h.Count)
		}
		next, err := f.parse(buf, at)
		if err != nil {
			return Info{}, fmt.Errorf("record %d of %d: %w", i, h.Count, err)
		}
		if f.offsetDelta != i {
			return Info{}, fmt.Errorf("%w: record %d has offset delta %d", ErrOffsets, i, f.offsetDelta)
		}
		timestamp, ok := addTimestamp(h.BaseTimestamp, f.timestampDelta)
		if !ok {
			return Info{}, fmt.Errorf("record %d of %d: %w: timestamp overflows", i, h.Count, ErrRecord)
		}
		if f.keyLen < 0 && !info.NullKeys {
			info.NullKeys, info.FirstNullKey = true, i
		}
		info.MaxTimestamp = max(info.MaxTimestamp, timestamp)
		if timestamp != NoTimestamp {
			info.MinTimestamp = min(info.MinTimestamp, timestamp)
		}
		at = next
	}
	if at != len(buf) {
		return Info{}, fmt.Errorf("%w: %d bytes follow the last of %d records", ErrCount, len(buf)-at, h.Count)
	}
	if info.MinTimestamp == math.MaxInt64 {
		info.MinTimestamp = NoTimestamp
	}
	return info, nil
}

// addTimestamp adds a delta to a base timestamp, or says that it overflows.
func addTimestamp(base, delta int64) (int64, bool) {
	sum := base + delta
	return sum, (sum > base) == (delta > 0)
}
