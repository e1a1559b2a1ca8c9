package segment

import (
	"errors"
	"slices"
	"strings"

	"lockstep/core"
)

// sortOut drops what replacing files left half done, notes the deletions to be finished, and returns the directories that may be logs.
func (r *recovery) sortOut(names []string) (dirs []string, err error) {
	s := r.s
	for _, name := range names {
		switch {
		case slices.Contains([]string{lockName, metaName, stateName, cleanName, journalName}, name):
			continue
		case strings.HasSuffix(name, deletedSuffix):
			r.deleted = append(r.deleted, name)
			continue
		}
		info, err := s.fs.Stat(name)
		switch {
		case err != nil:
			return nil, err
		case info.Dir:
			dirs = append(dirs, name)
		case strings.HasSuffix(name, tmpSuffix):
			if err := s.fs.Remove(name); err != nil {
				return nil, err
			}
		default:
			s.notice("%s: unknown file, left alone", name)
		}
	}
	return dirs, nil
}

// findLogs makes a Log of each directory that is one, and of each that should be there.
func (r *recovery) findLogs(dirs []string) error {
	s := r.s
	type result struct {
		id    core.Partition
		topic string
		err   error
	}
	results := make([]result, len(dirs))
	s.opts.ForEach(len(dirs), func(i int) {
		x := &results[i]
		x.id, x.topic, x.err = s.readMetadata(dirs[i])
	})
	var nameless []int
	for i, x := range results {
		dir := dirs[i]
		switch {
		case errors.Is(x.err, ErrFormat):
			return x.err
		case x.err != nil:
			nameless = append(nameless, i)
		case s.logs[x.id] != nil:
			s.notice("%s: another directory of the log in %s, left alone", dir, s.logs[x.id].dir)
		default:
			s.addLog(x.id, x.topic, dir)
		}
	}
	for _, i := range nameless {
		err := results[i].err
		if !errors.Is(err, ErrCorrupt) {
			r.setUnreadable(dirs[i], err)
		} else if err := r.judgeNameless(dirs[i]); err != nil {
			return err
		}
	}
	r.strict = r.content.damage != nil && len(s.logs) > 0
	if r.strict {
		s.notice("%v: all logs are read whole, and a deleted beginning may be back", r.content.damage)
	}
	r.findMissing()
	return nil
}

// readMetadata says whose a directory is, ErrCorrupt if it does not tell.
func (s *Store) readMetadata(dir string) (id core.Partition, topic string, err error) {
	name := dir + "/" + metadataName
	err = s.readChecked(name, func(b []byte) error {
		if b == nil {
			return corrupt(name, 0, "missing")
		}
		id, topic, err = parseMetadata(name, b)
		return err
	})
	return id, topic, err
}

// judgeNameless treats a directory that does not tell whose it is. The journal may know, from the round that first made
// anything in it durable. If it does not, and is whole, nothing was ever durable there: it is what a crash left of a
// log being made. If it is damaged nobody knows, and no log of that name is made in its place.
func (r *recovery) judgeNameless(dir string) error {
	s := r.s
	_, _, isName := splitDir(dir)
	data, foreign, err := s.lookInto(dir)
	switch {
	case err != nil:
		return err
	case !isName || foreign:
		s.notice("%s: unknown directory, left alone", dir)
		return nil
	}
	owners := r.ownersOf(dir)
	switch {
	case len(owners) == 1:
		s.notice("%s: %s is missing or damaged, and made anew from %s", dir, metadataName, journalName)
		s.addLog(owners[0], r.content.facts[owners[0]].topic, dir).nameless = true
	case len(owners) > 1 || data && r.content.damage != nil:
		s.notice("%s: %s is missing or damaged; left alone", dir, metadataName)
		s.blocked[dir] = corrupt(dir+"/"+metadataName, 0, "nobody knows whose the log is")
	case data:
		s.notice("%s: left of a log that was being made, left alone", dir)
	default:
		return s.removeTree(dir)
	}
	return nil
}

// setUnreadable treats a directory whose metadata file cannot be read. That concerns its log alone, if anybody knows which that is.
func (r *recovery) setUnreadable(dir string, err error) {
	r.s.notice("%s: %v", dir, err)
	if owners := r.ownersOf(dir); len(owners) == 1 {
		r.s.addLog(owners[0], r.content.facts[owners[0]].topic, dir).damage = err
	} else {
		r.s.blocked[dir] = err
	}
}

// lookInto says whether there is data in a directory, and whether there is anything that is not of a log.
func (s *Store) lookInto(dir string) (data, foreign bool, err error) {
	names, err := s.fs.List(dir)
	if err != nil {
		return false, false, err
	}
	for _, name := range names {
		_, ext, ok := parseName(name)
		if _, isSwap := parseSwap(name); isSwap {
			ok, ext = true, logExt
		}
		switch {
		case name == metadataName || strings.HasSuffix(name, swapExt+tmpSuffix) || strings.HasSuffix(name, indexExt+tmpSuffix):
		case !ok || ext != logExt && ext != indexExt && ext != snapshotExt:
			foreign = true
		case ext == logExt:
			info, err := s.fs.Stat(dir + "/" + name)
			if err != nil {
				return false, false, err
			}
			data = data || info.Size > 0
		}
	}
	return data, foreign, nil
}

// ownersOf returns the logs that the journal knows by the name of a directory, which was durable, and that were not found elsewhere.
func (r *recovery) ownersOf(dir string) (owners []core.Partition) {
	for _, id := range r.s.journal.ids() {
		f := r.content.facts[id]
		if f.recovery.off >= 0 && dirName(f.topic, id.Index) == dir && r.s.logs[id] == nil && !r.isDeleted(id) {
			owners = append(owners, id)
		}
	}
	return owners
}

// isDeleted says that a log was being deleted.
func (r *recovery) isDeleted(id core.Partition) bool {
	return slices.Contains(r.deleted, id.String()+deletedSuffix)
}

// findMissing makes damaged Logs of those that had durable data and have no directory any more: an empty one made in their
// place would pass for them.
func (r *recovery) findMissing() {
	if r.content.damage != nil {
		return
	}
	for _, id := range r.s.journal.ids() {
		f := r.content.facts[id]
		if r.s.logs[id] != nil || r.isDeleted(id) || f.recovery.off <= f.start {
			continue
		}
		l := &Log{store: r.s, id: id, topic: f.topic, dir: dirName(f.topic, id.Index), noted: noRecoveryPoint, missing: true}
		l.damage = corrupt(l.dir, 0, "missing: the log was durable from %d to %d", f.start, f.recovery.off)
		r.s.logs[id] = l
	}
}

// removeDeleted finishes deletions, when the journal does not know the logs any more.
func (r *recovery) removeDeleted() error {
	for _, dir := range r.deleted {
		if err := r.s.removeTree(dir); err != nil {
			return err
		}
	}
	return nil
}
