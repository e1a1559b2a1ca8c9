package group

import "github.com/twmb/franz-go/pkg/kmsg"

// deleteOffsets serves OffsetDelete: of a group without members, or, if those are consumers, of topics they do not read.
func (c *Coordinator) deleteOffsets(q call, m *kmsg.OffsetDeleteRequest) {
	failed := func(code int16) {
		resp := m.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = code
		c.answer(q.token, resp)
	}
	p, code := c.find(m.Group)
	if m.Group == "" {
		code = errInvalidGroupID
	}
	if code != errNone {
		failed(code)
		return
	}
	c.do(p, m.Group, task{token: q.token, alone: true, fail: failed, run: func(g *group) {
		switch {
		case !g.exists():
			failed(errGroupIDNotFound)
		case g.consumer == nil && len(g.classic.members) > 0 && (g.classic.protocolType != protocolConsumer || g.classic.opaque):
			failed(errNonEmptyGroup)
		default:
			c.deleteOffsetsOf(g, q, m)
		}
	}})
}

func (c *Coordinator) deleteOffsetsOf(g *group, q call, m *kmsg.OffsetDeleteRequest) {
	resp := m.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var tombs []tombstone
	read := g.read()
	for _, t := range m.Topics {
		x := kmsg.NewOffsetDeleteResponseTopic()
		x.Topic = t.Topic
		_, _, known := c.topics.Topic(t.Topic)
		for _, p := range t.Partitions {
			y := kmsg.NewOffsetDeleteResponseTopicPartition()
			y.Partition = p.Partition
			switch {
			case !known:
				y.ErrorCode = errUnknownTopicOrPartition
			case read[t.Topic]:
				y.ErrorCode = errGroupSubscribedToTopic
			case g.findOffset(t.Topic, p.Partition) != nil:
				tombs = append(tombs, g.offsetTombstone(t.Topic, p.Partition))
			}
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	if len(tombs) == 0 {
		c.answer(q.token, resp)
		return
	}
	c.erase(g, tombs, func() { c.answer(q.token, resp) }, func(code int16) {
		resp.ErrorCode, resp.Topics = writeError(code), nil
		c.answer(q.token, resp)
	})
}

// read returns the topics that members of the group read, as far as that is known.
func (g *group) read() map[string]bool {
	if g.consumer == nil {
		return g.classic.subscribed
	}
	set := make(map[string]bool)
	for _, t := range g.consumer.subscribed() {
		set[t] = true
	}
	return set
}
