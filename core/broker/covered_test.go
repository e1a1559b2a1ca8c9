package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What every replica has travels in an answer between brokers, and one that does not say it says 0.
func TestCoveredTag(t *testing.T) {
	sent := kmsg.NewPtrFetchResponse()
	sent.SetVersion(16)
	topic := kmsg.NewFetchResponseTopic()
	topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition(), kmsg.NewFetchResponseTopicPartition())
	setCovered(&topic.Partitions[0], 1<<40)
	sent.Topics = append(sent.Topics, topic)
	got := kmsg.NewPtrFetchResponse()
	got.SetVersion(16)
	require.NoError(t, got.ReadFrom(sent.AppendTo(nil)))
	require.EqualValues(t, 1<<40, coveredOf(&got.Topics[0].Partitions[0]))
	require.Zero(t, coveredOf(&got.Topics[0].Partitions[1]))
	got.Topics[0].Partitions[1].UnknownTags.Set(coveredTag, []byte("short"))
	require.Zero(t, coveredOf(&got.Topics[0].Partitions[1]), "what cannot be read says nothing")
}
