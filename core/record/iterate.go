package record

import (
	"fmt"
	"iter"
)

// Record is one record of a batch. Its slices refer to the batch's bytes, or
// to the memory into which they were decompressed, and must not be changed.
type Record struct {
	Offset     int64
	Timestamp  int64  // milliseconds since the Unix epoch
	Key, Value []byte // nil is null, which is not the same as empty
	Headers    []RecordHeader
	Attributes int8 // none is defined
}

// RecordHeader is a header of a record: a name, and a value that may be null (nil).
type RecordHeader struct{ Key, Value []byte }

// Records iterates over the records of a batch that may come from anywhere:
// compaction may have left gaps in its offsets. An error, one of the package's,
// wrapped, is the last thing it yields. d may be nil if nothing is compressed.
func (b Batch) Records(d Decompressor, lim Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h := b.Header()
		buf, _, err := b.plain(d, lim)
		if err != nil {
			yield(Record{}, err)
			return
		}
		c := cursor{header: h, buf: buf, lastDelta: -1}
		for !c.done() {
			r, err := c.next()
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// cursor walks over the records of one batch.
type cursor struct {
	header    Header
	buf       []byte // the records, uncompressed
	at        int
	count     int32          // records so far
	lastDelta int32          // offset delta of the last one
	pool      []RecordHeader // memory for headers, cut off piece by piece
}

// done says that all is read: next is to be called also when there are bytes left, or records missing.
func (c *cursor) done() bool { return c.count == c.header.Count && c.at == len(c.buf) }

func (c *cursor) next() (Record, error) {
	var f fields
	timestamp, err := c.step(&f)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Offset:     c.header.BaseOffset + int64(f.offsetDelta),
		Timestamp:  timestamp,
		Key:        slice(c.buf, f.key, f.keyLen),
		Value:      slice(c.buf, f.value, f.valueLen),
		Headers:    c.headers(&f),
		Attributes: f.attributes,
	}, nil
}

// step parses the next record and checks that it follows on the one before. It returns the record's timestamp.
func (c *cursor) step(f *fields) (timestamp int64, err error) {
	if c.count == c.header.Count || c.at == len(c.buf) {
		return 0, fmt.Errorf("%w: %d of %d records, %d bytes left", ErrCount, c.count, c.header.Count, len(c.buf)-c.at)
	}
	next, err := f.parse(c.buf, c.at)
	if err != nil {
		return 0, fmt.Errorf("record %d of %d: %w", c.count, c.header.Count, err)
	}
	if f.offsetDelta <= c.lastDelta || f.offsetDelta > c.header.LastOffsetDelta {
		return 0, fmt.Errorf("record %d of %d: %w: offset delta %d after %d", c.count, c.header.Count,
			ErrOffsets, f.offsetDelta, c.lastDelta)
	}
	timestamp, ok := addTimestamp(c.header.BaseTimestamp, f.timestampDelta)
	if !ok {
		return 0, fmt.Errorf("record %d of %d: %w: timestamp overflows", c.count, c.header.Count, ErrRecord)
	}
	if c.header.Attributes&AttributeLogAppendTime != 0 {
		timestamp = c.header.MaxTimestamp
	}
	c.at, c.lastDelta = next, f.offsetDelta
	c.count++
	return timestamp, nil
}

// headers returns the headers of a record that parse has been over.
func (c *cursor) headers(f *fields) []RecordHeader {
	if f.headerCount == 0 {
		return nil
	}
	if cap(c.pool)-len(c.pool) < f.headerCount {
		c.pool = make([]RecordHeader, 0, max(f.headerCount, 64))
	}
	from, at := len(c.pool), f.headers
	for range f.headerCount {
		var key, keyLen, value, valueLen int
		key, keyLen, value, valueLen, at = headerAt(c.buf, at)
		c.pool = append(c.pool, RecordHeader{slice(c.buf, key, keyLen), slice(c.buf, value, valueLen)})
	}
	return c.pool[from:len(c.pool):len(c.pool)]
}

// slice returns size bytes of buf from start; size -1 is null.
func slice(buf []byte, start, size int) []byte {
	if size < 0 {
		return nil
	}
	return buf[start : start+size : start+size]
}
