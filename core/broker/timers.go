package broker

import (
	"lockstep/core"

	"github.com/google/btree"
)

// timer is something to do at an instant unless it is cancelled first.
type timer struct {
	at   core.Time
	seq  uint64 // breaks ties in the order in which they were set
	fire func()
}

// timers holds what waits for a deadline: parked fetches, produces, creations.
type timers struct {
	tree *btree.BTreeG[*timer]
	seq  uint64
}

func newTimers() *timers {
	return &timers{tree: btree.NewG(16, func(a, b *timer) bool {
		if a.at != b.at {
			return a.at < b.at
		}
		return a.seq < b.seq
	})}
}

// set arranges for fire to run once at comes.
func (t *timers) set(at core.Time, fire func()) *timer {
	t.seq++
	x := &timer{at: at, seq: t.seq, fire: fire}
	t.tree.ReplaceOrInsert(x)
	return x
}

// cancel takes a timer back; nil and one that has fired are fine.
func (t *timers) cancel(x *timer) {
	if x != nil {
		t.tree.Delete(x)
	}
}

// run fires what is due.
func (t *timers) run(now core.Time) {
	runDue(t.tree, func(x *timer) bool { return x.at <= now }, func(x *timer) { x.fire() })
}

// runDue takes out what is due by now, the earliest first, and does it. What is due again after that is left to the next step: nothing
// can go round in circles within one, where nobody would see it.
func runDue[T any](tree *btree.BTreeG[T], due func(T) bool, do func(T)) {
	if x, ok := tree.Min(); !ok || !due(x) {
		return
	}
	n := 0
	tree.Ascend(func(x T) bool {
		if !due(x) {
			return false
		}
		n++
		return true
	})
	for ; n > 0; n-- {
		x, ok := tree.Min()
		if !ok || !due(x) { // the others were taken back
			return
		}
		tree.DeleteMin()
		do(x)
	}
}

// next returns the earliest deadline.
func (t *timers) next() core.Time {
	if x, ok := t.tree.Min(); ok {
		return x.at
	}
	return core.Never
}
