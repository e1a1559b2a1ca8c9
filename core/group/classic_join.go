package group

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// maxPending bounds the member ids of a group that were handed out and have not come back.
	maxPending = 1000
	// pendingHold is how long a rebalance waits for an id that was just handed out: a client comes back with it at once.
	pendingHold = time.Second
)

// join serves JoinGroup.
func (c *Coordinator) join(g *group, q call, m *kmsg.JoinGroupRequest) {
	session := millis(m.SessionTimeoutMillis)
	if session < c.cfg.MinSession || session > c.cfg.MaxSession {
		c.answer(q.token, joinError(m, m.MemberID, errInvalidSessionTimeout))
		return
	}
	if code := checkNames(m); code != errNone {
		c.answer(q.token, joinError(m, "", code))
		return
	}
	if g.consumer != nil && len(g.consumer.members) > 0 {
		c.joinConsumer(g, q, m)
		return
	}
	if code := c.mayJoin(g, m); code != errNone {
		id := m.MemberID
		if code == errGroupMaxSizeReached {
			id = ""
		}
		c.answer(q.token, joinError(m, id, code))
		return
	}
	if g.consumer != nil { // empty: it becomes a classic group
		c.emptyToClassic(g, func() { c.joinClassic(g, q, m) },
			func(code int16) { c.answer(q.token, joinError(m, m.MemberID, writeError(code))) })
		return
	}
	c.joinClassic(g, q, m)
}

// checkNames checks that what a member brings fits into a record.
func checkNames(m *kmsg.JoinGroupRequest) int16 {
	if tooLong(&m.MemberID, m.InstanceID) {
		return errInvalidRequest
	}
	names := []*string{&m.ProtocolType}
	for i := range m.Protocols {
		names = append(names, &m.Protocols[i].Name)
	}
	if tooLong(names...) {
		return errInconsistentProtocol
	}
	return errNone
}

// mayJoin checks what depends on the group alone, whoever joins.
func (c *Coordinator) mayJoin(g *group, m *kmsg.JoinGroupRequest) int16 {
	k := &g.classic
	if !k.supports(m.ProtocolType, m.Protocols) {
		return errInconsistentProtocol
	}
	mem := k.members[m.MemberID]
	switch {
	case mem != nil && (k.state != preparing || mem.joined != nil):
		return errNone
	case m.InstanceID != nil && k.static[*m.InstanceID] != "": // takes a member's place
		return errNone
	}
	size := len(k.members)
	if k.state == preparing { // those that have joined count: the others may never return
		size = k.waiting()
	}
	if size >= int(c.cfg.MaxSize) {
		return errGroupMaxSizeReached
	}
	return errNone
}

// waiting counts the members that wait in JoinGroup.
func (k *classic) waiting() (n int) {
	for _, m := range k.members {
		if m.joined != nil {
			n++
		}
	}
	return n
}

func (c *Coordinator) joinClassic(g *group, q call, m *kmsg.JoinGroupRequest) {
	k := &g.classic
	if m.MemberID == "" {
		c.joinUnknown(g, q, m)
		return
	}
	if _, ok := k.pending[m.MemberID]; ok {
		delete(k.pending, m.MemberID)
		if m.InstanceID == nil {
			c.addAndRebalance(g, q, m, m.MemberID)
			return
		}
	}
	mem, code := k.find(m.MemberID, m.InstanceID)
	if code != errNone {
		c.answer(q.token, joinError(m, m.MemberID, code))
		return
	}
	c.rejoin(g, q, m, mem)
}

// joinUnknown serves a join without member id.
func (c *Coordinator) joinUnknown(g *group, q call, m *kmsg.JoinGroupRequest) {
	k := &g.classic
	if m.InstanceID != nil {
		id := c.memberID(*m.InstanceID)
		if old := k.members[k.static[*m.InstanceID]]; old != nil {
			c.replaceStatic(g, q, m, old, id)
			return
		}
		c.addAndRebalance(g, q, m, id)
		return
	}
	id := c.memberID(q.client.ID)
	if m.Version < 4 {
		c.addAndRebalance(g, q, m, id)
		return
	}
	if len(k.pending) >= maxPending {
		delete(k.pending, k.oldestPending())
	}
	p := pendingID{c.now.Add(millis(m.SessionTimeoutMillis)), c.now.Add(pendingHold)}
	k.pending[id] = p
	c.wakeAt(g, core.Earlier(p.expires, p.holds))
	c.answer(q.token, joinError(m, id, errMemberIDRequired))
}

// oldestPending returns the pending id that expires first.
func (k *classic) oldestPending() (oldest string) {
	for _, id := range slices.Sorted(maps.Keys(k.pending)) {
		if oldest == "" || k.pending[id].expires < k.pending[oldest].expires {
			oldest = id
		}
	}
	return oldest
}

func (c *Coordinator) addAndRebalance(g *group, q call, m *kmsg.JoinGroupRequest, id string) {
	k := &g.classic
	if len(k.members) == 0 {
		k.protocolType = m.ProtocolType
	}
	mem := &member{id: id, instance: m.InstanceID, expires: c.now.Add(millis(m.SessionTimeoutMillis))}
	k.add(mem)
	c.await(g, mem, q, m)
	if k.state == preparing && k.notBefore != core.Never { // more may come, but nobody waits longer than its own timeout
		k.notBefore = core.Earlier(c.now.Add(c.cfg.InitialDelay), k.joinBy)
	}
	c.rebalance(g, "a member joined", id)
}

