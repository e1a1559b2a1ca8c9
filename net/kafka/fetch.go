package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Span is where records that are not in memory go in a Fetch response.
type Span struct {
	Topic, Partition int // position in FetchResponse.Topics[].Partitions[]
	Size             int // bytes of records; 0 sends an empty records field
}

// Piece is one stretch of an encoded Fetch response: bytes, and after them the
// records of a span.
type Piece struct {
	Bytes []byte
	Span  int // index of the span that follows the bytes, or -1 at the end
}

// ErrResponseTooLarge says that a response does not fit a frame, whose length is 31 bits.
var ErrResponseTooLarge = errors.New("response too large for a frame")

// hole stands for the records of a span while kmsg encodes the response. Nothing
// else in one can look like it: names have no such bytes, and sixteen bytes of
// numbers do not come out so by chance; AppendFetch checks that it found each.
const hole = "\x00\xfe\xffLOCKSTEP-SPAN"

// AppendFetch appends the frame of a Fetch response, length prefix included,
// without the records of the spans, which must be in ascending order of
// position. pieces is dst's bytes from where it ended, cut where the records
// go; it is appended to pieces[:0]. The bytes of the response are thus the
// pieces' bytes with each one's span after it, and equal what kmsg would encode
// if all records were in memory.
func AppendFetch(dst []byte, pieces []Piece, h Header, resp *kmsg.FetchResponse, spans []Span) ([]byte, []Piece, error) {
	pieces = pieces[:0]
	start := len(dst)
	if !slices.IsSortedFunc(spans, compareSpans) {
		return dst, nil, errors.New("kafka: spans are not in the order of the response")
	}
	fillRecords(resp, spans)
	dst = appendResponseHead(dst, h, resp)
	dst = resp.AppendTo(dst)
	total := int64(0)
	for at, i := start, 0; i < len(spans); i++ {
		found := bytes.Index(dst[at:], []byte(hole))
		if found < 0 {
			return dst[:start], nil, errors.New("kafka: two spans for one partition")
		}
		end := putRecordsLen(dst, at+found, spans[i].Size, resp.IsFlexible())
		pieces = append(pieces, Piece{Bytes: dst[at:end:end], Span: i})
		total += int64(end-at) + int64(spans[i].Size)
		at += found + len(hole)
		if i == len(spans)-1 {
			pieces = append(pieces, Piece{Bytes: dst[at:], Span: -1})
			total += int64(len(dst) - at)
		}
	}
	if len(spans) == 0 {
		pieces = append(pieces, Piece{Bytes: dst[start:], Span: -1})
		total = int64(len(dst) - start)
	}
	if total-4 > math.MaxInt32 {
		return dst[:start], nil, ErrResponseTooLarge
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(total-4))
	return dst, pieces, nil
}

func compareSpans(a, b Span) int {
	if a.Topic != b.Topic {
		return a.Topic - b.Topic
	}
	return a.Partition - b.Partition
}

// fillRecords puts a hole where a span's records go, and an empty field where
// there are none: Kafka sends empty records, not null.
func fillRecords(resp *kmsg.FetchResponse, spans []Span) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[j]; p.RecordBatches == nil {
				p.RecordBatches = []byte{}
			}
		}
	}
	for _, s := range spans {
		resp.Topics[s.Topic].Partitions[s.Partition].RecordBatches = []byte(hole)
	}
}

// putRecordsLen overwrites the length that stands before a hole at position at
// with that of the records, and returns where it ends. A compact length may
// take more bytes than the hole's did; they come out of the hole.
func putRecordsLen(b []byte, at, size int, flexible bool) int {
	if !flexible {
		binary.BigEndian.PutUint32(b[at-4:], uint32(size))
		return at
	}
	return at - 1 + binary.PutUvarint(b[at-1:], uint64(size)+1)
}
