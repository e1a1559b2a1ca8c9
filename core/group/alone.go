package group

import (
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A partition may be led by another broker while the one that led it before has not heard of that, and holds a lease: leadership
// moves at once from a broker that stops, and back to a preferred replica. Members that reach the former coordinator are told
// that all is well, so the new one must not judge them by their silence. What it does can take effect only when the former one,
// which is in sync, has fetched from it, and thus knows. So with the first write that is committed the new one knows that it is
// alone, and gives everybody all of their time again; without one it writes something before it judges anybody.

// retryConfirm is how long the coordinator waits before it tries again to find out whether it is alone.
const retryConfirm = time.Second

// populated says whether the group has members.
func (g *group) populated() bool {
	return len(g.classic.members) > 0 || g.consumer != nil && len(g.consumer.members) > 0
}

// judgement is when the group's members are next to be judged by what they have not done in time.
func (g *group) judgement() core.Time {
	k := &g.classic
	at := core.Earlier(core.Earlier(k.joinBy, k.syncBy), g.consumer.deadline())
	for _, m := range k.members {
		if m.joined == nil && m.syncing == nil { // see due
			at = min(at, m.expires)
		}
	}
	return at
}

// mayJudge says whether what is due in a group may be done. If not it is seen to that it soon may.
func (c *Coordinator) mayJudge(g *group) bool {
	p := g.part
	if p.alone || g.judgement() > c.now {
		return true
	}
	if p.confirming {
		return false
	}
	p.confirming = true
	nobody := kmsg.GroupMetadataKey{Version: 2} // a tombstone of a group that cannot be
	c.write(g, []Record{{Key: nobody.AppendTo(nil)}}, func() {}, func(int16) {
		p.confirming = false
		for _, id := range slices.Sorted(maps.Keys(p.groups)) {
			c.wakeAt(p.groups[id], c.now.Add(retryConfirm))
		}
	})
	return false
}

// settleAlone takes the news that a write of this coordinator is committed.
func (c *Coordinator) settleAlone(p *partition) {
	if p.alone {
		return
	}
	p.alone, p.confirming = true, false
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		c.renew(p.groups[id])
	}
}

// renew gives all members of a group all of their time again.
func (c *Coordinator) renew(g *group) {
	again := func(at *core.Time, d time.Duration) {
		if *at != core.Never {
			*at = c.now.Add(d)
		}
	}
	k := &g.classic
	for _, id := range k.ids() {
		c.touch(g, k.members[id])
	}
	again(&k.joinBy, k.rebalanceTimeout())
	again(&k.syncBy, max(k.rebalanceTimeout(), time.Second))
	if n := g.consumer; n != nil {
		for _, id := range n.ids() {
			c.see(g, id)
			s, d := n.session(id), n.members[id].rebalance
			again(&s.revokeBy, d)
			again(&s.joinBy, d)
			again(&s.syncBy, d)
		}
	}
	c.wakeAt(g, core.Earlier(k.deadline(), g.consumer.deadline()))
}
