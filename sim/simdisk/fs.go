package simdisk

import (
	"math/bits"
	"slices"

	"lockstep/disk"
	"lockstep/sim/seed"
)

// FS is the file system as one process sees it. It dies with the process.
type FS struct {
	d       *Disk
	dead    bool
	fate    End
	handles []*File
	locks   []string
}

// strike is what a rule does to the call at hand; the zero value is nothing.
type strike struct {
	effect Effect
	chance *seed.Stream
}

func (s strike) crash() bool { return s.effect == Crash || s.effect == PowerCut }

// die ends the process inside a call.
func (m *FS) die(s strike) {
	m.dead = true
	m.fate = Killed
	if s.effect == PowerCut {
		m.fate = Cut
	}
	panic(death{m, m.fate})
}

// begin is the first thing that every call does.
func (m *FS) begin(op Op, name string, ino *inode) strike {
	if m.dead {
		panic(death{m, m.fate})
	}
	d := m.d
	d.stats.Total++
	d.stats.Calls[bits.TrailingZeros32(uint32(op))]++
	d.cost += d.costs.Call
	d.mix(uint64(op))
	if len(d.rules) == 0 {
		return strike{}
	}
	s := d.meet(op, name, ino)
	if s.crash() && s.chance.Intn(3) == 0 {
		m.die(s) // before anything was done
	}
	return s
}

// end is the last thing that a call does that succeeded.
func (m *FS) finish(s strike) {
	if s.crash() {
		m.die(s)
	}
}

// mix folds a number into the running hash.
func (d *Disk) mix(x uint64) { d.hash = seed.Mix(d.hash ^ x) }

// fits says whether an effect can strike a call of a kind.
func (e Effect) fits(op Op) bool {
	switch e {
	case IOErrorStale:
		return op&OpSyncs != 0
	case NoSpace:
		return op&(OpWrite|OpAllocate|OpOpen|OpMkdir) != 0
	case Short, Misdirect:
		return op == OpWrite
	case Rot:
		return op&(OpRead|OpWrite|OpSync|OpTruncate|OpAllocate|OpClose) != 0
	case RotRead:
		return op == OpRead
	case IOError:
		return op&(OpClose|OpFree) == 0
	}
	return true
}

// meet counts a call against every rule. Slow and Rot happen here; of the others the first one strikes.
func (d *Disk) meet(op Op, name string, ino *inode) (s strike) {
	for _, r := range d.rules {
		if r.Op&op == 0 || !r.Effect.fits(op) || !matches(r.Path, name) {
			continue
		}
		r.seen++
		if r.seen < r.Nth || r.Times >= 0 && r.seen > r.Nth+r.Times {
			continue
		}
		switch {
		case r.Effect == Slow:
			d.cost += r.Delay
		case r.Effect == Rot:
			if !d.rot(ino, name, &r.chance) {
				continue
			}
		case s.effect == 0:
			s = strike{r.Effect, &r.chance}
		default:
			continue
		}
		d.stats.Fired[r.Effect]++
		d.mix(uint64(r.Effect) << 32)
	}
	return s
}

// end closes what the process had open.
func (m *FS) end() {
	for _, f := range m.handles {
		f.ino.open--
		m.d.unused(f.ino)
	}
	m.handles, m.locks = nil, nil
}

// Open implements disk.FS.
func (m *FS) Open(name string, flag disk.Flag) (disk.File, error) {
	s := m.begin(OpOpen, name, nil)
	if s.effect == IOError {
		return nil, wrap("open", name, disk.ErrIO)
	}
	dir, base, err := m.d.parent(name)
	if err != nil {
		return nil, wrap("open", name, err)
	}
	ino := dir.entries[base]
	switch {
	case ino == nil && flag&disk.Create == 0:
		return nil, wrap("open", name, disk.ErrNotExist)
	case ino != nil && (flag&(disk.Create|disk.Exclusive) == disk.Create|disk.Exclusive || ino.dir):
		return nil, wrap("open", name, disk.ErrExist)
	case ino == nil && s.effect == NoSpace:
		return nil, wrap("open", name, disk.ErrNoSpace)
	case ino == nil:
		ino = m.d.newInode(false)
		m.d.enter(dir, base, ino)
	}
	m.finish(s)
	f := &File{m: m, ino: ino, name: name, at: len(m.handles)}
	m.handles = append(m.handles, f)
	ino.open++
	return f, nil
}

// Mkdir implements disk.FS.
func (m *FS) Mkdir(name string) error {
	s := m.begin(OpMkdir, name, nil)
	if err := s.refuse(); err != nil {
		return wrap("mkdir", name, err)
	}
	dir, base, err := m.d.parent(name)
	if err != nil {
		return wrap("mkdir", name, err)
	}
	if dir.entries[base] != nil {
		return wrap("mkdir", name, disk.ErrExist)
	}
	m.d.enter(dir, base, m.d.newInode(true))
	m.finish(s)
	return nil
}

// refuse is the error of a call that fails without doing anything.
func (s strike) refuse() error {
	switch s.effect {
	case IOError:
		return disk.ErrIO
	case NoSpace:
		return disk.ErrNoSpace
	}
	return nil
}

