package segment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
)

// recovery is what Open does with the logs that it finds. doc.go says what is trusted, cut and refused, and why.
type recovery struct {
	s      *Store
	clean  bool // everything was durable when the last process stopped, and the journal knows all of it
	strict bool // recovery points are not known, so that nothing may pass for a torn end that need not be one

	old     []byte // the journal as it was
	content journalContent
	deleted []string // directories whose deletion is to be finished

	mu      sync.Mutex
	changed bool // something was written or cut that must be made durable
}

// loadJournal reads what is known of the logs. Where it seems to end torn or damaged it is read again, and the reading that
// makes the most sense is taken: CRCs leave no doubt that it is right.
func (r *recovery) loadJournal() error {
	for n := range maxReads {
		b, err := readFile(r.s.fs, journalName)
		if err != nil {
			return err
		}
		c := parseJournal(b)
		if c.damage != nil && b == nil {
			c.damage = corrupt(journalName, 0, "missing")
		}
		if n == 0 || c.damage == nil && r.content.damage != nil || c.end > r.content.end {
			r.old, r.content = b, c
		}
		if b == nil || c.damage == nil && allZero(b[c.end:]) {
			break
		}
	}
	if r.content.damage != nil {
		r.clean = false
	}
	r.s.journal.facts, r.s.journal.seq = r.content.facts, r.content.seq
	return nil
}

// run recovers all logs, makes durable what that changed, and then notes it (museum C08).
func (r *recovery) run() error {
	s := r.s
	logs := s.allLogs()
	s.opts.ForEach(len(logs), func(i int) { r.recover(logs[i]) })
	for _, l := range logs {
		s.found = append(s.found, Found{l.id, l.topic, l.damage})
		if l.damage != nil {
			s.notice("%s is set aside: %v", l.dir, l.damage)
		}
	}
	slices.Sort(s.notices)
	if err := s.Failed(); err != nil {
		return err
	}
	// Without a clean stop nobody knows which of the names that are seen are durable, nor which removals.
	if r.changed || !r.clean && len(logs) > 0 {
		if err := s.fs.SyncAll(); err != nil {
			return s.syncFailed(err)
		}
	}
	for _, id := range s.journal.ids() {
		if s.logs[id] == nil {
			delete(s.journal.facts, id)
		}
	}
	err := s.journal.replace()
	if errors.Is(err, disk.ErrNoSpace) && r.content.damage == nil {
		err = s.journal.reuse(r.old[:r.content.end])
	}
	if err != nil {
		return err
	}
	return r.removeDeleted()
}

// setChanged says that something has to be made durable.
func (r *recovery) setChanged() {
	r.mu.Lock()
	r.changed = true
	r.mu.Unlock()
}

// recover recovers one log. What is wrong with it is left in l.damage; its files are then left as they are.
func (r *recovery) recover(l *Log) {
	if l.damage != nil {
		return
	}
	p := logRecovery{r: r, l: l, known: r.s.journal.get(l.id)}
	p.strict = r.strict || p.known.suspect
	p.known.gaps = p.known.gaps || r.strict // it may have been known
	l.gaps = p.known.gaps
	err := p.run()
	if err == nil {
		return
	}
	l.damage = fmt.Errorf("recover %s: %w", l.dir, err)
	if p.strict && errors.Is(err, ErrCorrupt) {
		known := r.s.journal.get(l.id)
		known.suspect = true // or the next recovery takes for a torn end what this one knows to be damage
		r.s.journal.set(l.id, known)
	}
}

// logRecovery is the recovery of one log.
type logRecovery struct {
	r      *recovery
	l      *Log
	known  facts
	strict bool // as recovery.strict
	segs   []*segment
	index  map[int64]bool // segments with an index file
	start  int64

	next  int64 // offset after what is found good
	epoch int32
	tail  rewriter
}

func (p *logRecovery) run() error {
	if err := p.list(); err != nil {
		return err
	}
	p.start = p.known.start
	if p.strict {
		p.known.recovery = noRecoveryPoint
		if len(p.segs) > 0 {
			p.start = max(p.start, p.segs[0].base)
		}
	}
	if err := p.dropBelow(); err != nil {
		return err
	}
	p.known.topic = p.l.topic
	if p.known.recovery.off < 0 || p.l.nameless {
		if err := p.rewriteMetadata(); err != nil {
			return err
		}
	}
	if !p.trusted() {
		if err := p.scan(); err != nil {
			return err
		}
	}
	return p.finish()
}

