package segment

import (
	"errors"
	"fmt"
	"io"

	"lockstep/core/record"
	"lockstep/disk"
)

// Span is a range of a segment's file that holds whole batches. The file is
// there, deleted or not, until Release. What a span covers never becomes other
// bytes; only a truncation of the log can make it come out short.
type Span struct {
	Base int64 // the offset that was asked for; the first batch may begin below it
	Next int64 // the offset after the last batch; Base if the span is empty
	Off  int64 // position in the file
	Len  int   // bytes

	f   disk.File
	seg *segment
}

// File returns the file, for sendfile by its Fd; nil if the span is empty.
func (s *Span) File() disk.File { return s.f }

// ReadInto reads the span's bytes to the start of buf.
func (s *Span) ReadInto(buf []byte) error {
	if s.Len == 0 {
		return nil
	}
	n, err := s.f.ReadAt(buf[:s.Len], s.Off)
	if n == s.Len {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF // it was truncated
	}
	return fmt.Errorf("read %d bytes of %s at %d: %w", s.Len, s.seg.name(logExt), s.Off, err)
}

// WriteTo writes the span's bytes to w. It is io.WriterTo.
func (s *Span) WriteTo(w io.Writer) (int64, error) {
	if s.Len == 0 {
		return 0, nil
	}
	n, err := io.Copy(w, io.NewSectionReader(s.f, s.Off, int64(s.Len)))
	if err == nil && n < int64(s.Len) {
		err = fmt.Errorf("read %s at %d: %w", s.seg.name(logExt), s.Off+n, io.ErrUnexpectedEOF)
	}
	return n, err
}

// Release lets go of the file. It may be called again, and on the zero Span.
func (s *Span) Release() {
	if s.f != nil {
		s.f = nil
		s.seg.log.release(s.seg)
	}
}

// ReadRequest is one read of ReadMany.
type ReadRequest struct {
	Log         *Log // nil: the result is ErrNoLog
	From, Limit int64
	MaxBytes    int32
	Records     bool // batches without records are passed over at the beginning, if there are records after them; see also endAtRun
}

// ReadResult is what came of it. The Span must be released.
type ReadResult struct {
	Span Span
	Err  error
}

// ReadMany carries out the reads of one Fetch response in their order.
// maxBytes bounds the bytes of all together, and the MaxBytes of each its own; but the first batch of
// the first one that has any comes whole, however large it is. The results are appended to out, one for each request.
func ReadMany(reqs []ReadRequest, maxBytes int32, out []ReadResult) []ReadResult {
	left, any := int64(maxBytes), false
	for _, q := range reqs {
		if q.Log == nil {
			out = append(out, ReadResult{Err: ErrNoLog})
			continue
		}
		room := int32(max(0, min(left, int64(q.MaxBytes))))
		from := q.From
		if q.Records {
			from = q.Log.firstRecord(q.From, q.Limit)
		}
		span, err := q.Log.Read(from, q.Limit, room, !any)
		if q.Records {
			q.Log.endAtRun(&span)
		}
		any = any || span.Len > 0
		left -= int64(span.Len)
		out = append(out, ReadResult{span, err})
	}
	return out
}

// ReadBatches reads whole batches, from the one that holds from on, that end at or below limit: about maxBytes of
// them, at least one, none if there is none. Every CRC is checked; a wrong one is ErrCorrupt (rule 17).
func (l *Log) ReadBatches(from, limit int64, maxBytes int32) ([]record.Batch, error) {
	for again := true; ; {
		span, err := l.Read(from, limit, maxBytes, true)
		if err != nil || span.Len == 0 {
			return nil, err
		}
		batches, err := span.parse()
		cut := err != nil && span.seg.isCut(span.Off+int64(span.Len))
		span.Release()
		switch {
		case cut:
		case again && errors.Is(err, ErrCorrupt): // it may be the reading
			again = false
		default:
			return batches, err
		}
	}
}

// follow checks what no CRC covers: that the batches' offsets follow on one another.
func (s *Span) follow(batches []record.Batch) error {
	gaps, next, pos := s.seg.log.mayHaveGaps(), s.Base, s.Off
	for i, b := range batches {
		base := b.BaseOffset()
		if i == 0 && base <= s.Base && b.NextOffset() > s.Base {
			next = base // what was asked for is inside of it
		}
		if base != next && !(gaps && base > next) {
			return corrupt(s.seg.name(logExt), pos, "batch at offset %d, where %d should be", base, next)
		}
		next, pos = b.NextOffset(), pos+int64(b.Size())
	}
	return nil
}

// parse reads and parses the span's batches.
func (s *Span) parse() ([]record.Batch, error) {
	buf := make([]byte, s.Len)
	if err := s.ReadInto(buf); err != nil {
		return nil, err
	}
	batches, used, err := record.ParseAll(buf)
	if err == nil && used < len(buf) {
		err = record.ErrTruncated
	}
	if err != nil {
		return nil, corrupt(s.seg.name(logExt), s.Off+int64(used), "%v", err)
	}
	return batches, s.follow(batches)
}
