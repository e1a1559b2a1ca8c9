package quorum

import (
	"bytes"
	"fmt"

	"lockstep/core"
	"lockstep/core/record"
)

// memory is a node's log as its machine believes it to be, disk or no disk.
type memory struct {
	start   int64
	batches []record.Batch
	hw      int64 // seen in this life
	checked int64 // the image was compared up to here
}

func (m *memory) end() int64 {
	if len(m.batches) == 0 {
		return m.start
	}
	return m.batches[len(m.batches)-1].NextOffset()
}

func (m *memory) apply(op LogOp) {
	switch op := op.(type) {
	case Append:
		m.batches = append(m.batches[:len(m.batches):len(m.batches)], op.Batches...)
	case Truncate:
		for len(m.batches) > 0 && m.end() > op.To {
			m.batches = m.batches[:len(m.batches)-1]
		}
	case Reset:
		m.start, m.batches = op.Start, nil
	case DropPrefix:
		for len(m.batches) > 0 && m.batches[0].NextOffset() <= op.Start {
			m.batches = m.batches[1:]
		}
		m.start = op.Start
	}
}

// at returns the batch that begins at offset.
func at(batches []record.Batch, offset int64) (record.Batch, bool) {
	for i := len(batches) - 1; i >= 0; i-- {
		if batches[i].BaseOffset() == offset {
			return batches[i], true
		}
	}
	return record.Batch{}, false
}

// checker holds the truth about what is committed, and looks at every step whether somebody departs from it:
// one leader a term, leader completeness, committed means durable on a majority, the same everywhere and for ever,
// delivered once and in order. It does not check that anything happens at all: tests do.
type checker struct {
	failures []string
	leaders  map[int32]int32     // by term
	elected  map[int32]core.Time // by term
	truth    []record.Batch      // committed, from offset 0
	values   []string            // of the truth by offset, "" for control records
}

func newChecker() checker {
	return checker{leaders: map[int32]int32{}, elected: map[int32]core.Time{}}
}

func (c *checker) fail(format string, args ...any) {
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

func (c *checker) end() int64 { return int64(len(c.values)) }

func (c *checker) step(w *world, n *node, out *Out) {
	if out.Elected {
		c.onElected(w, n)
	}
	c.onHighWatermark(w, n)
	for _, other := range w.nodes {
		if other.q == nil {
			continue
		}
		_, term := other.q.Leader()
		heard, leads := other.q.MajorityHeard(w.now)
		for later, at := range c.elected {
			if leads && later > term && heard > at {
				c.fail("node %d says a majority followed it in term %d at %d, term %d was elected at %d", other.id, term, heard, later, at)
			}
		}
	}
}

func (c *checker) onElected(w *world, n *node) {
	_, term := n.q.Leader()
	if id, ok := c.leaders[term]; ok {
		c.fail("term %d has leader %d, then %d", term, id, n.id)
	}
	c.leaders[term], c.elected[term] = n.id, w.now
	if n.mem.start > c.end() || n.mem.end() < c.end() {
		c.fail("leader %d of term %d has [%d, %d), committed is [0, %d)", n.id, term, n.mem.start, n.mem.end(), c.end())
	}
	c.compare(n, n.mem.start, c.end(), "leader's log")
}

// compare says whether the node's log agrees with the truth in [from, to).
func (c *checker) compare(n *node, from, to int64, what string) {
	for _, b := range c.truth {
		if b.BaseOffset() < from || b.BaseOffset() < n.mem.start || b.NextOffset() > to {
			continue
		}
		if mine, ok := at(n.mem.batches, b.BaseOffset()); !ok || !bytes.Equal(mine.Bytes(), b.Bytes()) {
			c.fail("node %d: %s departs from what is committed at offset %d", n.id, what, b.BaseOffset())
		}
	}
}

func (c *checker) onHighWatermark(w *world, n *node) {
	hw := n.q.HighWatermark()
	if hw < n.mem.hw {
		c.fail("node %d: high watermark falls from %d to %d", n.id, n.mem.hw, hw)
	}
	if hw > c.end() {
		c.extend(w, n, hw)
	}
	if hw > n.mem.hw {
		c.compare(n, n.mem.hw, hw, "committed log")
	}
	n.mem.hw = hw
	for ; n.mem.checked < min(hw, c.end()); n.mem.checked++ {
		got := ""
		if n.mem.checked < int64(len(n.image)) {
			got = n.image[n.mem.checked]
		}
		if want := c.values[n.mem.checked]; got != want {
			c.fail("node %d: image has %q at offset %d, committed is %q", n.id, got, n.mem.checked, want)
		}
	}
	if n.next > hw {
		c.fail("node %d: image has offset %d, high watermark is %d", n.id, n.next-1, hw)
	}
}

// extend takes what a leader has committed into the truth, if a majority holds it durably.
func (c *checker) extend(w *world, n *node, hw int64) {
	if n.q.role != leader {
		c.fail("node %d, %v, has high watermark %d, the leader got to %d", n.id, n.q.role, hw, c.end())
	}
	for _, b := range n.mem.batches {
		if b.BaseOffset() < c.end() || b.NextOffset() > hw {
			continue
		}
		holders := 0
		for _, v := range w.cfg.Voters {
			d := &w.node(v.ID).disk
			mine, ok := at(d.batches[:d.synced], b.BaseOffset())
			if ok && bytes.Equal(mine.Bytes(), b.Bytes()) || d.snapshot != nil && d.snapshot.Offset >= b.NextOffset() {
				holders++
			}
		}
		if holders < n.q.majority() {
			c.fail("node %d: committed offset %d, which %d voters hold durably", n.id, b.BaseOffset(), holders)
		}
		c.truth = append(c.truth, b)
		if b.Control() {
			c.values = append(c.values, "")
			continue
		}
		commit, err := commitOf(b)
		if err != nil {
			c.fail("%v", err)
		}
		for _, v := range commit.Values {
			c.values = append(c.values, string(v))
		}
	}
}

// logMatching: two logs with the same epoch at the same offset are equal up to there.
func (c *checker) logMatching(w *world) {
	for i, a := range w.nodes {
		for _, b := range w.nodes[i+1:] {
			agree := false
			for k := len(a.mem.batches) - 1; k >= 0; k-- {
				x := a.mem.batches[k]
				y, ok := at(b.mem.batches, x.BaseOffset())
				if ok && x.LeaderEpoch() == y.LeaderEpoch() {
					agree = true
				}
				if agree && (ok && !bytes.Equal(x.Bytes(), y.Bytes()) || !ok && x.BaseOffset() >= b.mem.start) {
					c.fail("logs of %d and %d differ at offset %d, and agree further on", a.id, b.id, x.BaseOffset())
				}
			}
		}
	}
}