// list finds the segments and the snapshots in the log's directory.
func (p *logRecovery) list() error {
	fs, dir := p.r.s.fs, p.l.dir
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	p.index = map[int64]bool{}
	if names, err = p.finishSwaps(names); err != nil {
		return err
	}
	for _, name := range names {
		off, ext, ok := parseName(name)
		switch {
		case name == metadataName:
		case strings.HasSuffix(name, tmpSuffix):
			err = fs.Remove(dir + "/" + name)
		case ok && ext == logExt:
			var info disk.Info
			seg := p.l.newSegment(off)
			info, err = fs.Stat(dir + "/" + name)
			seg.size = info.Size
			p.segs = append(p.segs, seg)
		case ok && ext == indexExt:
			p.index[off] = true
		case ok && ext == snapshotExt:
			p.l.snapshots = append(p.l.snapshots, off)
		default:
			p.r.s.notice("%s/%s: unknown file, left alone", dir, name)
		}
		if err != nil {
			return err
		}
	}
	for _, seg := range p.segs {
		if p.index[seg.base] {
			seg.indexed = -1
		}
	}
	return nil
}

// dropBelow deletes segments that a moved start has left, and checks that none is missing at the start.
func (p *logRecovery) dropBelow() error {
	rp := p.known.recovery
	n := 0
	if rp.off >= 0 && rp.off <= p.start && !slices.ContainsFunc(p.segs, func(seg *segment) bool { return seg.base == rp.seg }) {
		// Everything durable is below the start, and was being deleted.
		for n < len(p.segs) && p.segs[n].base < p.start {
			n++
		}
	}
	for n+1 < len(p.segs) && p.segs[n+1].base <= p.start {
		n++
	}
	if err := p.drop(0, n); err != nil {
		return err
	}
	name := p.l.dir + "/" + offsetName(p.start) + logExt
	switch {
	case len(p.segs) > 0 && p.segs[0].base > p.start && rp.off <= p.start:
		return p.drop(0, len(p.segs)) // nothing was durable yet, and the first name is lost
	case len(p.segs) > 0 && p.segs[0].base > p.start:
		return corrupt(name, 0, "the log begins at offset %d, its first segment at %d", p.start, p.segs[0].base)
	case len(p.segs) == 0 && rp.off > p.start:
		return corrupt(name, 0, "missing: the log was durable from %d to %d", p.start, rp.off)
	}
	return nil
}

// drop deletes the segments [from, to), the latest first, so that there is no gap at any time.
func (p *logRecovery) drop(from, to int) error {
	for i := to - 1; i >= from; i-- {
		seg := p.segs[i]
		seg.removed = true
		if err := p.l.removeFiles(seg); err != nil {
			return err
		}
		p.r.setChanged()
	}
	p.segs = slices.Delete(p.segs, from, to)
	return nil
}

// rewriteMetadata writes again the file that says whose the log is. No sync of it is known to have succeeded, and after one
// that failed a page may look as if it were on disk.
func (p *logRecovery) rewriteMetadata() error {
	f, err := p.r.s.fs.Open(p.l.dir+"/"+metadataName, disk.Create)
	if err != nil {
		return err
	}
	defer f.Close()
	p.r.setChanged()
	content := formatMetadata(p.l.id, p.l.topic)
	if err := writeFull(f, content, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(content)))
}

// trusted says that the log need not be read: it was closed in good order, and is what the journal says it is. The
// second half is a second guard for museum A14.
func (p *logRecovery) trusted() bool {
	rp := p.known.recovery
	if !p.r.clean || rp.off < 0 {
		return false
	}
	p.next, p.epoch = rp.off, latestEpoch(p.known.epochs, rp.off)
	if len(p.segs) == 0 {
		return rp.off == p.start
	}
	last := p.segs[len(p.segs)-1]
	if last.base != rp.seg || last.size != rp.pos {
		return false
	}
	last.checked, last.maxTimestamp = true, rp.maxTimestamp
	return true
}

