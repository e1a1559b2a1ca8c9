package broker

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeProducers tells which idempotent producers a partition's leader remembers (KIP-664).
func handleDescribeProducers(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeProducersRequest)
	resp := m.ResponseKind().(*kmsg.DescribeProducersResponse)
	for i := range m.Topics {
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = m.Topics[i].Topic
		for _, index := range m.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, b.describeProducers(t.Topic, index))
		}
		resp.Topics = append(resp.Topics, t)
	}
	b.respond(q, resp)
}

func (b *Broker) describeProducers(topic string, index int32) kmsg.DescribeProducersResponseTopicPartition {
	r := kmsg.NewDescribeProducersResponseTopicPartition()
	r.Partition = index
	p, code := b.findPartition(topic, core.TopicID{}, false, index)
	if code == errNone {
		code = p.replica.Serving(b.now)
	}
	if r.ErrorCode = code; code != errNone {
		return r
	}
	for a := range p.replica.Log().Producers().Active() {
		x := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		x.ProducerID, x.ProducerEpoch, x.LastSequence, x.LastTimestamp = a.ID, int32(a.Epoch), a.LastSequence, a.LastTimestamp
		x.CoordinatorEpoch, x.CurrentTxnStartOffset = -1, a.TxnFirst // no coordinator has written a marker
		r.ActiveProducers = append(r.ActiveProducers, x)
	}
	return r
}
