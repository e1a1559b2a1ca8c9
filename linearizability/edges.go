package linearizability

import "slices"

// This file turns each answer into edges of the graph in order.go.

// buildOp adds the point of one operation that was answered, if it is not an append.
func (o *ordering) buildOp(i int32, op *Op) *Anomaly {
	if op.Kind == Produce || op.Outcome == Unknown || op.Outcome == Failed {
		return nil
	}
	if op.Outcome == OutOfRange {
		return o.buildRefused(i, op)
	}
	n := o.graph.add(node{o.p.release(i), op.Return, i, readNode, 0})
	switch op.Kind {
	case Latest:
		return o.endIs(n, i, op.Offset)
	case Earliest:
		o.startIs(n, op.Offset)
	case Fetch:
		return o.buildFetch(n, i, op)
	case Delete:
		o.startIs(n, op.Offset)
		o.endAtLeast(n, max(op.To, op.Offset))
		if op.To < 0 {
			o.endAtMost(o.graph.add(o.graph.nodes[n]), op.Offset) // when it was measured
		}
	}
	return nil
}

func (o *ordering) buildFetch(n, i int32, op *Op) *Anomaly {
	if op.LogStart >= 0 {
		o.startIs(n, op.LogStart)
	} else {
		o.startAtMost(n, op.From)
	}
	if op.HighWatermark >= 0 {
		return o.endIs(n, i, op.HighWatermark)
	}
	if k := len(op.Records); k > 0 {
		o.endAtLeast(n, op.Records[k-1].Offset+1)
	}
	return nil
}

// buildTruth adds the final read: called after everything has returned.
func (o *ordering) buildTruth() *Anomaly {
	t := o.p.truth
	if t == nil {
		return nil
	}
	n := o.graph.add(node{o.p.last + 1, Open, truthClaim, readNode, 0})
	if o.p.last == minTime {
		o.graph.nodes[n].release = minTime
	}
	o.startIs(n, t.Start)
	return o.endIs(n, truthClaim, t.End)
}

// endIs says that the end was h at the point n.
func (o *ordering) endIs(n, i int32, h int64) *Anomaly {
	k := o.reaching(h)
	if k >= 0 && (k == len(o.batches) || o.batches[k].end != h) {
		by := o.batches[min(k, len(o.batches)-1)].op
		a := o.p.anomaly(TornBatch, []int32{i, by}, "%s saw the log end at %d, inside of one batch: %s", o.p.name(i), h, o.p.name(by))
		return &a
	}
	if k >= 0 {
		o.graph.before(o.appends[k], n)
	}
	switch {
	case k+1 < len(o.appends):
		o.graph.before(n, o.appends[k+1])
	case o.fence >= 0:
		o.graph.before(n, o.fence)
	}
	return nil
}

// endAtLeast says that the end was at least e at the point n.
func (o *ordering) endAtLeast(n int32, e int64) {
	if k := o.reaching(e); k >= 0 {
		o.graph.before(o.appends[k], n)
	}
}

// endAtMost says that the end was not beyond e at the point n.
func (o *ordering) endAtMost(n int32, e int64) {
	if k := max(0, o.reaching(e+1)); k < len(o.appends) {
		o.graph.before(n, o.appends[k])
	} else if o.fence >= 0 {
		o.graph.before(n, o.fence)
	}
}

// startIs says that the start was s at the point n; s is one of o.starts.
func (o *ordering) startIs(n int32, s int64) {
	k, _ := slices.BinarySearch(o.starts, s)
	if o.moves[k] >= 0 {
		o.graph.before(o.moves[k], n)
	}
	if k+1 < len(o.moves) {
		o.graph.before(n, o.moves[k+1])
	}
}

// startAtMost says that the start was not beyond s at the point n.
func (o *ordering) startAtMost(n int32, s int64) {
	if k := o.beyond(s); k < len(o.moves) {
		o.graph.before(n, o.moves[k])
	}
}

// beyond returns the first value of the start that is beyond s, or len(o.starts).
func (o *ordering) beyond(s int64) int {
	k, found := slices.BinarySearch(o.starts, s)
	if found {
		k++
	}
	return k
}

// buildRefused adds an operation that was out of range.
func (o *ordering) buildRefused(i int32, op *Op) *Anomaly {
	x := op.From // a fetch is beyond the end if end < From
	if op.Kind == Delete {
		x = op.To
		if x <= 0 {
			a := o.p.anomaly(BeyondEnd, []int32{i}, "%s: the high watermark and offset 0 cannot be out of range", o.p.name(i))
			return &a
		}
	}
	n := o.graph.add(node{o.p.release(i), op.Return, i, readNode, 0})
	beyond := int32(-1)
	switch k := o.reaching(x); {
	case k < 0:
		beyond = n // the end is never below 0: a ring of one point
	case k < len(o.appends):
		beyond = o.appends[k]
	default:
		o.open = o.open || len(o.tail) > 0
	}
	if op.Kind == Delete {
		if beyond >= 0 {
			o.graph.before(n, beyond)
		}
		return nil
	}
	r := refusal{node: n, move: -1, beyond: beyond}
	if k := o.beyond(x); k < len(o.moves) {
		r.move = o.moves[k]
	}
	o.refused = append(o.refused, r)
	if o.mayBeDeleted(x) {
		o.doubtful = append(o.doubtful, n)
	}
	return nil
}

// mayBeDeleted says whether the start may have moved beyond x although nobody
// saw it there: by a deletion without an answer, or by retention of appends
// without one. Where the start is seen at a deletion's target, it is known.
func (o *ordering) mayBeDeleted(x int64) bool {
	if o.p.opts.Retention {
		return x >= o.end && o.p.truth == nil && (o.p.opts.Gaps || len(o.loose)+len(o.lost) > 0)
	}
	return slices.ContainsFunc(o.unanswered, func(i int32) bool {
		to := o.p.ops[i].To
		_, seen := slices.BinarySearch(o.starts, to)
		return to < 0 || to > x && !seen
	})
}

// solve finds the least schedule and returns what breaks a deadline in it, nil if nothing does.
func (o *ordering) solve() *Anomaly {
	for k := range o.refused {
		o.refused[k].chosen = false
	}
	for {
		s := o.graph.run()
		if len(s.cycle) > 0 {
			return o.explainCycle(s.cycle)
		}
		if o.choose(&s) {
			continue
		}
		worst := int32(-1)
		for i := range o.graph.nodes {
			n := &o.graph.nodes[i]
			if s.times[i] > n.due && (worst < 0 || n.due < o.graph.nodes[worst].due) {
				worst = int32(i)
			}
		}
		if worst < 0 {
			return nil
		}
		return o.explain(&s, worst)
	}
}

// choose takes for refused fetches that cannot have been below the start in
// time that they were beyond the end, and says whether there were any.
func (o *ordering) choose(s *schedule) bool {
	changed := false
	for k := range o.refused {
		r := &o.refused[k]
		if r.chosen || r.move >= 0 && s.times[r.move] <= o.graph.nodes[r.node].due {
			continue
		}
		r.chosen = true
		if r.beyond >= 0 {
			o.graph.before(r.node, r.beyond)
			changed = true
		}
	}
	return changed
}
