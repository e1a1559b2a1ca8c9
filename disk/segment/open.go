package segment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/core"
	"lockstep/disk"
)

// Found is a log that Open found and recovered.
type Found struct {
	Partition core.Partition
	Topic     string
	Err       error // the log is damaged, or could not be read: OpenLog says so too (rule 15)
}

// Open locks a data directory, making what is missing, and recovers its logs:
// everything that a State of OpenLog then says is durable. It fails with
// disk.ErrLocked if another process has the directory, and with ErrFormat,
// changing nothing, if it is of a version that is not known.
func Open(fs disk.FS, opts Options) (*Store, error) {
	if opts.MaxOpenFiles <= 0 {
		opts.MaxOpenFiles = defaultMaxOpenFiles
	}
	if opts.SyncAllAbove <= 0 {
		opts.SyncAllAbove = defaultSyncAllAbove
	}
	if opts.ForEach == nil {
		opts.ForEach = func(n int, do func(i int)) {
			for i := range n {
				do(i)
			}
		}
	}
	unlock, err := fs.Lock(lockName)
	if err != nil {
		return nil, err
	}
	s := &Store{fs: fs, opts: opts, files: newFiles(fs, opts.MaxOpenFiles), unlock: unlock,
		logs: map[core.Partition]*Log{}, dirs: map[string]*Log{}, blocked: map[string]error{}}
	s.journal = &journal{s: s}
	if err := s.load(); err != nil {
		s.files.closeAll()
		s.journal.close()
		return nil, errors.Join(err, unlock())
	}
	return s, nil
}

// load is the rest of Open.
func (s *Store) load() (err error) {
	if s.meta, err = s.loadSealed(metaName); err != nil {
		return err
	}
	if s.clean, err = s.takeMarker(); err != nil {
		return err
	}
	names, err := s.fs.List(".")
	if err != nil {
		return err
	}
	r := recovery{s: s, clean: s.clean}
	if err := r.loadJournal(); err != nil {
		return err
	}
	dirs, err := r.sortOut(names)
	if err != nil {
		return err
	}
	if err := r.findLogs(dirs); err != nil {
		return err
	}
	return r.run()
}

func (s *Store) notice(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, fmt.Sprintf(format, args...))
}

// removeTree removes a directory of files.
func (s *Store) removeTree(dir string) error {
	names, err := s.fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeIfThere(s.fs, dir+"/"+name); err != nil {
			return err
		}
	}
	return s.fs.Remove(dir)
}

// splitDir is the reverse of dirName.
func splitDir(dir string) (topic, index string, ok bool) {
	at := strings.LastIndexByte(dir, '-')
	if at <= 0 || at == len(dir)-1 || strings.Trim(dir[at+1:], "0123456789") != "" {
		return "", "", false
	}
	return dir[:at], dir[at+1:], true
}

// addLog makes a Log known. s.mu is held, or the Store is being opened.
func (s *Store) addLog(id core.Partition, topic, dir string) *Log {
	l := &Log{store: s, id: id, topic: topic, dir: dir, noted: noRecoveryPoint, lastEpoch: -1}
	s.logs[id], s.dirs[dir] = l, l
	return l
}

