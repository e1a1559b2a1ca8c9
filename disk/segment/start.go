package segment

import (
	"errors"
	"fmt"

	"lockstep/core"
	"lockstep/disk"
)

// SetStart durably makes start the log's first offset and deletes segments
// wholly below it. Beyond the end, the log is emptied and begins and ends
// there, as a replica's does that was left too far behind, with producers as
// the snapshot of its producer table if that is not nil. It returns the first
// offset, which never moves back.
func (l *Log) SetStart(start int64, producers []byte) (int64, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	if start <= l.start {
		return l.start, nil
	}
	var err error
	if start > l.noted.off { // a recovery point is never below the start, and where there is one the directory is durable
		err = l.settle()
	}
	switch {
	case err != nil:
	case start > l.end:
		err = l.beginAt(start, producers)
	default:
		if _, err = l.coverProducers(start); err == nil {
			err = l.moveStart(start)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("set start of %s to %d: %w", l.directory(), start, err)
	}
	return l.start, nil
}

// moveStart moves the start within the log. That is durable before a segment
// is deleted, so that a restart can tell a segment that is not needed any more from one that is missing.
func (l *Log) moveStart(start int64) error {
	l.store.journal.setStart(l.id, start)
	if err := l.store.journal.sync(); err != nil {
		l.store.journal.setStart(l.id, l.start) // what is noted is written with the next note
		return err
	}
	l.mu.Lock()
	l.start = start
	n := 0
	for n+1 < len(l.segs) && l.segs[n+1].base <= start {
		l.segs[n].removed = true
		n++
	}
	gone := l.segs[:n:n]
	l.segs = l.segs[n:len(l.segs):len(l.segs)]
	l.mu.Unlock()
	for _, seg := range gone {
		if err := l.removeFiles(seg); err != nil {
			return err // a restart deletes what is left
		}
	}
	return nil
}

// Reset durably empties the log, which begins and ends at the offset then, be it above, within or below what it held,
// and forgets its epochs and producers. A crash on the way may leave any part of it.
func (l *Log) Reset(at int64) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	err := l.usable()
	if err == nil && l.noted.off < 0 {
		err = l.settle()
	}
	if err == nil {
		err = l.reset(at, -1)
	}
	if err != nil {
		return fmt.Errorf("empty %s at %d: %w", l.directory(), at, err)
	}
	return nil
}

// beginAt empties the log, to begin above its end. The snapshot is durable before anything else: a log that begins there without one
// has nothing to know its producers from, and nobody would miss them. Until the log begins there a restart passes it over.
func (l *Log) beginAt(start int64, producers []byte) error {
	if producers == nil {
		return l.reset(start, -1)
	}
	if err := l.writeSnapshot(start, producers); err != nil {
		return err
	}
	if err := l.syncSnapshot(); err != nil {
		return err
	}
	return l.reset(start, start)
}

// reset empties the log and drops all producer snapshots but that of the offset keep.
func (l *Log) reset(at, keep int64) error {
	l.store.journal.setEpochs(l.id, nil)
	if err := l.empty(at); err != nil {
		return err
	}
	l.unsaved = producersAt{} // it was of what the log held
	if err := l.dropSnapshotsBut(keep); err != nil {
		return err
	}
	return l.settle()
}

// empty deletes all segments, after the journal says that the log begins and ends at an offset.
func (l *Log) empty(at int64) error {
	p := recoveryPoint{off: at, seg: at, maxTimestamp: noTimestamp}
	j := l.store.journal
	l.mu.Lock()
	l.gen++
	l.cutting = true
	j.setStart(l.id, at)
	j.note(l.id, p)
	j.limitCleaned(l.id, at)
	l.cuts++
	l.mu.Unlock()
	if err := l.cutNoted(); err != nil {
		j.setStart(l.id, l.start) // what is noted is written with the next note
		j.note(l.id, l.noted)
		return err
	}
	l.mu.Lock()
	gone := l.segs
	l.segs, l.start, l.end, l.writable, l.noted = nil, at, at, false, p
	for _, seg := range gone {
		seg.removed = true
	}
	l.unsynced, l.unsyncedBytes, l.lastEpoch = nil, 0, -1
	l.newNames, l.cutting = true, false
	l.gen++
	l.forgetPlaces()
	l.mu.Unlock()
	l.room = 0
	for i := len(gone) - 1; i >= 0; i-- {
		if err := l.removeFiles(gone[i]); err != nil {
			l.setBroken(err, false)
			return err
		}
	}
	return nil
}

// Retain deletes the oldest segments by retention.ms and retention.bytes, none
// that reaches limit or beyond (rule 19), and returns the first offset. As in
// Kafka, time counts from the latest record of a segment; size never takes the
// last segment; and where every record is too old the last one goes, too.
func (l *Log) Retain(limit int64, wall core.WallMillis) (int64, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	start, err := l.retained(limit, wall)
	if err == nil && start > l.start {
		start, err = l.coverProducers(start)
		if errors.Is(err, disk.ErrNoSpace) && start > l.start {
			err = nil // some is deleted all the same, which makes room
		}
	}
	if err == nil && start > l.noted.off && start > l.start {
		err = l.settle()
	}
	switch {
	case err != nil || start <= l.start:
	case start == l.end && start > l.last().base:
		err = l.empty(start)
	default:
		err = l.moveStart(start)
	}
	if err != nil {
		return 0, fmt.Errorf("retention of %s: %w", l.directory(), err)
	}
	return l.start, nil
}

// retained returns the first offset that retention leaves.
func (l *Log) retained(limit int64, wall core.WallMillis) (int64, error) {
	start := l.start
	if !l.cfg.Delete {
		return start, nil
	}
	excess := int64(-1)
	if l.cfg.RetentionBytes >= 0 {
		excess = l.Size() - l.cfg.RetentionBytes
	}
	for i, seg := range l.segs {
		end := l.endOf(i)
		if end > limit || seg.size == 0 {
			break
		}
		old := false
		if l.cfg.RetentionMillis >= 0 {
			latest, err := l.latestOf(seg)
			if err != nil {
				return start, err
			}
			// What compaction has left without any record keeps nothing.
			old = latest == noTimestamp || latest >= 0 && int64(wall)-latest > l.cfg.RetentionMillis.Milliseconds()
		}
		isLast := i == len(l.segs)-1
		if !old && (isLast || excess-seg.size < 0) {
			break
		}
		excess -= seg.size
		start = max(start, end)
	}
	return start, nil
}
