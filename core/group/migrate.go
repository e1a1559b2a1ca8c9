package group

import (
	"cmp"
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// toConsumer makes a group, classic or new, one of KIP-848. Its members, if it has any, stay and speak the classic protocol.
func (c *Coordinator) toConsumer(x *change) (int16, string) {
	g := x.g
	k := &g.classic
	if n := len(k.members); n > 0 {
		switch {
		case c.cfg.Migration != MigrateUp && c.cfg.Migration != MigrateBothWays, k.protocolType != protocolConsumer, k.opaque:
			return errGroupIDNotFound, "Group " + g.id + " is not a consumer group."
		case n >= int(c.cfg.ConsumerMaxSize):
			return errGroupMaxSizeReached, "The group has as many members as it may."
		}
		for _, id := range k.ids() {
			for _, p := range k.members[id].protocols {
				if _, ok := readSubscription(p.metadata); !ok {
					return errGroupIDNotFound, "Group " + g.id + " is not a consumer group."
				}
			}
		}
		c.abandon(g, errRebalanceInProgress)
	}
	x.begin()
	old := *k
	x.undos = append(x.undos, func() { g.classic = old })
	if old.recorded {
		key := kmsg.GroupMetadataKey{Version: 2, Group: g.id}
		x.put(Record{Key: key.AppendTo(nil)}, func() {})
	}
	g.classic.init()
	x.create()
	if len(old.members) > 0 {
		c.takeOver(x, &old)
	} else {
		g.consumer.epoch = old.generation // recorded with the first member
	}
	return errNone, ""
}

// emptyToClassic makes a group of KIP-848 without members a classic one. Its generations go on from its epochs, as its epochs do
// from generations: a request of a former member that is still on its way must not be taken for one of a new member.
func (c *Coordinator) emptyToClassic(g *group, done func(), failed func(code int16)) {
	next := classic{}
	next.init()
	next.recorded, next.generation, next.protocolType, next.since = true, g.consumer.epoch, protocolConsumer, int64(c.wall)
	var records []Record
	for _, t := range g.consumer.tombstones(g) {
		records = append(records, Record{Key: t.key})
	}
	c.change(g, g.view(), append(records, next.record(g.id, next.since)), func() {
		g.classic, g.consumer = next, nil
		done()
	}, failed)
}

// takeOver makes members of KIP-848 of those of a classic group: each has what it was last assigned, and what it said that it has and
// has not yet come back without. That is not all that there is where a rebalance was under way, so whoever comes next brings a new
// assignment with it, also one that takes the place of another.
func (c *Coordinator) takeOver(x *change, old *classic) {
	k := x.g.consumer
	for _, id := range old.ids() {
		m := old.members[id]
		s := m.subscription(old.protocol)
		sub := &subscriber{
			instance: m.instance, rack: s.Rack, clientID: m.clientID, host: m.host, topics: sorted(s.Topics),
			rebalance: m.rebalance, classic: &bridge{m.session, m.protocols},
		}
		x.member(id, sub)
		x.after = append(x.after, func() { c.see(x.g, id); c.revokeTimer(x.g, id) })
	}
	k.refresh = true
	x.epoch(old.generation, 0, c.wall)
	for _, id := range old.ids() {
		set := k.unowned(id, c.readAssignment(old.members[id].assignment)) // an assignor may have given it twice
		x.target(id, set)
		x.current(id, &current{epoch: old.generation, previous: old.generation, assigned: set})
	}
	c.takeClaims(x, old)
	x.targetEpoch(old.generation)
}

// takeClaims lets cooperative members (KIP-429) keep what they joined with and were not assigned again, until they join without it: that
// is how they give up what is to go to another. Of two that say they have the same, who heard of it later is right.
func (c *Coordinator) takeClaims(x *change, old *classic) {
	k := x.g.consumer
	said := make(map[string]*kmsg.ConsumerMemberMetadata)
	for _, id := range old.ids() {
		said[id] = old.members[id].subscription(old.protocol)
	}
	ids := old.ids()
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(said[b].Generation, said[a].Generation) })
	for _, id := range ids {
		cur := k.current[id]
		_, more := split(k.unowned(id, c.claims(said[id])), cur.assigned)
		if len(more) > 0 {
			x.current(id, &current{cur.epoch, cur.previous, unrevoked, cur.assigned, more})
		}
	}
}

// subscription is what a consumer wants and has, as its group's assignor was told; toConsumer has seen to it that it can be read.
func (m *member) subscription(assignor string) *kmsg.ConsumerMemberMetadata {
	metadata := m.metadataOf(assignor)
	if metadata == nil {
		metadata = m.protocols[0].metadata
	}
	s, _ := readSubscription(metadata)
	return s
}

// unowned is what of a set of partitions no other member has.
func (k *consumer) unowned(id string, set []core.Partition) (free []core.Partition) {
	for _, p := range set {
		if k.free(p, id) {
			free = append(free, p)
		}
	}
	return free
}

// readAssignment reads what a leader assigned a consumer, as far as the topics are there.
func (c *Coordinator) readAssignment(b []byte) (set []core.Partition) {
	a := kmsg.NewConsumerMemberAssignment()
	if len(b) < 2 || a.ReadFrom(b) != nil {
		return nil
	}
	for _, t := range a.Topics {
		id, n, ok := c.topics.Topic(t.Topic)
		for _, p := range t.Partitions {
			if ok && p >= 0 && p < n {
				set = append(set, core.Partition{Topic: id, Index: p})
			}
		}
	}
	return union(set, nil)
}

// maybeToClassic makes a group classic again whose last member of KIP-848 has gone while others are there, or has been started again with
// the classic protocol, if it is static.
func (c *Coordinator) maybeToClassic(x *change) {
	g, k := x.g, x.g.consumer
	if len(k.members) == 0 || len(k.members) > int(c.cfg.MaxSize) ||
		c.cfg.Migration != MigrateDown && c.cfg.Migration != MigrateBothWays {
		return
	}
	for _, id := range k.ids() {
		if k.members[id].classic == nil {
			return
		}
	}
	for _, t := range k.tombstones(g) {
		x.put(Record{Key: t.key}, func() {})
	}
	next := classic{}
	next.init()
	next.state, next.recorded, next.since = stable, true, int64(c.wall)
	next.generation, next.protocolType = k.epoch, protocolConsumer
	for _, id := range k.ids() {
		m := k.members[id]
		next.add(&member{
			id: id, instance: m.instance, clientID: m.clientID, host: m.host, session: m.classic.session, rebalance: m.rebalance,
			protocols: m.classic.protocols, synced: true, expires: core.Never,
			assignment: c.classicAssignment(m.classic.protocols[0].metadata, k.current[id].assigned),
		})
	}
	next.protocol = next.choose()
	next.read()
	empty := g.classic
	g.classic, g.consumer = next, nil
	x.put(next.record(g.id, next.since), func() { g.classic, g.consumer = empty, k })
	x.after = append(x.after, func() {
		for _, id := range g.classic.ids() {
			c.touch(g, g.classic.members[id])
		}
		c.rebalance(g, "the last member of the consumer protocol left", "")
	})
}

// sorted returns a sorted set of topics.
func sorted(topics []string) []string {
	out := slices.Clone(topics)
	slices.Sort(out)
	return slices.Compact(out)
}
