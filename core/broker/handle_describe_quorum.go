package broker

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeQuorum answers who votes on the metadata log and how far each is (KIP-595, KIP-836).
func handleDescribeQuorum(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeQuorumRequest)
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
	b.respond(q, resp)
}
