package sim

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cooperative rebalancing (KIP-429): a member keeps what it has while the group rebalances, and says in its metadata what that is
// and of which generation. What is to go to another member is given up after one rebalance, and assigned by the next.

// metadata is the subscription with which the member joins, for one of the assignors that it offers.
func (m *member) metadata(assignor string) []byte {
	s := kmsg.NewConsumerMemberMetadata()
	s.Version, s.Topics = 1, m.wanted()
	if assignor == cooperativeAssignor {
		s.Version, s.Generation = 2, m.ownedAt
		for _, t := range m.plan.Topics {
			x := kmsg.NewConsumerMemberMetadataOwnedPartition()
			x.Topic = m.topicName(t)
			for _, h := range m.held {
				if h.topic == t {
					x.Partitions = append(x.Partitions, h.partition)
				}
			}
			if len(x.Partitions) > 0 {
				s.OwnedPartitions = append(s.OwnedPartitions, x)
			}
		}
	}
	return s.AppendTo(nil)
}

// claim is who says that it has a partition, and since which generation.
type claim struct {
	id         string
	generation int32
}

// transfer takes out of the assignment that a leader has made what another member still has: that one learns by this rebalance
// that it has to give it up.
func (m *member) transfer(resp *kmsg.JoinGroupResponse) {
	claims := map[partOf]claim{}
	for i := range resp.Members {
		var s kmsg.ConsumerMemberMetadata
		if s.ReadFrom(resp.Members[i].ProtocolMetadata) != nil {
			return // assign has said so
		}
		for _, o := range s.OwnedPartitions {
			for _, t := range m.plan.Topics {
				for _, p := range o.Partitions {
					k := partOf{t, p}
					if was, ok := claims[k]; m.topicName(t) == o.Topic && (!ok || s.Generation > was.generation) {
						claims[k] = claim{resp.Members[i].MemberID, s.Generation}
					}
				}
			}
		}
	}
	for i := range m.assignments {
		a := &m.assignments[i]
		var parts []partOf
		for _, p := range a.parts {
			if by, ok := claims[p]; !ok || by.id == a.id {
				parts = append(parts, p)
			}
		}
		a.parts = parts
	}
}

// settle takes an assignment: what is new is taken, and what is not in it is given up, whereupon the member joins again. It says
// whether there is nothing of that kind.
func (m *member) settle(parts []partOf) bool {
	has := map[partOf]bool{}
	for _, p := range parts {
		has[p] = true
	}
	clean := true
	for _, h := range m.held {
		if has[partOf{h.topic, h.partition}] {
			m.g.has(m, h)
			continue
		}
		clean, m.news, h.going = false, true, true
		m.beginGiving()
	}
	for _, p := range parts {
		if m.find(p.topic, p.partition) == nil {
			m.gain(p.topic, p.partition)
		}
	}
	return clean
}

// mayCommit says whether the member may commit: it is in the group, or keeps what it has while it waits for the next generation.
func (m *member) mayCommit() bool {
	return m.phase == inside || m.phase == outside && m.cooperates() && !m.mp.Modern && m.id != "" && m.epoch == m.ownedAt && len(m.held) > 0
}
