package segment

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
)

// Options are the settings of a Store. The zero value is usable.
type Options struct {
	// MaxOpenFiles bounds the files held open, 0 being 1024. Files that are being
	// read or synced count, but are not closed.
	MaxOpenFiles int
	// SyncAllAbove is the number of syncs of one round above which they are
	// replaced by one SyncAll, 0 being 4. Raise it where the data directory
	// shares its file system with others who write much.
	SyncAllAbove int
	// Decompressor decompresses records where LookupTime or compaction must look into them.
	Decompressor record.Decompressor
	// Compressor compresses again what compaction leaves of compressed batches.
	Compressor record.Compressor
	// ForEach calls do for 0..n-1, possibly in parallel, and returns when all are
	// done. Open recovers logs by it. nil is a plain loop, which a simulation needs.
	ForEach func(n int, do func(i int))
}

const (
	defaultMaxOpenFiles = 1024
	defaultSyncAllAbove = 4
)

// Names in the data directory, beside those of the logs.
const (
	lockName  = "lock"
	metaName  = "meta"
	stateName = "state"
	cleanName = "clean-stop"
)

// Store is one data directory: its logs and the small files beside them.
type Store struct {
	fs      disk.FS
	opts    Options
	files   *files
	journal *journal
	unlock  func() error
	clean   bool
	meta    []byte
	notices []string
	found   []Found
	blocked map[string]error // names of directories that nobody knows whose they are

	mu     sync.RWMutex
	logs   map[core.Partition]*Log
	dirs   map[string]*Log
	closed bool

	failure atomic.Pointer[error]

	dirtyMu   sync.Mutex
	dirty     []*Log
	rootDirty bool // the data directory has new names that are not synced
}

// Clean says that the process that used the directory last stopped cleanly.
func (s *Store) Clean() bool { return s.clean }

// Found lists the logs that were in the directory when it was opened, in ascending order.
func (s *Store) Found() []Found { return s.found }

// Notices are lines for the operator about what Open found and did: unknown
// files, which are left alone, torn ends that were cut, damage.
func (s *Store) Notices() []string { return s.notices }

// Failed returns ErrDiskFailed, wrapped with its cause, if the Store has failed.
func (s *Store) Failed() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// usable says why nothing may be written, nil if it may.
func (s *Store) usable() error {
	if err := s.Failed(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// syncFailed ends all writing: what the sync covered is unknown, and a later
// one that succeeds says nothing about it (rule 13, museum C03).
func (s *Store) syncFailed(cause error) error {
	err := fmt.Errorf("%w: %w", ErrDiskFailed, cause)
	s.failure.CompareAndSwap(nil, &err)
	return s.Failed()
}

// ifSyncFailed returns the error if it is the Store's end. Any other only means that something useful was not done.
func (s *Store) ifSyncFailed(err error) error {
	if errors.Is(err, ErrDiskFailed) {
		return err
	}
	return nil
}

// Meta returns the host's bytes about the directory (node, cluster and directory id), nil if none were saved.
func (s *Store) Meta() []byte { return s.meta }

// SaveMeta durably replaces the host's bytes.
func (s *Store) SaveMeta(meta []byte) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.replaceFile(metaName, seal(meta)); err != nil {
		return fmt.Errorf("save %s: %w", metaName, err)
	}
	s.meta = slices.Clone(meta)
	return nil
}

// LoadState returns the bytes of the last SaveState, nil if there was none.
func (s *Store) LoadState() ([]byte, error) { return s.loadSealed(stateName) }

func (s *Store) loadSealed(name string) ([]byte, error) {
	var content []byte
	err := s.readChecked(name, func(b []byte) (err error) {
		if b != nil {
			content, err = unseal(name, b)
		}
		return err
	})
	return content, err
}

// readChecked reads a whole file, nil if there is none, and reads it again while its check finds it corrupt: a wrong bit may
// come from the reading alone.
func (s *Store) readChecked(name string, check func(b []byte) error) error {
	for n := 1; ; n++ {
		b, err := readFile(s.fs, name)
		if err != nil {
			return err
		}
		if err = check(b); n == maxReads || !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
}

// SaveState durably and atomically replaces the broker's small state (rule 11: term and vote).
func (s *Store) SaveState(state []byte) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.replaceFile(stateName, seal(state)); err != nil {
		return fmt.Errorf("save %s: %w", stateName, err)
	}
	return nil
}

// Log returns an open log, nil if there is none.
func (s *Store) Log(id core.Partition) *Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.logs[id]
}

