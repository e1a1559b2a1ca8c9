package sim

import (
	"github.com/google/btree"
)

// Time is virtual time: nanoseconds since the world began. Every process has its own
// clocks, which are made from it.
type Time = int64

// Units of virtual time.
const (
	microsecond Time = 1e3
	millisecond Time = 1e6
	second      Time = 1e9
)

// actor is what events happen to.
type actor interface{ fire(e *event) }

// event is something that will happen. Events belong to the queue: when one
// has fired or was cancelled, nobody may look at it any more.
type event struct {
	at   Time
	seq  uint64
	to   actor
	kind uint8
	n    uint64 // what the actor likes, often which life of it this is for
	data []byte
	more any
}

func earlier(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// queue is all that will happen, by time and then in the order in which it was decided.
type queue struct {
	tree  *btree.BTreeG[*event]
	seq   uint64
	spare []*event
}

func newQueue() queue { return queue{tree: btree.NewG(32, earlier)} }

// add inserts an event of which the fields at, to and kind are given.
func (q *queue) add(at Time, to actor, kind uint8) *event {
	var e *event
	if n := len(q.spare); n > 0 {
		e = q.spare[n-1]
		q.spare = q.spare[:n-1]
	} else {
		e = new(event)
	}
	q.seq++
	e.at, e.seq, e.to, e.kind = at, q.seq, to, kind
	q.tree.ReplaceOrInsert(e)
	return e
}

// next removes the first event.
func (q *queue) next() *event {
	e, _ := q.tree.DeleteMin()
	return e
}

// cancel removes an event that is still to come.
func (q *queue) cancel(e *event) {
	q.tree.Delete(e)
	q.free(e)
}

func (q *queue) free(e *event) {
	*e = event{}
	q.spare = append(q.spare, e)
}
