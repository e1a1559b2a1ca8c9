package record

import (
	"fmt"
	"hash/crc32"
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
	raw, h, err := frame(records)
	if len(records) == 0 {
		err = fmt.Errorf("%w: no records", ErrOneBatch)
	}
	if err != nil {
		return Checked{Err: err}
	}
	headerErr := h.checkProduced()
	if len(raw) != len(records) {
		headerErr = fmt.Errorf("%w: %d bytes follow the first", ErrOneBatch, len(records)-len(raw))
	}
	w := walk{header: h, buf: raw[HeaderSize:]}
	var sum uint32
	if headerErr == nil && h.Attributes.Codec() == Uncompressed {
		sum = w.hashing(raw)
	} else {
		sum = checksum(raw)
	}
	// A wrong CRC makes every other finding doubtful, so it comes first.
	if err := h.checkCRC(sum); err != nil {
		return Checked{Err: err}
	}
	if headerErr != nil {
		return Checked{Err: headerErr}
	}
	b := Batch{raw}
	if b.Codec() != Uncompressed {
		err = w.decompressed(b, d, lim)
	} else {
		err = w.end()
	}
	if err != nil {
		return Checked{Err: err}
	}
	if w.info.MaxTimestamp != h.MaxTimestamp {
		b.setTimestamp(h.Attributes, w.info.MaxTimestamp)
	}
	return Checked{Batch: b, Info: w.info}
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

// walk goes over the records of a producer's batch, without copying or allocating.
type walk struct {
	header Header
	buf    []byte // the records, uncompressed
	at     int
	count  int32 // records so far
	info   Info
	err    error
}

// hashChunk is how many bytes are hashed before their records are looked at: few
// enough to be still in the nearest cache, for going over a large batch twice
// would cost more in waiting for memory than the whole CRC.
const hashChunk = 32 << 10

// hashing computes the CRC of an uncompressed batch and walks over its records
// behind it. What it finds means nothing if the CRC turns out to be wrong.
func (w *walk) hashing(raw []byte) uint32 {
	w.begin()
	var sum uint32
	for from := atAttributes; from < len(raw); from += hashChunk {
		to := min(from+hashChunk, len(raw))
		sum = crc32.Update(sum, castagnoli, raw[from:to])
		w.until(to - HeaderSize)
	}
	return sum
}

// decompressed walks over the records of a compressed batch.
func (w *walk) decompressed(b Batch, d Decompressor, lim Limits) error {
	plain, owned, err := b.plain(d, lim)
	if err != nil {
		return err
	}
	w.buf = plain
	w.begin()
	w.until(len(plain))
	if owned {
		d.Release(plain)
	}
	return w.end()
}

func (w *walk) begin() { w.info = Info{MinTimestamp: math.MaxInt64, MaxTimestamp: NoTimestamp} }

// until walks over the records that begin before limit.
func (w *walk) until(limit int) {
	var f fields
	for w.at < limit && w.count < w.header.Count && w.err == nil {
		next, err := f.parse(w.buf, w.at)
		if err != nil {
			w.err = fmt.Errorf("record %d of %d: %w", w.count, w.header.Count, err)
			return
		}
		w.see(&f)
		w.at = next
		w.count++
	}
}

// see looks at the fields of the next record.
func (w *walk) see(f *fields) {
	if f.offsetDelta != w.count {
		w.err = fmt.Errorf("%w: record %d has offset delta %d", ErrOffsets, w.count, f.offsetDelta)
		return
	}
	timestamp, ok := addTimestamp(w.header.BaseTimestamp, f.timestampDelta)
	if !ok {
		w.err = fmt.Errorf("record %d of %d: %w: timestamp overflows", w.count, w.header.Count, ErrRecord)
		return
	}
	if f.keyLen < 0 && !w.info.NullKeys {
		w.info.NullKeys, w.info.FirstNullKey = true, w.count
	}
	w.info.MaxTimestamp = max(w.info.MaxTimestamp, timestamp)
	if timestamp != NoTimestamp {
		w.info.MinTimestamp = min(w.info.MinTimestamp, timestamp)
	}
}

// end says what was wrong once all is walked over.
func (w *walk) end() error {
	switch {
	case w.err != nil:
		return w.err
	case w.count != w.header.Count:
		return fmt.Errorf("%w: %d of %d", ErrCount, w.count, w.header.Count)
	case w.at != len(w.buf):
		return fmt.Errorf("%w: %d bytes follow the last of %d records", ErrCount, len(w.buf)-w.at, w.header.Count)
	}
	if w.info.MinTimestamp == math.MaxInt64 {
		w.info.MinTimestamp = NoTimestamp
	}
	return nil
}

// addTimestamp adds a delta to a base timestamp, or says that it overflows.
func addTimestamp(base, delta int64) (int64, bool) {
	sum := base + delta
	return sum, (sum > base) == (delta > 0)
}
