package segment

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
