package broker

import (
	"lockstep/core"

	"github.com/google/btree"
)

// deadlines orders the partitions by when their replicas want a Tick.
type deadlines struct {
	tree *btree.BTreeG[*partition]
}

func (d *deadlines) init() {
	d.tree = btree.NewG(16, func(a, b *partition) bool {
		if a.due != b.due {
			return a.due < b.due
		}
		return a.id.Compare(b.id) < 0
	})
}

// set files p under its replica's present deadline. It is called after every call of the replica.
func (d *deadlines) set(p *partition, at core.Time) {
	if p.due == at {
		return
	}
	d.drop(p)
	p.due = at
	if at != core.Never {
		d.tree.ReplaceOrInsert(p)
	}
}

func (d *deadlines) drop(p *partition) {
	if p.due != core.Never {
		d.tree.Delete(p)
		p.due = core.Never
	}
}

func (d *deadlines) next() core.Time {
	if p, ok := d.tree.Min(); ok {
		return p.due
	}
	return core.Never
}

// run ticks every partition that is due. A tick sets the next deadline.
func (d *deadlines) run(now core.Time, tick func(*partition)) {
	runDue(d.tree, func(p *partition) bool { return p.due <= now }, func(p *partition) {
		p.due = core.Never
		tick(p)
	})
}
