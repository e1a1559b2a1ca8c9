package segment

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/core/log"
	"lockstep/disk"
)

// SaveProducers keeps a snapshot of the producer table as of offset, so that
// OpenLog need not replay the log from its start. The last few are kept. It is
// not synced, unless records below it are deleted: one that is missing or torn is passed over, and more is replayed. Where there is one
// of that offset, or a later one, nothing is to be done: it is of the same log. If it fails, nothing beyond the last snapshot is
// deleted from the log's start until it does not, see unsaved.
func (l *Log) SaveProducers(offset int64, snapshot []byte) error {
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if offset > l.end {
		return fmt.Errorf("producer snapshot of %s at %d, it ends at %d: %w", l.directory(), offset, l.end, ErrOffsetOutOfRange)
	}
	l.unsaved = producersAt{offset, snapshot}
	return l.saveProducers()
}

// producersAt is a snapshot of the producer table as of an offset.
type producersAt struct {
	offset   int64
	snapshot []byte // nil is none
}

// saveProducers stores what is unsaved.
func (l *Log) saveProducers() error {
	u := l.unsaved
	if n := len(l.snapshots); u.snapshot == nil || n > 0 && l.snapshots[n-1] >= u.offset {
		l.unsaved = producersAt{}
		return nil
	}
	if err := l.writeSnapshot(u.offset, u.snapshot); err != nil {
		return err
	}
	l.unsaved = producersAt{}
	if len(l.snapshots) > keepSnapshots { // what is deleted may be the only one that is durable
		if err := l.syncSnapshot(); err != nil {
			return err
		}
	}
	for len(l.snapshots) > keepSnapshots {
		if err := removeIfThere(l.store.fs, l.snapshotName(l.snapshots[0])); err != nil {
			return err
		}
		l.snapshots = l.snapshots[1:]
	}
	l.sinceSnapshot = 0
	return nil
}

// coverProducers makes durable what is known of the producers of records below an offset, which are about to be deleted, and returns how
// far that reaches: no further than the offset, but to the last snapshot if there is no room for a newer one. Its error says why.
func (l *Log) coverProducers(start int64) (int64, error) {
	err := l.saveProducers()
	if err != nil {
		reach := l.start
		if n := len(l.snapshots); n > 0 {
			reach = max(reach, l.snapshots[n-1])
		}
		if start = min(start, reach); start <= l.start {
			return l.start, err
		}
	}
	if errSync := l.syncSnapshot(); errSync != nil {
		return l.start, errSync
	}
	return start, err
}

// writeSnapshot writes the snapshot of an offset above those of all that there are, or of the last of them again.
func (l *Log) writeSnapshot(offset int64, snapshot []byte) error {
	f, err := l.store.writeFile(l.snapshotName(offset), snapshot)
	if err != nil {
		return fmt.Errorf("producer snapshot: %w", err)
	}
	f.Close()
	if n := len(l.snapshots); n == 0 || l.snapshots[n-1] != offset {
		l.snapshots = append(l.snapshots, offset)
	}
	return nil
}

// syncSnapshot makes the latest snapshot durable. What is about to be deleted below it cannot be replayed any more: the
// producers that wrote it would be forgotten with it, and their next batch refused.
func (l *Log) syncSnapshot() error {
	if len(l.snapshots) == 0 {
		return nil
	}
	f, err := l.store.fs.Open(l.snapshotName(l.snapshots[len(l.snapshots)-1]), 0)
	if errors.Is(err, disk.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return l.store.syncFailed(err)
	}
	return l.store.syncDir(l.directory())
}

func (l *Log) snapshotName(off int64) string {
	return l.directory() + "/" + offsetName(off) + snapshotExt
}

// dropSnapshots deletes the snapshots of offsets above limit: what they tell of is not in the log any more (museum D04).
func (l *Log) dropSnapshots(limit int64) error {
	for n := len(l.snapshots); n > 0 && l.snapshots[n-1] > limit; n-- {
		if err := removeIfThere(l.store.fs, l.snapshotName(l.snapshots[n-1])); err != nil {
			return err
		}
		l.snapshots = l.snapshots[:n-1]
	}
	return nil
}

// dropSnapshotsBut deletes the snapshots of all offsets but one; -1 is none.
func (l *Log) dropSnapshotsBut(keep int64) error {
	for _, offset := range l.snapshots {
		if offset == keep {
			continue
		}
		if err := removeIfThere(l.store.fs, l.snapshotName(offset)); err != nil {
			return err
		}
	}
	l.snapshots = slices.DeleteFunc(l.snapshots, func(offset int64) bool { return offset != keep })
	return nil
}

// loadProducers returns the producer table as of the log's end: from the latest snapshot, and the batches after it. Snapshots that a
// power loss has torn are removed. One that cannot be read is no reason to do without: it may be all that is left of some
// producers. l.op is held.
func (l *Log) loadProducers() (*log.Producers, error) {
	table, from := log.NewProducers(0), l.start
	whole := l.snapshots[:0]
	for _, offset := range l.snapshots {
		b, err := readFile(l.store.fs, l.snapshotName(offset))
		if err != nil && !errors.Is(err, disk.ErrNotExist) {
			return nil, err
		}
		t, err := log.LoadSnapshot(b)
		if err != nil {
			if err := removeIfThere(l.store.fs, l.snapshotName(offset)); err != nil {
				return nil, err
			}
			continue
		}
		table, from, whole = t, offset, append(whole, offset)
	}
	l.snapshots = whole
	if err := l.replay(table, max(from, l.start)); err != nil {
		return nil, err
	}
	return table, nil
}

// replay adds the batches from an offset on to the table.
func (l *Log) replay(table *log.Producers, from int64) error {
	for i := max(0, l.find(from)); i < len(l.segs); i++ {
		if err := l.replaySegment(table, l.segs[i], from); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(table *log.Producers, seg *segment, from int64) error {
	if seg.size == 0 || from >= l.end {
		return nil
	}
	pos, base, err := l.placeOf(seg, max(from, seg.base))
	if err != nil || pos == seg.size {
		return err
	}
	f, err := l.acquire(seg)
	if err != nil {
		return err
	}
	defer l.release(seg)
	s := l.scan(seg, f, seg.size)
	s.seek(pos, base)
	defer s.close()
	for !s.done() {
		b, err := s.batch()
		if err != nil {
			return damageOf(s, err)
		}
		if b.BaseOffset() >= from { // else the snapshot knows it
			table.Replay(b.Header())
		}
		s.step(b.Size(), b.NextOffset())
	}
	return nil
}
