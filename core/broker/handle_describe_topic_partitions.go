package broker

import (
	"slices"

	"lockstep/core/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxDescribed bounds the partitions of one answer, whatever the client asks for (Kafka: max.request.partition.size.limit).
const maxDescribed = 2000

// handleDescribeTopicPartitions answers page by page with the state of partitions, eligible leader replicas included (KIP-966).
func handleDescribeTopicPartitions(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := m.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	names, first := b.describedTopics(m)
	left := int(min(m.ResponsePartitionLimit, maxDescribed))
	if m.ResponsePartitionLimit <= 0 {
		left = maxDescribed
	}
	for _, name := range names {
		if left <= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name}
			break
		}
		from := int32(0)
		if name == names[0] {
			from = first
		}
		t, next := b.describeTopic(name, from, &left)
		resp.Topics = append(resp.Topics, t)
		if next >= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			break
		}
	}
	b.respond(q, resp)
}

// describedTopics returns the topics asked for, sorted, from the cursor on, and the first partition of the first of them.
func (b *Broker) describedTopics(m *kmsg.DescribeTopicPartitionsRequest) (names []string, first int32) {
	if len(m.Topics) == 0 {
		for t := range b.image.Topics() {
			names = append(names, t.Name)
		}
	}
	for i := range m.Topics {
		names = append(names, m.Topics[i].Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if c := m.Cursor; c != nil {
		at, _ := slices.BinarySearch(names, c.Topic)
		names = names[at:]
		if len(names) > 0 && names[0] == c.Topic {
			first = max(0, c.Partition)
		}
	}
	return names, first
}

// describeTopic describes a topic's partitions from one on; next is where it had to stop, or -1.
func (b *Broker) describeTopic(name string, from int32, left *int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	r := kmsg.NewDescribeTopicPartitionsResponseTopic()
	r.Topic, r.AuthorizedOperations = &name, topicOperations
	t := b.image.Topic(name)
	if t == nil {
		r.ErrorCode = errUnknownTopicOrPartition
		if controller.CheckTopicName(name) != "" {
			r.ErrorCode = errInvalidTopic
		}
		r.AuthorizedOperations = notAsked
		return r, -1
	}
	r.TopicID, r.IsInternal = t.ID, isInternalTopic(name)
	for st := range b.image.Partitions(t.ID) {
		if st.Index < from {
			continue
		}
		if *left <= 0 {
			return r, st.Index
		}
		*left--
		md := b.metadataPartition(st)
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.ErrorCode, p.Partition, p.LeaderID, p.LeaderEpoch = md.ErrorCode, md.Partition, md.Leader, md.LeaderEpoch
		p.Replicas, p.ISR, p.OfflineReplicas = md.Replicas, md.ISR, md.OfflineReplicas
		// Java's client takes null for an error here, though the protocol allows it.
		p.EligibleLeaderReplicas, p.LastKnownELR = append([]int32{}, st.ELR...), append([]int32{}, st.LastELR...)
		r.Partitions = append(r.Partitions, p)
	}
	return r, -1
}
