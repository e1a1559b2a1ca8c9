package linearizability

import "slices"

// graph is a set of points in time: each must lie in its window [release,
// due], and not before the points that precede it.
type graph struct {
	nodes []node
	edges []edge // in the order added; schedule sorts them by their from
}

// node is one point: an append, a move of the log's start, or a read.
type node struct {
	release, due int64
	op           int32 // who it is, or noOp
	kind         nodeKind
	at           int64 // the base offset of an append, the offset to which the start moves
}

type nodeKind uint8

const (
	appendNode nodeKind = iota // the log gets a batch
	startNode                  // the log's start moves
	readNode                   // an operation without effect, or with one that a startNode stands for
	fenceNode                  // nothing: gathers edges
)

// edge says that from precedes to, and how that is known.
type edge struct{ from, to int32 }

func (g *graph) add(n node) int32 {
	g.nodes = append(g.nodes, n)
	return int32(len(g.nodes) - 1)
}

func (g *graph) before(from, to int32) { g.edges = append(g.edges, edge{from, to}) }

// schedule is the earliest instant of every point that respects releases and edges.
type schedule struct {
	times []int64
	cause []int32 // the predecessor that set the time; -1 if the point's own release did
	cycle []int32 // if not empty, points that precede each other in a ring; times are then not complete
}

// run computes the earliest schedule in time linear in nodes and edges.
func (g *graph) run() schedule {
	n := len(g.nodes)
	first, next := g.successors()
	missing := make([]int32, n)
	for _, e := range g.edges {
		missing[e.to]++
	}
	s := schedule{times: make([]int64, n), cause: make([]int32, n)}
	queue := make([]int32, 0, n)
	for i := range g.nodes {
		s.times[i], s.cause[i] = g.nodes[i].release, -1
		if missing[i] == 0 {
			queue = append(queue, int32(i))
		}
	}
	for k := 0; k < len(queue); k++ {
		i := queue[k]
		for _, to := range next[first[i]:first[i+1]] {
			if s.times[i] > s.times[to] {
				s.times[to], s.cause[to] = s.times[i], i
			}
			if missing[to]--; missing[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
	if len(queue) < n {
		s.cycle = g.ring(missing)
	}
	return s
}

// successors returns for each node i its successors next[first[i]:first[i+1]].
func (g *graph) successors() (first, next []int32) {
	first = make([]int32, len(g.nodes)+1)
	for _, e := range g.edges {
		first[e.from+1]++
	}
	for i := range g.nodes {
		first[i+1] += first[i]
	}
	next = make([]int32, len(g.edges))
	fill := slices.Clone(first)
	for _, e := range g.edges {
		next[fill[e.from]] = e.to
		fill[e.from]++
	}
	return first, next
}

// ring returns a cycle among the nodes that still miss a predecessor: each of
// them has one that misses one too, so that going back must come round.
func (g *graph) ring(missing []int32) []int32 {
	back := make([]int32, len(g.nodes))
	start := int32(-1)
	for _, e := range g.edges {
		if missing[e.from] > 0 && missing[e.to] > 0 {
			back[e.to] = e.from
			start = e.to
		}
	}
	seen := make([]bool, len(g.nodes))
	at := start
	for !seen[at] {
		seen[at] = true
		at = back[at]
	}
	ring := []int32{at}
	for i := back[at]; i != at; i = back[i] {
		ring = append(ring, i)
	}
	slices.Reverse(ring)
	return ring
}
