package group

import (
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of the classic protocol in a group of KIP-848, during an online migration: a join is a heartbeat that wants its next
// step, SyncGroup fetches what the member has, and Heartbeat says when there is a next step to be taken. A member epoch is a
// generation.

// joinConsumer serves JoinGroup in a group that has become one of KIP-848.
func (c *Coordinator) joinConsumer(g *group, q call, m *kmsg.JoinGroupRequest) {
	x := newChange(g)
	id, code := c.admitClassic(x, q, m)
	if code != errNone {
		x.undo()
		if code == errGroupMaxSizeReached {
			id = ""
		}
		c.answer(q.token, joinError(m, id, code))
		return
	}
	k := g.consumer
	before := k.current[id]
	s, _ := readSubscription(m.Protocols[0].Metadata)
	owned := c.ownedBy(s, before)
	want := &subscriber{
		instance: m.InstanceID, rack: s.Rack, clientID: q.client.ID, host: q.client.Host, topics: sorted(s.Topics),
		rebalance: max(millis(m.RebalanceTimeoutMillis), 0),
		classic:   &bridge{millis(m.SessionTimeoutMillis), protocolsOf(m.Protocols)},
	}
	if m.Version < 1 {
		want.rebalance = want.classic.session
	}
	c.place(x, id, want, owned, true)
	cur := k.current[id]
	c.maybeToClassic(x) // it may have the place of the last member of KIP-848
	x.write(c, func() {
		if g.consumer == nil {
			c.joinAgain(g, q, m, id)
			return
		}
		c.see(g, id)
		if cur != before {
			c.revokeTimer(g, id)
		}
		t := k.session(id)
		t.joinBy, t.syncBy = core.Never, c.now.Add(want.rebalance)
		c.wakeAt(g, t.syncBy)
		resp := m.ResponseKind().(*kmsg.JoinGroupResponse)
		protocolType, name := protocolConsumer, want.classic.protocols[0].name
		resp.MemberID, resp.Generation, resp.ProtocolType, resp.Protocol = id, cur.epoch, &protocolType, &name
		c.answer(q.token, resp) // nobody leads: the coordinator assigns
	}, func(code int16) { c.answer(q.token, joinError(m, id, code)) })
}

// joinAgain goes on with a join with which the group has become classic again: a rebalance has begun, and the member waits for it.
func (c *Coordinator) joinAgain(g *group, q call, m *kmsg.JoinGroupRequest, id string) {
	mem := g.classic.members[id]
	if mem == nil { // without any time for the rebalance it is over
		c.answer(q.token, joinError(m, id, errUnknownMemberID))
		return
	}
	c.rejoin(g, q, m, mem)
}

// admitClassic finds the member that a join comes from, or lets it in.
func (c *Coordinator) admitClassic(x *change, q call, m *kmsg.JoinGroupRequest) (string, int16) {
	k, id := x.g.consumer, m.MemberID
	if !k.supports(m) {
		return id, errInconsistentProtocol
	}
	if m.InstanceID != nil {
		owner := k.static[*m.InstanceID]
		switch {
		case id == "":
			id = c.memberID(*m.InstanceID)
			if owner != "" { // returns without its member id
				x.replace(owner, id)
			}
		case owner == "":
			return id, errUnknownMemberID
		case owner != id:
			return id, errFencedInstanceID
		}
	} else if id == "" {
		if id = c.memberID(q.client.ID); m.Version >= 4 {
			return id, errMemberIDRequired
		}
	} else if k.members[id] == nil && claimsPartitions(m) {
		return id, errUnknownMemberID // was removed and does not know it: what it holds may be another's, and it must not commit for that
	}
	if k.members[id] == nil && len(k.members) >= int(c.cfg.ConsumerMaxSize) {
		return id, errGroupMaxSizeReached
	}
	return id, errNone
}

// claimsPartitions says whether a joining member believes that it has partitions: one of the cooperative protocol (KIP-429), as an
// eager one has given all up.
func claimsPartitions(m *kmsg.JoinGroupRequest) bool {
	s, ok := readSubscription(m.Protocols[0].Metadata)
	return ok && len(s.OwnedPartitions) > 0
}

// supports says whether a join is a consumer's, and has an assignor that all classic members have: the group may become
// classic again.
func (k *consumer) supports(m *kmsg.JoinGroupRequest) bool {
	if m.ProtocolType != protocolConsumer || len(m.Protocols) == 0 {
		return false
	}
	for _, p := range m.Protocols {
		if _, ok := readSubscription(p.Metadata); !ok {
			return false
		}
	}
	names := make(map[string]int)
	classic := 0
	for _, id := range k.ids() {
		if b := k.members[id].classic; b != nil && id != m.MemberID {
			classic++
			for _, p := range b.protocols {
				names[p.name]++
			}
		}
	}
	return slices.ContainsFunc(m.Protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return names[p.Name] == classic })
}

// ownedBy is what a joining member says it has. If it had it in another generation, only what it may still have counts: it may have joined
// this one, and not have heard what it is assigned in it.
func (c *Coordinator) ownedBy(s *kmsg.ConsumerMemberMetadata, cur *current) (set []core.Partition) {
	if cur == nil {
		return nil
	}
	set = c.claims(s)
	if s.Version >= 2 && s.Generation != cur.epoch {
		set, _ = split(set, union(cur.assigned, cur.revoking))
	}
	return set
}