// Rename implements disk.FS.
func (m *FS) Rename(oldName, newName string) error {
	s := m.begin(OpRename, oldName, nil)
	if err := s.refuse(); err != nil {
		return wrap("rename", oldName, err)
	}
	fromDir, from, err := m.d.parent(oldName)
	if err != nil || fromDir.entries[from] == nil {
		return wrap("rename", oldName, disk.ErrNotExist)
	}
	toDir, to, err := m.d.parent(newName)
	if err == nil {
		err = m.d.rename(fromDir, from, toDir, to)
	}
	if err != nil {
		return wrap("rename", newName, err)
	}
	m.finish(s)
	return nil
}

// Remove implements disk.FS.
func (m *FS) Remove(name string) error {
	s := m.begin(OpRemove, name, nil)
	if err := s.refuse(); err != nil {
		return wrap("remove", name, err)
	}
	dir, base, err := m.d.parent(name)
	if err != nil {
		return wrap("remove", name, err)
	}
	ino := dir.entries[base]
	switch {
	case ino == nil:
		return wrap("remove", name, disk.ErrNotExist)
	case len(ino.entries) > 0: // POSIX lets rmdir say EEXIST for a directory that is not empty
		return wrap("remove", name, disk.ErrExist)
	}
	m.d.remove(dir, base, ino)
	m.finish(s)
	return nil
}

// List implements disk.FS.
func (m *FS) List(dir string) ([]string, error) {
	s := m.begin(OpList, dir, nil)
	if err := s.refuse(); err != nil {
		return nil, wrap("list", dir, err)
	}
	ino := m.d.find(dir)
	if ino == nil || !ino.dir {
		return nil, wrap("list", dir, disk.ErrNotExist)
	}
	names := make([]string, 0, len(ino.entries))
	for name := range ino.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	m.finish(s)
	return names, nil
}

// Stat implements disk.FS.
func (m *FS) Stat(name string) (disk.Info, error) {
	s := m.begin(OpStat, name, nil)
	if err := s.refuse(); err != nil {
		return disk.Info{}, wrap("stat", name, err)
	}
	ino := m.d.find(name)
	if ino == nil {
		return disk.Info{}, wrap("stat", name, disk.ErrNotExist)
	}
	m.finish(s)
	return disk.Info{Size: ino.size, Dir: ino.dir}, nil
}

// SyncDir implements disk.FS.
func (m *FS) SyncDir(dir string) error {
	s := m.begin(OpSyncDir, dir, nil)
	ino := m.d.find(dir)
	if ino == nil || !ino.dir {
		return wrap("syncdir", dir, disk.ErrNotExist)
	}
	m.d.cost += m.d.costs.Sync
	if s.effect == IOError || s.effect == IOErrorStale {
		m.d.failDirs(ino, s.chance)
		return wrap("syncdir", dir, disk.ErrIO)
	}
	m.d.syncDir(ino)
	m.finish(s)
	return nil
}

// SyncAll implements disk.FS.
func (m *FS) SyncAll() error {
	s := m.begin(OpSyncAll, ".", nil)
	d := m.d
	d.cost += d.costs.Sync
	for _, ino := range d.dirty {
		if len(ino.dirtyPages) > 0 {
			d.cost += d.costs.SyncFile
			d.syncCost(ino)
		}
		ino.listed = false
		if s.effect == IOError || s.effect == IOErrorStale {
			d.failSync(ino, s)
		} else {
			d.sync(ino)
		}
	}
	listed := d.dirty
	d.dirty = d.dirty[:0]
	for _, ino := range listed { // a failed sync leaves sizes and stale pages behind
		if ino.size != ino.durSize || len(ino.stalePages) > 0 {
			d.list(ino)
		}
	}
	if s.effect == IOError || s.effect == IOErrorStale {
		d.failDirs(nil, s.chance)
		return wrap("syncfs", ".", disk.ErrIO)
	}
	d.syncAllDirs()
	m.finish(s)
	return nil
}

// Lock implements disk.FS.
func (m *FS) Lock(name string) (func() error, error) {
	s := m.begin(OpLock, name, nil)
	if err := s.refuse(); err != nil {
		return nil, wrap("lock", name, err)
	}
	if slices.Contains(m.locks, name) {
		return nil, wrap("lock", name, disk.ErrLocked)
	}
	dir, base, err := m.d.parent(name)
	if err != nil {
		return nil, wrap("lock", name, err)
	}
	if dir.entries[base] == nil {
		m.d.enter(dir, base, m.d.newInode(false))
	}
	m.locks = append(m.locks, name)
	m.finish(s)
	return func() error {
		m.finish(m.begin(OpClose, name, nil))
		m.locks = slices.DeleteFunc(m.locks, func(n string) bool { return n == name })
		return nil
	}, nil
}

// Free implements disk.FS.
func (m *FS) Free() (int64, error) {
	m.finish(m.begin(OpFree, ".", nil))
	if m.d.capacity == 0 {
		return 1 << 50, nil
	}
	return max(0, m.d.capacity-m.d.used*pageSize), nil
}
