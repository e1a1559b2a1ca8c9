package broker

import (
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/group"
	"lockstep/core/log"
	"lockstep/core/quorum"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func alterRequest(topic, name, value string) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	x.Configs = append(x.Configs, c)
	r.Resources = append(r.Resources, x)
	return r
}

// A setting that comes while a log is being opened, as to a broker that starts from a snapshot and then hears what has changed since,
// reaches the log: it would delete by the retention that its topic had once.
func TestSettingsChangeWhileALogIsOpened(t *testing.T) {
	h := newHost(t, nil)
	h.holdOpen = true
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "orders", 1, -1
	c, day := kmsg.NewCreateTopicsRequestTopicConfig(), "86400000"
	c.Name, c.Value = "retention.ms", &day
	topic.Configs = append(topic.Configs, c)
	create.Topics = append(create.Topics, topic)
	h.send(create)
	id := core.Partition{Topic: h.b.image.Topic("orders").ID}
	require.Equal(t, 24*time.Hour, h.settings[id].RetentionMillis)
	require.Zero(t, ask[*kmsg.IncrementalAlterConfigsResponse](h, alterRequest("orders", "retention.ms", "-1")).Resources[0].ErrorCode)
	h.step(LogOpened{Log: id, State: log.State{Producers: log.NewProducers(0)}})
	require.Negative(t, h.settings[id].RetentionMillis)
	require.Zero(t, ask[*kmsg.IncrementalAlterConfigsResponse](h, alterRequest("orders", "segment.bytes", "1000000")).Resources[0].ErrorCode)
	require.EqualValues(t, 1_000_000, h.settings[id].SegmentBytes)
}

// A snapshot of the metadata that takes the place of records tells groups of what it has changed, as records do.
func TestASnapshotTellsGroups(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{"g"}
	require.Zero(t, ask[*kmsg.FindCoordinatorResponse](h, find).Coordinators[0].ErrorCode)
	bytes, err := encodeSnapshot(h.b.image.Snapshot())
	require.NoError(t, err)
	createTopic(h, "bills", 1)

	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "g", "m", 1000
	beat.SubscribedTopicNames = []string{"bills", "orders"}
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	first := ask[*kmsg.ConsumerGroupHeartbeatResponse](h, beat)
	require.Zero(t, first.ErrorCode)
	require.Len(t, first.Assignment.Topics, 2)

	var out Effects
	h.b.out = &out
	h.b.restore(&quorum.Snapshot{SnapshotID: h.b.quorum.Tip(), Bytes: bytes})
	for _, e := range out.List {
		h.do(e)
	}
	require.Nil(t, h.b.image.Topic("bills"))
	require.NotNil(t, h.b.image.Topic(group.OffsetsTopic))
	next := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	next.Version, next.Group, next.MemberID, next.MemberEpoch = 1, "g", "m", first.MemberEpoch
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](h, next)
	require.Zero(t, resp.ErrorCode)
	require.NotNil(t, resp.Assignment)
	require.Len(t, resp.Assignment.Topics, 1)
}
