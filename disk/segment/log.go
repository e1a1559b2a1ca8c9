package segment

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/disk"
)

// Log is one log. Append, Truncate, SetStart, Retain, SaveEpochs,
// SaveProducers and Configure exclude each other; reads, rounds of sync and
// compaction run beside all of them.
//
// Three locks, in this order: shape is held by what deletes, cuts or replaces segments; op by what changes the log in any
// way, for as long as it takes, but that compaction puts its files into place without it, so that appends go on; mu
// guards the fields, and is never held while the disk is asked.
type Log struct {
	store *Store
	id    core.Partition
	topic string

	shape      sync.Mutex
	op         sync.Mutex
	compacting sync.Mutex // held by a run of compaction; nobody waits for it

	mu        sync.Mutex
	dir       string
	cfg       log.Config
	start     int64
	end       int64
	segs      []*segment // ascending; a segment ends where the next one begins
	writable  bool       // the last segment takes appends
	gaps      bool       // offsets may be missing, because compaction removed them
	gen       uint32     // rises when what a round of sync captured is no more true
	cuts      uint32     // rises when the log is cut or emptied
	horizon   int64      // when the next tombstones may be compacted away that the last run left; 0 if none, or not known
	tombstone int64      // where the first batch of those is
	cutting   bool       // the journal knows of a cut that is not made yet, so that rounds of sync keep off
	deleted   bool
	damage    error // the log cannot be opened (rule 15)
	missing   bool  // it has no directory
	nameless  bool  // its metadata file is to be made anew
	broken    error // no more writes: the files are not what the log is
	// brokenTail: what is wrong is only that a failed append left something after the end.
	brokenTail bool

	unsynced      []*segment // with bytes that no round covers yet
	unsyncedBytes int64
	created       bool          // the directory and its metadata file are not synced
	newNames      bool          // the directory has new names that are not synced
	noted         recoveryPoint // the last one in the journal
	reads, ends   *spots        // where reads and appends ended

	// Used with op held.
	room          int64       // the last segment's file is prepared up to here
	lastEpoch     int32       // of the last batch
	unsettled     bool        // something was cut off, which is not synced
	sinceSnapshot int64       // bytes appended since SaveProducers
	snapshots     []int64     // offsets of the producer snapshots there are, ascending
	unsaved       producersAt // one that could not be stored

	// Guarded by store.dirtyMu.
	listed bool // in store.dirty
}

// settings that a zero log.Config leaves open.
const (
	defaultSegmentBytes  = 1 << 30
	defaultIndexInterval = 4096
	maxSegmentBytes      = 1<<31 - 1 // positions in the index are 32 bits
	snapshotBytes        = 64 << 20  // appended before Append asks for another producer snapshot
	keepSnapshots        = 3
)

// Partition returns the log's id.
func (l *Log) Partition() core.Partition { return l.id }

// Topic returns the name of its topic.
func (l *Log) Topic() string { return l.topic }

// Dir returns the log's directory, relative to the data directory.
func (l *Log) Dir() string { return l.directory() }

func (l *Log) directory() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dir
}

// Bounds returns the first offset and the log end offset.
func (l *Log) Bounds() (start, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.end
}

// Size returns the bytes of its segments.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum int64
	for _, seg := range l.segs {
		sum += seg.size
	}
	return sum
}

// UnsyncedBytes returns how much was appended since a round began that covers the log.
func (l *Log) UnsyncedBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsyncedBytes
}

// Configure changes the settings.
func (l *Log) Configure(cfg log.Config) {
	l.op.Lock()
	defer l.op.Unlock()
	l.configure(cfg)
}

// configure is Configure with l.op held. A log that may have had gaps once may have them for good.
func (l *Log) configure(cfg log.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	if (cfg.Compact || cfg.Gaps) && !l.gaps {
		l.gaps = true
		l.store.journal.change(l.id, true, func(f *facts, w *entryWriter) {
			f.gaps = true
			w.begin(entryGaps, l.id)
		})
	}
}

func (l *Log) mayHaveGaps() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaps
}

func (l *Log) segmentBytes() int64 {
	if l.cfg.SegmentBytes <= 0 {
		return defaultSegmentBytes
	}
	return min(l.cfg.SegmentBytes, maxSegmentBytes)
}

func (l *Log) indexInterval() int64 {
	if l.cfg.IndexIntervalBytes <= 0 {
		return defaultIndexInterval
	}
	return l.cfg.IndexIntervalBytes
}

func (l *Log) isDeleted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleted
}

// usable says why the log takes no changes, nil if it does. l.op is held.
func (l *Log) usable() error {
	if err := l.store.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.deleted:
		return fmt.Errorf("%s: %w", l.dir, ErrNoLog)
	case l.damage != nil:
		return l.damage
	case l.broken != nil:
		return fmt.Errorf("%s: %w: %w", l.dir, ErrLogFailed, l.broken)
	}
	return nil
}

// setBroken says that what is in the files is not what the log is, and cannot be made so. l.op is held.
func (l *Log) setBroken(err error, onlyTail bool) {
	l.mu.Lock()
	l.broken, l.brokenTail = err, onlyTail
	l.mu.Unlock()
}

// last returns the last segment, nil if there is none. l.op or l.mu is held.
func (l *Log) last() *segment {
	if len(l.segs) == 0 {
		return nil
	}
	return l.segs[len(l.segs)-1]
}

// find returns the index of the segment that holds off, or would; -1 if off is below all. l.mu is held.
func (l *Log) find(off int64) int {
	return sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > off }) - 1
}

// endOf returns the offset at which segment i ends. l.mu is held.
func (l *Log) endOf(i int) int64 {
	if i+1 < len(l.segs) {
		return l.segs[i+1].base
	}
	return l.end
}

// touch says that a segment has unsynced bytes. l.mu is held.
func (l *Log) touch(seg *segment) {
	if !seg.unsynced {
		seg.unsynced = true
		l.unsynced = append(l.unsynced, seg)
	}
}

// forgetPlaces forgets what reads and appends remembered. l.mu is held.
func (l *Log) forgetPlaces() { l.reads, l.ends = nil, nil }

// endPoint is where the log ends, as a recovery point. l.mu is held.
func (l *Log) endPoint() recoveryPoint {
	p := recoveryPoint{off: l.end, seg: l.end, maxTimestamp: noTimestamp}
	if seg := l.last(); seg != nil {
		p.seg, p.pos, p.maxTimestamp = seg.base, seg.size, seg.maxTimestamp
	}
	return p
}

// SaveEpochs replaces the leader-epoch history. It is durable before a later
// append is reported durable by a round.
func (l *Log) SaveEpochs(epochs []log.EpochStart) error {
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.store.journal.setEpochs(l.id, append([]log.EpochStart(nil), epochs...))
	return nil
}

// open opens the last segment's file for changes.
func (l *Log) openLast(seg *segment, flag disk.Flag) (disk.File, error) {
	return l.store.files.acquire(&seg.data, seg, logExt, flag)
}

// expired says whether a batch with the given timestamp is one segment.ms after the segment's first.
func expired(first, timestamp int64, limit time.Duration) bool {
	return limit > 0 && first >= 0 && timestamp >= 0 && timestamp-first > limit.Milliseconds()
}
