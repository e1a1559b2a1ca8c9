package segment

import (
	"fmt"
	"math"

	"lockstep/core/record"
	"lockstep/disk"
)

// thinning makes one segment of a group of them, without the records that later ones supersede.
//
// The segment begins and ends where the group does: if its last batch goes, one without records stays in its place. So the
// segments of a compacted log join as those of any other, and one that is cut short or missing is found to be.
type thinning struct {
	c       *Compaction
	from    int // segments of the run
	to      int
	tmp     string
	horizon int64 // until when tombstones stay that are compacted for the first time

	file    disk.File // nil as long as nothing differs from the only segment of the group
	name    string
	buf     []byte // not written yet
	written int64
	synced  int64

	seg     *segment // what becomes of it
	index   []entry
	next    int64         // offset after what is written
	dropped record.Header // of the last batch of which nothing is left
	plain   int64         // bytes at the start of the only segment that stay as they are
}

const (
	thinBuffer = 1 << 20
	thinSync   = 32 << 20 // written between two syncs, so that no sync has a whole segment to write
	// horizonRoom: above this size no batch may grow, as it does by a delete horizon.
	horizonRoom = math.MaxInt32 - 64<<20
)

// rewriteGroup makes one segment of as many of the segments [i, n) as fit into one, puts it into their place, and returns the end of them.
func (c *Compaction) rewriteGroup(i, n int) (j int, err error) {
	t := &thinning{c: c, from: i, to: i, horizon: int64(c.opts.Wall) + c.cfg.DeleteRetention.Milliseconds()}
	c.thinner.Decompressor, c.thinner.Compressor = c.l.store.opts.Decompressor, c.l.store.opts.Compressor
	t.buf = c.buf[:0]
	t.seg = c.l.newSegment(c.segs[i].base)
	t.seg.checked, t.next = true, t.seg.base
	t.tmp = offsetName(t.seg.base) + swapExt + tmpSuffix
	err = t.run(n)
	if t.file == nil {
		return t.to, err
	}
	if err == nil {
		t.name = swapName(t.seg.base, c.ends[t.to-1])
		err = c.l.swapIn(t)
	}
	t.file.Close()
	c.buf = t.buf
	if err != nil && t.seg.swap == "" {
		c.l.removeTmp(t.tmp)
	}
	return t.to, err
}

func (t *thinning) run(n int) error {
	for {
		t.to++
		if err := t.c.batches(t.to-1, t.take); err != nil {
			return err
		}
		if !t.takesMore(n) {
			break
		}
		if err := t.create(); err != nil {
			return err
		}
	}
	if t.file == nil {
		return nil
	}
	if end := t.c.ends[t.to-1]; t.next < end && t.dropped.NextOffset() == end {
		if err := t.add(t.dropped.Hollow(false)); err != nil {
			return err
		}
	}
	return t.finish()
}

// takesMore says that the next segment fits in, too; and it does anyway where there is no record yet, because some clients do not
// get on from a fetch that brings them none.
func (t *thinning) takesMore(n int) bool {
	c := t.c
	if t.to == n || c.ends[t.to]-t.seg.base > math.MaxInt32 {
		return false
	}
	limit := int64(defaultSegmentBytes)
	if c.cfg.SegmentBytes > 0 {
		limit = c.cfg.SegmentBytes
	}
	if t.seg.maxTimestamp == noTimestamp {
		limit = maxSegmentBytes
	}
	return t.seg.size+c.size[t.to]+record.HeaderSize <= min(limit, maxSegmentBytes)
}

// take decides what becomes of a batch.
func (t *thinning) take(s *scanner, b record.Batch) error {
	c := t.c
	c.stats.RecordsRead += int64(b.Count())
	if keepsWhole(b) || b.BaseOffset() >= c.end {
		return t.keep(b)
	}
	horizon := t.horizon
	if b.NextOffset() > c.end || t.seg.size > horizonRoom {
		horizon = 0 // part of it is not compacted yet
	}
	gone := b.HasDeleteHorizon() && int64(c.opts.Wall) > b.BaseTimestamp()
	left, err := c.thinner.Thin(b, horizon, func(r record.Brief) bool {
		switch {
		case r.Offset >= c.end || r.Key == nil:
			return true
		case c.keys.superseded(r.Key, r.Offset):
			return false
		}
		return !(r.Tombstone && gone && r.Offset < c.opts.Covered)
	})
	if left.Tombstones && left.Batch.HasDeleteHorizon() {
		if c.horizon == 0 {
			c.tombstone = b.BaseOffset()
			c.horizon = left.Batch.BaseTimestamp()
		}
		c.horizon = min(c.horizon, left.Batch.BaseTimestamp())
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: batch at %d: %w", s.name, s.pos, err)
	case left.Kept == 0 && c.remembered(b):
		if b.Count() == 0 {
			return t.keep(b)
		}
		return t.change(b.Header().Hollow(true))
	case left.Kept == 0 && b.Count() == 0 && t.file == nil && b.NextOffset() == c.ends[t.to-1]:
		t.dropped = b.Header() // it says where the segment ends, and stays if that is all
		return nil
	case left.Kept == 0:
		return t.drop(b)
	case left.Changed:
		return t.change(left.Batch)
	}
	return t.keep(b)
}

