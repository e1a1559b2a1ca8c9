package sim

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The protocol of KIP-848: one request, by which a member joins, says what it has, hears what it is to have, and leaves.

// Member epochs that say that a member leaves: for good, or, if it is static, for now.
const (
	leaves       = -1
	leavesForNow = -2
)

func (m *member) workModern() {
	giving := m.giving()
	switch {
	case m.asking:
	case m.leaving && !giving:
		m.leaveModern()
	case m.phase == outside:
		m.epoch, m.whole = 0, true
		m.usurps()
		m.beatModern()
	case m.news || m.w.now >= m.beatAt || m.said != m.subs:
		m.beatModern()
	}
}

func (m *member) beatModern() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = m.mp.Group, m.id, m.epoch, m.instance()
	req.RebalanceTimeoutMillis = -1
	if m.whole {
		req.RebalanceTimeoutMillis = int32(m.mp.Rebalance.Milliseconds())
	}
	subs := m.subs
	reads := m.reads
	if m.whole || m.said != subs {
		req.SubscribedTopicNames, req.SubscribedTopicRegex = m.patterns()
		reads = m.subscription()
	}
	if m.whole || m.news {
		req.Topics = m.owned()
	}
	m.news, m.whole = false, false
	sent := m.w.now
	m.beat(int64(m.mp.Heartbeat))
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.ConsumerGroupHeartbeatResponse)
		if !ok {
			m.whole = true // what was said may not have been heard
			m.vanished()
			return
		}
		m.usurping = false
		switch code := resp.ErrorCode; {
		case code == 0:
			m.said, m.reads, m.barred = subs, reads, false
			m.told(resp, sent)
		case code == kerr.GroupIDNotFound.Code && m.phase == outside && !m.g.upgrades:
			m.barred = true
			m.calm()
		case code == kerr.FencedInstanceID.Code && len(m.mates()) > 0:
			m.banished()
		case code == kerr.UnknownMemberID.Code || code == kerr.FencedMemberEpoch.Code:
			m.fenced("ConsumerGroupHeartbeat: " + kerr.ErrorForCode(code).Error())
		case code == kerr.UnreleasedInstanceID.Code && m.phase == outside: // its former life has not expired
			m.calm()
		case m.elsewhere(code):
			m.whole = true
		default:
			m.unexpected("ConsumerGroupHeartbeat", code)
		}
	})
}

// owned is what the member has, as heartbeats say it: what it is about to give up it still has.
func (m *member) owned() []kmsg.ConsumerGroupHeartbeatRequestTopic {
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range m.plan.Topics {
		x := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		x.TopicID = m.names[t]
		for _, h := range m.held {
			if h.topic == t {
				x.Partitions = append(x.Partitions, h.partition)
			}
		}
		if len(x.Partitions) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// told takes what the coordinator says.
func (m *member) told(resp *kmsg.ConsumerGroupHeartbeatResponse, sent Time) {
	m.heard = sent
	if resp.MemberID != nil && *resp.MemberID != "" {
		m.id = *resp.MemberID
	}
	if resp.MemberEpoch < m.epoch {
		m.w.fail("group", "%s: its member epoch goes back from %d to %d", m.name, m.epoch, resp.MemberEpoch)
		return
	}
	m.epoch = resp.MemberEpoch
	if m.phase == outside {
		m.replaces()
	}
	m.phase = inside
	if resp.Assignment != nil && !m.leaving {
		m.take(resp.Assignment)
	}
	if !slices.ContainsFunc(m.held, func(h *holding) bool { return h.going }) {
		m.clear = sent
	}
	if m.doom != nil && m.news {
		m.doom.Mattered++
		m.wasted = max(m.g.leaderEpoch(), 1)
		m.die(-1)
	}
}

// take begins to give up what is not assigned any more, and takes what is new.
func (m *member) take(a *kmsg.ConsumerGroupHeartbeatResponseAssignment) {
	m.w.stats.Assignments++
	has := map[partOf]bool{}
	var all []partOf
	for i := range a.Topics {
		topic, ok := m.ids[a.Topics[i].TopicID]
		if !ok || !slices.Contains(m.reads, topic) {
			m.w.fail("protocol", "%s is assigned a topic that it does not read", m.name)
			return
		}
		for _, p := range a.Topics[i].Partitions {
			all = append(all, partOf{topic, p})
			has[partOf{topic, p}] = true
		}
	}
	for _, h := range m.held {
		if !has[partOf{h.topic, h.partition}] && !h.going {
			h.going = true
			m.beginGiving()
		} else if has[partOf{h.topic, h.partition}] && h.going {
			h.going = false
		}
	}
	for _, p := range all {
		if m.find(p.topic, p.partition) == nil {
			m.gain(p.topic, p.partition)
			m.news = true
		}
	}
}

func (m *member) leaveModern() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID, req.RebalanceTimeoutMillis = m.mp.Group, m.id, leaves, m.instance(), -1
	if req.InstanceID != nil && m.chance.Chance(700) {
		req.MemberEpoch = leavesForNow
	}
	if m.id == "" {
		m.die(m.away)
		return
	}
	m.askAlone(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.ConsumerGroupHeartbeatResponse)
		code := int16(0)
		if ok {
			code = resp.ErrorCode
		}
		switch code {
		case 0, kerr.UnknownMemberID.Code, kerr.FencedMemberEpoch.Code, kerr.FencedInstanceID.Code, kerr.NotCoordinator.Code,
			kerr.CoordinatorNotAvailable.Code, kerr.CoordinatorLoadInProgress.Code, kerr.UnknownServerError.Code:
			m.die(m.away)
		default:
			m.unexpected("ConsumerGroupHeartbeat of one that leaves", code)
		}
	})
}
