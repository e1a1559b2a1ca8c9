package segment

import (
	"errors"
	"fmt"
)

// Read finds whole batches, from the one that holds from (or, in a gap, the
// next one) on, that end at or below limit: at most maxBytes of them, but with
// atLeastOne the first however large it is. They are of one segment, so there may be more.
// From at limit or at the end is an empty Span; below the start or beyond the
// end is ErrOffsetOutOfRange. Payload is not read: CRCs are the receiver's to check.
func (l *Log) Read(from, limit int64, maxBytes int32, atLeastOne bool) (Span, error) {
	for {
		q, err := l.query(from, limit)
		if err != nil || q.seg == nil {
			return Span{Base: from, Next: from}, err
		}
		span, err := l.readSegment(q, int64(maxBytes), atLeastOne)
		if l.takeBadIndex(q.seg) {
			l.rebuildIndex(q.seg)
		}
		if errors.Is(err, errNextSegment) {
			from = q.segEnd // a gap reached to the segment's end
			continue
		}
		if err != nil && q.seg.isCut(q.size) {
			continue // what looks like damage is a truncation, or the start moved: look again
		}
		return span, err
	}
}

// errNextSegment: the offset lies in a gap at the end of a segment.
var errNextSegment = errors.New("go on in the next segment")

// query is what a read knows of the log as it was at one moment.
type query struct {
	from, limit int64
	seg         *segment // nil: nothing to read
	size        int64    // of the segment
	segEnd      int64    // offset at which it ends
	start       int64    // position of the batch that holds from, -1 if it must be sought
	stop        int64    // position of the batch at limit, -1 if it must be sought
	checked     bool
}

// query looks up what is in memory.
func (l *Log) query(from, limit int64) (query, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := query{from: from, limit: min(limit, l.end), start: -1, stop: -1}
	switch {
	case l.deleted:
		return q, fmt.Errorf("read %s: %w", l.dir, ErrNoLog)
	case from < l.start || from > l.end:
		return q, fmt.Errorf("read %s at %d, it holds [%d, %d): %w", l.dir, from, l.start, l.end, ErrOffsetOutOfRange)
	case from >= q.limit:
		return q, nil
	}
	i := l.find(from)
	if i < 0 {
		return q, fmt.Errorf("read %s at %d: %w", l.dir, from, ErrOffsetOutOfRange)
	}
	q.seg, q.segEnd = l.segs[i], l.endOf(i)
	q.size, q.checked = q.seg.size, q.seg.checked
	q.start = l.remembered(q.seg, from)
	if q.limit >= q.segEnd {
		q.limit, q.stop = q.segEnd, q.size
	} else {
		q.stop = l.remembered(q.seg, q.limit)
	}
	return q, nil
}

// remembered returns the position of the batch at off, -1 if nobody was there lately. l.mu is held.
func (l *Log) remembered(seg *segment, off int64) int64 {
	if off == seg.base {
		return 0
	}
	for _, s := range []*spots{l.reads, l.ends} {
		if s == nil {
			continue
		}
		if pos, ok := s.find(seg, off); ok {
			return pos
		}
	}
	return -1
}

// remember keeps where a read stopped, for the next one.
func (l *Log) remember(seg *segment, off, pos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seg.removed || pos > seg.size {
		return
	}
	if l.reads == nil {
		l.reads = &spots{}
	}
	if _, ok := l.reads.find(seg, off); !ok {
		l.reads.add(spot{off: off, seg: seg, pos: pos})
	}
}

// readSegment finds the span of a query in its segment.
func (l *Log) readSegment(q query, maxBytes int64, atLeastOne bool) (Span, error) {
	if !q.checked {
		if err := l.check(q.seg); err != nil {
			return Span{}, err
		}
	}
	f, err := l.acquire(q.seg)
	if err != nil {
		return Span{}, err
	}
	span := Span{f: f, seg: q.seg}
	s := l.scan(q.seg, f, q.size)
	defer s.close()
	if err := l.delimit(&q, &span, s, maxBytes, atLeastOne); err != nil {
		span.Release()
		return Span{}, err
	}
	if span.Len == 0 {
		span.Release()
		return Span{Base: q.from, Next: q.from}, nil
	}
	l.remember(q.seg, span.Next, span.Off+int64(span.Len))
	return span, nil
}

