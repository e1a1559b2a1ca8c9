package group

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeConsumerGroups serves ConsumerGroupDescribe, which knows groups of KIP-848 only.
func (c *Coordinator) describeConsumerGroups(q call, m *kmsg.ConsumerGroupDescribeRequest) {
	resp := m.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(m.Groups))
	for i, id := range m.Groups {
		resp.Groups[i] = kmsg.NewConsumerGroupDescribeResponseGroup()
		resp.Groups[i].Group = id
	}
	c.each(m.Groups, false, func(i int, g *group, done func()) {
		c.describeConsumer(&resp.Groups[i], g)
		done()
	}, func(i int, code int16) { resp.Groups[i].ErrorCode = code }, func() { c.answer(q.token, resp) })
}

func (c *Coordinator) describeConsumer(x *kmsg.ConsumerGroupDescribeResponseGroup, g *group) {
	k := g.consumer
	if k == nil {
		why := "Group " + g.id + " not found."
		if g.exists() {
			why = "Group " + g.id + " is not a consumer group."
		}
		x.ErrorCode, x.ErrorMessage = errGroupIDNotFound, &why
		if g.id == "" {
			x.ErrorCode = errInvalidGroupID
		}
		return
	}
	x.State, x.Epoch, x.AssignmentEpoch, x.AssignorName = k.state(), k.epoch, k.targetEpoch, c.assignor(k)
	for _, id := range k.ids() {
		mem, cur := k.members[id], k.current[id]
		y := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		y.MemberID, y.InstanceID, y.RackID, y.MemberEpoch = id, mem.instance, mem.rack, cur.epoch
		y.ClientID, y.ClientHost, y.SubscribedTopics, y.SubscribedTopicRegex = mem.clientID, mem.host, mem.topics, mem.regex
		y.Assignment, y.TargetAssignment = c.described(cur.assigned), c.described(k.target[id])
		y.MemberType = 1
		if mem.classic != nil {
			y.MemberType = 0
		}
		x.Members = append(x.Members, y)
	}
}

func (c *Coordinator) described(set []core.Partition) (a kmsg.Assignment) {
	for _, list := range byTopic(set) {
		name, _, ok := c.topics.TopicByID(list[0].Topic)
		if !ok {
			continue // was deleted
		}
		t := kmsg.NewAssignmentTopicPartition()
		t.TopicID, t.Topic = list[0].Topic, name
		for _, p := range list {
			t.Partitions = append(t.Partitions, p.Index)
		}
		a.TopicPartitions = append(a.TopicPartitions, t)
	}
	return a
}
