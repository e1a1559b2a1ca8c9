package linearizability

import (
	"fmt"
	"strings"
)

// This file puts violations of order into words.

// explain says why point n cannot keep its deadline: there is a chain of
// points, each before the next, from one that was called after n had returned.
func (o *ordering) explain(s *schedule, n int32) *Anomaly {
	chain := []int32{n}
	for i := n; s.cause[i] >= 0; {
		i = s.cause[i]
		chain = append(chain, i)
	}
	source := chain[len(chain)-1]
	ops := o.opsOf(chain)
	why := o.links(chain)
	a := o.p.anomaly(o.classify(source, n), ops, "%s returned before %s was called, yet must come after it: %s",
		o.nodeName(n), o.nodeName(source), why)
	return &a
}

// classify names the violation by who had to come first.
func (o *ordering) classify(source, n int32) Name {
	switch from, to := &o.graph.nodes[source], &o.graph.nodes[n]; {
	case from.op == truthClaim:
		return LostWrite
	case from.op >= 0 && o.p.ops[from.op].read():
		return StaleRead
	case to.op == truthClaim || to.op >= 0 && o.p.ops[to.op].read():
		return FutureRead
	default:
		return Reordered
	}
}

// opsOf returns the operations of a chain's points that matter, the first one first: the appends in between two appends only
// carry the order on.
func (o *ordering) opsOf(chain []int32) []int32 {
	var ops []int32
	for _, i := range o.turns(chain) {
		if op := o.graph.nodes[i].op; op >= 0 {
			ops = append(ops, op)
		}
	}
	return ops
}

// turns leaves out of a chain the appends and moves that stand between two others of their kind.
func (o *ordering) turns(chain []int32) []int32 {
	var kept []int32
	for k, i := range chain {
		kind := o.graph.nodes[i].kind
		inner := kind != readNode && k > 0 && k+1 < len(chain) &&
			o.graph.nodes[chain[k-1]].kind == kind && o.graph.nodes[chain[k+1]].kind == kind
		if !inner {
			kept = append(kept, i)
		}
	}
	return kept
}

// links words the chain from its last point, the first in time, to its first.
func (o *ordering) links(chain []int32) string {
	turns := o.turns(chain)
	var words []string
	for k := len(turns) - 1; k > 0; k-- {
		words = append(words, o.link(turns[k], turns[k-1]))
	}
	return strings.Join(words, "; ")
}

// link words one edge.
func (o *ordering) link(from, to int32) string {
	a, b := &o.graph.nodes[from], &o.graph.nodes[to]
	switch {
	case from == to:
		return fmt.Sprintf("%s was out of range, but the end is never below 0", o.short(from))
	case a.kind == readNode && b.kind == appendNode:
		return fmt.Sprintf("%s saw the log without offset %s", o.short(from), offsetName(b.at))
	case a.kind == readNode && b.kind == startNode:
		return fmt.Sprintf("%s saw the log start below %d", o.short(from), b.at)
	case a.kind == appendNode && b.kind == appendNode:
		return fmt.Sprintf("offset %s is before %s", offsetName(a.at), offsetName(b.at))
	case a.kind == appendNode && b.kind == startNode:
		return fmt.Sprintf("the start moved to %d, which needs offset %d", b.at, a.at)
	case a.kind == appendNode && b.kind == readNode:
		return fmt.Sprintf("%s saw the log with offset %s", o.short(to), offsetName(a.at))
	case a.kind == startNode && b.kind == startNode:
		return fmt.Sprintf("the start was %d before %d", a.at, b.at)
	case a.kind == startNode && b.kind == readNode:
		return fmt.Sprintf("%s saw the log start at %d or later", o.short(to), a.at)
	case b.kind == fenceNode:
		return fmt.Sprintf("%s saw the log end at %d", o.short(from), b.at)
	default:
		return fmt.Sprintf("%s stands behind everything seen", o.short(to))
	}
}

func offsetName(at int64) string {
	if at < 0 {
		return "of an append that nobody saw"
	}
	return fmt.Sprint(at)
}

func (o *ordering) short(n int32) string {
	switch nd := &o.graph.nodes[n]; {
	case nd.op == truthClaim:
		return "the truth"
	case nd.op >= 0:
		return fmt.Sprintf("#%d", o.p.ids[nd.op])
	case nd.kind == appendNode:
		return fmt.Sprintf("the append of offset %d", nd.at)
	case nd.kind == startNode:
		return fmt.Sprintf("the move of the start to %d", nd.at)
	}
	return "a point"
}

func (o *ordering) nodeName(n int32) string {
	if op := o.graph.nodes[n].op; op >= 0 {
		return o.p.name(op)
	}
	return o.short(n)
}

// explainCycle words a ring of points.
func (o *ordering) explainCycle(ring []int32) *Anomaly {
	ops := o.opsOf(ring)
	var words []string
	for k := range ring {
		words = append(words, o.link(ring[k], ring[(k+1)%len(ring)]))
	}
	const few = 8
	if len(words) > few {
		words = append(words[:few], "…")
	}
	var names []string
	for k, op := range ops {
		if k == 4 {
			break
		}
		names = append(names, o.p.name(op))
	}
	a := o.p.anomaly(Contradiction, ops, "no order fits %s: %s", strings.Join(names, ", "), strings.Join(words, "; "))
	return &a
}
