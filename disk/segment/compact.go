package segment

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// CompactOptions say what a run of compaction may do.
type CompactOptions struct {
	Limit     int64           // the offset that it does not reach: the last stable offset (rule 19)
	Covered   int64           // tombstones from this offset on stay, also past their horizon: some replica may not have them yet
	Wall      core.WallMillis // the time that ages and delete horizons count from
	Producers []int64         // ascending: the ids of those of whom the log's table knows
	Buffer    int64           // bytes for the map of keys, 0 being 128 MiB
	// Pace is called with the bytes that are about to be read or were written since the last time. It may wait, and ends the run if
	// it returns an error. nil is no bound.
	Pace      func(bytes int) error
	PaceBytes int // about so many between two calls of Pace, 0 being 256 KiB
}

// CompactStats is what a run did.
type CompactStats struct {
	Due                      bool  // there was enough to compact, or it had waited long enough
	From, To                 int64 // offsets: what is newly compacted
	Keys                     int   // of those
	RecordsRead, RecordsLeft int64
	BytesRead                int64 // twice for what is newly compacted
	BytesBefore, BytesAfter  int64 // of the segments that were replaced
	MapBytes                 int64 // memory of the map of keys
	Full                     bool  // the map was full, so that there is more to do
}

const (
	defaultCompactBuffer = 128 << 20
	defaultPaceBytes     = 256 << 10
)

// Compaction is one run over a log: BeginCompact, Run. It runs beside everything else that is done to the log; if the log is
// cut meanwhile, or what is at hand is deleted, it ends without an error, and what it has done so far stays.
type Compaction struct {
	l    *Log
	opts CompactOptions
	cfg  log.Config
	cuts uint32
	segs []*segment // all but the last
	size []int64
	ends []int64

	from  int64 // all below is compacted
	until int64 // what may be compacted ends here
	end   int64 // what the map covers ends here
	keys  *offsetMap
	last  map[int64]*recent // of producers of whom the log's table knows, in what the map covers

	horizon   int64 // as Log.horizon and Log.tombstone, of what this run leaves
	tombstone int64

	stats CompactStats
	owed  int // bytes that Pace has not heard of

	thinner record.Thinner // what segments are made with, one after another
	buf     []byte
}

// recent are the last batches of a producer, as many as its table remembers.
type recent struct {
	bases [producerWindow]int64 // base offsets, the latest at (count-1) % producerWindow
	count int
}

// producerWindow is the number of batches of a producer that can be told to be duplicates (rule 18).
const producerWindow = 5

func (r *recent) add(base int64) {
	r.bases[r.count%producerWindow] = base
	r.count++
}

func (r *recent) has(base int64) bool {
	return slices.Contains(r.bases[:min(r.count, producerWindow)], base)
}

var errOvertaken = errors.New("the log was cut or deleted meanwhile")

// BeginCompact begins a run on the log as it is. The limit must be true of it now.
func (l *Log) BeginCompact(opts CompactOptions) *Compaction {
	if opts.Buffer <= 0 {
		opts.Buffer = defaultCompactBuffer
	}
	if opts.PaceBytes <= 0 {
		opts.PaceBytes = defaultPaceBytes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Compaction{l: l, opts: opts, cfg: l.cfg, cuts: l.cuts}
	for i, seg := range l.segs[:max(0, len(l.segs)-1)] {
		end := l.endOf(i)
		if end > opts.Limit {
			break
		}
		c.segs, c.size, c.ends = append(c.segs, seg), append(c.size, seg.size), append(c.ends, end)
	}
	c.from = l.start
	return c
}

// Run compacts, if the log's settings say that it is time.
func (c *Compaction) Run() (CompactStats, error) {
	if !c.l.compacting.TryLock() {
		return c.stats, nil // another run is at it
	}
	defer c.l.compacting.Unlock()
	err := c.run()
	if err != nil && !errors.Is(err, ErrDiskFailed) && errors.Is(c.overtaken(), errOvertaken) || errors.Is(err, errOvertaken) {
		err = nil // what looks like damage, too, is that segments were cut or deleted
	}
	if err != nil {
		err = fmt.Errorf("compact %s: %w", c.l.directory(), err)
	}
	return c.stats, err
}

func (c *Compaction) run() error {
	if !c.cfg.Compact {
		return nil
	}
	c.from = max(c.from, c.l.store.journal.get(c.l.id).cleaned)
	due, err := c.plan()
	if err != nil || !due {
		return err
	}
	c.stats.Due = true
	if err := c.secure(); err != nil || len(c.segs) == 0 {
		return err
	}
	if err := c.mapKeys(); err != nil {
		return err
	}
	c.stats.From, c.stats.To, c.stats.Keys = c.from, c.end, c.keys.used
	if err := c.rewrite(); err != nil {
		return err
	}
	return c.note()
}

// plan finds what may be compacted, and whether it is enough.
func (c *Compaction) plan() (due bool, err error) {
	if err := c.leaveYoung(); err != nil || len(c.segs) == 0 {
		return false, err
	}
	var clean, dirty int64
	first := -1
	for i := range c.segs {
		if c.ends[i] <= c.from {
			clean += c.size[i]
			continue
		}
		if dirty += c.size[i]; first < 0 {
			first = i
		}
	}
	c.until = c.ends[len(c.ends)-1]
	if c.expired() {
		return true, nil
	}
	if first < 0 {
		return false, nil
	}
	if float64(dirty) > c.cfg.MinCleanableRatio*float64(clean+dirty) {
		return true, nil
	}
	if c.cfg.MaxCompactionLag < 0 || c.cfg.MaxCompactionLag == math.MaxInt64 {
		return false, nil
	}
	oldest, err := c.firstTimestamp(first)
	return oldest >= 0 && int64(c.opts.Wall)-oldest > c.cfg.MaxCompactionLag.Milliseconds(), err
}

// expired says that tombstones may be past their horizon, and every replica has them. Nothing new need be there for that: what was deleted goes from an idle log, too.
func (c *Compaction) expired() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.l.horizon > 0 && int64(c.opts.Wall) > c.l.horizon && c.opts.Covered > c.l.tombstone
}