// claims is what a subscription says that its member has (KIP-429), as far as the topics are there.
func (c *Coordinator) claims(s *kmsg.ConsumerMemberMetadata) (set []core.Partition) {
	for _, t := range s.OwnedPartitions {
		if id, n, ok := c.topics.Topic(t.Topic); ok {
			for _, p := range t.Partitions {
				if p >= 0 && p < n {
					set = append(set, core.Partition{Topic: id, Index: p})
				}
			}
		}
	}
	return union(set, nil)
}

// checkClassic finds the classic member that a request comes from.
func (k *consumer) checkClassic(id string, instance *string, generation int32) int16 {
	code := k.check(id, instance)
	switch {
	case code != errNone:
		return code
	case k.members[id].classic == nil:
		return errUnknownMemberID
	case generation != k.current[id].epoch:
		return errIllegalGeneration
	}
	return errNone
}

// syncConsumer serves SyncGroup in a group of KIP-848.
func (c *Coordinator) syncConsumer(g *group, q call, m *kmsg.SyncGroupRequest) {
	k := g.consumer
	code := k.checkClassic(m.MemberID, m.InstanceID, m.Generation)
	if code == errNone {
		name := k.members[m.MemberID].classic.protocols[0].name
		cur := k.current[m.MemberID]
		switch {
		case m.ProtocolType != nil && *m.ProtocolType != protocolConsumer, m.Protocol != nil && *m.Protocol != name:
			code = errInconsistentProtocol
		case k.epoch > cur.epoch && cur.state != unrevoked:
			c.wantJoin(g, m.MemberID)
			code = errRebalanceInProgress
		}
	}
	if code != errNone {
		c.answer(q.token, syncError(m, code))
		return
	}
	c.see(g, m.MemberID)
	k.session(m.MemberID).syncBy = core.Never
	resp := m.ResponseKind().(*kmsg.SyncGroupResponse)
	protocolType, p := protocolConsumer, k.members[m.MemberID].classic.protocols[0]
	resp.ProtocolType, resp.Protocol = &protocolType, &p.name
	resp.MemberAssignment = c.classicAssignment(p.metadata, k.current[m.MemberID].assigned)
	c.answer(q.token, resp)
}

// classicAssignment is a set of partitions as a consumer of the classic protocol reads it, in the version of its subscription.
func (c *Coordinator) classicAssignment(metadata []byte, set []core.Partition) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	if s, ok := readSubscription(metadata); ok {
		a.Version = min(s.Version, 3)
	}
	for _, t := range c.described(set).TopicPartitions {
		x := kmsg.NewConsumerMemberAssignmentTopic()
		x.Topic, x.Partitions = t.Topic, t.Partitions
		a.Topics = append(a.Topics, x)
	}
	return a.AppendTo(nil)
}

// wantJoin gives a member that is told to join again its rebalance timeout for it.
func (c *Coordinator) wantJoin(g *group, id string) {
	s := g.consumer.session(id)
	if s.joinBy == core.Never {
		s.joinBy = c.now.Add(g.consumer.members[id].rebalance)
		c.wakeAt(g, s.joinBy)
	}
}

// heartbeatConsumer serves Heartbeat in a group of KIP-848.
func (c *Coordinator) heartbeatConsumer(g *group, q call, m *kmsg.HeartbeatRequest) {
	k := g.consumer
	code := k.checkClassic(m.MemberID, m.InstanceID, m.Generation)
	if code == errNone {
		c.see(g, m.MemberID)
		cur := k.current[m.MemberID]
		if cur.epoch < k.epoch || cur.state == unrevoked || cur.state == unreleased && k.waitsForNothing(m.MemberID) || c.topicsDiffer(k) {
			c.wantJoin(g, m.MemberID)
			code = errRebalanceInProgress
		}
	}
	c.answer(q.token, heartbeatAnswer(m, code))
}

// topicsDiffer says whether topics have changed in a way that asks for a new assignment. Members of the consumer protocol see to that
// with their heartbeats, but the group may have none (group.consumer.migration.policy), and a classic member has to join for it.
func (c *Coordinator) topicsDiffer(k *consumer) bool {
	if k.refresh && len(k.regexes) == 0 && c.hashOf(k) == k.hash {
		k.refresh = false
	}
	return k.refresh && len(k.regexes) == 0
}

// waitsForNothing says whether something that a member waits for can be given to it.
func (k *consumer) waitsForNothing(id string) bool {
	_, missing := split(k.target[id], k.current[id].assigned)
	return slices.ContainsFunc(missing, func(p core.Partition) bool { return k.free(p, id) })
}

// leaveConsumer serves LeaveGroup in a group of KIP-848.
func (c *Coordinator) leaveConsumer(g *group, q call, m *kmsg.LeaveGroupRequest) {
	k := g.consumer
	resp := m.ResponseKind().(*kmsg.LeaveGroupResponse)
	var gone []string
	for _, r := range leaving(m) {
		id, code := r.MemberID, errNone
		if r.InstanceID != nil && id == "" { // an administrator's, who may remove members of either protocol
			if id = k.static[*r.InstanceID]; id == "" {
				code = errUnknownMemberID
			}
		} else if code = k.check(id, r.InstanceID); code == errNone && k.members[id].classic == nil {
			code = errUnknownMemberID
		}
		if code == errNone && slices.Contains(gone, id) {
			code = errUnknownMemberID
		}
		if code == errNone {
			gone = append(gone, id)
		}
		resp.Members = append(resp.Members, left(&r, code))
	}
	if m.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	x := newChange(g)
	if len(gone) > 0 {
		c.removeConsumers(x, gone)
	}
	x.write(c, func() { c.answer(q.token, resp) }, func(code int16) { c.answer(q.token, leaveError(m, code)) })
}
