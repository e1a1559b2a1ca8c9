package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchOffsets serves OffsetFetch. It shows what is committed, and does not wait for what is not: without transactions no
// offset is ever unstable, so require_stable changes nothing.
func (c *Coordinator) fetchOffsets(q call, m *kmsg.OffsetFetchRequest) {
	resp := m.ResponseKind().(*kmsg.OffsetFetchResponse)
	if m.Version >= 8 {
		for i := range m.Groups {
			resp.Groups = append(resp.Groups, c.fetchGroup(&m.Groups[i], m.Version))
		}
		c.answer(q.token, resp)
		return
	}
	r := kmsg.NewOffsetFetchRequestGroup()
	r.Group = m.Group
	if m.Topics != nil {
		r.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range m.Topics {
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.Partitions = t.Topic, t.Partitions
		r.Topics = append(r.Topics, x)
	}
	g := c.fetchGroup(&r, m.Version)
	resp.ErrorCode = g.ErrorCode
	if g.ErrorCode != errNone && m.Version < 2 { // had an error for each partition only
		g.Topics = c.unfetched(r.Topics, g.ErrorCode)
	}
	for _, t := range g.Topics {
		x := kmsg.NewOffsetFetchResponseTopic()
		x.Topic = t.Topic
		for _, p := range t.Partitions {
			y := kmsg.NewOffsetFetchResponseTopicPartition()
			y.Partition, y.Offset, y.LeaderEpoch, y.Metadata, y.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	c.answer(q.token, resp)
}

func (c *Coordinator) fetchGroup(r *kmsg.OffsetFetchRequestGroup, version int16) kmsg.OffsetFetchResponseGroup {
	x := kmsg.NewOffsetFetchResponseGroup()
	x.Group = r.Group
	p, code := c.find(r.Group)
	if code != errNone {
		x.ErrorCode = code
		return x
	}
	g := p.groups[r.Group]
	if x.ErrorCode = mayFetch(g, r); x.ErrorCode != errNone {
		return x
	}
	if r.Topics == nil {
		if g != nil {
			x.Topics = c.allOffsets(g, version)
		}
		return x
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		y := kmsg.NewOffsetFetchResponseGroupTopic()
		y.Topic, y.TopicID = t.Topic, t.TopicID
		name, code := t.Topic, errNone
		if version >= 10 {
			name, _, _, code = c.topicOf(true, "", t.TopicID)
		}
		for _, index := range t.Partitions {
			y.Partitions = append(y.Partitions, c.fetched(g, name, index, code))
		}
		x.Topics = append(x.Topics, y)
	}
	return x
}

// mayFetch checks whom a request says it comes from (KIP-848); one that does not say so is anybody's.
func mayFetch(g *group, r *kmsg.OffsetFetchRequestGroup) int16 {
	if r.MemberID == nil && r.MemberEpoch < 0 {
		return errNone
	}
	switch {
	case g == nil:
		return errGroupIDNotFound
	case g.consumer == nil:
		return errNone
	case r.MemberID == nil || g.consumer.members[*r.MemberID] == nil:
		return errUnknownMemberID
	}
	cur := g.consumer.current[*r.MemberID]
	if r.MemberEpoch == cur.epoch || g.busy != nil && r.MemberEpoch == cur.previous { // the newer one is not committed yet
		return errNone
	}
	return errStaleMemberEpoch
}

// fetched shows what is committed for a partition: of the topic that there is, not of one of that name that was deleted and whose
// offsets are not erased yet. A consumer would begin there and pass records over.
func (c *Coordinator) fetched(g *group, topic string, index int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	y := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	metadata := ""
	y.Partition, y.Offset, y.ErrorCode, y.Metadata = index, -1, code, &metadata
	if g == nil || code != errNone {
		return y
	}
	if o := g.findOffset(topic, index); o != nil && c.isOf(topic, o) {
		y.Offset, y.LeaderEpoch, y.Metadata = o.offset, o.epoch, &o.metadata
	}
	return y
}

func (c *Coordinator) allOffsets(g *group, version int16) (topics []kmsg.OffsetFetchResponseGroupTopic) {
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		y := kmsg.NewOffsetFetchResponseGroupTopic()
		y.Topic = topic
		if version >= 10 {
			id, _, _ := c.topics.Topic(topic)
			y.TopicID = [16]byte(id)
		}
		for _, index := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			if c.isOf(topic, g.offsets[topic][index]) {
				y.Partitions = append(y.Partitions, c.fetched(g, topic, index, errNone))
			}
		}
		if len(y.Partitions) > 0 {
			topics = append(topics, y)
		}
	}
	return topics
}

func (c *Coordinator) unfetched(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) (out []kmsg.OffsetFetchResponseGroupTopic) {
	for _, t := range topics {
		y := kmsg.NewOffsetFetchResponseGroupTopic()
		y.Topic = t.Topic
		for _, index := range t.Partitions {
			y.Partitions = append(y.Partitions, c.fetched(nil, "", index, code))
		}
		out = append(out, y)
	}
	return out
}
