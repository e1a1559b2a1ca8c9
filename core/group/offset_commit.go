package group

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitOffsets serves OffsetCommit. It is answered when the offsets are committed; until then they are not there for anybody
// (rule 20; Kafka answered at append once, and lost offsets).
func (c *Coordinator) commitOffsets(g *group, q call, m *kmsg.OffsetCommitRequest) {
	if code := c.mayCommit(g, m); code != errNone {
		c.answer(q.token, commitError(m, code))
		return
	}
	resp := m.ResponseKind().(*kmsg.OffsetCommitResponse)
	var records []Record
	var set []func()
	for i := range m.Topics {
		t := &m.Topics[i]
		x := kmsg.NewOffsetCommitResponseTopic()
		x.Topic, x.TopicID = t.Topic, t.TopicID
		name, id, partitions, missing := c.topicOf(m.Version >= 10, t.Topic, t.TopicID)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			y := kmsg.NewOffsetCommitResponseTopicPartition()
			y.Partition = p.Partition
			switch {
			case missing != errNone:
				y.ErrorCode = missing
			case p.Partition < 0 || p.Partition >= partitions:
				y.ErrorCode = errUnknownTopicOrPartition
			case p.Metadata != nil && len(*p.Metadata) > int(c.cfg.MaxMetadataBytes):
				y.ErrorCode = errOffsetMetadataTooLarge
			default:
				o := c.newOffset(m, p, id)
				index := p.Partition
				records = append(records, o.record(g.id, name, index))
				set = append(set, func() { g.setOffset(name, index, o) })
			}
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	if len(records) == 0 {
		c.answer(q.token, resp)
		return
	}
	c.writeOffsets(g, q, resp, records, set)
}

func (c *Coordinator) writeOffsets(g *group, q call, resp *kmsg.OffsetCommitResponse, records []Record, set []func()) {
	g.inflight++
	c.write(g, records, func() {
		g.inflight--
		for _, s := range set {
			s()
		}
		c.answer(q.token, resp)
		c.drain(g)
	}, func(code int16) {
		g.inflight--
		switch code {
		case errMessageTooLarge, errRecordListTooLarge:
			code = errInvalidCommitOffsetSize
		default:
			code = writeError(code)
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == errNone {
					p.ErrorCode = code
				}
			}
		}
		c.answer(q.token, resp)
		c.drain(g)
	})
}

// topicOf finds the topic that a request names, by name or by id.
func (c *Coordinator) topicOf(byID bool, name string, id core.TopicID) (string, core.TopicID, int32, int16) {
	if byID {
		name, n, ok := c.topics.TopicByID(id)
		if !ok {
			return "", id, 0, errUnknownTopicID
		}
		return name, id, n, errNone
	}
	id, n, ok := c.topics.Topic(name)
	if !ok {
		return name, id, 0, errUnknownTopicOrPartition
	}
	return name, id, n, errNone
}

func (c *Coordinator) newOffset(m *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition, id core.TopicID) *offset {
	o := &offset{offset: p.Offset, epoch: -1, at: int64(c.wall), expires: -1, topic: id}
	if m.Version >= 6 {
		o.epoch = p.LeaderEpoch
	}
	if p.Metadata != nil {
		o.metadata = *p.Metadata
	}
	if m.Version >= 2 && m.Version <= 4 && m.RetentionTimeMillis >= 0 {
		o.expires = o.at + m.RetentionTimeMillis
	}
	return o
}

// mayCommit checks whether the sender may commit: it is a member of the current generation, or nobody is a member and it does
// not claim to be one of a generation. An instance id alone is no such claim: there are clients that send it for partitions that
// they have assigned to themselves (librdkafka).
func (c *Coordinator) mayCommit(g *group, m *kmsg.OffsetCommitRequest) int16 {
	claims := m.Generation >= 0 || m.MemberID != "" || m.InstanceID != nil
	switch {
	case g.consumer != nil:
		return c.mayCommitToConsumer(g, m)
	case m.Generation < 0 && g.classic.state == empty:
		return errNone
	case !claims:
		return errUnknownMemberID
	case !g.exists() && m.Generation >= 0: // no group at all
		return errIllegalGeneration
	}
	k := &g.classic
	mem, code := k.find(m.MemberID, m.InstanceID)
	switch {
	case code != errNone:
		return code
	case m.Generation != k.generation:
		return errIllegalGeneration
	case k.state == completing:
		return errRebalanceInProgress
	}
	c.touch(g, mem)
	return errNone
}

// mayCommitToConsumer is mayCommit for groups of KIP-848.
func (c *Coordinator) mayCommitToConsumer(g *group, m *kmsg.OffsetCommitRequest) int16 {
	k := g.consumer
	if m.Generation < 0 && len(k.members) == 0 {
		return errNone
	}
	// Who has lost its place to another process is told so: it would else take it back, and be taken it back from, for ever.
	if code := k.check(m.MemberID, m.InstanceID); code != errNone {
		return code
	}
	mem := k.members[m.MemberID]
	switch {
	case mem.classic == nil && m.Version < 9: // such a version has no error code for this
		return errUnsupportedVersion
	case m.Generation == k.current[m.MemberID].epoch:
		return errNone
	case mem.classic != nil:
		return errIllegalGeneration
	}
	return errStaleMemberEpoch
}

func commitError(m *kmsg.OffsetCommitRequest, code int16) kmsg.Response {
	resp := m.ResponseKind().(*kmsg.OffsetCommitResponse)
	for i := range m.Topics {
		x := kmsg.NewOffsetCommitResponseTopic()
		x.Topic, x.TopicID = m.Topics[i].Topic, m.Topics[i].TopicID
		for _, p := range m.Topics[i].Partitions {
			y := kmsg.NewOffsetCommitResponseTopicPartition()
			y.Partition, y.ErrorCode = p.Partition, code
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}
