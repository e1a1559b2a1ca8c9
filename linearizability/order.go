package linearizability

import (
	"cmp"
	"slices"
)

// This file is the near-linear checker. It decides whether the operations of
// one partition are linearizable with respect to the specification in model.go.
//
// What makes it near-linear: in an append-only log of unique values nothing has
// to be searched. Offsets say in which order the batches were appended, and
// every answer says between which two appends (and between which two moves of
// the log's start) it was given:
//
//	end(R) = h    R is after the append that made the end h, before the next
//	end(R) ≥ e    R is after the first append that made the end at least e
//	end(R) < e    R is before that append
//	start(R) = s  R is after the start moved to s, before it moved on
//	start(R) ≤ x  R is before the start moved beyond x
//
// An append is a point with the window of its produce (without a deadline, if
// the client does not know that it took effect); a read is a point with its
// window; the start's move to s is a point that none of the operations that may
// have caused it precedes by its call, and that comes after the append that
// made the end at least s. Each line above is one or two edges of a graph over
// these points. Real time needs no edges: it is in the windows.
//
// Claim. The history is linearizable if and only if no offset has two values,
// no value two places more than it has sends, answers agree with the values
// (all this is layout.go), the graph has no cycle, and its earliest schedule,
// t(n) = max(release(n), t(m) for m before n), keeps every deadline.
//
// Only if: each edge is forced by the specification, because ends and start
// only grow and what stands at an offset never changes. A linearization gives
// each operation an instant in its window that respects all edges; hence there
// is no cycle, and by induction along the graph t(n) is not later than n's
// instant in that linearization, so not later than its deadline.
//
// If: order the points by (t, then any topological order of the graph). That
// extends the graph, since edges never lead to smaller t. It respects real
// time: if a returned before b was called, then t(a) ≤ due(a) < release(b) ≤
// t(b); instants are closed intervals, as porcupine's are. And it is legal for
// the specification: by the chain edges appends come in the order of offsets and
// moves in that of their targets, so that at each point end and start are what
// the edges around it say, and contents agree by layout. A deletion takes effect
// at its own point or finds the start where the same deletion of another left
// it: the first operation in the start's phase s may be taken for the mover, for
// some candidate was called by t(P_s), and it returns, if at all, no earlier
// than t(P_s), or its own window is empty and the check has failed. After the
// call of a deletion up to the high watermark that was not answered, the start
// may move by itself.
//
// One answer is a choice between two edges: a fetch refused as out of range was
// below the start, or beyond the end. Being below the start (after a move) costs
// nothing to anybody else, for nothing follows from such a fetch. So that is
// taken unless its deadline forbids it in the earliest schedule of all others;
// then only the other is left, which moves points to later instants, which can
// only take away further first choices. The fixpoint of this is the least
// schedule, and exact by the argument above.
//
// What it does not decide (layout.open, or a refused fetch that an unanswered
// deletion may explain): then passing the check means Undecided. See fill.go for
// when that is; with the truth at hand it does not happen.

// order checks the order of a laid out partition. It returns the violation, or nil and whether that is certain.
func (l *layout) order() (violation *Anomaly, certain bool) {
	o := &ordering{layout: l, p: l.p, blind: Open}
	if a := o.build(); a != nil {
		return a, true
	}
	violation = o.solve()
	if violation == nil {
		return nil, !l.open
	}
	if len(o.doubtful) == 0 {
		return violation, true
	}
	// Again, without the fetches that an unanswered deletion may explain.
	o.refused = slices.DeleteFunc(o.refused, func(r refusal) bool { return slices.Contains(o.doubtful, r.node) })
	o.graph.edges = o.graph.edges[:o.fixed]
	if violation = o.solve(); violation != nil {
		return violation, true
	}
	return nil, false
}

// ordering is the graph over one layout.
type ordering struct {
	*layout
	p        *part
	graph    graph
	appends  []int32   // nodes of batches, by offset
	starts   []int64   // offsets that the start was at, ascending; starts[0] is 0
	moves    []int32   // nodes of the moves to them; moves[0] is none
	fence    int32     // node before the tail and after all that saw the last end; -1 if there is no tail
	refused  []refusal // fetches out of range
	doubtful []int32   // nodes of those that an unanswered deletion may explain
	fixed    int       // edges without those of choices

	unanswered []int32 // deletions without an answer
	blind      int64   // the earliest call of one of them that was up to the high watermark, else Open
}