// scan reads all batches from the recovery point on, with their CRCs, and cuts the log where they end. Damage below the
// recovery point is not looked for here, but a log that does not even reach it is damaged (rule 15).
func (p *logRecovery) scan() error {
	i, pos, err := p.from()
	if err != nil || len(p.segs) == 0 {
		return err
	}
	for ; ; i, pos = i+1, 0 {
		seg := p.segs[i]
		end, err := p.scanSegment(i, pos)
		if err != nil {
			return err
		}
		torn := end < seg.size
		if !torn && i+1 < len(p.segs) && p.segs[i+1].base == p.next {
			seg.size = end
			continue
		}
		return p.cut(i, end)
	}
}

// from returns where scan begins.
func (p *logRecovery) from() (i int, pos int64, err error) {
	rp := p.known.recovery
	if len(p.segs) == 0 {
		p.next = p.start
		return 0, 0, nil
	}
	p.next, p.epoch = p.segs[0].base, record.NoLeaderEpoch
	if rp.off < 0 || p.segs[0].base >= rp.off && p.segs[0].base != rp.seg {
		return 0, 0, nil
	}
	for i, seg := range p.segs {
		if seg.base != rp.seg {
			continue
		}
		if seg.size < rp.pos {
			return 0, 0, corrupt(seg.name(logExt), seg.size, "the file ends here, but %d bytes of it were durable", rp.pos)
		}
		p.next, p.epoch = rp.off, latestEpoch(p.known.epochs, rp.off)
		seg.maxTimestamp = rp.maxTimestamp
		return i, rp.pos, nil
	}
	return 0, 0, corrupt(p.l.dir+"/"+offsetName(rp.seg)+logExt, 0, "missing: %d bytes of it were durable", rp.pos)
}

// scanSegment reads a segment from a position on and returns the end of what is good. It makes the index for that anew.
func (p *logRecovery) scanSegment(i int, pos int64) (end int64, err error) {
	next, epoch, epochs, latest := p.next, p.epoch, p.known.epochs, p.segs[i].maxTimestamp
	for range maxReads {
		if end, err = p.scanOnce(i, pos); !errors.Is(err, errDisagree) {
			break
		}
		p.next, p.epoch, p.known.epochs, p.segs[i].maxTimestamp = next, epoch, epochs, latest
	}
	return end, err
}

func (p *logRecovery) scanOnce(i int, pos int64) (end int64, err error) {
	seg, size := p.segs[i], p.segs[i].size
	defer func() { seg.size = size }()
	if err := p.cutIndex(seg, pos); err != nil {
		return 0, err
	}
	if pos == size {
		seg.checked = true
		return pos, nil
	}
	f, err := p.l.acquire(seg)
	if err != nil {
		return 0, err
	}
	defer p.l.release(seg)
	s := p.l.scan(seg, f, size)
	s.seek(pos, p.next)
	s.epoch = p.epoch
	defer s.close()
	seg.size, seg.checked = pos, true
	p.tail = rewriter{f: f, name: s.name, pos: pos, changed: p.r.setChanged}
	for err == nil && !s.done() {
		var b record.Batch
		if b, err = s.batch(); err == nil {
			err = p.take(seg, s, b)
		}
	}
	if err != nil && !errors.Is(err, ErrCorrupt) && err != errZeros {
		return 0, err
	}
	if err != nil && err != errZeros {
		if p.strict {
			if damage := p.tellDamage(i, s, size, err); damage != nil {
				return 0, damage
			}
		}
		p.r.s.notice("%v: torn end, cut from offset %d on", err, p.next)
	}
	p.l.flushIndex(seg, flushEntries)
	return s.pos, p.tail.flush()
}

// take counts a batch that follows.
func (p *logRecovery) take(seg *segment, s *scanner, b record.Batch) error {
	base, epoch := b.BaseOffset(), b.LeaderEpoch()
	if epoch > p.epoch {
		p.known.epochs = withEpoch(p.known.epochs, log.EpochStart{Epoch: epoch, Start: p.next}) // not below a gap; see log.Log.Append
	}
	seg.add(base, b.Size(), latestIn(b.Count(), b.MaxTimestamp()), p.l.indexInterval())
	p.l.flushIndex(seg, maxPending/2)
	p.next, p.epoch = b.NextOffset(), epoch
	if err := p.tail.add(s, b.Size()); err != nil {
		return err
	}
	s.step(b.Size(), b.NextOffset())
	s.epoch = epoch
	return nil
}