// keep takes a batch as it is.
func (t *thinning) keep(b record.Batch) error {
	if t.file == nil {
		t.plain += int64(b.Size())
		t.count(b)
		return nil
	}
	return t.add(b)
}

// change takes something else in the place of a batch.
func (t *thinning) change(b record.Batch) error {
	if err := t.create(); err != nil {
		return err
	}
	return t.add(b)
}

// drop leaves a batch out.
func (t *thinning) drop(b record.Batch) error {
	if err := t.create(); err != nil {
		return err
	}
	t.dropped = b.Header()
	return nil
}

// count takes a batch into the index.
func (t *thinning) count(b record.Batch) {
	t.seg.add(b.BaseOffset(), b.Size(), latestIn(b.Count(), b.MaxTimestamp()), max(t.c.cfg.IndexIntervalBytes, 1))
	t.index = append(t.index, t.seg.pending...)
	t.seg.pending = t.seg.pending[:0]
	t.next = b.NextOffset()
	t.c.stats.RecordsLeft += int64(b.Count())
}

// add writes a batch, the CRC of which was checked, or computed from records whose CRC was.
func (t *thinning) add(b record.Batch) error {
	t.count(b)
	return t.write(b)
}

func (t *thinning) write(b record.Batch) error {
	t.buf = append(t.buf, b.Bytes()...)
	if len(t.buf) < thinBuffer {
		return nil
	}
	return t.flush()
}

func (t *thinning) flush() error {
	if len(t.buf) == 0 {
		return nil
	}
	if err := writeFull(t.file, t.buf, t.written); err != nil {
		return err
	}
	n := len(t.buf)
	t.written += int64(n)
	t.buf = t.buf[:0]
	if t.written-t.synced >= thinSync {
		if err := t.sync(); err != nil {
			return err
		}
	}
	return t.c.pace(n)
}

func (t *thinning) sync() error {
	t.synced = t.written
	if err := t.file.Sync(); err != nil {
		return t.c.l.store.syncFailed(err)
	}
	return nil
}

// create begins the file, if there is none yet, with what stays as it is.
func (t *thinning) create() error {
	if t.file != nil {
		return nil
	}
	l := t.c.l
	l.shape.Lock() // the log is not deleted meanwhile
	err := t.c.overtaken()
	if err == nil {
		err = l.inDir(func(dir string) (err error) {
			t.file, err = l.store.fs.Open(dir+"/"+t.tmp, disk.Create)
			return err
		})
	}
	l.shape.Unlock()
	if err != nil {
		return err
	}
	if err := t.file.Truncate(0); err != nil {
		return err
	}
	return t.copyPlain()
}

// copyPlain copies the start of the segment that stays as it is. CRCs are checked again: what is read again may be read wrong.
func (t *thinning) copyPlain() error {
	if t.plain == 0 {
		return nil
	}
	return t.c.scan(t.from, func(s *scanner) (bool, error) {
		if s.pos == t.plain {
			return false, nil
		}
		b, err := s.batch()
		if err != nil {
			return false, damageOf(s, err)
		}
		size, next := b.Size(), b.NextOffset()
		if err := t.write(b); err != nil {
			return false, err
		}
		s.step(size, next)
		return true, nil
	})
}

// finish makes the file durable.
func (t *thinning) finish() error {
	if err := t.flush(); err != nil {
		return err
	}
	if t.written != t.seg.size {
		return fmt.Errorf("%s: %d bytes written of %d: %w", t.tmp, t.written, t.seg.size, errShortWrite)
	}
	return t.sync()
}

// removeTmp removes what a run that failed has left; if that fails, the next start does.
func (l *Log) removeTmp(name string) {
	l.shape.Lock()
	defer l.shape.Unlock()
	if l.store.usable() != nil || l.isDeleted() {
		return
	}
	l.inDir(func(dir string) error { return l.store.fs.Remove(dir + "/" + name) })
}
