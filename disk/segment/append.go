package segment

import (
	"errors"
	"fmt"

	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
)

// How room is prepared ahead in files that are synced after every append; doc.go has the measurements behind these.
const (
	prepareFrom  = 64 << 10  // a segment smaller than this gets none, so that ten thousand small logs take no room
	prepareZeros = 256 << 10 // zeros written ahead of small appends
	largeAppend  = 256 << 10 // an append from this size on allocates instead
	prepareRoom  = 16 << 20  // this much
)

// Append writes batches at the end of the log, in one write to one segment.
// Their offsets and epochs are assigned, and their CRCs were checked when
// they were parsed (rule 17). rolled says that now is a good moment for
// SaveProducers: a new segment was begun, or much was appended since the last time.
//
// If it fails the log ends where it did. After disk.ErrNoSpace or disk.ErrIO it
// can be appended to again; not after ErrLogFailed or ErrDiskFailed.
func (l *Log) Append(batches []record.Batch) (rolled bool, err error) {
	if len(batches) == 0 {
		return false, nil
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	bytes, err := l.admit(batches)
	if err != nil {
		return false, err
	}
	seg, f, rolled, err := l.writableSegment(batches, bytes)
	if err != nil {
		return false, fmt.Errorf("append to %s: %w", l.directory(), err)
	}
	defer l.store.files.release(&seg.data)
	l.prepare(seg, f, bytes)
	if err := l.write(seg, f, batches, bytes); err != nil {
		return false, fmt.Errorf("append to %s: %w", l.directory(), err)
	}
	l.publish(seg, batches, bytes)
	l.flushIndex(seg, flushEntries)
	l.store.markDirty(l)
	if l.sinceSnapshot += bytes; l.sinceSnapshot >= snapshotBytes {
		l.sinceSnapshot, rolled = 0, true
	}
	return rolled, nil
}

// admit checks that batches follow on the end of the log and on one another, and adds up their bytes. Gaps are
// what compaction leaves, and followers copy them.
func (l *Log) admit(batches []record.Batch) (bytes int64, err error) {
	next, epoch := l.end, l.lastEpoch
	for _, b := range batches {
		base, e := b.BaseOffset(), b.LeaderEpoch()
		if base < next || base > next && !l.gaps || e < epoch {
			return 0, fmt.Errorf("%s: batch at offset %d of epoch %d after offset %d of epoch %d: %w",
				l.dir, base, e, next, epoch, ErrOffsetOrder)
		}
		next, epoch = b.NextOffset(), e
		bytes += int64(b.Size())
	}
	return bytes, nil
}

// writableSegment returns the segment that the batches go to, open, rolling if the last one is full.
func (l *Log) writableSegment(batches []record.Batch, bytes int64) (seg *segment, f disk.File, rolled bool, err error) {
	seg = l.last()
	if l.writable && l.full(seg, batches, bytes) {
		if err := l.seal(seg); err != nil {
			return nil, nil, false, err
		}
	}
	if l.writable {
		f, err = l.openLast(seg, 0)
		return seg, f, false, err
	}
	seg, f, err = l.begin()
	return seg, f, err == nil && len(l.segs) > 1, err
}

// full says whether a segment must not take the batches: by segment.bytes, segment.ms, segment.index.bytes, or because
// the index could not name them.
func (l *Log) full(seg *segment, batches []record.Batch, bytes int64) bool {
	if seg.size == 0 {
		return false
	}
	last := batches[len(batches)-1]
	l.countIndex(seg)
	entries := seg.indexed + len(seg.pending)
	switch {
	case seg.size+bytes > l.segmentBytes():
		return true
	case last.LastOffset()-seg.base > 1<<31-1:
		return true
	case l.cfg.IndexBytes > 0 && int64(entries+1)*entrySize > l.cfg.IndexBytes:
		return true
	}
	if l.cfg.SegmentMillis <= 0 {
		return false
	}
	l.loadFirst(seg)
	for _, b := range batches {
		if expired(seg.firstTimestamp, b.MaxTimestamp(), l.cfg.SegmentMillis) {
			return true
		}
	}
	return false
}

// loadFirst reads the timestamp of the segment's first batch, if it is not known since a restart.
func (l *Log) loadFirst(seg *segment) {
	if seg.hasFirst {
		return
	}
	seg.firstTimestamp, seg.hasFirst = -1, true
	f, err := l.acquire(seg)
	if err != nil {
		return
	}
	defer l.release(seg)
	s := l.scan(seg, f, seg.size)
	defer s.close()
	if h, err := s.header(); err == nil {
		seg.firstTimestamp = h.MaxTimestamp
	}
}

// seal ends the last segment: its index is written, its file cut to its size.
func (l *Log) seal(seg *segment) error {
	l.flushIndex(seg, 1)
	if l.room > seg.size {
		f, err := l.openLast(seg, 0)
		if err != nil {
			return err
		}
		defer l.store.files.release(&seg.data)
		if err := f.Truncate(seg.size); err != nil {
			return err
		}
		l.store.files.setDirty(&seg.data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room > seg.size {
		l.touch(seg)
	}
	l.room, l.writable = 0, false
	return nil
}

// begin makes a new segment at the end of the log. Its name is durable only when the directory is synced, and no
// append to it before (rule 14, museum C01).
func (l *Log) begin() (*segment, disk.File, error) {
	seg := l.newSegment(l.end)
	seg.checked = true
	if err := removeIfThere(l.store.fs, seg.name(indexExt)); err != nil {
		return nil, nil, err
	}
	f, err := l.openLast(seg, disk.Create)
	if err != nil {
		return nil, nil, err
	}
	if err := l.emptyFile(seg, f); err != nil {
		l.store.files.release(&seg.data)
		l.store.files.drop(&seg.data)
		if removeErr := removeIfThere(l.store.fs, seg.name(logExt)); removeErr != nil {
			l.setBroken(removeErr, false) // a file that is no segment must not be found by a restart
		}
		return nil, nil, err
	}
	l.mu.Lock()
	l.segs = append(l.segs[:len(l.segs):len(l.segs)], seg) // readers keep the old slice
	l.writable, l.room = true, 0
	l.newNames = true
	l.mu.Unlock()
	if l.cfg.Preallocate {
		l.room = l.segmentBytes()
		f.Allocate(0, l.room)
	}
	return seg, f, nil
}

// emptyFile makes sure that a new segment's file holds nothing, whatever an earlier failure left under its name.
func (l *Log) emptyFile(seg *segment, f disk.File) error {
	size, err := f.Size()
	if err != nil || size == 0 {
		return err
	}
	return f.Truncate(0)
}

// prepare makes room ahead, where the log is synced so often that a growing file makes the syncs dear. If it fails, in part even,
// that is no harm: room says up to where there may be something to cut off when the segment ends.
func (l *Log) prepare(seg *segment, f disk.File, bytes int64) {
	end := seg.size + bytes
	if end <= l.room || end < prepareFrom || l.cfg.FlushMessages != 1 {
		return
	}
	from := max(end, l.room)
	limit := l.segmentBytes() - from
	switch {
	case limit <= 0:
	case bytes < largeAppend:
		l.room = from + min(limit, prepareZeros)
		f.WriteAt(zeros[:l.room-from], from)
	default:
		l.room = from + min(limit, prepareRoom)
		f.Allocate(from, l.room-from)
	}
}

// write writes the batches. If that fails it cuts off what was written.
func (l *Log) write(seg *segment, f disk.File, batches []record.Batch, bytes int64) error {
	bufs := takeBufs(len(batches))
	for _, b := range batches {
		*bufs = append(*bufs, b.Bytes())
	}
	n, err := f.WriteVAt(*bufs, seg.size)
	giveBufs(bufs)
	if err == nil && n < bytes { // museum C11: nobody promised that a write is whole
		err = errShortWrite
	}
	if err == nil {
		l.room = max(l.room, seg.size+bytes)
		return nil
	}
	if cutErr := f.Truncate(seg.size); cutErr != nil {
		l.setBroken(errors.Join(err, cutErr), true)
		return fmt.Errorf("%w: %w; cut it off: %w", ErrLogFailed, err, cutErr)
	}
	l.room = seg.size
	return err
}

// publish lets readers and rounds of sync see what was written.
func (l *Log) publish(seg *segment, batches []record.Batch, bytes int64) {
	last := batches[len(batches)-1]
	if seg.size == 0 {
		seg.firstTimestamp, seg.hasFirst = batches[0].MaxTimestamp(), true
	}
	l.store.files.setDirty(&seg.data)
	l.mu.Lock()
	defer l.mu.Unlock()
	interval := l.indexInterval()
	for _, b := range batches {
		seg.add(b.BaseOffset(), b.Size(), latestIn(b.Count(), b.MaxTimestamp()), interval)
	}
	l.end, l.lastEpoch = last.NextOffset(), last.LeaderEpoch()
	l.unsyncedBytes += bytes
	l.touch(seg)
	if l.ends == nil {
		l.ends = &spots{}
	}
	l.ends.add(spot{off: l.end, seg: seg, pos: seg.size})
}

// latestEpoch returns the epoch that the batches below end have reached, as far as a history tells.
func latestEpoch(epochs []log.EpochStart, end int64) int32 {
	for i := len(epochs) - 1; i >= 0; i-- {
		if epochs[i].Start < end {
			return epochs[i].Epoch
		}
	}
	return record.NoLeaderEpoch
}
