package sim

import (
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. The leader assigns ranges.

// assignment is what a leader assigns to one member.
type assignment struct {
	id    string
	parts []partOf
}

type partOf struct {
	topic     int
	partition int32
}

func (m *member) workClassic() {
	switch {
	case m.phase == inside && m.giving():
		if !m.asking && m.w.now >= m.beatAt {
			m.heartbeat()
		}
	case m.asking:
	case m.leaving && m.id == "":
		m.die(m.away)
	case m.leaving:
		m.leaveClassic()
	case m.phase == inside && m.news: // everything is given up
		m.phase, m.news = outside, false
		m.join()
	case m.phase == inside && m.said != m.subs:
		m.rejoin()
		m.workClassic()
	case m.phase == inside && m.w.now >= m.beatAt:
		m.heartbeat()
	case m.phase == syncing:
		m.sync()
	case m.phase == outside:
		m.join()
	}
}

func (m *member) join() {
	m.news = false
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = m.mp.Group, m.id, m.instance(), "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(m.mp.Session.Milliseconds()), int32(m.mp.Rebalance.Milliseconds())
	for _, name := range m.assignors() {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, m.metadata(name)
		req.Protocols = append(req.Protocols, p)
	}
	if m.id == "" && req.InstanceID != nil {
		m.usurps()
	}
	subs, reads, sent := m.subs, m.subscription(), m.w.now
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.JoinGroupResponse)
		if !ok {
			m.vanished()
			return
		}
		m.usurping = false
		switch code := resp.ErrorCode; {
		case code == 0:
			m.said, m.reads, m.heard = subs, reads, max(m.heard, sent)
			m.joined(resp)
		case code == kerr.FencedInstanceID.Code && len(m.mates()) > 0:
			m.banished()
		case code == kerr.MemberIDRequired.Code:
			m.id = resp.MemberID
		case code == kerr.UnknownMemberID.Code || code == kerr.FencedInstanceID.Code:
			m.dropAll()
			m.id = ""
			m.calm()
		case code == kerr.RebalanceInProgress.Code:
			m.calm()
		case code == kerr.InconsistentGroupProtocol.Code && m.mp.Rolls: // one who has died, and is not missed yet, offered less
			m.calm()
		case !m.elsewhere(code):
			m.unexpected("JoinGroup", code)
		}
	})
}

func (m *member) joined(resp *kmsg.JoinGroupResponse) {
	m.id, m.epoch, m.phase, m.assignments = resp.MemberID, resp.Generation, syncing, nil
	if resp.Protocol != nil {
		m.protocol = *resp.Protocol
	}
	if !slices.Contains(m.assignors(), m.protocol) {
		m.w.fail("protocol", "%s is told to assign by %q, and offered %q", m.name, m.protocol, m.assignors())
	}
	m.g.joined(resp.LeaderID == "")
	if m.doom != nil {
		m.doom.Mattered++
		m.wasted = max(m.g.leaderEpoch(), 1)
		m.die(-1)
		return
	}
	if resp.LeaderID == m.id && !resp.SkipAssignment {
		if m.assign(resp); m.protocol == cooperativeAssignor {
			m.w.stats.Rolled += b2i(m.mp.Rolls)
			m.transfer(resp)
		}
	} else if resp.LeaderID == m.id && len(m.counts) == 0 { // it leads with what another process assigned, and does not know from what
		m.counts = make([]int32, len(m.plan.Topics))
	}
}

// assign makes the assignment of a generation: each topic's partitions in ranges over the members that read it.
func (m *member) assign(resp *kmsg.JoinGroupResponse) {
	sort.Slice(resp.Members, func(i, j int) bool { return resp.Members[i].MemberID < resp.Members[j].MemberID })
	for i := range resp.Members {
		m.assignments = append(m.assignments, assignment{id: resp.Members[i].MemberID})
	}
	m.counts = m.counts[:0]
	for _, t := range m.plan.Topics {
		n := int32(0)
		if x := m.meta.topics[m.topicName(t)]; x != nil {
			n = int32(len(x.leaders))
		}
		m.counts = append(m.counts, n)
		var readers []int
		for i := range resp.Members {
			var meta kmsg.ConsumerMemberMetadata
			if err := meta.ReadFrom(resp.Members[i].ProtocolMetadata); err != nil {
				m.w.fail("protocol", "%s: the metadata of %s is not what it sent: %v", m.name, resp.Members[i].MemberID, err)
				return
			}
			for _, name := range meta.Topics {
				if name == m.topicName(t) {
					readers = append(readers, i)
				}
			}
		}
		for p := range n {
			if len(readers) > 0 {
				a := &m.assignments[readers[int(p)*len(readers)/int(n)]]
				a.parts = append(a.parts, partOf{t, p})
			}
		}
	}
}

