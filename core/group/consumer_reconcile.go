package group

import (
	"hash/fnv"
	"maps"
	"slices"

	"lockstep/core"
)

// place applies what a member wants, and brings it a step nearer to its target: its record, the group's epoch if anything has
// changed that assignments depend on, a target assignment for that epoch, and what the member has now.
func (c *Coordinator) place(x *change, id string, m *subscriber, owned []core.Partition, known bool) {
	k := x.g.consumer
	old := k.members[id]
	bump := old == nil || !slices.Equal(old.topics, m.topics) || !same(old.regex, m.regex) || !same(old.assignor, m.assignor)
	if old == nil || !old.equal(m) {
		x.member(id, m)
	}
	if m.regex != nil && k.regexes[*m.regex] == nil {
		x.regex(*m.regex, &resolved{c.match(*m.regex), 1, int64(c.wall)})
	}
	if bump {
		x.dropRegexes()
	}
	if k.refresh {
		bump = c.resolve(x) || bump
	}
	hash := k.hash
	if bump || k.refresh {
		hash = c.hashOf(k)
	}
	if k.refresh {
		k.refresh = false
		x.undos = append(x.undos, func() { k.refresh = true })
	}
	if bump || hash != k.hash {
		x.epoch(k.epoch+1, hash, c.wall)
	}
	if k.epoch > k.targetEpoch {
		c.assignTargets(x)
	}
	if k.current[id] == nil {
		x.current(id, k.next(id, &current{}, owned, known))
	} else if next := c.onlyRead(k, m, k.reconcile(id, owned, known)); next != k.current[id] {
		x.current(id, next)
	}
}