// leaveYoung leaves out what min.compaction.lag.ms keeps as it is.
func (c *Compaction) leaveYoung() error {
	lag := c.cfg.MinCompactionLag.Milliseconds()
	if lag <= 0 {
		return nil
	}
	for i, seg := range c.segs {
		if c.ends[i] <= c.from {
			continue
		}
		latest, err := c.l.latestOf(seg)
		if err != nil {
			return err
		}
		if int64(c.opts.Wall)-latest < lag && latest != noTimestamp {
			c.leave(i)
			return nil
		}
	}
	return nil
}

// leave leaves out the segments from i on.
func (c *Compaction) leave(i int) {
	c.segs, c.size, c.ends = c.segs[:i], c.size[:i], c.ends[:i]
	if c.until = 0; i > 0 {
		c.until = c.ends[i-1]
	}
}

// firstTimestamp returns the timestamp of the first batch of a segment that is not compacted.
func (c *Compaction) firstTimestamp(i int) (int64, error) {
	first := int64(-1)
	err := c.scan(i, func(s *scanner) (bool, error) {
		h, err := s.header()
		if err != nil {
			return false, damageOf(s, err)
		}
		if h.NextOffset() > c.from {
			first = h.MaxTimestamp
			return false, nil
		}
		s.step(h.Size(), h.NextOffset())
		return true, nil
	})
	return first, err
}

// secure sees to it that what is to be replaced lies below the durable recovery point, in another segment than that, so that no
// recovery looks for a segment that is not there any more.
func (c *Compaction) secure() error {
	l := c.l
	if err := l.secureUpTo(c.until); err != nil {
		return err
	}
	if err := l.store.journal.sync(); err != nil {
		return err
	}
	l.mu.Lock()
	at := l.noted.seg
	l.mu.Unlock()
	for i := range c.segs {
		if c.ends[i] > at {
			c.leave(i)
			break
		}
	}
	return c.overtaken()
}

// secureUpTo makes the log durable if its recovery point is in a segment below an offset. A round of sync does that whenever a
// segment is begun, so it is rarely needed.
func (l *Log) secureUpTo(off int64) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	secured := l.noted.off >= 0 && l.noted.seg >= off
	l.mu.Unlock()
	if secured {
		return nil
	}
	return l.settle()
}

