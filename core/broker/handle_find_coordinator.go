package broker

import (
	"strconv"

	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/group"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionCoordinator is the type of coordinator that a transactional producer asks for.
const transactionCoordinator = 1

// handleFindCoordinator answers which broker coordinates groups: the leader of the partition of the offsets topic
// that the group belongs to. The topic is made when the first client asks.
func handleFindCoordinator(b *Broker, q *request) {
	m := q.Msg.(*kmsg.FindCoordinatorRequest)
	if m.CoordinatorType != 0 || b.image.Topic(group.OffsetsTopic) != nil {
		b.respond(q, b.findCoordinators(q, m))
		return
	}
	r := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = group.OffsetsTopic, b.settings.OffsetsPartitions, b.settings.OffsetsReplication
	for _, c := range b.offsetsTopicConfig() {
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		e.Name, e.Value = c[0], &c[1]
		t.Configs = append(t.Configs, e)
	}
	r.Topics = append(r.Topics, t)
	b.createAndWait(q, r, func() { b.respond(q, b.findCoordinators(q, m)) })
}

// offsetsTopicConfig is Kafka's: of each group and offset the last record stays.
func (b *Broker) offsetsTopicConfig() [][2]string {
	return [][2]string{{"segment.bytes", strconv.Itoa(int(b.settings.OffsetsSegmentBytes))}, {"cleanup.policy", "compact"}}
}

func (b *Broker) findCoordinators(q *request, m *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	resp := m.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if q.version < 4 {
		c := b.findCoordinator(m.CoordinatorType, m.CoordinatorKey)
		if m.CoordinatorType == transactionCoordinator {
			c.ErrorCode = errTransactionalIDAuthorizationFailed // librdkafka, which asks so, repeats all but this for ever
		}
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
		return resp
	}
	for _, key := range m.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, b.findCoordinator(m.CoordinatorType, key))
	}
	return resp
}

func (b *Broker) findCoordinator(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	t := b.image.Topic(group.OffsetsTopic)
	why := "the offsets topic has no leader for this group yet"
	switch {
	case kind != 0:
		c.ErrorCode, why = errInvalidRequest, "only groups have coordinators: transactions and share groups are not served"
	case t == nil:
		c.ErrorCode, why = errCoordinatorNotAvailable, "the offsets topic could not be made"
	default:
		c.ErrorCode = errCoordinatorNotAvailable
		st := b.image.Partition(core.Partition{Topic: t.ID, Index: group.PartitionFor(key, t.Partitions)})
		if st != nil && st.Leader != controller.NoLeader {
			if n, ok := b.endpoint(st.Leader); ok {
				c.ErrorCode, c.NodeID, c.Host, c.Port, why = errNone, n.NodeID, n.Host, n.Port, ""
			}
		}
	}
	if why != "" {
		c.ErrorMessage = &why
	}
	return c
}
