package broker

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleOffsetForLeaderEpoch answers where an epoch ended, so that a client can see whether its log was truncated (KIP-320).
func handleOffsetForLeaderEpoch(b *Broker, q *request) {
	m := q.Msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := m.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range m.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = m.Topics[i].Topic
		for j := range m.Topics[i].Partitions {
			ask := &m.Topics[i].Partitions[j]
			r := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			r.Partition, r.LeaderEpoch, r.EndOffset = ask.Partition, -1, -1
			p, code := b.findPartition(t.Topic, core.TopicID{}, false, ask.Partition)
			if r.ErrorCode = code; code == errNone {
				r.ErrorCode, r.LeaderEpoch, r.EndOffset = p.replica.OffsetForLeaderEpoch(b.now, ask.CurrentLeaderEpoch, ask.LeaderEpoch)
			}
			t.Partitions = append(t.Partitions, r)
		}
		resp.Topics = append(resp.Topics, t)
	}
	b.respond(q, resp)
}