// overtaken says that what the run knows of the log is not true any more.
func (c *Compaction) overtaken() error {
	if err := c.l.store.usable(); err != nil {
		return err
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.deleted || c.l.cuts != c.cuts || !c.l.cfg.Compact {
		return errOvertaken
	}
	return nil
}

// pace tells the host of bytes that are read or written.
func (c *Compaction) pace(n int) error {
	if c.owed += n; c.owed < c.opts.PaceBytes {
		return nil
	}
	owed := c.owed
	c.owed = 0
	if c.opts.Pace != nil {
		if err := c.opts.Pace(owed); err != nil {
			return err
		}
	}
	return c.overtaken()
}

// scan calls visit with a scanner over a segment while it returns true; visit steps.
func (c *Compaction) scan(i int, visit func(s *scanner) (bool, error)) error {
	f, err := c.l.acquire(c.segs[i])
	if err != nil {
		if c.segs[i].isRemoved() {
			return errOvertaken
		}
		return err
	}
	defer c.l.release(c.segs[i])
	s := c.l.scan(c.segs[i], f, c.size[i])
	s.twice = true
	defer s.close()
	for !s.done() {
		if more, err := visit(s); err != nil || !more {
			return err
		}
	}
	return nil
}

// batches calls visit with every batch of a segment, CRC and all (rule 17), until it fails.
func (c *Compaction) batches(i int, visit func(s *scanner, b record.Batch) error) error {
	return c.scan(i, func(s *scanner) (bool, error) {
		b, err := s.batch()
		if err != nil {
			return false, damageOf(s, err)
		}
		size, next := b.Size(), b.NextOffset()
		c.stats.BytesRead += int64(size)
		if err := visit(s, b); err != nil {
			return false, err
		}
		s.step(size, next)
		return true, c.pace(size)
	})
}

// errFull ends mapKeys where the map is full.
var errFull = errors.New("the map is full")

// mapKeys notes the last offset of each key of what is not compacted yet, as far as there is memory.
func (c *Compaction) mapKeys() error {
	c.until = max(c.until, c.from)
	c.keys = newOffsetMap(c.opts.Buffer, c.until-c.from)
	c.stats.MapBytes = int64(len(c.keys.slots)) * slotBytes
	c.last = map[int64]*recent{}
	c.end = c.until
	for i := range c.segs {
		if c.ends[i] <= c.from {
			continue
		}
		err := c.batches(i, c.mapBatch)
		if err == errFull {
			c.stats.Full = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Compaction) mapBatch(s *scanner, b record.Batch) error {
	if b.NextOffset() <= c.from {
		return nil
	}
	if keepsWhole(b) {
		c.noteProducer(b)
		return nil
	}
	err := b.Briefs(c.l.store.opts.Decompressor, record.Limits{}, func(r record.Brief) bool {
		if r.Offset < c.from || r.Key == nil || c.keys.put(r.Key, r.Offset) {
			return true
		}
		c.end = r.Offset
		return false
	})
	if err != nil {
		return fmt.Errorf("%s: batch at %d: %w", s.name, s.pos, err)
	}
	c.noteProducer(b)
	if c.end < c.until {
		return errFull
	}
	return nil
}

// keepsWhole says that a batch is left as it is. What transactions wrote is: whether it was aborted is not known here, and
// an aborted record must not supersede another.
func keepsWhole(b record.Batch) bool { return b.Transactional() || b.Control() }

// noteProducer notes a batch as one of its producer's last.
func (c *Compaction) noteProducer(b record.Batch) {
	id := b.ProducerID()
	if id < 0 {
		return
	}
	r := c.last[id]
	if r == nil {
		if _, known := slices.BinarySearch(c.opts.Producers, id); !known {
			return
		}
		r = &recent{}
		c.last[id] = r
	}
	r.add(b.BaseOffset())
}

// remembered says that a batch may be one by which a producer's duplicates are told (rule 18).
func (c *Compaction) remembered(b record.Batch) bool {
	id := b.ProducerID()
	if id < 0 {
		return false
	}
	if _, known := slices.BinarySearch(c.opts.Producers, id); !known {
		return false
	}
	r := c.last[id]
	switch {
	case r == nil:
		return b.BaseOffset() < c.from
	case r.has(b.BaseOffset()):
		return true
	}
	return b.BaseOffset() < c.from && r.count < producerWindow
}

// rewrite makes the segments anew, in groups that make one segment each, the oldest first: what a tombstone supersedes is
// gone before the tombstone is.
func (c *Compaction) rewrite() error {
	n := len(c.segs)
	for n > 0 && c.segs[n-1].base >= c.end {
		n--
	}
	for i := 0; i < n; {
		j, err := c.rewriteGroup(i, n)
		if err != nil {
			return err
		}
		i = j
	}
	return nil
}

// note says up to where the log is compacted, unless it was cut.
func (c *Compaction) note() error {
	l := c.l
	l.op.Lock()
	defer l.op.Unlock()
	if err := c.overtaken(); err != nil {
		return err
	}
	l.store.journal.setCleaned(l.id, c.end)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.horizon, l.tombstone = c.horizon, c.tombstone
	return nil
}
