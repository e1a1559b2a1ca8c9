package segment

import (
	"fmt"

	"lockstep/core/log"
)

// Truncate durably cuts the log so that it ends at the offset to, or at the
// start of the batch that holds it, along with its indexes, epochs and
// producer snapshots (rule 16), and returns where it ends. At or beyond the
// end it only drops epochs that begin there and makes sure that all is durable.
//
// Nothing is written over: the next append begins a new segment, so that a span
// that somebody still reads never becomes other bytes.
func (l *Log) Truncate(to int64) (end int64, err error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.heal(); err != nil {
		return 0, err
	}
	if err := l.usable(); err != nil {
		return 0, err
	}
	if to = max(to, l.start); to < l.end {
		err = l.truncate(to)
	} else {
		l.trimEpochs()
		err = l.settle()
	}
	if err != nil {
		return 0, fmt.Errorf("truncate %s to %d: %w", l.directory(), to, err)
	}
	return l.end, nil
}

// heal cuts off what a failed append left, which Append could not.
func (l *Log) heal() error {
	l.mu.Lock()
	broken := l.broken != nil && l.brokenTail && !l.deleted
	l.mu.Unlock()
	if !broken || l.store.usable() != nil {
		return nil
	}
	seg := l.last()
	f, err := l.openLast(seg, 0)
	if err != nil {
		return err
	}
	defer l.store.files.release(&seg.data)
	if err := f.Truncate(seg.size); err != nil {
		return err
	}
	l.room = seg.size
	l.store.files.setDirty(&seg.data)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken, l.brokenTail = nil, false
	l.touch(seg)
	l.unsettled = true
	return nil
}

// cut is how a log is to be cut.
type cut struct {
	end        recoveryPoint // the log's end afterwards
	kept, gone []*segment
	seg        *segment // the segment to cut at end.pos, nil if it ends there already
}

// truncate cuts the log to end at to, or at the start of the batch that holds it. The journal comes first: files that
// end below the recovery point would be damage.
func (l *Log) truncate(to int64) error {
	c, err := l.planCut(to)
	if err != nil {
		return err
	}
	if err := l.noteCut(c); err != nil {
		return err
	}
	l.mu.Lock()
	l.segs, l.end, l.start, l.writable = c.kept, c.end.off, min(l.start, c.end.off), false
	l.lastEpoch = latestEpoch(l.store.journal.get(l.id).epochs, c.end.off)
	for _, seg := range c.gone {
		seg.removed = true
	}
	if c.seg != nil {
		c.seg.size, c.seg.maxTimestamp, c.seg.checked = c.end.pos, c.end.maxTimestamp, true
	}
	l.forgetPlaces()
	l.newNames, l.cutting = true, false
	l.gen++
	l.mu.Unlock()
	if err := l.removeTail(c); err != nil {
		l.setBroken(err, false) // a restart finds more than there should be, above the recovery point
		return err
	}
	l.unsettled = true
	if l.start == c.end.off { // only now: before, it would bring back what was deleted at the start
		l.store.journal.setStart(l.id, l.start)
	}
	return l.settle()
}

// planCut finds where to cut. l.op is held.
func (l *Log) planCut(to int64) (cut, error) {
	i := l.find(to)
	c := cut{end: recoveryPoint{off: to, seg: to, maxTimestamp: noTimestamp}}
	seg := l.segs[i]
	pos, base, err := l.placeOf(seg, to)
	if err != nil {
		return c, err
	}
	c.end.off = min(to, base)
	switch {
	case pos > 0:
		c.kept, c.gone, c.seg = l.segs[:i+1:i+1], l.segs[i+1:], seg
		c.end.seg, c.end.pos = seg.base, pos
		// In a gap the log ends where the batch before does, so that none is left at its end: a recovery would take what follows for lost.
		if c.end.maxTimestamp, c.end.off, err = l.latestBelow(seg, pos); err != nil {
			return c, err
		}
		c.end.off = min(c.end.off, to)
	case i > 0:
		last := l.segs[i-1]
		c.kept, c.gone = l.segs[:i:i], l.segs[i:]
		c.end.off, c.end.seg, c.end.pos = seg.base, last.base, last.size
		if c.end.maxTimestamp, err = l.latestOf(last); err != nil {
			return c, err
		}
	default:
		c.gone = l.segs
		c.end.off = min(base, l.start) // not above a gap at the start: nothing is left
		c.end.seg = c.end.off
	}
	return c, nil
}

// placeOf returns the position of the batch of a segment that holds off, or comes next, and its base offset.
func (l *Log) placeOf(seg *segment, off int64) (pos, base int64, err error) {
	if off == seg.base {
		return 0, off, nil
	}
	f, err := l.acquire(seg)
	if err != nil {
		return 0, 0, err
	}
	defer l.release(seg)
	s := l.scan(seg, f, seg.size)
	s.twice = true
	defer s.close()
	return l.seek(seg, s, off)
}

