package group

import (
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerHeartbeatRequest takes a ConsumerGroupHeartbeat: how members of KIP-848 join, say what they have, learn what they
// are to have, and leave.
func (c *Coordinator) consumerHeartbeatRequest(q call, m *kmsg.ConsumerGroupHeartbeatRequest) {
	c.one(q, m, m.Group, func(code int16) kmsg.Response { return consumerError(m, code, "") }, func(g *group) {
		if code, why := c.consumerHeartbeat(g, q, m); code != errNone {
			c.answer(q.token, consumerError(m, code, why))
		}
	})
}

func consumerError(m *kmsg.ConsumerGroupHeartbeatRequest, code int16, why string) *kmsg.ConsumerGroupHeartbeatResponse {
	resp := m.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	resp.ErrorCode = code
	if why != "" {
		resp.ErrorMessage = &why
	}
	return resp
}

// checkConsumer checks what a request says by itself.
func (c *Coordinator) checkConsumer(m *kmsg.ConsumerGroupHeartbeatRequest) (int16, string) {
	isEmpty := func(s *string) bool { return s != nil && *s == "" }
	subscribes := m.SubscribedTopicNames != nil || m.SubscribedTopicRegex != nil
	switch {
	case m.MemberID == "" && (m.Version >= 1 || m.MemberEpoch != 0):
		return errInvalidRequest, "MemberId can't be empty."
	case tooLong(&m.MemberID, m.InstanceID, m.RackID, m.SubscribedTopicRegex):
		return errInvalidRequest, "A name is too long."
	case isEmpty(m.InstanceID):
		return errInvalidRequest, "InstanceId can't be empty."
	case isEmpty(m.RackID):
		return errInvalidRequest, "RackId can't be empty."
	case m.MemberEpoch < leftForNow:
		return errInvalidRequest, "MemberEpoch is invalid."
	case m.MemberEpoch == leftForNow && m.InstanceID == nil:
		return errInvalidRequest, "InstanceId can't be null."
	case m.MemberEpoch == 0 && m.RebalanceTimeoutMillis < 0:
		return errInvalidRequest, "RebalanceTimeoutMs must be provided in first request."
	case m.MemberEpoch == 0 && (m.Topics == nil || len(m.Topics) > 0):
		return errInvalidRequest, "TopicPartitions must be empty when (re-)joining."
	case m.MemberEpoch == 0 && !subscribes:
		return errInvalidRequest, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
	case m.ServerAssignor != nil && !slices.Contains(c.cfg.Assignors, *m.ServerAssignor):
		return errUnsupportedAssignor, "ServerAssignor " + *m.ServerAssignor + " is not supported."
	}
	if m.SubscribedTopicRegex != nil && *m.SubscribedTopicRegex != "" {
		if err := checkPattern(*m.SubscribedTopicRegex); err != nil {
			return errInvalidRegularExpression, "SubscribedTopicRegex is not valid: " + err.Error()
		}
	}
	return errNone, ""
}

// consumerHeartbeat serves a ConsumerGroupHeartbeat, or returns why not.
func (c *Coordinator) consumerHeartbeat(g *group, q call, m *kmsg.ConsumerGroupHeartbeatRequest) (int16, string) {
	if code, why := c.checkConsumer(m); code != errNone {
		return code, why
	}
	if m.MemberEpoch < 0 {
		return c.consumerLeave(g, q, m)
	}
	x := newChange(g)
	if g.consumer == nil {
		if m.MemberEpoch > 0 {
			if _, code := g.classic.find(m.MemberID, m.InstanceID); code == errFencedInstanceID {
				return code, "" // told that it is unknown it would take its place back, and so would the other, for ever
			}
			return errUnknownMemberID, "Group " + g.id + " has no members."
		}
		if code, why := c.toConsumer(x); code != errNone {
			return code, why
		}
	}
	id, code, why := c.identify(x, m)
	if code != errNone {
		x.undo()
		return code, why
	}
	k := g.consumer
	before := k.current[id]
	owned := ownedPartitions(m.Topics)
	c.place(x, id, wanted(k.members[id], q.client, m), owned, m.Topics != nil)
	cur := k.current[id]
	full := m.MemberEpoch == 0 || before == nil || m.MemberEpoch != before.epoch || // what was said last may not have been heard
		m.RebalanceTimeoutMillis >= 0 && m.Topics != nil && (m.SubscribedTopicNames != nil || m.SubscribedTopicRegex != nil) ||
		cur.state == unrevoked
	changed := before == nil || !slices.Equal(before.assigned, cur.assigned)
	x.write(c, func() {
		c.see(g, id)
		if cur != before {
			c.revokeTimer(g, id)
		}
		resp := m.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.MemberID, resp.MemberEpoch = &id, cur.epoch
		resp.HeartbeatIntervalMillis = int32(c.cfg.ConsumerHeartbeat.Milliseconds())
		if full || changed {
			resp.Assignment = assignmentOf(cur.assigned)
		}
		c.answer(q.token, resp)
	}, func(code int16) { c.answer(q.token, consumerError(m, code, "")) })
	return errNone, ""
}

// identify finds the member that a request comes from, or lets it join, and checks its epoch (rule 20).
func (c *Coordinator) identify(x *change, m *kmsg.ConsumerGroupHeartbeatRequest) (string, int16, string) {
	k, id := x.g.consumer, m.MemberID
	if m.MemberEpoch == 0 {
		if id == "" {
			id = c.newID()
		}
		return c.admit(x, id, m.InstanceID)
	}
	if code := k.check(id, m.InstanceID); code != errNone {
		return id, code, ""
	}
	switch cur := k.current[id]; {
	case m.MemberEpoch == cur.epoch:
		return id, errNone, ""
	case m.MemberEpoch == cur.previous && cur.epoch != leftForNow && m.Topics != nil && subset(ownedPartitions(m.Topics), cur.assigned):
		return id, errNone, "" // the answer that said the new epoch was lost
	}
	return id, errFencedMemberEpoch, "The member epoch is not that of the member, which must give up its partitions and join again."
}

// check finds a member by its id, and by its instance id if it says one.
func (k *consumer) check(id string, instance *string) int16 {
	if instance != nil {
		owner, ok := k.static[*instance]
		if !ok {
			return errUnknownMemberID
		}
		if owner != id {
			return errFencedInstanceID
		}
	}
	if k.members[id] == nil {
		return errUnknownMemberID
	}
	return errNone
}

// admit lets a member join, which may be there already, or take the place of a static member that left for now, or of one of the classic
// protocol, which does not say so when it leaves: its process has been started again with the new protocol.
func (c *Coordinator) admit(x *change, id string, instance *string) (string, int16, string) {
	k := x.g.consumer
	if instance != nil {
		if owner := k.static[*instance]; owner != "" && owner != id {
			if k.current[owner].epoch != leftForNow && k.members[owner].classic == nil {
				return id, errUnreleasedInstanceID, "Another member has the instance id " + *instance + "."
			}
			x.replace(owner, id)
		}
	}
	if k.members[id] == nil && len(k.members) >= int(c.cfg.ConsumerMaxSize) {
		return id, errGroupMaxSizeReached, "The group has as many members as it may."
	}
	if cur := k.current[id]; cur != nil && cur.epoch == leftForNow {
		x.current(id, returned(cur))
	}
	return id, errNone, ""
}

// returned is what a static member has that comes back.
func returned(cur *current) *current { return &current{assigned: cur.assigned} }

// replace gives a member's place, with all it has, to another id.
func (x *change) replace(old, id string) {
	k := x.g.consumer
	m, cur, target := k.members[old], k.current[old], k.target[old]
	x.remove(old)
	x.member(id, m)
	x.target(id, target)
	x.current(id, returned(cur))
	x.after = append(x.after, func() { delete(k.sessions, old) })
}

// wanted is what a member wants after a heartbeat, in which null is what has not changed.
func wanted(old *subscriber, client Client, m *kmsg.ConsumerGroupHeartbeatRequest) *subscriber {
	s := subscriber{}
	if old != nil {
		s = *old
	}
	s.clientID, s.host, s.classic = client.ID, client.Host, nil
	if m.InstanceID != nil {
		s.instance = m.InstanceID
	}
	if m.RackID != nil {
		s.rack = m.RackID
	}
	if m.RebalanceTimeoutMillis >= 0 {
		s.rebalance = millis(m.RebalanceTimeoutMillis)
	}
	if m.SubscribedTopicNames != nil {
		s.topics = sorted(m.SubscribedTopicNames)
	}
	if m.SubscribedTopicRegex != nil {
		if s.regex = m.SubscribedTopicRegex; *s.regex == "" {
			s.regex = nil
		}
	}
	if m.ServerAssignor != nil {
		s.assignor = m.ServerAssignor
	}
	return &s
}

// consumerLeave serves the heartbeat of a member that leaves, for good or, if it is static, for now.
func (c *Coordinator) consumerLeave(g *group, q call, m *kmsg.ConsumerGroupHeartbeatRequest) (int16, string) {
	if g.consumer == nil {
		return errUnknownMemberID, "Group " + g.id + " has no members."
	}
	k := g.consumer
	if code := k.check(m.MemberID, m.InstanceID); code != errNone {
		return code, ""
	}
	x := newChange(g)
	if m.MemberEpoch == leftForNow {
		cur := k.current[m.MemberID]
		x.current(m.MemberID, &current{epoch: leftForNow, previous: cur.epoch, assigned: cur.assigned})
	} else {
		c.removeConsumers(x, []string{m.MemberID})
	}
	x.write(c, func() {
		if m.MemberEpoch == leftForNow { // it has given up all that it was to
			c.revokeTimer(g, m.MemberID)
		}
		resp := m.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.MemberID, resp.MemberEpoch = &m.MemberID, m.MemberEpoch
		c.answer(q.token, resp)
	}, func(code int16) { c.answer(q.token, consumerError(m, code, "")) })
	return errNone, ""
}

// removeConsumers takes members out of the group.
func (c *Coordinator) removeConsumers(x *change, ids []string) {
	k := x.g.consumer
	for _, id := range ids {
		x.remove(id)
		x.after = append(x.after, func() { delete(k.sessions, id) })
	}
	x.dropRegexes()
	x.epoch(k.epoch+1, c.hashOf(k), c.wall)
	c.maybeToClassic(x)
}

// retryRemoval is when members are removed again whose removal could not be written.
const retryRemoval = time.Second

// tickConsumer removes members whose time is up: silent ones, ones that do not give up what they are to, and ones of the classic
// protocol that do not go on with a rebalance.
func (c *Coordinator) tickConsumer(g *group) {
	k := g.consumer
	if k == nil {
		return
	}
	var late []string
	for _, id := range k.ids() {
		s := k.session(id)
		why := ""
		switch {
		case s.expires <= c.now:
			why = "its session ended"
		case s.revokeBy <= c.now:
			why = "it did not give up its partitions in time"
		case s.joinBy <= c.now:
			why = "it did not call JoinGroup in time"
		case s.syncBy <= c.now:
			why = "it did not call SyncGroup in time"
		default:
			continue
		}
		c.log(levelInfo, "member is removed", "group", g.id, "member", id, "reason", why)
		late = append(late, id)
	}
	if len(late) == 0 {
		return
	}
	x := newChange(g)
	c.removeConsumers(x, late)
	x.write(c, func() {}, func(int16) {
		for _, id := range late {
			*k.session(id) = session{c.now.Add(retryRemoval), core.Never, core.Never, core.Never}
		}
		c.wakeAt(g, k.deadline())
	})
}

// revokeTimer gives a member that has to give up partitions its rebalance timeout for it.
func (c *Coordinator) revokeTimer(g *group, id string) {
	k := g.consumer
	cur := k.current[id]
	if cur == nil {
		return // another has its place by now
	}
	s := k.session(id)
	s.revokeBy = core.Never
	if cur.state == unrevoked {
		s.revokeBy = c.now.Add(k.members[id].rebalance)
		c.wakeAt(g, s.revokeBy)
	}
}

// ownedPartitions is what a request says that its sender has, as a sorted set.
func ownedPartitions(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) (set []core.Partition) {
	for _, t := range topics {
		for _, p := range t.Partitions {
			set = append(set, core.Partition{Topic: t.TopicID, Index: p})
		}
	}
	return union(set, nil)
}

func assignmentOf(set []core.Partition) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for _, list := range byTopic(set) {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID = list[0].Topic
		for _, p := range list {
			t.Partitions = append(t.Partitions, p.Index)
		}
		a.Topics = append(a.Topics, t)
	}
	return &a
}