// await takes from a join what a member brings, and lets it wait.
func (c *Coordinator) await(g *group, mem *member, q call, m *kmsg.JoinGroupRequest) {
	mem.clientID, mem.host = q.client.ID, q.client.Host
	mem.session, mem.rebalance = millis(m.SessionTimeoutMillis), millis(m.RebalanceTimeoutMillis)
	if m.Version < 1 {
		mem.rebalance = mem.session
	}
	mem.rebalance = max(mem.rebalance, 0)
	mem.protocols = protocolsOf(m.Protocols)
	c.release(mem, errRebalanceInProgress)
	mem.joined = &waiter{token: q.token, join: m}
	c.where[q.token] = g
}

// protocolsOf copies what a request says: its memory is not ours.
func protocolsOf(from []kmsg.JoinGroupRequestProtocol) []protocol {
	out := make([]protocol, len(from))
	for i, p := range from {
		out[i] = protocol{p.Name, append([]byte{}, p.Metadata...)}
	}
	return out
}

// release answers the requests of a member that wait.
func (c *Coordinator) release(mem *member, code int16) {
	if w := mem.joined; w != nil {
		mem.joined = nil
		c.answer(w.token, joinError(w.join, mem.id, code))
	}
	if w := mem.syncing; w != nil {
		mem.syncing = nil
		c.answer(w.token, syncError(w.sync, code))
	}
}

// rejoin serves a join of a member.
func (c *Coordinator) rejoin(g *group, q call, m *kmsg.JoinGroupRequest, mem *member) {
	k := &g.classic
	same := mem.matches(m.Protocols)
	switch {
	case k.state == preparing:
		c.await(g, mem, q, m)
		c.maybeCompleteJoin(g)
	case k.state == completing && same, // the answer was lost
		k.state == stable && same && mem.id != k.leader: // a leader that joins again wants a new assignment
		c.touch(g, mem)
		c.answer(q.token, k.joined(mem, m))
	default:
		c.await(g, mem, q, m)
		c.rebalance(g, "a member joined again", mem.id)
	}
}

// replaceStatic lets a static member that comes back without its member id take its own place (KIP-345). If it is the same as
// before, the group does not notice.
func (c *Coordinator) replaceStatic(g *group, q call, m *kmsg.JoinGroupRequest, old *member, id string) {
	k := &g.classic
	c.release(old, errFencedInstanceID)
	mem := *old
	mem.id = id
	was, led := *old, k.leader == old.id
	swap := func(from, to *member) {
		delete(k.members, from.id)
		k.members[to.id] = to
		k.static[*m.InstanceID] = to.id
		if led {
			k.leader = to.id
		}
	}
	swap(old, &mem)
	quiet := k.state == stable && sameSubscription(k, old, m)
	c.await(g, &mem, q, m)
	if !quiet || k.choose() != k.protocol {
		if k.state == preparing {
			c.maybeCompleteJoin(g)
		} else {
			c.rebalance(g, "a static member returned with another subscription", id)
		}
		return
	}
	mem.joined = nil
	delete(c.where, q.token)
	c.touch(g, &mem)
	c.change(g, g.view(), []Record{k.record(g.id, int64(c.wall))}, func() {
		resp := k.joined(&mem, m)
		if led && m.Version >= 9 { // it leads, and is not to assign
			resp.SkipAssignment = true
		} else if led { // it is not to assign, so it must not believe that it leads
			resp.LeaderID, resp.Members = was.id, nil
		}
		c.answer(q.token, resp)
	}, func(code int16) {
		swap(&mem, &was)
		c.answer(q.token, joinError(m, id, writeError(code)))
	})
}

// sameSubscription says whether a returning member reads the same topics; of what is not a consumer's only the choice of the
// assignor can tell.
func sameSubscription(k *classic, old *member, m *kmsg.JoinGroupRequest) bool {
	if k.protocolType != protocolConsumer {
		return true
	}
	i := slices.IndexFunc(m.Protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == k.protocol })
	if i < 0 {
		return false
	}
	a, b := old.metadataOf(k.protocol), m.Protocols[i].Metadata
	x, ok1 := readSubscription(a)
	y, ok2 := readSubscription(b)
	if !ok1 || !ok2 {
		return bytes.Equal(a, b)
	}
	slices.Sort(x.Topics)
	slices.Sort(y.Topics)
	return slices.Equal(x.Topics, y.Topics)
}

// joined is the answer to the join of a member in the current generation.
func (k *classic) joined(mem *member, m *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	resp := m.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.Generation, resp.LeaderID, resp.MemberID = k.generation, k.leader, mem.id
	protocolType, protocol := k.protocolType, k.protocol
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	resp.Members = []kmsg.JoinGroupResponseMember{}
	if mem.id != k.leader {
		return resp
	}
	for _, id := range k.ids() {
		x := kmsg.NewJoinGroupResponseMember()
		x.MemberID, x.InstanceID, x.ProtocolMetadata = id, k.members[id].instance, k.members[id].metadataOf(k.protocol)
		resp.Members = append(resp.Members, x)
	}
	return resp
}

func joinError(m *kmsg.JoinGroupRequest, id string, code int16) *kmsg.JoinGroupResponse {
	resp := m.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode, resp.MemberID, resp.Generation = code, id, -1
	return resp
}

// touch begins a member's session anew.
func (c *Coordinator) touch(g *group, mem *member) {
	mem.expires = c.now.Add(mem.session)
	c.wakeAt(g, mem.expires)
}
