package group

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newMember is a client's side of a member of KIP-848, as franz-go and the Java client are: it says all at first and after an
// error, what has changed later, and gives up partitions before it takes what is new.
type newMember struct {
	w        *world
	group    string
	id       string
	instance *string
	epoch    int32
	topics   []string
	regex    *string
	assignor *string
	timeout  time.Duration
	owned    []core.Partition // what it has, sorted
	slow     bool             // does not give up anything
	full     bool             // says all in its next heartbeat
	tell     bool             // says what it has in its next heartbeat
}

func (w *world) consumer(group string, topics ...string) *newMember {
	w.made++
	return &newMember{
		w: w, group: group, id: fmt.Sprintf("m%02d", w.made), topics: topics, full: true, timeout: time.Minute,
	}
}

func (m *newMember) request() *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.InstanceID = 1, m.group, m.id, m.epoch, m.instance
	if m.full {
		r.RebalanceTimeoutMillis, r.ServerAssignor, r.SubscribedTopicRegex = int32(m.timeout.Milliseconds()), m.assignor, m.regex
		r.SubscribedTopicNames = append([]string{}, m.topics...)
	}
	if m.full || m.tell {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, list := range byTopic(m.owned) {
			t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			t.TopicID = list[0].Topic
			for _, p := range list {
				t.Partitions = append(t.Partitions, p.Index)
			}
			r.Topics = append(r.Topics, t)
		}
	}
	return r
}

// beat sends a heartbeat and does what the answer says.
func (m *newMember) beat() int16 {
	a := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.w, m.request())
	return m.take(a)
}

func (m *newMember) take(a *kmsg.ConsumerGroupHeartbeatResponse) int16 {
	switch a.ErrorCode {
	case errNone:
	case errFencedMemberEpoch, errUnknownMemberID:
		m.epoch, m.owned, m.full = 0, nil, true
		return a.ErrorCode
	default:
		m.full = true
		return a.ErrorCode
	}
	m.epoch, m.full, m.tell = a.MemberEpoch, false, false
	if a.Assignment == nil {
		return errNone
	}
	var set []core.Partition
	for _, t := range a.Assignment.Topics {
		for _, p := range t.Partitions {
			set = append(set, core.Partition{Topic: t.TopicID, Index: p})
		}
	}
	set = union(set, nil)
	if m.slow {
		set = union(set, m.owned)
	}
	m.tell = !slices.Equal(set, m.owned)
	m.owned = set
	return errNone
}

// leave leaves the group, for good or for now.
func (m *newMember) leave(epoch int32) int16 {
	r := m.request()
	r.MemberEpoch = epoch
	a := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.w, r)
	m.epoch, m.owned, m.full = 0, nil, true
	return a.ErrorCode
}

// settleConsumers lets members send heartbeats until nothing changes, and returns how many rounds that took.
func (w *world) settleConsumers(members ...*newMember) int {
	for round := 1; round < 50; round++ {
		calm := true
		for _, m := range members {
			epoch, owned := m.epoch, m.owned
			require.Zero(w.t, m.beat())
			calm = calm && epoch == m.epoch && slices.Equal(owned, m.owned) && !m.tell
			w.exclusive(members...)
		}
		if calm {
			return round
		}
	}
	require.Fail(w.t, "the group does not settle")
	return 0
}

// exclusive checks that no partition is two members'.
func (w *world) exclusive(members ...*newMember) {
	owners := map[core.Partition]*newMember{}
	for _, m := range members {
		for _, p := range m.owned {
			require.Nil(w.t, owners[p], "%v has two owners: %s and %s", p, m.id, ownerID(owners[p]))
			owners[p] = m
		}
	}
}

func ownerID(m *newMember) string {
	if m == nil {
		return ""
	}
	return m.id
}

// all returns how many partitions members have in all.
func all(members ...*newMember) (n int) {
	for _, m := range members {
		n += len(m.owned)
	}
	return n
}

// describeConsumer returns a group as ConsumerGroupDescribe shows it.
func (w *world) describeConsumer(group string) kmsg.ConsumerGroupDescribeResponseGroup {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Version, r.Groups = 1, []string{group}
	return ask[*kmsg.ConsumerGroupDescribeResponse](w, r).Groups[0]
}

// list returns the groups that ListGroups shows, as "name type state".
func (w *world) list(states, types []string) (out []string) {
	r := kmsg.NewPtrListGroupsRequest()
	r.Version, r.StatesFilter, r.TypesFilter = 5, states, types
	a := ask[*kmsg.ListGroupsResponse](w, r)
	require.Zero(w.t, a.ErrorCode)
	for _, g := range a.Groups {
		out = append(out, g.Group+" "+g.GroupType+" "+g.GroupState)
	}
	return out
}

// kept is what of a coordinator is in its log: it has to be the same after a replay.
func kept(c *Coordinator) map[string]any {
	out := map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(c.parts[0].groups)) {
		g := c.parts[0].groups[id]
		for t, parts := range g.offsets {
			for p, o := range parts {
				out["offset "+id+" "+t+string(rune('0'+p))] = *o
			}
		}
		if k := g.consumer; k != nil {
			out["consumer "+id] = []any{k.epoch, k.hash, k.targetEpoch, k.static, k.owners}
			for m, s := range k.members {
				out["member "+id+" "+m] = []any{*s, *k.current[m], k.target[m]}
			}
			for re, r := range k.regexes {
				out["regex "+id+" "+re] = *r
			}
		}
	}
	return out
}