// onlyRead takes out of what a member has what it does not want to read any more. Else one that has not yet given up what it was told to,
// and is given no next step before it has, would go on to have that (KAFKA-19431).
func (c *Coordinator) onlyRead(k *consumer, m *subscriber, cur *current) *current {
	if cur.state != unrevoked {
		return cur
	}
	read := make(map[core.TopicID]bool)
	for _, name := range k.topicsOf(m) {
		if id, _, ok := c.topics.Topic(name); ok {
			read[id] = true
		}
	}
	var keep, drop []core.Partition
	for _, p := range cur.assigned {
		if read[p.Topic] {
			keep = append(keep, p)
		} else {
			drop = append(drop, p)
		}
	}
	if len(drop) == 0 {
		return cur
	}
	return &current{cur.epoch, cur.previous, unrevoked, keep, union(cur.revoking, drop)}
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

func (m *subscriber) equal(o *subscriber) bool {
	return same(m.instance, o.instance) && same(m.rack, o.rack) && m.clientID == o.clientID && m.host == o.host &&
		slices.Equal(m.topics, o.topics) && same(m.regex, o.regex) && m.rebalance == o.rebalance && same(m.assignor, o.assignor) &&
		m.classic.equal(o.classic)
}

func (b *bridge) equal(o *bridge) bool {
	if b == nil || o == nil {
		return b == o
	}
	return b.session == o.session && slices.EqualFunc(b.protocols, o.protocols, func(p, q protocol) bool {
		return p.name == q.name && slices.Equal(p.metadata, q.metadata)
	})
}

// reconcile returns what a member has next, given what it says it has; the same if nothing changes.
func (k *consumer) reconcile(id string, owned []core.Partition, known bool) *current {
	cur := k.current[id]
	switch cur.state {
	case unrevoked:
		if !known || !disjoint(owned, cur.revoking) {
			return cur // it has not said yet that it gave up what it was told to
		}
	case reconciled:
		if cur.epoch == k.targetEpoch {
			return cur
		}
	}
	next := k.next(id, cur, owned, known)
	if next.equal(cur) {
		return cur
	}
	return next
}

func (c *current) equal(o *current) bool {
	return c.epoch == o.epoch && c.previous == o.previous && c.state == o.state && slices.Equal(c.assigned, o.assigned) &&
		slices.Equal(c.revoking, o.revoking)
}

// next computes a member's next step: first it gives up what its target does not have; when that is done it takes its target's
// epoch, and of its target whatever nobody else has. A partition that another member has, or has not yet said that it gave
// up, is not given to anybody: else it had two owners.
func (k *consumer) next(id string, cur *current, owned []core.Partition, known bool) *current {
	target := k.target[id]
	keep, revoke := split(cur.assigned, target)
	if len(revoke) > 0 && (!known || !disjoint(owned, revoke)) {
		return &current{cur.epoch, cur.previous, unrevoked, keep, revoke}
	}
	_, add := split(target, keep)
	state := reconciled
	var got []core.Partition
	for _, p := range add {
		if k.free(p, id) {
			got = append(got, p)
		} else {
			state = unreleased
		}
	}
	previous := cur.previous
	if cur.epoch != k.targetEpoch {
		previous = cur.epoch
	}
	return &current{k.targetEpoch, previous, state, union(keep, got), nil}
}

// assignTargets makes a target assignment for the group's epoch.
func (c *Coordinator) assignTargets(x *change) {
	k := x.g.consumer
	var in assignInput
	index := make(map[string]int) // of topics
	for _, name := range k.subscribed() {
		if id, n, ok := c.topics.Topic(name); ok {
			index[name] = len(in.topics)
			in.topics = append(in.topics, assignTopic{id, n})
		}
	}
	for _, id := range k.ids() {
		m := assignMember{id: id, instance: k.members[id].instance, before: k.target[id]}
		for _, t := range k.topicsOf(k.members[id]) {
			if i, ok := index[t]; ok {
				m.topics = append(m.topics, i)
			}
		}
		in.members = append(in.members, m)
	}
	assigned := assignors[c.assignor(k)](&in)
	for i, id := range k.ids() {
		if old, ok := k.target[id]; !ok || !slices.Equal(old, assigned[i]) {
			x.target(id, assigned[i])
		}
	}
	x.targetEpoch(k.epoch)
}

// assignor is the one that most members ask for, of those that ask for one.
func (c *Coordinator) assignor(k *consumer) string {
	votes := make(map[string]int)
	for _, id := range k.ids() {
		if a := k.members[id].assignor; a != nil {
			votes[*a]++
		}
	}
	best := c.cfg.Assignors[0]
	for _, a := range c.cfg.Assignors {
		if votes[a] > votes[best] {
			best = a
		}
	}
	return best
}

// hashOf tells whether the subscribed topics are still what they were when the last target was made. Kafka computes another
// number: a group taken over from it is assigned anew once.
func (c *Coordinator) hashOf(k *consumer) int64 {
	h := fnv.New64a()
	var b []byte
	for _, name := range k.subscribed() {
		if id, n, ok := c.topics.Topic(name); ok {
			e := encoder{b[:0]}
			e.string(name)
			e.b = append(e.b, id[:]...)
			e.int32(n)
			h.Write(e.b)
			b = e.b
		}
	}
	return int64(h.Sum64())
}

// resolve matches all patterns of the group again, and says whether that changed anything.
func (c *Coordinator) resolve(x *change) (changed bool) {
	k := x.g.consumer
	for _, re := range slices.Sorted(maps.Keys(k.regexes)) {
		old := k.regexes[re]
		if topics := c.match(re); !slices.Equal(topics, old.topics) {
			x.regex(re, &resolved{topics, old.version + 1, int64(c.wall)})
			changed = true
		}
	}
	return changed
}

// dropRegexes takes out the patterns that no member has any more.
func (x *change) dropRegexes() {
	k := x.g.consumer
	used := make(map[string]bool)
	for _, id := range k.ids() {
		if re := k.members[id].regex; re != nil {
			used[*re] = true
		}
	}
	for _, re := range slices.Sorted(maps.Keys(k.regexes)) {
		if !used[re] {
			x.dropRegex(re)
		}
	}
}

// refreshSubscriptions lets all groups of a partition look at the topics again, each at its next heartbeat.
func (c *Coordinator) refreshSubscriptions(p *partition) {
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		if k := p.groups[id].consumer; k != nil {
			k.refresh = true
		}
	}
}