// delimit finds where the span begins and where it ends.
func (l *Log) delimit(q *query, span *Span, s *scanner, maxBytes int64, atLeastOne bool) error {
	if q.start < 0 {
		pos, base, err := l.seek(q.seg, s, q.from)
		if err != nil {
			return err
		}
		if pos == q.size {
			return errNextSegment
		}
		if base >= q.limit {
			return nil
		}
		q.start = pos
	}
	if q.stop < 0 {
		pos, base, err := l.seek(q.seg, s, q.limit)
		if err != nil {
			return err
		}
		q.stop, q.limit = pos, min(q.limit, base)
	}
	span.Base, span.Off = q.from, q.start
	if q.stop <= q.start {
		return nil // the limit is inside the batch that holds from
	}
	if q.stop-q.start <= maxBytes {
		span.Next, span.Len = q.limit, int(q.stop-q.start)
		return nil
	}
	return l.fit(q, span, s, maxBytes, atLeastOne)
}

// fit takes as many whole batches as maxBytes holds, of more that there are.
func (l *Log) fit(q *query, span *Span, s *scanner, maxBytes int64, atLeastOne bool) error {
	target := q.start + maxBytes
	// The index names a batch near the target, so that not every header is read on the way.
	if l.land(q.seg, s, ratio(target, q.size), func(e entry) bool { return int64(e.pos) > target }); s.pos <= q.start {
		s.seek(q.start, -1)
	}
	next := q.from
	for s.pos < q.stop {
		h, err := s.header()
		if err != nil {
			return damageOf(s, err)
		}
		next = h.BaseOffset
		size := int64(h.Size())
		if s.pos+size > target && !(atLeastOne && s.pos == q.start) {
			break
		}
		next = h.NextOffset()
		s.step(h.Size(), h.NextOffset())
	}
	if s.pos > q.start {
		span.Next, span.Len = next, int(s.pos-q.start)
	}
	return nil
}

// seek finds the first batch of a segment that ends above off: its position and base offset, or the segment's size and off.
func (l *Log) seek(seg *segment, s *scanner, off int64) (pos, base int64, err error) {
	_, bad := l.land(seg, s, ratio(off-seg.base, l.spanOf(seg)), func(e entry) bool { return seg.base+int64(e.rel) > off })
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return 0, 0, damageOf(s, err)
		}
		if h.NextOffset() > off {
			l.judgeIndex(seg, bad, s.walked)
			return s.pos, h.BaseOffset, nil
		}
		s.step(h.Size(), h.NextOffset())
	}
	l.judgeIndex(seg, bad, s.walked)
	return s.pos, off, nil
}

// spanOf returns the number of offsets that a segment spans, as a guess.
func (l *Log) spanOf(seg *segment) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.find(seg.base); i >= 0 && l.segs[i] == seg {
		return l.endOf(i) - seg.base
	}
	return 0
}

func ratio(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// land puts a scanner on the last batch that the index names and that is not above, or on the segment's first one.
// near is floor's. It returns the latest timestamp of the batches before, and whether the index is broken.
func (l *Log) land(seg *segment, s *scanner, near float64, a above) (latest int64, bad bool) {
	e, err := l.floor(seg, near, a)
	if err == nil && e.pos > 0 {
		s.seek(int64(e.pos), seg.base+int64(e.rel))
		h, headErr := s.header() // an entry is believed if its batch is there
		if err = headErr; err == nil && h.BaseOffset != s.next {
			err = errIndex
		}
	}
	if err == nil && e.pos > 0 {
		return e.maxTimestamp, false
	}
	s.seek(0, seg.base)
	return noTimestamp, err != nil
}

// judgeIndex notes that a segment's index should be rebuilt: it is broken, or
// it does not reach far. That is tried once in the life of a process.
func (l *Log) judgeIndex(seg *segment, bad bool, walked int) {
	if !bad && walked < rebuildAfter {
		return
	}
	l.mu.Lock()
	seg.badIndex = !seg.rebuilt
	l.mu.Unlock()
}

func (l *Log) takeBadIndex(seg *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	bad := seg.badIndex
	if bad {
		seg.badIndex, seg.rebuilt = false, true
	}
	return bad
}

// damageOf makes the error of a header that should be there one of damage.
func damageOf(s *scanner, err error) error {
	if errors.Is(err, errZeros) {
		return corrupt(s.name, s.pos, "zeros where a batch should be")
	}
	return err
}
