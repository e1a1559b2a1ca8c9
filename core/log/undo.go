package log

import (
	"cmp"
	"slices"
)

// undo is what it takes to undo the change that one batch of a producer made to the table.
type undo struct {
	offset     int64 // base offset of the batch
	id         int64
	created    bool // the producer was not in the table
	replaced   bool // the producer had another epoch:
	marker     bool // the batch was a transaction's end, and not put into the window
	hasDropped bool
	epoch      int16   // this one, with
	batches    []Batch // these batches
	dropped    Batch   // fell out of the window
	lastOffset int64   // before
	txnFirst   int64   // before
	evicted    *producer
}

// remember keeps u for a truncation. Where there are too many, the oldest are given up, and truncations down to there
// are not exact any more.
func (p *Producers) remember(u undo) {
	if u.offset < p.exactFrom {
		return
	}
	if len(p.undo)-p.undoHead == maxUndo {
		p.exactFrom = p.undo[p.undoHead].offset + 1
		p.popUndo()
	}
	p.undo = append(p.undo, u)
}

func (p *Producers) popUndo() {
	p.undo[p.undoHead] = undo{}
	p.undoHead++
	switch {
	case p.undoHead == len(p.undo):
		p.undo, p.undoHead = p.undo[:0], 0
	case p.undoHead >= 64 && p.undoHead*2 >= len(p.undo):
		n := copy(p.undo, p.undo[p.undoHead:])
		clear(p.undo[n:])
		p.undo, p.undoHead = p.undo[:n], 0
	}
}

// Committed says that nothing below offset will be truncated, so that what it takes to undo it can be given up.
func (p *Producers) Committed(offset int64) {
	for p.undoHead < len(p.undo) && p.undo[p.undoHead].offset < offset {
		p.popUndo()
	}
	if len(p.undo) == 0 && cap(p.undo) > 1024 {
		p.undo = nil // a long tail is over: give its memory back
	}
	p.exactFrom = max(p.exactFrom, offset)
	for len(p.completed) > 0 && p.completed[0].last < offset {
		p.completed = slices.Delete(p.completed, 0, 1)
	}
}

// ExactFrom is the lowest offset to which the table can be truncated exactly.
func (p *Producers) ExactFrom() int64 { return p.exactFrom }

// Truncate makes the table what it was when the log ended at end. Below ExactFrom that cannot be done: then nothing
// is changed and false returned; Clear the table and Replay the log.
func (p *Producers) Truncate(end int64) bool {
	if end < p.exactFrom {
		return false
	}
	changed := false
	for len(p.undo) > p.undoHead && p.undo[len(p.undo)-1].offset >= end {
		last := len(p.undo) - 1
		u := p.undo[last]
		p.undo[last] = undo{}
		p.undo = p.undo[:last]
		p.revert(&u)
		changed = true
	}
	if changed {
		p.relink()
		p.reopen(end)
	}
	return true
}

// revert undoes one change. The list's order is left for relink.
func (p *Producers) revert(u *undo) {
	e := p.byID[u.id]
	switch {
	case e == nil:
		return // cannot be: a producer with uncommitted batches neither expires nor goes without an undo of its own
	case u.created:
		p.remove(e)
	default:
		e.lastOffset, e.txnFirst = u.lastOffset, u.txnFirst
		switch {
		case u.replaced:
			e.epoch, e.batches = u.epoch, u.batches
		case u.marker || len(e.batches) == 0:
		case u.hasDropped:
			copy(e.batches[1:], e.batches)
			e.batches[0] = u.dropped
		default:
			e.batches = e.batches[:len(e.batches)-1]
		}
	}
	if u.evicted != nil {
		p.insert(u.evicted)
		p.linkLast(u.evicted)
	}
}

// relink puts the list back into the order of last offsets.
func (p *Producers) relink() {
	all := p.inOrder()
	slices.SortStableFunc(all, func(a, b *producer) int { return cmp.Compare(a.lastOffset, b.lastOffset) })
	p.head, p.tail = nil, nil
	for _, e := range all {
		p.linkLast(e)
	}
}

// inOrder returns the producers in the order of the list.
func (p *Producers) inOrder() []*producer {
	all := make([]*producer, 0, len(p.byID))
	for e := p.head; e != nil; e = e.next {
		all = append(all, e)
	}
	return all
}

// reopen computes the open and the completed transactions again, of a table that was truncated to end.
func (p *Producers) reopen(end int64) {
	p.open = p.open[:0]
	for e := p.head; e != nil; e = e.next {
		if e.txnFirst >= 0 {
			p.open = append(p.open, txnSpan{first: e.txnFirst})
		}
	}
	slices.SortFunc(p.open, func(a, b txnSpan) int { return cmp.Compare(a.first, b.first) })
	p.completed = slices.DeleteFunc(p.completed, func(s txnSpan) bool { return s.last >= end })
}