func (m *member) sync() {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.mp.Group, m.id, m.epoch, m.instance()
	kind, protocol := "consumer", m.protocol
	req.ProtocolType, req.Protocol = &kind, &protocol
	for _, a := range m.assignments {
		x := kmsg.NewSyncGroupRequestGroupAssignment()
		x.MemberID, x.MemberAssignment = a.id, m.encode(a.parts)
		req.GroupAssignment = append(req.GroupAssignment, x)
	}
	sent, epoch := m.w.now, m.epoch
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.SyncGroupResponse)
		if m.epoch != epoch { // it has lost its place meanwhile
			return
		}
		if !ok {
			m.phase = outside // the answer is lost, and with it the place: join again
			m.vanished()
			return
		}
		switch code := resp.ErrorCode; {
		case code == 0:
			m.synced(resp.MemberAssignment, sent)
		case code == kerr.RebalanceInProgress.Code:
			m.phase = outside
		case code == kerr.IllegalGeneration.Code:
			m.dropAll()
			m.phase = outside
		case code == kerr.FencedInstanceID.Code && len(m.mates()) > 0:
			m.banished()
		case code == kerr.UnknownMemberID.Code || code == kerr.FencedInstanceID.Code:
			m.dropAll()
			m.id, m.phase = "", outside
		case m.elsewhere(code):
			m.phase = outside
		default:
			m.unexpected("SyncGroup", code)
		}
	})
}

func (m *member) encode(parts []partOf) []byte {
	a := kmsg.ConsumerMemberAssignment{Version: 1}
	for _, p := range parts {
		if n := len(a.Topics); n == 0 || a.Topics[n-1].Topic != m.topicName(p.topic) {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: m.topicName(p.topic)})
		}
		t := &a.Topics[len(a.Topics)-1]
		t.Partitions = append(t.Partitions, p.partition)
	}
	return a.AppendTo(nil)
}

// synced takes the assignment of a generation.
func (m *member) synced(encoded []byte, sent Time) {
	var a kmsg.ConsumerMemberAssignment
	if len(encoded) > 0 {
		if err := a.ReadFrom(encoded); err != nil {
			m.w.fail("protocol", "%s: its assignment is not what the leader sent: %v", m.name, err)
			return
		}
	}
	m.w.stats.Assignments++
	m.phase, m.heard = inside, sent
	m.g.began(m.epoch)
	m.replaces()
	var parts []partOf
	for _, t := range a.Topics {
		topic := -1
		for _, x := range m.reads {
			if m.topicName(x) == t.Topic {
				topic = x
			}
		}
		if topic < 0 {
			m.w.fail("protocol", "%s is assigned the topic %q, which it does not read", m.name, t.Topic)
			return
		}
		for _, p := range t.Partitions {
			parts = append(parts, partOf{topic, p})
		}
	}
	if m.settle(parts) {
		m.clear = sent
	}
	m.ownedAt, m.assignments = m.epoch, nil
	m.beat(int64(m.mp.Heartbeat))
}

func (m *member) heartbeat() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.mp.Group, m.id, m.epoch, m.instance()
	sent := m.w.now
	m.beat(int64(m.mp.Heartbeat))
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.HeartbeatResponse)
		if !ok {
			m.vanished()
			return
		}
		switch code := resp.ErrorCode; {
		case code == 0:
			m.heard = sent
			if !m.leaving {
				m.clear = sent
				m.lookForPartitions()
			}
		case code == kerr.RebalanceInProgress.Code:
			m.heard = sent
			m.rejoin()
		case code == kerr.IllegalGeneration.Code:
			m.fenced("Heartbeat: " + kerr.ErrorForCode(code).Error())
		case code == kerr.FencedInstanceID.Code && len(m.mates()) > 0:
			m.banished()
		case code == kerr.UnknownMemberID.Code || code == kerr.FencedInstanceID.Code:
			m.fenced("Heartbeat: " + kerr.ErrorForCode(code).Error())
			m.id = ""
		case !m.elsewhere(code):
			m.unexpected("Heartbeat", code)
		}
	})
}

// rejoin gives everything up, and then joins the next generation; if it is cooperative it gives up only what it does not want to
// read any more.
func (m *member) rejoin() {
	if m.phase != inside {
		return
	}
	m.news = true
	if !m.cooperates() {
		m.goAll()
		return
	}
	for _, h := range m.held {
		if !h.going && !slices.Contains(m.subscription(), h.topic) {
			h.going = true
			m.beginGiving()
		}
	}
}

// lookForPartitions lets a leader see whether topics have got more partitions than it has assigned.
func (m *member) lookForPartitions() {
	if m.looks++; len(m.counts) == 0 || m.looks%4 != 0 {
		return
	}
	if m.learning { // and perhaps for ever, if a partition has lost its leader for good
		m.compareCounts()
		return
	}
	m.learning = true
	life := m.life
	m.refresh(m.topicNames(), func() {
		if m.life != life {
			return
		}
		m.learning = false
		m.compareCounts()
		m.work() // what was to wait for it
	})
}

func (m *member) compareCounts() {
	for i, t := range m.plan.Topics {
		if x := m.meta.topics[m.topicName(t)]; x != nil && i < len(m.counts) && int32(len(x.leaders)) > m.counts[i] {
			m.rejoin()
		}
	}
}

func (m *member) leaveClassic() {
	m.dropAll()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.mp.Group, m.id
	x := kmsg.NewLeaveGroupRequestMember()
	x.MemberID, x.InstanceID = m.id, m.instance()
	req.Members = append(req.Members, x)
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.LeaveGroupResponse)
		code := int16(0)
		if ok {
			if code = resp.ErrorCode; code == 0 && len(resp.Members) > 0 {
				code = resp.Members[0].ErrorCode
			}
		}
		switch code {
		case 0, kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code,
			kerr.CoordinatorLoadInProgress.Code, kerr.UnknownServerError.Code:
			m.die(m.away)
		default:
			m.unexpected("LeaveGroup", code)
		}
	})
}
