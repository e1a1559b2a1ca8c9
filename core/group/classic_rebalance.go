package group

import (
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// retryEmpty is how long the coordinator waits before it writes again that a group is empty.
const retryEmpty = time.Second

// rebalance begins the way to a new generation, unless the group is on it: members join until all have, or time is up.
func (c *Coordinator) rebalance(g *group, why, who string) {
	k := &g.classic
	if k.state != preparing {
		c.log(levelInfo, "group rebalances", "group", g.id, "generation", k.generation, "reason", why, "member", who)
		c.releaseSyncs(g, errRebalanceInProgress) // nobody gets an assignment of this generation any more
		k.joinBy = c.now.Add(k.rebalanceTimeout())
		if k.state == empty && c.cfg.InitialDelay > 0 {
			k.notBefore = core.Earlier(c.now.Add(c.cfg.InitialDelay), k.joinBy)
		}
		k.state, k.syncBy = preparing, core.Never
	}
	c.maybeCompleteJoin(g)
}

// releaseSyncs answers all who wait for an assignment.
func (c *Coordinator) releaseSyncs(g *group, code int16) {
	for _, id := range g.classic.ids() {
		if m := g.classic.members[id]; m.syncing != nil {
			w := m.syncing
			m.syncing = nil
			c.answer(w.token, syncError(w.sync, code))
			c.touch(g, m)
		}
	}
}

// maybeCompleteJoin completes a rebalance if nobody is waited for any more.
func (c *Coordinator) maybeCompleteJoin(g *group) {
	k := &g.classic
	if k.state != preparing || g.busy != nil {
		return
	}
	if len(k.members) == 0 && k.retry != core.Never { // nobody is left, which is soon written again
		k.joinBy, k.notBefore = core.Never, core.Never
		return
	}
	if k.notBefore != core.Never {
		if c.now < k.notBefore {
			c.wakeAt(g, k.deadline())
			return
		}
		k.notBefore = core.Never
	}
	if k.allJoined(c.now) || c.now >= k.joinBy && g.part.alone {
		c.completeJoin(g)
		return
	}
	c.wakeAt(g, k.deadline())
}

// completeJoin begins a new generation with those that have joined. Static members that have not stay until their session
// ends (KIP-345).
func (c *Coordinator) completeJoin(g *group) {
	k := &g.classic
	for _, id := range k.ids() {
		if m := k.members[id]; m.joined == nil && m.instance == nil {
			c.log(levelInfo, "member did not join in time", "group", g.id, "member", id)
			k.remove(m)
		}
	}
	if len(k.members) == 0 {
		c.becomeEmpty(g)
		return
	}
	k.retry = core.Never // that the group is empty, which could not be written, is not so any more
	joined := func(m *member) bool { return m.joined != nil }
	if !joined(k.members[k.leader]) && !k.elect(joined) { // somebody must assign
		k.joinBy = c.now.Add(max(k.rebalanceTimeout(), time.Second))
		c.wakeAt(g, k.deadline())
		return
	}
	k.generation = nextGeneration(k.generation)
	k.protocol = k.choose()
	k.read()
	k.state, k.joinBy = completing, core.Never
	k.syncBy = c.now.Add(max(k.rebalanceTimeout(), time.Second)) // else one that dies now would hold up all the others for ever
	for _, id := range k.ids() {
		m := k.members[id]
		m.synced = m.joined == nil // an absent static member is not expected to
		if w := m.joined; w != nil {
			m.joined = nil
			m.expires = c.now.Add(m.session)
			c.answer(w.token, k.joined(m, w.join))
		}
	}
	c.wakeAt(g, k.deadline())
}

func nextGeneration(n int32) int32 {
	if n == 1<<31-1 {
		return 1
	}
	return n + 1
}

// becomeEmpty ends a generation after which nobody is left.
func (c *Coordinator) becomeEmpty(g *group) {
	k := &g.classic
	k.joinBy, k.leader, k.retry = core.Never, "", core.Never
	if !k.recorded && len(g.offsets) == 0 && g.inflight == 0 { // it never came to an assignment: nothing is known of it
		pending := k.pending
		k.init()
		k.pending = pending
		return
	}
	next := classic{
		state: empty, generation: nextGeneration(k.generation), protocolType: k.protocolType, since: int64(c.wall),
	}
	c.change(g, g.view(), []Record{next.record(g.id, next.since)}, func() {
		k.state, k.generation, k.protocol, k.since, k.recorded = empty, next.generation, "", next.since, true
		k.read()
	}, func(int16) {
		k.retry = c.now.Add(retryEmpty)
		c.wakeAt(g, k.retry)
	})
}

// removeMember takes a member out of the group, which goes on without it.
func (c *Coordinator) removeMember(g *group, m *member, why string) {
	k := &g.classic
	c.release(m, errUnknownMemberID)
	k.remove(m)
	switch k.state {
	case stable, completing:
		c.rebalance(g, why, m.id)
	case preparing:
		c.maybeCompleteJoin(g)
	}
}

// tickClassic does what is due in a group of the classic protocol.
func (c *Coordinator) tickClassic(g *group) {
	k := &g.classic
	for _, id := range k.ids() {
		if m := k.members[id]; m != nil && m.due() <= c.now && g.busy == nil {
			c.log(levelInfo, "member's session ended", "group", g.id, "member", id)
			c.removeMember(g, m, "a member's session ended")
		}
	}
	k.tickPending(c.now)
	if k.syncBy <= c.now && g.busy == nil {
		k.syncBy = core.Never
		for _, id := range k.ids() {
			if m := k.members[id]; m != nil && !m.synced && g.busy == nil {
				c.log(levelInfo, "member did not call SyncGroup in time", "group", g.id, "member", id)
				c.removeMember(g, m, "a member did not call SyncGroup in time")
			}
		}
	}
	if k.retry <= c.now {
		k.retry = core.Never
	}
	c.maybeCompleteJoin(g)
}

// tickPending forgets handed-out ids whose time is over, and lets no rebalance wait for them longer than a moment.
func (k *classic) tickPending(now core.Time) {
	for id, p := range k.pending {
		if p.expires <= now {
			delete(k.pending, id)
		} else if p.holds <= now {
			k.pending[id] = pendingID{expires: p.expires}
		}
	}
}

// abandon answers everybody who waits in the group.
func (c *Coordinator) abandon(g *group, code int16) {
	for _, id := range g.classic.ids() {
		c.release(g.classic.members[id], code)
	}
}

// cancel forgets a waiting request. Its member has not joined, or not called SyncGroup: if it does not come back its session
// ends.
func (c *Coordinator) cancel(g *group, token Token) {
	for _, id := range g.classic.ids() {
		m := g.classic.members[id]
		if m.joined != nil && m.joined.token == token {
			unknown := m.joined.join.MemberID == "" // to its client: it cannot come back
			m.joined = nil
			c.touch(g, m)
			if unknown {
				m.expires = c.now
				c.wakeAt(g, c.now)
			}
		}
		if m.syncing != nil && m.syncing.token == token {
			m.syncing = nil
			c.touch(g, m)
		}
	}
}

// record is the group's record, in the version that Kafka writes.
func (k *classic) record(group string, since int64) Record {
	key := kmsg.GroupMetadataKey{Version: 2, Group: group}
	v := kmsg.GroupMetadataValue{
		Version: 3, ProtocolType: k.protocolType, Generation: k.generation, CurrentStateTimestamp: since,
	}
	if len(k.members) > 0 {
		protocol, leader := k.protocol, k.leader
		v.Protocol, v.Leader = &protocol, &leader
	}
	for _, id := range k.ids() {
		m := k.members[id]
		x := kmsg.NewGroupMetadataValueMember()
		x.MemberID, x.InstanceID, x.ClientID, x.ClientHost = id, m.instance, m.clientID, m.host
		x.RebalanceTimeoutMillis, x.SessionTimeoutMillis = int32(m.rebalance.Milliseconds()), int32(m.session.Milliseconds())
		x.Subscription, x.Assignment = m.metadataOf(k.protocol), m.assignment
		v.Members = append(v.Members, x)
	}
	return Record{key.AppendTo(nil), v.AppendTo(nil)}
}
