package segment

import (
	"errors"
	"fmt"

	"lockstep/core"
	"lockstep/disk"
)

// DurableEnd says that all appends to a log below End are durable.
type DurableEnd struct {
	Partition core.Partition
	End       int64
}

// Round is one round of group commit: BeginSync, Run, Finish.
type Round struct {
	s     *Store
	logs  []captured
	files []*segment // whose data files are held open, to be synced one by one
	all   bool       // one SyncAll instead
	root  bool       // the data directory has new names
	must  bool       // the journal has notes that must be durable
}

// captured is what a round took over of one log.
type captured struct {
	log      *Log
	gen      uint32
	end      recoveryPoint
	bytes    int64
	segs     []*segment
	created  bool
	newNames bool
}

// BeginSync begins a round: it notes where the given logs end (all that have
// unsynced appends, if none is given), and those of the others that come along
// for free. Appends go on while it runs. Rounds do not overlap: after
// BeginSync comes Run, and Finish if there was no error.
func (s *Store) BeginSync(want ...*Log) *Round {
	r := &Round{s: s}
	if len(want) == 0 {
		want = s.takeDirty()
	} else {
		s.unlist(want)
	}
	syncs := 0
	for _, l := range want {
		syncs += r.capture(l)
	}
	r.root = s.takeRootDirty()
	if syncs <= s.opts.SyncAllAbove {
		r.hold()
	} else {
		r.all = true
	}
	// The order matters: what was closed unsynced before it was held is noticed here.
	if s.files.takeLostDirty() || r.all {
		r.all = true
		for _, l := range s.takeDirty() {
			r.capture(l)
		}
		for i := range r.logs {
			for _, seg := range r.logs[i].segs {
				s.files.clean(&seg.data)
			}
		}
	}
	r.must = s.journal.mustSync() // last: epochs are noted before the appends in them, and those are captured
	return r
}

// capture takes over what is unsynced of a log, and returns how many syncs it takes one by one.
func (r *Round) capture(l *Log) (syncs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutting {
		r.s.markDirty(l) // who cuts it syncs it; if that fails, another round does
		return 0
	}
	if l.deleted || l.damage != nil {
		return 0
	}
	c := captured{log: l, gen: l.gen, end: l.endPoint(), bytes: l.unsyncedBytes, segs: l.unsynced, created: l.created, newNames: l.newNames}
	l.unsynced, l.unsyncedBytes, l.created, l.newNames = nil, 0, false, false
	for _, seg := range c.segs {
		seg.unsynced = false
	}
	r.logs = append(r.logs, c)
	syncs = len(c.segs)
	if c.newNames {
		syncs++
	}
	if c.created {
		syncs += 2
	}
	return syncs
}

// hold keeps the files to sync open. One that was closed meanwhile can only be
// synced with all.
func (r *Round) hold() {
	for i := range r.logs {
		for _, seg := range r.logs[i].segs {
			r.s.files.clean(&seg.data)
			if r.s.files.hold(&seg.data) {
				r.files = append(r.files, seg)
			} else if !seg.isRemoved() {
				r.all = true
			}
		}
	}
}

// Empty says that there is nothing to sync.
func (r *Round) Empty() bool { return len(r.logs) == 0 && !r.root && !r.must }

// Run syncs. It blocks, and holds no lock that appends and reads need. If a
// sync fails the Store has failed for good (ErrDiskFailed, rule 13). Any other
// error (disk.ErrNoSpace) leaves all as it was, for another round.
func (r *Round) Run() error {
	defer r.letGo()
	if r.Empty() {
		return nil
	}
	err := r.s.usable()
	if err == nil {
		err = r.sync()
	}
	if err != nil {
		r.putBack()
		return err
	}
	// Museum C08: a recovery point is written after the sync that it speaks of. This one need not be durable: what is
	// lost of it makes the next recovery look at more.
	r.noteRecoveryPoints()
	if r.s.journal.write() == nil && r.s.journal.grown(journalGrowthMax) {
		return r.s.ifSyncFailed(r.s.journal.replace())
	}
	return nil
}

// sync makes durable what was captured, and the notes that must be.
func (r *Round) sync() error {
	if r.all {
		return r.syncAll()
	}
	for _, seg := range r.files {
		if err := r.s.syncData(seg); err != nil {
			return err
		}
	}
	for i := range r.logs {
		if err := r.syncNames(&r.logs[i]); err != nil {
			return err
		}
	}
	if r.root {
		if err := r.s.syncDir("."); err != nil {
			return err
		}
	}
	if r.must {
		return r.s.journal.sync()
	}
	return nil
}

func (r *Round) syncAll() error {
	afterwards, err := r.s.journal.beforeSyncAll()
	if err != nil && r.must {
		return err
	}
	if err := r.s.fs.SyncAll(); err != nil {
		return r.s.syncFailed(err)
	}
	if afterwards != nil {
		afterwards()
	}
	return nil
}

