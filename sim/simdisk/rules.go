package simdisk

import "time"

// Op is a set of kinds of disk calls.
type Op uint32

// Kinds of calls, one bit each, so that a Rule can name several.
const (
	OpOpen Op = 1 << iota
	OpMkdir
	OpRename
	OpRemove
	OpList
	OpStat
	OpRead
	OpWrite // WriteAt and WriteVAt
	OpTruncate
	OpAllocate
	OpSync
	OpSyncDir
	OpSyncAll
	OpLock
	OpClose
	OpFree
	opEnd

	OpAll     = opEnd - 1
	OpSyncs   = OpSync | OpSyncDir | OpSyncAll
	OpChanges = OpOpen | OpMkdir | OpRename | OpRemove | OpWrite | OpTruncate | OpAllocate | OpSyncs
)

// Effect is what a Rule does to the call that it meets.
type Effect uint8

// Effects. Each happens to the call itself; what it could not do to a call of
// that kind it leaves undone (and does not count as fired).
const (
	// Crash: the call never returns, as under kill -9; what it was to do is
	// done not at all, in part, or wholly. The process is gone.
	Crash Effect = iota + 1
	// PowerCut: the same, and the machine loses power.
	PowerCut
	// IOError: the call fails with disk.ErrIO. A write may have left a first
	// part. A sync leaves any subset of what it covered durable, and the rest
	// is gone: reads return what was durable before.
	IOError
	// IOErrorStale: as IOError, for syncs; but the page cache goes on showing
	// what was lost, as Linux does until the page is evicted ("fsyncgate"):
	// only a new write to the page, or a power loss, ends the lie.
	IOErrorStale
	// NoSpace: a write, create or reservation fails with disk.ErrNoSpace; a write may
	// have left a first part.
	NoSpace
	// Short: a write stops early without an error.
	Short
	// Misdirect: a write lands in another place, of the same or of another
	// file, and reports success.
	Misdirect
	// Rot: before the call, one bit of the file it names changes at rest.
	Rot
	// RotRead: a read returns one wrong bit, once.
	RotRead
	// Slow: the call takes longer by Rule.Delay.
	Slow
	effectEnd
)

// NumEffects bounds the values of Effect.
const NumEffects = int(effectEnd)

var effectNames = [NumEffects]string{"none", "crash", "power-cut", "io-error", "io-error-stale", "no-space",
	"short-write", "misdirected-write", "bit-rot", "read-rot", "slow"}

// String returns the effect's name in fault tables and plans.
func (e Effect) String() string { return effectNames[e] }

// Rule is one fault to come. A plan of faults is a list of rules, plain data
// that can be cut down.
type Rule struct {
	Op Op // which kinds of calls count
	// Path says which names count: a pattern in which * stands for any bytes,
	// slashes too; empty stands for every name.
	Path   string
	Nth    int // acts on the Nth such call from when the rule was added, counted from 1
	Times  int // and on this many more after it; negative: on all of them
	Effect Effect
	Delay  time.Duration // of Slow
	Seed   uint64        // what chance there is inside the effect is drawn from here
}

// matches reports whether name matches a pattern in which * is any run of bytes.
func matches(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

var opNames = [...]string{"open", "mkdir", "rename", "remove", "list", "stat", "read", "write", "truncate", "allocate",
	"sync", "syncdir", "syncall", "lock", "close", "free"}

// String names the kinds of calls in a set.
func (op Op) String() string {
	switch op {
	case OpAll:
		return "any call"
	case OpChanges:
		return "changes"
	case OpSyncs:
		return "syncs"
	}
	s := ""
	for i, name := range opNames {
		if op&(1<<i) != 0 {
			if s != "" {
				s += "+"
			}
			s += name
		}
	}
	return s
}