// allLogs returns the logs in ascending order.
func (s *Store) allLogs() []*Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *Log) int { return a.id.Compare(b.id) })
	return list
}

// appendBufs are lists of what one write gathers. The pool is not a field: the runtime would keep each Store that has one
// for two collections more, and a simulator makes thousands.
var appendBufs sync.Pool

func takeBufs(n int) *[][]byte {
	if b, ok := appendBufs.Get().(*[][]byte); ok {
		return b
	}
	b := make([][]byte, 0, max(n, 16))
	return &b
}

func giveBufs(b *[][]byte) {
	clear(*b)
	*b = (*b)[:0]
	appendBufs.Put(b)
}

// OpenLog opens a log, making it if it is not there; that is durable with its
// first round. It loads the producer table, which takes reading, so that a host
// opens several at once. A log that is damaged is not opened (rule 15).
func (s *Store) OpenLog(id core.Partition, topic string, cfg log.Config) (*Log, log.State, error) {
	if err := s.usable(); err != nil {
		return nil, log.State{}, err
	}
	l, found, err := s.logFor(id, topic)
	if err != nil {
		return nil, log.State{}, fmt.Errorf("open log %s-%d: %w", topic, id.Index, err)
	}
	l.op.Lock()
	defer l.op.Unlock()
	if l.damage != nil {
		return nil, log.State{}, l.damage
	}
	l.configure(cfg)
	producers, err := l.loadProducers()
	if err != nil {
		return nil, log.State{}, err
	}
	known := s.journal.get(id)
	st := log.State{
		Start: l.start, End: l.end,
		HighWatermark: min(known.highWatermark, l.end),
		Epochs:        slices.Clone(known.epochs),
		Producers:     producers,
		Clean:         s.clean && found,
	}
	return l, st, nil
}

// Close makes everything durable and, last, leaves the mark of a clean stop,
// unless the Store has failed or a log is broken. Nobody may use it any more, nor hold Spans.
func (s *Store) Close() error {
	err := s.flush()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.files.closeAll()
	s.journal.close()
	return errors.Join(err, s.unlock())
}

// flush is the part of Close that writes.
func (s *Store) flush() error {
	if err := s.usable(); err != nil {
		return err
	}
	whole := true
	for _, l := range s.allLogs() {
		ok, err := l.finish()
		if err != nil {
			return err
		}
		whole = whole && ok
	}
	s.files.setLostDirty() // so that it is a SyncAll, which covers the indexes, too
	round := s.BeginSync()
	round.must = true
	if err := round.Run(); err != nil {
		return err
	}
	if err := s.journal.replace(); err != nil || !whole {
		return err
	}
	return s.leaveMarker()
}

// finish prepares a log for a clean stop: no room ahead, no index entry only in memory. ok is false if it is not in order.
func (l *Log) finish() (ok bool, err error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.op.Lock()
	defer l.op.Unlock()
	if l.damage != nil {
		return true, nil // it stays as it is
	}
	if l.broken != nil {
		return false, nil
	}
	if l.writable {
		if err := l.seal(l.last()); err != nil {
			return false, fmt.Errorf("close %s: %w", l.directory(), err)
		}
		l.store.markDirty(l)
	}
	return true, nil
}

// leaveMarker says that all was made durable.
func (s *Store) leaveMarker() error {
	f, err := s.fs.Open(cleanName, disk.Create)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return s.syncFailed(err)
	}
	return s.syncDir(".")
}

// takeMarker says whether the last process stopped cleanly, and durably takes
// that word back before anything is loaded, let alone written: a crash from here on must not find it (museum A14).
func (s *Store) takeMarker() (clean bool, err error) {
	if _, err := s.fs.Stat(cleanName); errors.Is(err, disk.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if err := s.fs.Remove(cleanName); err != nil {
		return false, err
	}
	return true, s.syncDir(".")
}
