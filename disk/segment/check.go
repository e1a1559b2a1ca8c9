package segment

import (
	"fmt"

	"lockstep/core/record"
)

// check looks, once, at the end of a segment that an earlier process wrote:
// below the recovery point sizes are trusted (rule 15), but a file that does
// not end with the offset where the next one begins is damaged, and is not read further.
// It also learns the segment's latest timestamp.
func (l *Log) check(seg *segment) error {
	f, err := l.acquire(seg)
	if err != nil {
		return err
	}
	defer l.release(seg)
	l.mu.Lock()
	size, end, strict := seg.size, int64(-1), !l.gaps
	for i := range l.segs {
		if l.segs[i] == seg {
			end = l.endOf(i)
		}
	}
	l.mu.Unlock()
	s := l.scan(seg, f, size)
	defer s.close()
	latest, bad := l.land(seg, s, 1, func(e entry) bool { return int64(e.pos) >= size })
	next := seg.base
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return damageOf(s, err)
		}
		next, latest = h.NextOffset(), max(latest, latestIn(h.Count, h.MaxTimestamp))
		s.step(h.Size(), h.NextOffset())
	}
	l.judgeIndex(seg, bad, s.walked)
	if end >= 0 && (next > end || next < end && strict) {
		return corrupt(s.name, size, "segment ends with offset %d, the next one begins at %d", next, end)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !seg.checked {
		seg.checked, seg.maxTimestamp = true, latest
	}
	return nil
}

// Verify reads the whole log and checks that it is what was written as far as that can be told: every CRC, offsets and
// epochs that ascend without gaps (unless the topic is compacted), segments that join. Damage is a CorruptError. An index
// that is broken is made anew.
func (l *Log) Verify() error {
	for {
		segs, sizes, err := l.verify()
		cut := false
		for i, seg := range segs {
			cut = cut || seg.isCut(sizes[i])
		}
		if err == nil || !cut {
			return err
		}
	}
}

// verify is Verify of the segments that there are, which it returns.
func (l *Log) verify() ([]*segment, []int64, error) {
	l.mu.Lock()
	segs, end := l.segs, l.end
	sizes := make([]int64, len(segs))
	for i, seg := range segs {
		sizes[i] = seg.size
	}
	damage, gaps := l.damage, l.gaps
	if l.deleted {
		damage = ErrNoLog
	}
	l.mu.Unlock()
	if damage != nil {
		return nil, nil, damage
	}
	return segs, sizes, l.verifyAll(segs, sizes, end, gaps)
}

func (l *Log) verifyAll(segs []*segment, sizes []int64, end int64, gaps bool) error {
	next, epoch := int64(-1), record.NoLeaderEpoch
	for i, seg := range segs {
		if next >= 0 && next != seg.base && !(gaps && next < seg.base) {
			return corrupt(seg.name(logExt), 0, "segment begins at offset %d, the one before ended at %d", seg.base, next)
		}
		next = seg.base
		if err := l.verifySegment(seg, sizes[i], &next, &epoch); err != nil {
			return err
		}
	}
	if next != end && !(gaps && next <= end) && len(segs) > 0 {
		return corrupt(segs[len(segs)-1].name(logExt), sizes[len(segs)-1], "log ends at offset %d, not %d", next, end)
	}
	return nil
}

// verifySegment is Verify for one segment; next and epoch are those that its batches have to follow on.
func (l *Log) verifySegment(seg *segment, size int64, next *int64, epoch *int32) error {
	f, err := l.acquire(seg)
	if err != nil {
		return err
	}
	defer l.release(seg)
	s := l.scan(seg, f, size)
	defer s.close()
	s.epoch = *epoch
	batches := map[int64]int64{} // base offset by position
	for !s.done() {
		b, err := s.batch()
		if err != nil {
			return damageOf(s, err)
		}
		batches[s.pos] = b.BaseOffset()
		*next, *epoch = b.NextOffset(), b.LeaderEpoch()
		s.epoch = *epoch
		s.step(b.Size(), b.NextOffset())
	}
	if err = l.verifyIndex(seg, size, batches); err != nil {
		l.rebuildIndex(seg) // it was never synced
		err = l.verifyIndex(seg, size, batches)
	}
	return err
}

// verifyIndex checks that the entries of a segment's index name batches below size.
func (l *Log) verifyIndex(seg *segment, size int64, batches map[int64]int64) error {
	if err := l.countIndex(seg); err != nil {
		return err
	}
	l.mu.Lock()
	entries, count := append([]entry(nil), seg.pending...), seg.indexed
	l.mu.Unlock()
	if count > 0 {
		f, err := l.store.files.acquire(&seg.index, seg, indexExt, 0)
		if err != nil {
			return err
		}
		defer l.store.files.release(&seg.index)
		b := make([]byte, count*entrySize)
		if err := readFull(f, b, 0); err != nil {
			return fmt.Errorf("%s: %w", seg.name(indexExt), err)
		}
		stored, err := ReadIndex(b, seg.base)
		if err != nil {
			return err
		}
		for _, e := range stored {
			entries = append(entries, entry{rel: uint32(e.Offset - seg.base), pos: uint32(e.Pos), maxTimestamp: e.MaxTimestamp})
		}
	}
	for i, e := range entries {
		if base, ok := batches[int64(e.pos)]; int64(e.pos) < size && (!ok || base != seg.base+int64(e.rel)) {
			return corrupt(seg.name(indexExt), int64(i)*entrySize, "no batch with offset %d at %d", seg.base+int64(e.rel), e.pos)
		}
	}
	return nil
}
