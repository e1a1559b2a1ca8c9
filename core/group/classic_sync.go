package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sync serves SyncGroup: the leader brings the assignment, which all get when its record is committed.
func (c *Coordinator) sync(g *group, q call, m *kmsg.SyncGroupRequest) {
	if g.consumer != nil && len(g.consumer.members) > 0 {
		c.syncConsumer(g, q, m)
		return
	}
	k := &g.classic
	mem, code := k.find(m.MemberID, m.InstanceID)
	switch {
	case code != errNone:
	case m.Generation != k.generation:
		code = errIllegalGeneration
	case m.ProtocolType != nil && *m.ProtocolType != k.protocolType, m.Protocol != nil && *m.Protocol != k.protocol:
		code = errInconsistentProtocol
	case k.state == preparing:
		code = errRebalanceInProgress
	}
	if code != errNone {
		c.answer(q.token, syncError(m, code))
		return
	}
	mem.synced = true
	if k.state == stable {
		c.touch(g, mem)
		c.answer(q.token, k.assigned(mem, m))
		return
	}
	if w := mem.syncing; w != nil { // sent again
		c.answer(w.token, syncError(w.sync, errRebalanceInProgress))
	}
	mem.syncing = &waiter{token: q.token, sync: m}
	c.where[q.token] = g
	if mem.id == k.leader {
		c.assign(g, m)
	}
}

// assign writes the leader's assignment.
func (c *Coordinator) assign(g *group, m *kmsg.SyncGroupRequest) {
	k := &g.classic
	before := make(map[string][]byte, len(k.members))
	for _, id := range k.ids() {
		before[id] = k.members[id].assignment
		k.members[id].assignment = []byte{}
	}
	for _, a := range m.GroupAssignment {
		if mem := k.members[a.MemberID]; mem != nil {
			mem.assignment = append([]byte{}, a.MemberAssignment...) // its memory is not ours
		}
	}
	since := int64(c.wall)
	c.change(g, g.view(), []Record{k.record(g.id, since)}, func() {
		k.state, k.recorded, k.since = stable, true, since
		for _, id := range k.ids() {
			mem := k.members[id]
			if w := mem.syncing; w != nil {
				mem.syncing = nil
				c.touch(g, mem)
				c.answer(w.token, k.assigned(mem, w.sync))
			}
		}
	}, func(code int16) {
		for _, id := range k.ids() {
			k.members[id].assignment = before[id]
		}
		c.releaseSyncs(g, writeError(code))
		if c.leads(g) {
			c.rebalance(g, "the assignment could not be written", k.leader)
		}
	})
}

// assigned is the answer to the SyncGroup of a member of a stable group.
func (k *classic) assigned(mem *member, m *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	resp := m.ResponseKind().(*kmsg.SyncGroupResponse)
	protocolType, protocol := k.protocolType, k.protocol
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &protocolType, &protocol, mem.assignment
	return resp
}

func syncError(m *kmsg.SyncGroupRequest, code int16) *kmsg.SyncGroupResponse {
	resp := m.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.ErrorCode, resp.MemberAssignment = code, []byte{}
	return resp
}

// heartbeat serves Heartbeat.
func (c *Coordinator) heartbeat(g *group, q call, m *kmsg.HeartbeatRequest) {
	if g.consumer != nil && len(g.consumer.members) > 0 {
		c.heartbeatConsumer(g, q, m)
		return
	}
	k := &g.classic
	mem, code := k.find(m.MemberID, m.InstanceID)
	switch {
	case code != errNone:
	case m.Generation != k.generation:
		code = errIllegalGeneration
	default:
		c.touch(g, mem)
		if k.state == preparing {
			code = errRebalanceInProgress
		}
	}
	c.answer(q.token, heartbeatAnswer(m, code))
}

func heartbeatAnswer(m *kmsg.HeartbeatRequest, code int16) *kmsg.HeartbeatResponse {
	resp := m.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = code
	return resp
}

// leave serves LeaveGroup: of one member, or from version 3 on of several, also by their instance ids.
func (c *Coordinator) leave(g *group, q call, m *kmsg.LeaveGroupRequest) {
	if g.consumer != nil && len(g.consumer.members) > 0 {
		c.leaveConsumer(g, q, m)
		return
	}
	resp := m.ResponseKind().(*kmsg.LeaveGroupResponse)
	k := &g.classic
	var gone []*member
	for _, r := range leaving(m) {
		mem, code := k.leaver(&r)
		if mem != nil {
			k.remove(mem) // so that a second request for it does not find it
			gone = append(gone, mem)
		}
		resp.Members = append(resp.Members, left(&r, code))
	}
	for _, mem := range gone {
		c.release(mem, errUnknownMemberID)
	}
	if m.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	c.answer(q.token, resp)
	if len(gone) > 0 && k.state != empty {
		c.rebalance(g, "a member left", gone[0].id)
	} else {
		c.maybeCompleteJoin(g)
	}
}

// leaving lists the members that a request wants to leave.
func leaving(m *kmsg.LeaveGroupRequest) []kmsg.LeaveGroupRequestMember {
	if m.Version >= 3 {
		return m.Members
	}
	r := kmsg.NewLeaveGroupRequestMember()
	r.MemberID = m.MemberID
	return []kmsg.LeaveGroupRequestMember{r}
}

// leaver finds the member that is to leave; for an id that was only handed out, nil without an error.
func (k *classic) leaver(r *kmsg.LeaveGroupRequestMember) (*member, int16) {
	if r.InstanceID != nil && r.MemberID == "" { // an administrator does not know the member id
		if m := k.members[k.static[*r.InstanceID]]; m != nil {
			return m, errNone
		}
		return nil, errUnknownMemberID
	}
	if _, ok := k.pending[r.MemberID]; ok && r.InstanceID == nil {
		delete(k.pending, r.MemberID)
		return nil, errNone
	}
	return k.find(r.MemberID, r.InstanceID)
}

func left(r *kmsg.LeaveGroupRequestMember, code int16) kmsg.LeaveGroupResponseMember {
	x := kmsg.NewLeaveGroupResponseMember()
	x.MemberID, x.InstanceID, x.ErrorCode = r.MemberID, r.InstanceID, code
	return x
}

func leaveError(m *kmsg.LeaveGroupRequest, code int16) *kmsg.LeaveGroupResponse {
	resp := m.ResponseKind().(*kmsg.LeaveGroupResponse)
	resp.ErrorCode = code
	return resp
}