// logFor returns the Log of a partition, and whether there was one; else it makes it.
func (s *Store) logFor(id core.Partition, topic string) (l *Log, found bool, err error) {
	if l := s.Log(id); l != nil {
		return l, true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logs[id]; l != nil {
		return l, true, nil
	}
	dir := dirName(topic, id.Index)
	if err := s.blocked[dir]; err != nil {
		return nil, false, err
	}
	if err := s.clearName(dir); err != nil {
		return nil, false, err
	}
	if err := s.fs.Mkdir(dir); err != nil {
		return nil, false, err
	}
	f, err := s.writeFile(dir+"/"+metadataName, formatMetadata(id, topic))
	if err != nil {
		return nil, false, errors.Join(err, s.fs.Remove(dir))
	}
	f.Close()
	s.journal.change(id, true, func(f *facts, w *entryWriter) {
		f.topic = topic
		w.topic(id, topic)
	})
	l = s.addLog(id, topic, dir)
	l.created = true
	s.setRootDirty()
	s.markDirty(l)
	return l, false, nil
}

// clearName makes way for a new log's directory: one that is there belongs to a topic that was deleted and made again,
// whose own deletion is still to come, or to nobody that we know. s.mu is held.
func (s *Store) clearName(dir string) error {
	if _, err := s.fs.Stat(dir); errors.Is(err, disk.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for n := 0; ; n++ {
		stray := fmt.Sprintf("%d%s", n, straySuffix)
		if topic, index, ok := splitDir(dir); ok && len(dir)+len(stray) < 250 {
			stray = fmt.Sprintf("%s-%s.%s", topic, index, stray)
		}
		if _, err := s.fs.Stat(stray); err == nil {
			continue
		} else if !errors.Is(err, disk.ErrNotExist) {
			return err
		}
		return s.move(dir, stray)
	}
}

// move renames a directory, that of a log or another, while nobody opens a file in it.
func (s *Store) move(dir, to string) error {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	if err := s.fs.Rename(dir, to); err != nil {
		return err
	}
	if l := s.dirs[dir]; l != nil {
		l.mu.Lock()
		l.dir = to
		l.mu.Unlock()
		delete(s.dirs, dir)
		s.dirs[to] = l
	}
	s.setRootDirty()
	return nil
}

// DeleteLogs deletes logs, durably and for good; one that is not there counts
// as deleted. Many at once take hardly more syncs than one. Spans of them stay readable until they are released.
func (s *Store) DeleteLogs(ids ...core.Partition) error {
	if err := s.usable(); err != nil {
		return err
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, core.Partition.Compare) // so that two calls do not wait for each other
	var logs []*Log
	for _, id := range slices.Compact(ids) {
		if l := s.Log(id); l != nil {
			l.shape.Lock()
			defer l.shape.Unlock()
			l.op.Lock()
			defer l.op.Unlock()
			logs = append(logs, l)
		}
	}
	if len(logs) == 0 {
		return nil
	}
	for _, l := range logs {
		if err := s.renameDeleted(l); err != nil {
			return fmt.Errorf("delete %s: %w", l.dir, err)
		}
	}
	// The names first: what is known of a log must not go before the log does.
	if err := s.syncDir("."); err != nil {
		return err
	}
	for _, l := range logs {
		s.journal.forget(l.id)
	}
	if err := s.journal.sync(); err != nil {
		return err
	}
	for _, l := range logs {
		if l.missing {
			continue
		}
		if err := s.removeTree(l.dir); err != nil {
			return fmt.Errorf("delete %s: %w", l.dir, err)
		}
	}
	return nil
}

// renameDeleted takes a log out of the Store and gives its directory the name of one that is being deleted.
func (s *Store) renameDeleted(l *Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[l.id] != l {
		return nil // somebody else deletes it
	}
	to := l.id.String() + deletedSuffix
	if _, err := s.fs.Stat(to); err == nil { // an earlier deletion failed on the way
		if err := s.removeTree(to); err != nil {
			return err
		}
	}
	if err := s.move(l.dir, to); err != nil && !(l.missing && errors.Is(err, disk.ErrNotExist)) {
		return err
	}
	l.mu.Lock()
	l.deleted = true
	l.gen++
	segs := l.segs
	for _, seg := range segs {
		seg.removed = true
	}
	l.unsynced, l.unsyncedBytes = nil, 0
	l.mu.Unlock()
	delete(s.logs, l.id)
	delete(s.dirs, l.dir)
	for _, seg := range segs {
		s.files.drop(&seg.data)
		s.files.drop(&seg.index)
	}
	return nil
}