// withEpoch adds an entry that a batch tells of, unless the history has it: it may be missing where the batch was not durable.
func withEpoch(epochs []log.EpochStart, e log.EpochStart) []log.EpochStart {
	i, found := slices.BinarySearchFunc(epochs, e.Epoch, func(x log.EpochStart, epoch int32) int { return int(x.Epoch) - int(epoch) })
	if found {
		return epochs
	}
	return slices.Insert(slices.Clone(epochs), i, e)
}

// tellDamage tells damage from a torn end where no recovery point is known: after a torn end there is nothing good.
func (p *logRecovery) tellDamage(i int, s *scanner, size int64, damage error) error {
	for _, later := range p.segs[i+1:] {
		if later.size > 0 {
			return fmt.Errorf("%w; there is a later segment", damage)
		}
	}
	at, err := laterBatch(s, size, p.next)
	if err == nil && at >= 0 {
		err = fmt.Errorf("%w; there is a good batch at %d", damage, at)
	}
	return err
}

// laterBatch looks for a whole batch of an offset from next on after the scanner's position, which it keeps; -1 if there is none.
func laterBatch(s *scanner, size, next int64) (int64, error) {
	from := s.pos
	defer func() { s.seek(from, next) }()
	for s.seek(from+1, -1); size-s.pos >= record.HeaderSize; s.pos++ {
		w, err := s.window(record.HeaderSize, crcChunk)
		if err != nil {
			return -1, err
		}
		if h, err := record.ParseHeader(w); err != nil || h.BaseOffset < next || h.BaseOffset-next > 1<<40 || int64(h.Size()) > size-s.pos {
			continue
		}
		if _, err := s.batch(); err == nil {
			return s.pos, nil
		}
	}
	return -1, nil
}

// cutIndex drops what the index says of positions from pos on.
func (p *logRecovery) cutIndex(seg *segment, pos int64) error {
	seg.pending, seg.sinceEntry = nil, 0
	if !p.index[seg.base] && seg.indexed == 0 {
		return nil
	}
	p.r.setChanged()
	if pos == 0 {
		seg.indexed = 0
		return removeIfThere(p.r.s.fs, seg.name(indexExt))
	}
	return p.l.cutIndex(seg, pos)
}

// cut makes the log end at a position of segment i.
func (p *logRecovery) cut(i int, end int64) error {
	seg := p.segs[i]
	if p.strict && i+1 < len(p.segs) {
		return corrupt(p.segs[i+1].name(logExt), 0, "segment begins at offset %d, the one before ends at %d", p.segs[i+1].base, p.next)
	}
	if i+1 < len(p.segs) {
		p.r.s.notice("%s: %d segments after a torn end are deleted", p.l.dir, len(p.segs)-i-1)
	}
	if err := p.drop(i+1, len(p.segs)); err != nil {
		return err
	}
	if seg.size == end {
		return nil
	}
	f, err := p.l.acquire(seg)
	if err != nil {
		return err
	}
	defer p.l.release(seg)
	p.r.setChanged()
	seg.size = end
	return f.Truncate(end)
}

// finish makes the Log what was found.
func (p *logRecovery) finish() error {
	l := p.l
	if p.next < p.start { // all that is left is below the start
		if err := p.drop(0, len(p.segs)); err != nil {
			return err
		}
		p.next, p.epoch = p.start, record.NoLeaderEpoch
	}
	l.start, l.end, l.segs, l.lastEpoch = p.start, p.next, p.segs, p.epoch
	if seg := l.last(); seg != nil {
		l.writable, l.room = true, seg.size
	}
	if n := len(l.snapshots); n > 0 && l.snapshots[n-1] > l.end {
		p.r.setChanged()
		if err := l.dropSnapshots(l.end); err != nil {
			return err
		}
	}
	l.noted = l.endPoint()
	p.known.recovery, p.known.start, p.known.suspect = l.noted, l.start, false
	p.known.highWatermark, p.known.cleaned = min(p.known.highWatermark, l.end), min(p.known.cleaned, l.end)
	for n := len(p.known.epochs); n > 0 && p.known.epochs[n-1].Start > l.end; n-- {
		p.known.epochs = p.known.epochs[: n-1 : n-1]
	}
	p.r.s.journal.set(l.id, p.known)
	return nil
}
