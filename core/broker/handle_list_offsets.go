package broker

import (
	"lockstep/core"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleListOffsets answers where in each partition a time or one of the special positions is
// (KIP-79, KIP-734 for the largest timestamp).
func handleListOffsets(b *Broker, q *request) {
	m := q.Msg.(*kmsg.ListOffsetsRequest)
	resp := m.ResponseKind().(*kmsg.ListOffsetsResponse)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(m.Topics))
	open := 1 // this loop itself, then the lookups
	done := func() {
		if open--; open == 0 {
			b.respond(q, resp)
		}
	}
	for i := range m.Topics {
		t := &resp.Topics[i]
		t.Default()
		t.Topic = m.Topics[i].Topic
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(m.Topics[i].Partitions))
		for j := range t.Partitions {
			open++
			b.listOffsets(q, m, m.Topics[i].Topic, &m.Topics[i].Partitions[j], &t.Partitions[j], done)
		}
	}
	done()
}

func (b *Broker) listOffsets(q *request, m *kmsg.ListOffsetsRequest, topic string, ask *kmsg.ListOffsetsRequestTopicPartition,
	out *kmsg.ListOffsetsResponseTopicPartition, done func()) {
	out.Default()
	out.Partition, out.Offset, out.Timestamp, out.LeaderEpoch = ask.Partition, -1, -1, -1
	p, code := b.findPartition(topic, core.TopicID{}, false, ask.Partition)
	if code != errNone {
		out.ErrorCode = code
		done()
		return
	}
	epoch := ask.CurrentLeaderEpoch
	if q.version < 4 {
		epoch = -1
	}
	fill := func(a replica.OffsetAnswer) {
		out.ErrorCode, out.Offset, out.Timestamp = a.Code, a.Offset, a.Timestamp
		if out.ErrorCode == errOffsetNotAvailable && q.version < 5 { // KIP-207: older clients do not know it as one to be tried again
			out.ErrorCode = errLeaderNotAvailable
		}
		if q.version >= 4 {
			out.LeaderEpoch = a.Epoch
		}
		done()
	}
	a := p.replica.ListOffsets(b.now, ask.Timestamp, epoch, m.IsolationLevel == 1, m.ReplicaID >= 0)
	if !a.Lookup {
		fill(a)
		return
	}
	b.out.Add(LookupTime{Log: p.id, Timestamp: ask.Timestamp, Limit: a.Limit, Token: b.ask(func(in Input) {
		found := in.(TimeFound)
		switch {
		case found.Err != nil:
			b.log(Error, "lookup by time failed", "topic", p.topic, "partition", p.id.Index, "error", found.Err)
			fill(replica.OffsetAnswer{Code: errStorage, Offset: -1, Timestamp: -1, Epoch: -1})
		case p.gone:
			fill(replica.OffsetAnswer{Code: errUnknownTopicOrPartition, Offset: -1, Timestamp: -1, Epoch: -1})
		default:
			fill(p.replica.TimeFound(b.now, a, found.Offset, found.Timestamp, found.LeaderEpoch))
		}
	})})
}
