package sim

import (
	"fmt"
	"hash/crc32"

	"lockstep/core/record"
	"lockstep/linearizability"
	"lockstep/sim/seed"
)

// world is one simulated world. Everything in it happens on one goroutine.
type world struct {
	plan    *Plan
	options Options
	now     Time
	queue   queue
	hash    uint64 // of every event so far
	trace   *Trace // nil: nobody wants to read it
	stats   Stats
	worked  Time // when the work began

	net           network
	hosts         []*host
	clients       []client
	history       linearizability.History
	oracle        oracle
	values        int64 // the last value that a producer sent
	reordered     bool  // an idempotent producer's batches are not in the order in which it made them
	phase         phase
	failure       *Failure
	scratch       scratch
	builder       *record.Builder
	codecs        codecs
	came          map[uint64]bool // operations whose records are in a log in the end
	verifier      *verifier
	lanes         int
	losesUnsynced bool          // something in the plan may take away what is not synced
	rots          bool          // or change bytes
	drifts        bool          // clocks go apart by more than the lease allows
	waiting       []*misfortune // for a moment
	sways         []*seeSaw
	paceFrom      Time // paceEvents are counted from here on
	paceEvents    int
	groups        []*groupTruth
	drained       Time    // when draining began
	added         []int32 // partitions that topics got after their birth
}

// phase is what part of its life a world is in.
type phase uint8

const (
	working  phase = iota // clients work and faults happen
	draining              // nothing new is begun; what was begun may end
	judging               // everything is healed, and looked at
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mix folds something that happened into the trace hash.
func (w *world) mix(x uint64) { w.hash = seed.Mix(w.hash ^ x) }

// mixBytes folds bytes into the trace hash.
func (w *world) mixBytes(p []byte) {
	w.mix(uint64(len(p))<<32 | uint64(crc32.Checksum(p, castagnoli)))
}

// after lets an event happen in a while.
func (w *world) after(d Time, to actor, kind uint8) *event { return w.queue.add(w.now+d, to, kind) }

// runUntil lets things happen up to an instant, or until something has failed or is done.
func (w *world) runUntil(end Time, done func() bool) {
	for w.failure == nil {
		if done != nil && done() {
			return
		}
		e := w.queue.next()
		if e == nil {
			break
		}
		if e.at > end {
			w.queue.tree.ReplaceOrInsert(e)
			break
		}
		w.now = e.at
		w.stats.Events++
		w.watchPace()
		w.mix(uint64(e.at)<<8 ^ uint64(e.kind))
		e.to.fire(e)
		w.queue.free(e)
	}
	if w.failure == nil {
		w.now = max(w.now, end)
	}
}

// frenzy is how many events of one virtual second say that somebody goes round in circles.
const frenzy = 1_000_000

// watchPace ends a world in which much happens and no time passes: a processor would be busy for ever.
func (w *world) watchPace() {
	if w.now >= w.paceFrom+second {
		w.paceFrom, w.paceEvents = w.now, 0
	}
	if w.paceEvents++; w.paceEvents > frenzy {
		w.fail("busy loop", "%d events in less than a second of virtual time", frenzy)
	}
	if most := w.options.maxEvents; most > 0 && w.stats.Events > most {
		w.fail("cut short", "after %d events", most)
	}
}

// fail ends the world: something that must not be has been seen. Only the first failure counts.
func (w *world) fail(kind, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Kind: kind, At: w.now, Line: fmt.Sprintf(format, args...)}
		w.mix(seed.Label(kind))
		if w.trace != nil {
			w.trace.add(Entry{At: w.now, Kind: "failure", Text: kind + ": " + w.failure.Line})
		}
	}
}

// Failure is what was wrong with a world.
type Failure struct {
	Kind string // the property that was violated: shrinking keeps it the same
	Line string // why, in one line
	At   Time   // when it was seen
}

// Error makes a Failure an error.
func (f *Failure) Error() string { return f.Kind + ": " + f.Line }
