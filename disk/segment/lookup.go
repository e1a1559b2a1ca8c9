package segment

import (
	"fmt"

	"lockstep/core/record"
)

// MaxTimestamp asks LookupTime for the record of the largest timestamp (KIP-734).
const MaxTimestamp = -3

// TimeResult is the record that LookupTime found. Offset and Timestamp are -1 if there is none.
type TimeResult struct {
	Offset      int64
	Timestamp   int64 // milliseconds
	LeaderEpoch int32 // of its batch
}

var notFound = TimeResult{Offset: -1, Timestamp: -1, LeaderEpoch: record.NoLeaderEpoch}

// LookupTime finds, between the log's start and limit, the first record whose
// timestamp is at least the given one (milliseconds), or with MaxTimestamp the
// first of those with the largest. Records are decompressed where need be, with Options.Decompressor.
func (l *Log) LookupTime(timestamp, limit int64) (TimeResult, error) {
	for {
		v, err := l.view(limit)
		if err != nil {
			return notFound, err
		}
		r, err := l.lookup(timestamp, v)
		if err == nil || !v.isCut() {
			return r, err
		}
	}
}

// lookup is LookupTime on one view of the log.
func (l *Log) lookup(timestamp int64, v view) (TimeResult, error) {
	if timestamp == MaxTimestamp {
		latest, err := l.latestTimestamp(v)
		if err != nil || latest < 0 {
			return notFound, err
		}
		timestamp = latest
	}
	for i, seg := range v.segs {
		r, err := l.lookupIn(seg, v.sizes[i], timestamp, v)
		if err != nil || r.Offset >= 0 {
			return r, err
		}
	}
	return notFound, nil
}

// view is the log as it was at one moment: the segments that overlap [start, limit).
type view struct {
	start, limit int64
	segs         []*segment
	sizes, ends  []int64
}

func (l *Log) view(limit int64) (view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted {
		return view{}, fmt.Errorf("look up in %s: %w", l.dir, ErrNoLog)
	}
	v := view{start: l.start, limit: min(limit, l.end)}
	for i, seg := range l.segs {
		if end := l.endOf(i); end > v.start && seg.base < v.limit {
			v.segs, v.sizes, v.ends = append(v.segs, seg), append(v.sizes, seg.size), append(v.ends, end)
		}
	}
	return v, nil
}

// isCut says that the log was truncated, or its start moved, since.
func (v *view) isCut() bool {
	for i, seg := range v.segs {
		if seg.isCut(v.sizes[i]) {
			return true
		}
	}
	return false
}

// latestOf returns the latest timestamp of a segment's batches.
func (l *Log) latestOf(seg *segment) (int64, error) {
	l.mu.Lock()
	checked, latest := seg.checked, seg.maxTimestamp
	l.mu.Unlock()
	if checked {
		return latest, nil
	}
	if err := l.check(seg); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return seg.maxTimestamp, nil
}

// lookupIn looks in one segment.
func (l *Log) lookupIn(seg *segment, size, timestamp int64, v view) (TimeResult, error) {
	if latest, err := l.latestOf(seg); err != nil || latest < timestamp {
		return notFound, err
	}
	f, err := l.acquire(seg)
	if err != nil {
		return notFound, err
	}
	defer l.release(seg)
	s := l.scan(seg, f, size)
	defer s.close()
	// No batch before the last entry that has seen only earlier timestamps can hold it.
	l.land(seg, s, 0.5, func(e entry) bool { return e.maxTimestamp >= timestamp || int64(e.pos) >= size })
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return notFound, damageOf(s, err)
		}
		if h.BaseOffset >= v.limit {
			return notFound, nil
		}
		if latestIn(h.Count, h.MaxTimestamp) >= timestamp && h.NextOffset() > v.start {
			r, err := l.lookupBatch(s, timestamp, v)
			if err != nil || r.Offset >= 0 {
				return r, err
			}
		}
		s.step(h.Size(), h.NextOffset())
	}
	return notFound, nil
}

// lookupBatch looks in the batch at hand.
func (l *Log) lookupBatch(s *scanner, timestamp int64, v view) (TimeResult, error) {
	b, err := s.batch()
	if err != nil {
		return notFound, damageOf(s, err)
	}
	for r, err := range b.Records(l.store.opts.Decompressor, record.Limits{}) {
		if err != nil {
			return notFound, fmt.Errorf("%s: batch at %d: %w", s.name, s.pos, err)
		}
		if r.Timestamp >= timestamp && r.Offset >= v.start && r.Offset < v.limit {
			return TimeResult{r.Offset, r.Timestamp, b.LeaderEpoch()}, nil
		}
	}
	return notFound, nil
}

// latestTimestamp returns the largest timestamp of the records in [start, limit), or something negative.
func (l *Log) latestTimestamp(v view) (int64, error) {
	latest := int64(noTimestamp)
	for i, seg := range v.segs {
		var t int64
		var err error
		if seg.base >= v.start && v.ends[i] <= v.limit {
			t, err = l.latestOf(seg)
		} else {
			t, err = l.latestWithin(seg, v.sizes[i], v)
		}
		if err != nil {
			return 0, err
		}
		latest = max(latest, t)
	}
	return latest, nil
}

// latestWithin is latestTimestamp for a segment of which not all counts.
func (l *Log) latestWithin(seg *segment, size int64, v view) (int64, error) {
	f, err := l.acquire(seg)
	if err != nil {
		return 0, err
	}
	defer l.release(seg)
	s := l.scan(seg, f, size)
	defer s.close()
	latest := int64(noTimestamp)
	if seg.base >= v.start { // what an entry has seen counts in whole
		latest, _ = l.land(seg, s, 0.5, func(e entry) bool { return seg.base+int64(e.rel) > v.limit || int64(e.pos) >= size })
	}
	for !s.done() {
		h, err := s.header()
		switch {
		case err != nil:
			return 0, damageOf(s, err)
		case h.BaseOffset >= v.limit:
			return latest, nil
		case h.NextOffset() <= v.start || latestIn(h.Count, h.MaxTimestamp) <= latest:
		case h.BaseOffset >= v.start && h.NextOffset() <= v.limit:
			latest = h.MaxTimestamp
		default: // part of it counts
			t, err := l.latestInBatch(s, v)
			if err != nil {
				return 0, err
			}
			latest = max(latest, t)
		}
		s.step(h.Size(), h.NextOffset())
	}
	return latest, nil
}

func (l *Log) latestInBatch(s *scanner, v view) (int64, error) {
	b, err := s.batch()
	if err != nil {
		return 0, damageOf(s, err)
	}
	latest := int64(noTimestamp)
	for r, err := range b.Records(l.store.opts.Decompressor, record.Limits{}) {
		if err != nil {
			return 0, fmt.Errorf("%s: batch at %d: %w", s.name, s.pos, err)
		}
		if r.Offset >= v.start && r.Offset < v.limit {
			latest = max(latest, r.Timestamp)
		}
	}
	return latest, nil
}
