package segment

import (
	"slices"
	"strings"

	"lockstep/disk"
)

// How what compaction made of a group of segments takes their place (rule 14), with a crash allowed at any call:
//
//  1. BASE.swap.tmp is written and synced. A restart deletes it.
//  2. It is renamed to BASE-END.swap, and the directory synced. From here on it stands for all segments from BASE to END, and a
//     restart does what is left to do.
//  3. The later segments of the group and all indexes are deleted, and the directory synced: never is one of them beside the new
//     file under its final name.
//  4. It is renamed to BASE.log, over the first segment of the group, and the directory synced.
//
// Who reads the old files has them open, and goes on; who looks for something from step 2 on finds the new one. Appends
// go on all the while.

const swapExt = ".swap"

// swapRange is what a swap file stands for: the offsets of the segments that it replaces.
type swapRange struct{ base, end int64 }

func swapName(base, end int64) string { return offsetName(base) + "-" + offsetName(end) + swapExt }

func parseSwap(name string) (r swapRange, ok bool) {
	from, to, found := strings.Cut(strings.TrimSuffix(name, swapExt), "-")
	base, _, ok1 := parseName(from + logExt)
	end, _, ok2 := parseName(to + logExt)
	if !found || !ok1 || !ok2 || base >= end || swapName(base, end) != name {
		return swapRange{}, false
	}
	return swapRange{base, end}, true
}

// swapIn puts what was made into the place of the group. If it fails before step 2 nothing has changed, and later the log takes no
// more writes until a restart has done the rest.
func (l *Log) swapIn(t *thinning) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	old := t.c.segs[t.from:t.to]
	if err := l.swappable(t, old); err != nil {
		return err
	}
	err := l.inDir(func(dir string) error { return l.store.fs.Rename(dir+"/"+t.tmp, dir+"/"+t.name) })
	if err == nil {
		err = l.syncOwnDir()
	}
	if err != nil {
		return err
	}
	indexed := l.writeSwapIndex(t)
	l.replaceSegments(t, old)
	err = l.removeReplaced(old)
	if err == nil {
		err = l.nameSwapped(t, indexed)
	}
	if err != nil {
		l.op.Lock()
		defer l.op.Unlock()
		l.setBroken(err, false)
		return err
	}
	for i := t.from; i < t.to; i++ {
		t.c.stats.BytesBefore += t.c.size[i]
	}
	t.c.stats.BytesAfter += t.written
	return nil
}

// swappable says why the segments cannot be replaced.
func (l *Log) swappable(t *thinning, old []*segment) error {
	if err := t.c.overtaken(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.segs, old[0])
	if l.broken != nil || i < 0 || i+len(old) >= len(l.segs) || !slices.Equal(l.segs[i:i+len(old)], old) {
		return errOvertaken
	}
	return nil
}

// inDir does something in the log's directory, which keeps its name meanwhile.
func (l *Log) inDir(do func(dir string) error) error {
	l.store.files.mu.Lock()
	defer l.store.files.mu.Unlock()
	return do(l.directory())
}

// syncOwnDir makes the names in the log's directory durable.
func (l *Log) syncOwnDir() error {
	for {
		dir := l.directory()
		err := l.store.fs.SyncDir(dir)
		if now := l.directory(); now != dir {
			continue // it was renamed meanwhile
		}
		if err != nil {
			return l.store.syncFailed(err)
		}
		return nil
	}
}

// replaceSegments lets readers and everybody else see the new segment in the place of the old ones.
func (l *Log) replaceSegments(t *thinning, old []*segment) {
	l.op.Lock() // nobody is about to make an index of an old one
	l.mu.Lock()
	i := slices.Index(l.segs, old[0])
	for _, seg := range old {
		seg.removed = true
	}
	t.seg.swap, t.seg.pending = t.name, t.index
	l.segs = slices.Concat(l.segs[:i], []*segment{t.seg}, l.segs[i+len(old):])
	l.mu.Unlock()
	l.op.Unlock()
	for _, seg := range old {
		l.store.files.drop(&seg.data)
		l.store.files.drop(&seg.index)
	}
}

// removeReplaced is step 3.
func (l *Log) removeReplaced(old []*segment) error {
	for i, seg := range slices.Backward(old) {
		err := l.inDir(func(dir string) error {
			if err := removeIfThere(l.store.fs, dir+"/"+offsetName(seg.base)+indexExt); err != nil || i == 0 {
				return err
			}
			return removeIfThere(l.store.fs, dir+"/"+offsetName(seg.base)+logExt)
		})
		if err != nil {
			return err
		}
	}
	return l.syncOwnDir()
}

// nameSwapped is step 4.
func (l *Log) nameSwapped(t *thinning, indexed bool) error {
	err := l.inDir(func(dir string) error {
		if err := l.store.fs.Rename(dir+"/"+t.name, dir+"/"+offsetName(t.seg.base)+logExt); err != nil {
			return err
		}
		l.mu.Lock()
		t.seg.swap = ""
		l.mu.Unlock()
		return nil
	})
	if err != nil {
		return err
	}
	if indexed {
		l.nameSwapIndex(t)
	}
	return l.syncOwnDir()
}

// writeSwapIndex writes the index of what was made under another name. Without it the entries stay in memory.
func (l *Log) writeSwapIndex(t *thinning) (ok bool) {
	if len(t.index) == 0 {
		return false
	}
	b := make([]byte, len(t.index)*entrySize)
	for i, e := range t.index {
		e.encode(b[i*entrySize:], t.seg.base)
	}
	var f disk.File
	err := l.inDir(func(dir string) (err error) {
		f, err = l.store.fs.Open(dir+"/"+offsetName(t.seg.base)+indexExt+tmpSuffix, disk.Create)
		return err
	})
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Truncate(0) == nil && writeFull(f, b, 0) == nil
}

func (l *Log) nameSwapIndex(t *thinning) {
	l.op.Lock()
	defer l.op.Unlock()
	err := l.inDir(func(dir string) error {
		name := dir + "/" + offsetName(t.seg.base) + indexExt
		return l.store.fs.Rename(name+tmpSuffix, name)
	})
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.seg.pending, t.seg.indexed = nil, len(t.index)
}

// finishSwaps does for a log that is recovered what a crash has left of steps 3 and 4, and returns the names in its directory then.
func (p *logRecovery) finishSwaps(names []string) ([]string, error) {
	found := false
	for _, name := range names {
		r, ok := parseSwap(name)
		if !ok {
			continue
		}
		found = true
		if err := p.finishSwap(name, r, names); err != nil {
			return nil, err
		}
	}
	if !found {
		return names, nil
	}
	return p.r.s.fs.List(p.l.dir)
}

func (p *logRecovery) finishSwap(name string, r swapRange, names []string) error {
	s, dir := p.r.s, p.l.dir
	p.r.setChanged()
	if err := s.syncDir(dir); err != nil { // that its name is seen does not say that it is durable
		return err
	}
	for _, other := range names {
		off, ext, ok := parseName(other)
		if !ok || off < r.base || off >= r.end || ext != indexExt && (ext != logExt || off == r.base) {
			continue
		}
		if err := removeIfThere(s.fs, dir+"/"+other); err != nil {
			return err
		}
	}
	if err := s.syncDir(dir); err != nil {
		return err
	}
	if err := s.fs.Rename(dir+"/"+name, dir+"/"+offsetName(r.base)+logExt); err != nil {
		return err
	}
	return nil
}