// refusal is the choice that a fetch out of range leaves.
type refusal struct {
	node   int32
	move   int32 // below the start: after this node; -1 if the start was never above
	beyond int32 // beyond the end: before this node; -1 if the end never came there
	chosen bool  // beyond is chosen
}

// build makes the graph.
func (o *ordering) build() *Anomaly {
	for _, b := range o.batches {
		n := o.graph.add(node{b.release, b.due, b.op, appendNode, b.base})
		if n > 0 {
			o.graph.before(n-1, n)
		}
		o.appends = append(o.appends, n)
	}
	o.fence = -1
	if len(o.tail) > 0 {
		o.buildTail()
	}
	if a := o.buildStarts(); a != nil {
		return a
	}
	for i, op := range o.p.ops {
		if a := o.buildOp(int32(i), op); a != nil {
			return a
		}
	}
	if a := o.buildTruth(); a != nil {
		return a
	}
	o.fixed = len(o.graph.edges)
	return nil
}

// buildTail adds acknowledged appends that nobody saw: in any order, behind everything that was seen.
func (o *ordering) buildTail() {
	o.fence = o.graph.add(node{minTime, Open, noOp, fenceNode, o.end})
	if n := len(o.appends); n > 0 {
		o.graph.before(o.appends[n-1], o.fence)
	}
	for _, i := range o.tail {
		n := o.graph.add(node{o.p.release(i), o.p.due(i), i, appendNode, -1})
		o.graph.before(o.fence, n)
	}
}

// buildStarts adds the moves of the log's start.
func (o *ordering) buildStarts() *Anomaly {
	causes := map[int64]int64{} // by offset, the earliest call that may have moved the start there
	values := []int64{0}
	seen := map[int64]int32{} // who saw it first
	see := func(i int32, s int64) {
		if _, ok := seen[s]; !ok {
			seen[s] = i
			values = append(values, s)
		}
	}
	for i, op := range o.p.ops {
		i := int32(i)
		switch {
		case op.Kind == Fetch && op.Outcome == OK && op.LogStart >= 0:
			see(i, op.LogStart)
		case op.Kind == Earliest && op.Outcome == OK:
			see(i, op.Offset)
		case op.Kind == Fetch && op.Outcome == OutOfRange && o.p.opts.Retention && op.From < o.end:
			see(i, op.From+1)
		case op.Kind == Delete && op.Outcome == OK:
			see(i, op.Offset)
			if op.To == op.Offset || op.To == -1 {
				mayCause(causes, op.Offset, op.Invoke)
			}
		case op.Kind == Delete && op.Outcome == Unknown:
			o.unanswered = append(o.unanswered, i)
			if op.To < 0 {
				o.blind = min(o.blind, op.Invoke)
			} else {
				mayCause(causes, op.To, op.Invoke)
			}
		}
	}
	if t := o.p.truth; t != nil {
		see(truthClaim, t.Start)
	}
	slices.Sort(values)
	o.starts = slices.Compact(values)
	o.moves = []int32{-1}
	for k, s := range o.starts[1:] {
		cause, ok := causes[s]
		if !ok {
			cause = Open
		}
		if a := o.buildMove(k+1, s, cause, seen[s]); a != nil {
			return a
		}
	}
	return nil
}

func mayCause(causes map[int64]int64, s, invoke int64) {
	if c, ok := causes[s]; !ok || invoke < c {
		causes[s] = invoke
	}
}

// buildMove adds the move of the start to s, its k-th value, which operation
// by saw. cause is the earliest call that may have done it, Open if there is none.
func (o *ordering) buildMove(k int, s, cause int64, by int32) *Anomaly {
	release := min(cause, o.blind)
	if o.p.opts.Retention {
		release = minTime
	}
	if release == Open {
		a := o.p.anomaly(StartMismatch, []int32{by}, "%s: no deletion moved the log's start to %d", o.p.name(by), s)
		return &a
	}
	n := o.graph.add(node{release, Open, noOp, startNode, s})
	if prev := o.moves[k-1]; prev >= 0 {
		o.graph.before(prev, n)
	}
	if reach := o.reaching(s); reach >= 0 {
		o.graph.before(o.appends[reach], n)
	}
	o.moves = append(o.moves, n)
	return nil
}

// reaching returns the first batch that makes the end at least e: -1 if e is 0, len(batches) if none does.
func (o *ordering) reaching(e int64) int {
	if e <= 0 {
		return -1
	}
	k, _ := slices.BinarySearchFunc(o.batches, e, func(b batch, e int64) int { return cmp.Compare(b.end, e) })
	return k
}
