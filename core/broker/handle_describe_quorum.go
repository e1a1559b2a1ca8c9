package broker

import (
	"lockstep/core"
	"lockstep/core/quorum"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeQuorum answers who votes on the metadata log and how far each is (KIP-595, KIP-836). Only the quorum's leader knows,
// so a client's question goes on to it: Kafka's tools ask the same broker again and again, whichever it is.
func handleDescribeQuorum(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeQuorumRequest)
	if leader, _ := b.quorum.Leader(); !q.Peer && leader != quorum.None && leader != b.cfg.NodeID {
		b.callController(leader, brokerPatience, m, func(resp kmsg.Response, err error) {
			if err != nil {
				resp = b.describeQuorum(m)
			}
			b.respond(q, resp)
		})
		return
	}
	b.respond(q, b.describeQuorum(m))
}

func (b *Broker) describeQuorum(m *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := m.ResponseKind().(*kmsg.DescribeQuorumResponse)
	for i := range m.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = m.Topics[i].Topic
		for j := range m.Topics[i].Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition = m.Topics[i].Partitions[j].Partition
			p.ErrorCode = errUnknownTopicOrPartition
			if t.Topic == core.MetadataTopic && p.Partition == 0 {
				p = b.quorum.Describe(b.now, b.wall)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