// latestBelow returns the latest timestamp of the batches below a position at which one begins, and the offset at which they end.
func (l *Log) latestBelow(seg *segment, pos int64) (latest, next int64, err error) {
	f, err := l.acquire(seg)
	if err != nil {
		return 0, 0, err
	}
	defer l.release(seg)
	s := l.scan(seg, f, pos)
	s.twice = true
	defer s.close()
	latest, _ = l.land(seg, s, ratio(pos, seg.size), func(e entry) bool { return int64(e.pos) >= pos })
	for !s.done() {
		h, err := s.header()
		if err != nil {
			return 0, 0, damageOf(s, err)
		}
		latest = max(latest, latestIn(h.Count, h.MaxTimestamp))
		s.step(h.Size(), h.NextOffset())
	}
	return latest, s.next, nil
}

// noteCut durably notes that the log ends where it is to be cut, before it does.
func (l *Log) noteCut(c cut) error {
	j := l.store.journal
	l.mu.Lock()
	l.cutting = true
	l.gen++ // what a round captured before is neither to be noted nor to be reported
	// If they are equal, the segment that the last one names may be one that goes.
	if l.noted.off >= c.end.off {
		l.noted = c.end
		j.note(l.id, c.end)
	}
	j.setEpochs(l.id, trimEpochs(j.get(l.id).epochs, c.end.off))
	j.limitCleaned(l.id, c.end.off)
	l.cuts++
	l.mu.Unlock()
	return l.cutNoted()
}

// cutNoted makes durable what the journal says of a cut. If that fails there is no cut.
func (l *Log) cutNoted() error {
	err := l.store.journal.sync()
	if err != nil {
		l.mu.Lock()
		l.cutting = false
		l.mu.Unlock()
	}
	return err
}

// trimEpochs drops the entries that begin at or above end.
func trimEpochs(epochs []log.EpochStart, end int64) []log.EpochStart {
	n := len(epochs)
	for n > 0 && epochs[n-1].Start >= end {
		n--
	}
	return epochs[:n:n]
}

// removeTail cuts the files: later segments, the rest of the one that is cut, producer snapshots.
func (l *Log) removeTail(c cut) error {
	for i := len(c.gone) - 1; i >= 0; i-- {
		if err := l.removeFiles(c.gone[i]); err != nil {
			return err
		}
	}
	if err := l.dropSnapshots(c.end.off); err != nil {
		return err
	}
	if l.unsaved.offset > c.end.off {
		l.unsaved = producersAt{}
	}
	l.room = 0
	if c.seg == nil {
		return nil
	}
	if err := l.cutIndex(c.seg, c.end.pos); err != nil {
		return err
	}
	f, err := l.openLast(c.seg, 0)
	if err != nil {
		return err
	}
	defer l.store.files.release(&c.seg.data)
	l.store.files.setDirty(&c.seg.data)
	return f.Truncate(c.end.pos)
}

// removeFiles deletes the files of a segment that is marked removed.
func (l *Log) removeFiles(seg *segment) error {
	for _, ext := range []string{logExt, indexExt} {
		if err := removeIfThere(l.store.fs, seg.name(ext)); err != nil {
			return err
		}
	}
	l.store.files.drop(&seg.data)
	l.store.files.drop(&seg.index)
	return nil
}

// trimEpochs drops epochs that begin at the end, where a truncation does not move it (museum A20).
func (l *Log) trimEpochs() {
	j := l.store.journal
	if epochs := j.get(l.id).epochs; len(epochs) > 0 && epochs[len(epochs)-1].Start >= l.end {
		j.setEpochs(l.id, trimEpochs(epochs, l.end))
	}
}

// settle makes everything that the log holds durable now, also what a round has taken over that is still running. l.op is held.
func (l *Log) settle() error {
	l.mu.Lock()
	end := l.end
	if l.noted.off != end || l.unsettled {
		l.created = l.created || l.noted.off < 0
		l.newNames = true
		for _, seg := range l.segs {
			if seg.base >= l.noted.seg || l.noted.off < 0 {
				l.touch(seg)
			}
		}
	}
	l.mu.Unlock()
	r := &Round{s: l.store, must: l.store.journal.mustSync()}
	l.store.unlist([]*Log{l})
	syncs := r.capture(l)
	r.root = r.logs[0].created
	if syncs == 0 && !r.must {
		return nil
	}
	r.hold()
	r.all = l.store.files.takeLostDirty() || r.all
	if err := r.Run(); err != nil {
		return err
	}
	l.unsettled = false
	return nil
}
