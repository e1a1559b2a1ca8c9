package segment

import "lockstep/core/record"

// firstRecord returns the offset from which a reader finds a record at once: from itself, unless compaction has left batches
// without any there. If there is none up to the limit, or something is wrong, it is from, and Read tells.
func (l *Log) firstRecord(from, limit int64) int64 {
	if !l.mayHaveGaps() {
		return from
	}
	for at := from; ; {
		q, err := l.query(at, limit)
		if err != nil || q.seg == nil {
			return from
		}
		found, err := l.firstRecordIn(q)
		if err != nil {
			return from
		}
		if found >= 0 {
			return max(found, from)
		}
		at = q.segEnd
	}
}

// firstRecordIn returns the base offset of the first batch with records in a query's segment, from the one on that holds its offset,
// and below its limit; -1 if there is none.
func (l *Log) firstRecordIn(q query) (int64, error) {
	f, err := l.acquire(q.seg)
	if err != nil {
		return 0, err
	}
	defer l.release(q.seg)
	s := l.scan(q.seg, f, q.size)
	defer s.close()
	if q.start >= 0 {
		s.seek(q.start, -1)
	} else if _, _, err := l.seek(q.seg, s, q.from); err != nil {
		return 0, err
	}
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return 0, damageOf(s, err)
		}
		switch {
		case h.BaseOffset >= q.limit:
			return -1, nil
		case h.Count > 0:
			return h.BaseOffset, nil
		}
		s.step(h.Size(), h.NextOffset())
	}
	return -1, nil
}

// endAtRun ends a span that brings records before the second of two batches in a row without any: clients are known that take what
// follows on two of them for records (kafka-go 0.4.51 panics). The first stays, because it takes its reader past what compaction took
// out before it. A span that cannot be read stays as it is: whoever reads it tells.
func (l *Log) endAtRun(span *Span) {
	if span.Len == 0 || !l.mayHaveGaps() {
		return
	}
	end := span.Off + int64(span.Len)
	s := newScanner(span.f, span.seg.name(logExt), span.Off, end)
	defer s.close()
	h, err := s.header()
	if err != nil || h.Count == 0 {
		return // firstRecord has found none
	}
	at := l.walkedTo(span.seg, span.Off, 0) // so that most headers of a segment are read once, not for every reader
	if at > span.Off {
		s.seek(at, -1)
	}
	var last record.Header
	for first := true; !s.done(); first = false {
		if h, err = s.header(); err != nil {
			return
		}
		if !first && h.Count == 0 && last.Count == 0 {
			span.Len, span.Next = int(s.pos-span.Off), last.NextOffset()
			return
		}
		last, at = h, s.pos
		s.step(h.Size(), h.NextOffset())
	}
	l.walkedTo(span.seg, span.Off, at)
}

// walkedTo notes that of the batches of a segment between two positions no two in a row are without records, and returns up to where that
// is known from the segment's start on; from, if that is less.
func (l *Log) walkedTo(seg *segment, from, to int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from > seg.noRun {
		return from
	}
	seg.noRun = max(seg.noRun, to)
	return seg.noRun
}
