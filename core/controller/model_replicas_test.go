package controller

import (
	"slices"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// produce writes to what is served, replicates it to some, and moves high watermarks.
func (w *world) produce(t *rapid.T) {
	for _, p := range w.serving() {
		m := w.parts[p.Partition]
		w.nextID++
		m.logs[p.Leader] = append(slices.Clip(m.logs[p.Leader]), w.nextID)
		if rapid.IntRange(0, 3).Draw(t, "replicated") > 0 {
			w.replicate(p, rapid.IntRange(0, 3).Draw(t, "whole") > 0)
		}
		w.advance(p)
	}
}

// replicate copies the leader's log to its live followers, whole or but for its last record.
func (w *world) replicate(p *Partition, whole bool) {
	m := w.parts[p.Partition]
	log := m.logs[p.Leader]
	if !whole && len(log) > 0 {
		log = log[:len(log)-1]
	}
	for _, id := range p.Replicas {
		if b := w.brokers[id]; id != p.Leader && b.up && b.registered && !(len(m.logs[id]) > len(log) && slices.Equal(m.logs[id][:len(log)], log)) {
			m.logs[id] = slices.Clone(log)
		}
	}
}

// advance moves the high watermark as far as the maximal in-sync set holds the log, if that set is large enough (rule 6).
func (w *world) advance(p *Partition) {
	m := w.parts[p.Partition]
	if len(p.ISR) < w.minISR(p) {
		return
	}
	log := m.logs[p.Leader]
	end := len(log)
	for _, id := range union(p.ISR, m.proposed) {
		n := 0
		for n < len(log) && n < len(m.logs[id]) && log[n] == m.logs[id][n] {
			n++
		}
		end = min(end, n)
	}
	if end > len(m.committed) {
		m.committed = slices.Clone(log[:end])
		w.counts["committed"]++
	}
}

func (w *world) shrink(t *rapid.T, p *Partition) {
	isr := []int32{p.Leader}
	for _, id := range p.ISR {
		if id != p.Leader && rapid.Bool().Draw(t, "stays") {
			isr = append(isr, id)
		}
	}
	w.propose(p, isr)
}

// expand asks for all who have caught up with the leader, in the life in which they did (rule 7).
func (w *world) expand(p *Partition) {
	m := w.parts[p.Partition]
	isr := slices.Clone(p.ISR)
	for _, id := range p.Replicas {
		if w.brokers[id].registered && !slices.Contains(isr, id) && slices.Equal(m.logs[id], m.logs[p.Leader]) {
			isr = append(isr, id)
		}
	}
	w.propose(p, isr)
}

// propose sends a leader's proposal, now or, as the network has it, later.
func (w *world) propose(p *Partition, isr []int32) {
	m := w.parts[p.Partition]
	if m.proposed != nil {
		w.rt.Skip("one at a time")
	}
	m.proposed = isr
	req := w.proposal(p.Partition, isr...)
	if rapid.IntRange(0, 2).Draw(w.rt, "held") == 0 {
		w.held = append(w.held, func() { w.sendProposal(m, p, req) })
		return
	}
	w.sendProposal(m, p, req)
}

func (w *world) sendProposal(m *testPartition, p *Partition, req kmsg.Request) {
	w.in(req, func(resp kmsg.Response) {
		m.proposed = nil
		if r := resp.(*kmsg.AlterPartitionResponse); r.ErrorCode == 0 && r.Topics[0].Partitions[0].ErrorCode == 0 {
			got := r.Topics[0].Partitions[0]
			if now := w.image().Partition(p.Partition); now != nil { // else it was deleted in the same commit
				require.GreaterOrEqual(w.rt, now.Epoch, got.PartitionEpoch, "answered before it is committed")
			}
			w.counts["altered"]++
		}
	})
}