// syncNames makes durable what is new in a log's directory (rule 14).
func (r *Round) syncNames(c *captured) error {
	if !c.created && !c.newNames {
		return nil
	}
	for {
		dir := c.log.directory()
		err := r.s.syncDirOf(dir, c.created)
		switch {
		case err == nil:
			return nil
		case c.log.isDeleted():
			return nil
		case errors.Is(err, disk.ErrNotExist) && c.log.directory() != dir:
			continue // it was renamed meanwhile
		}
		return r.s.syncFailed(err)
	}
}

// syncDirOf syncs a log's directory and, if it is new, its metadata file.
func (s *Store) syncDirOf(dir string, created bool) error {
	if created {
		f, err := s.fs.Open(dir+"/"+metadataName, 0)
		if err != nil {
			return err
		}
		err = f.Sync()
		f.Close()
		if err != nil {
			return err
		}
	}
	return s.fs.SyncDir(dir)
}

// noteRecoveryPoints notes up to where logs are durable now, but for those that were cut meanwhile.
func (r *Round) noteRecoveryPoints() {
	for i := range r.logs {
		c := &r.logs[i]
		c.log.mu.Lock()
		// Behind the last one are rounds that a truncation or a move of the start overtook.
		if c.log.gen == c.gen && !c.log.deleted && c.end.off >= c.log.noted.off && c.end != c.log.noted {
			c.log.noted = c.end
			r.s.journal.note(c.log.id, c.end)
		}
		c.log.mu.Unlock()
	}
}

// letGo gives the files back.
func (r *Round) letGo() {
	for _, seg := range r.files {
		r.s.files.release(&seg.data)
		if seg.isRemoved() {
			r.s.files.drop(&seg.data)
		}
	}
	r.files = nil
}

// putBack makes unsynced again what was captured, for another round.
func (r *Round) putBack() {
	for i := range r.logs {
		c := &r.logs[i]
		l := c.log
		l.mu.Lock()
		for _, seg := range c.segs {
			if !seg.removed {
				l.touch(seg)
			}
		}
		l.unsyncedBytes += c.bytes
		l.created = l.created || c.created
		l.newNames = l.newNames || c.newNames
		l.mu.Unlock()
		r.s.markDirty(l)
	}
	if r.root {
		r.s.setRootDirty()
	}
	if r.all {
		r.s.files.setLostDirty()
	}
}

// Finish tells, after a Run without error, up to where the round's logs are
// durable. Logs that were truncated or deleted meanwhile are left out.
func (r *Round) Finish() []DurableEnd {
	ends := make([]DurableEnd, 0, len(r.logs))
	for i := range r.logs {
		c := &r.logs[i]
		c.log.mu.Lock()
		if c.log.gen == c.gen && !c.log.deleted {
			ends = append(ends, DurableEnd{c.log.id, c.end.off})
		}
		c.log.mu.Unlock()
	}
	return ends
}

// syncData syncs a segment's data file, which is held open.
func (s *Store) syncData(seg *segment) error {
	f, err := s.files.acquire(&seg.data, seg, logExt, 0)
	if err != nil {
		return fmt.Errorf("open to sync: %w", err)
	}
	defer s.files.release(&seg.data)
	if err := f.Sync(); err != nil {
		return s.syncFailed(err)
	}
	return nil
}

func (s *Store) syncDir(dir string) error {
	if err := s.fs.SyncDir(dir); err != nil {
		return s.syncFailed(err)
	}
	return nil
}

// The list of logs that have something unsynced, in the order of becoming so.

func (s *Store) markDirty(l *Log) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	if !l.listed {
		l.listed = true
		s.dirty = append(s.dirty, l)
	}
}

func (s *Store) takeDirty() []*Log {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	list := s.dirty
	for _, l := range list {
		l.listed = false
	}
	s.dirty = nil
	return list
}

// unlist takes logs out of the list.
func (s *Store) unlist(logs []*Log) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	for _, l := range logs {
		l.listed = false
	}
	keep := s.dirty[:0]
	for _, l := range s.dirty {
		if l.listed {
			keep = append(keep, l)
		}
	}
	clear(s.dirty[len(keep):])
	s.dirty = keep
}

func (s *Store) setRootDirty() {
	s.dirtyMu.Lock()
	s.rootDirty = true
	s.dirtyMu.Unlock()
}

func (s *Store) takeRootDirty() bool {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	dirty := s.rootDirty
	s.rootDirty = false
	return dirty
}

// HighWatermark is the high watermark of one log, for Checkpoint.
type HighWatermark struct {
	Partition core.Partition
	Offset    int64
}

// Checkpoint durably notes high watermarks, and with them the recovery points
// that rounds have noted. It is to be called every second or so: what was
// appended since a durable recovery point is what a damage cannot be told from a torn end in.
func (s *Store) Checkpoint(marks []HighWatermark) error {
	if err := s.usable(); err != nil {
		return err
	}
	for _, m := range marks {
		s.journal.setHighWatermark(m.Partition, m.Offset)
	}
	if s.journal.grown(journalGrowth) {
		return s.journal.replace()
	}
	return s.journal.sync()
}
