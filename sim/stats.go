package sim

import (
	"lockstep/core/broker"
	"lockstep/sim/simdisk"
)

// Stats counts what happened in one world, or, added up, in many.
type Stats struct {
	Worlds int64
	// Undecidable worlds ended early: see the constant of that name.
	Undecidable int64
	Events      int64
	Virtual     Time // how long worlds lived
	Messages    int64
	Requests    int64 // that brokers decoded
	Responses   int64 // that clients decoded
	Acked       int64 // batches
	Refused     int64
	Delivered   int64 // records
	Timeouts    int64 // requests that clients gave up
	Ops         int64 // in the history
	Steps       int64 // what clients asked for, each once however often they tried, and faults that struck
	DiskCalls   int64

	Assignments int64 // that members of groups were given
	Commits     int64 // of offsets, acknowledged
	Resumed     int64 // partitions that were gone on with at a committed offset
	Upgrades    int64 // of groups to the protocol of KIP-848, seen by members of the classic one
	Downgrades  int64
	Rolled      int64 // assignments by the new assignor, in groups that change theirs

	Passes    int64 // of compaction that found it was time, and came to their end
	PassSteps int64 // times at which one was left, and other things came in between
	PassesCut int64 // that a crash, a stop or an error has ended
	Compacted int64 // records that they took away
	Buried    int64 // tombstones among them, past their horizon
	Holes     int64 // records that readers did not see for that

	CrashesInside int64 // of disk calls
	ErrorStops    int64 // processes that ended themselves because of an error
	SetAside      int64 // logs reported as damaged
	DamageSeen    int64 // batches whose CRC was wrong when a client got them
	Lines         [4]int64

	Faults []FaultCount // in the order of faultTable
}

// FaultCount says how often a kind of fault was planned, how often it came to
// pass, and how often it changed anything. One that never matters is a defect of the simulator.
type FaultCount struct {
	Name                        string
	Planned, Happened, Mattered int64
}

// faultTable is the names of all kinds of faults.
var faultTable = func() []string {
	var names []string
	for k := range numFaultKinds {
		if k != DiskRule {
			names = append(names, k.String())
		}
	}
	for e := 1; e < simdisk.NumEffects; e++ {
		names = append(names, "disk "+simdisk.Effect(e).String())
	}
	return append(names, "power loss at the end", "lost for good")
}()

func (s *Stats) init() {
	s.Worlds = 1
	s.Faults = make([]FaultCount, len(faultTable))
	for i, n := range faultTable {
		s.Faults[i].Name = n
	}
}

func (s *Stats) fault(name string) *FaultCount {
	for i := range s.Faults {
		if s.Faults[i].Name == name {
			return &s.Faults[i]
		}
	}
	panic("sim: no fault is named " + name)
}

// count counts a line for the operator.
func (s *Stats) count(l broker.Level) { s.Lines[min(3, max(0, (int(l)+4)/4))]++ }

// Add adds another world's.
func (s *Stats) Add(t *Stats) {
	if s.Faults == nil {
		s.init()
		s.Worlds = 0
	}
	s.Worlds += t.Worlds
	s.Undecidable += t.Undecidable
	s.Events += t.Events
	s.Virtual += t.Virtual
	s.Messages += t.Messages
	s.Requests += t.Requests
	s.Responses += t.Responses
	s.Acked += t.Acked
	s.Refused += t.Refused
	s.Delivered += t.Delivered
	s.Timeouts += t.Timeouts
	s.Ops += t.Ops
	s.Steps += t.Steps
	s.DiskCalls += t.DiskCalls
	s.Assignments += t.Assignments
	s.Commits += t.Commits
	s.Resumed += t.Resumed
	s.Upgrades += t.Upgrades
	s.Downgrades += t.Downgrades
	s.Rolled += t.Rolled
	s.Passes += t.Passes
	s.PassSteps += t.PassSteps
	s.PassesCut += t.PassesCut
	s.Compacted += t.Compacted
	s.Buried += t.Buried
	s.Holes += t.Holes
	s.CrashesInside += t.CrashesInside
	s.ErrorStops += t.ErrorStops
	s.SetAside += t.SetAside
	s.DamageSeen += t.DamageSeen
	for i := range s.Lines {
		s.Lines[i] += t.Lines[i]
	}
	for i := range s.Faults {
		s.Faults[i].Planned += t.Faults[i].Planned
		s.Faults[i].Happened += t.Faults[i].Happened
		s.Faults[i].Mattered += t.Faults[i].Mattered
	}
}
