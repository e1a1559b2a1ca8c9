package simdisk

import (
	"time"

	"lockstep/disk"
	"lockstep/sim/seed"
)

// Options describe a device. The zero value is a roomy, fast one.
type Options struct {
	Capacity int64 // bytes; 0 is without bound
	Costs    Costs // virtual time that calls take; zero is DefaultCosts
}

// Costs is how long calls take when nothing is wrong with the device.
type Costs struct {
	Call      time.Duration // any call
	PerKB     time.Duration // reading or writing, on top, per KB
	Sync      time.Duration // Sync, SyncDir, SyncAll
	SyncPerKB time.Duration // per dirty KB
	SyncFile  time.Duration // SyncAll, per dirty file
}

// DefaultCosts follow measurements on a virtio disk with ext4.
var DefaultCosts = Costs{
	Call:      2 * time.Microsecond,
	PerKB:     100 * time.Nanosecond,
	Sync:      150 * time.Microsecond,
	SyncPerKB: 2 * time.Microsecond,
	SyncFile:  12 * time.Microsecond,
}

// Times returns the costs of a device that is n times slower.
func (c Costs) Times(n int64) Costs {
	d := time.Duration(n)
	return Costs{c.Call * d, c.PerKB * d, c.Sync * d, c.SyncPerKB * d, c.SyncFile * d}
}

// Stats counts what happened since New.
type Stats struct {
	Calls   [16]int64         // by kind: index is the bit's position in Op
	Total   int64             // calls of all kinds
	Fired   [NumEffects]int64 // rules that acted, by effect
	Refused int64             // calls for which there was no room on the device
	// LostSectors, LostNames and LostSizes count what power losses took away.
	LostSectors, LostNames, LostSizes int64
	// KeptSectors counts unsynced sectors that a power loss left.
	KeptSectors int64
}

// Damage is one place where a rule or Rot changed what was stored, or, once, what was read.
type Damage struct {
	Name   string // of the file, when it was damaged
	Off, N int64
	Effect Effect // Rot, RotRead or Misdirect
}

// Disk is one device with one directory tree. It outlives processes and power losses.
type Disk struct {
	seed     uint64
	costs    Costs
	capacity int64

	root    *inode
	nextID  uint64
	nextSeq uint64
	used    int64    // pages taken
	dirty   []*inode // files with unsynced pages or sizes, in order of becoming so
	pending []*dirop // unsynced directory operations, in order

	mount   *FS // of the running process, nil if none
	losses  uint64
	rules   []*armed
	damages []Damage
	cost    time.Duration
	hash    uint64
	stats   Stats
	spare   []*block
}

// armed is a rule with its progress.
type armed struct {
	Rule
	seen   int
	chance seed.Stream
}

// New returns an empty device.
func New(s uint64, o Options) *Disk {
	if o.Costs == (Costs{}) {
		o.Costs = DefaultCosts
	}
	d := &Disk{seed: s, costs: o.Costs, capacity: o.Capacity}
	d.root = d.newInode(true)
	return d
}

// Mount returns the file system as a new process sees it. The process before it must
// have ended (Kill, PowerLoss, Unmount).
func (d *Disk) Mount() *FS {
	if d.mount != nil {
		panic("simdisk: Mount while another process runs")
	}
	d.mount = &FS{d: d}
	return d.mount
}

// Unmount ends the process in good order. Its handles are closed; nothing is synced by it.
func (d *Disk) Unmount() { d.endProcess() }

// Kill ends the process at once (kill -9): all that was written is still there, in the page cache.
func (d *Disk) Kill() { d.endProcess() }

// PowerLoss ends the process and the machine: a subset of what was not synced is lost.
func (d *Disk) PowerLoss() {
	d.endProcess()
	d.losePower(seed.New(d.seed, seed.Label("power"), d.losses))
	d.losses++
}

func (d *Disk) endProcess() {
	if m := d.mount; m != nil {
		m.dead = true
		m.end()
		d.mount = nil
	}
}

// End says how a function under Run came to its end.
type End uint8

// Ends.
const (
	Returned End = iota // it returned
	Killed              // a Crash rule struck: call Kill next
	Cut                 // a PowerCut rule struck: call PowerLoss next
)

// death is what a crash inside a call panics with.
type death struct {
	m   *FS
	end End
}

// Run calls f, which works on the current mount, and says how that ended. Any other panic passes through.
func (d *Disk) Run(f func()) (end End) {
	m := d.mount
	defer func() {
		v := recover()
		if dd, ok := v.(death); ok && dd.m == m {
			end = m.fate
			return
		}
		if v != nil {
			panic(v)
		}
		if m != nil && m.fate != Returned { // f recovered the crash: it is dead all the same
			end = m.fate
		}
	}()
	f()
	return Returned
}

// IsDeath says that a panic is the end of a process inside a call.
func IsDeath(v any) bool {
	_, ok := v.(death)
	return ok
}

// Unwind lets a function of a process that has ended come to its end: the next call that it makes is none, and takes it away.
func Unwind(f func()) {
	defer func() {
		if v := recover(); v != nil && !IsDeath(v) {
			panic(v)
		}
	}()
	f()
}

// AddRule arms a rule: it counts calls from now on.
func (d *Disk) AddRule(r Rule) {
	d.rules = append(d.rules, &armed{Rule: r, chance: seed.New(r.Seed, seed.Label("rule"))})
}

// ClearRules disarms all rules.
func (d *Disk) ClearRules() { d.rules = nil }

// SetCapacity changes the size of the device; 0 is without bound.
func (d *Disk) SetCapacity(bytes int64) { d.capacity = bytes }

// Used returns the bytes taken.
func (d *Disk) Used() int64 { return d.used * pageSize }

// TakeCost returns the virtual time that calls took since TakeCost was last called.
func (d *Disk) TakeCost() time.Duration {
	c := d.cost
	d.cost = 0
	return c
}

// Stats returns the counts so far.
func (d *Disk) Stats() Stats { return d.stats }

// Damages returns every place that rules and Rot have changed.
func (d *Disk) Damages() []Damage { return d.damages }

// Hash returns a running hash of every call made and of every power loss: what was called, where, how much, and how it ended.
func (d *Disk) Hash() uint64 { return d.hash }

// Rot changes one bit at rest in a file whose name matches the pattern (see
// Rule.Path), drawn by size. It reports false if there is no byte to rot.
func (d *Disk) Rot(pattern string, chance *seed.Stream) bool { return d.rotAny(pattern, chance) }

var _ disk.FS = (*FS)(nil)
