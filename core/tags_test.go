package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A tagged field survives the way to another broker, and one that is not there, or cannot be read, says nothing.
func TestTags(t *testing.T) {
	sent := kmsg.NewPtrFetchResponse()
	sent.SetVersion(16)
	topic := kmsg.NewFetchResponseTopic()
	topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition(), kmsg.NewFetchResponseTopicPartition())
	SetTag(&topic.Partitions[0].UnknownTags, TagCovered, 1<<40)
	sent.Topics = append(sent.Topics, topic)
	got := kmsg.NewPtrFetchResponse()
	got.SetVersion(16)
	require.NoError(t, got.ReadFrom(sent.AppendTo(nil)))
	tags := &got.Topics[0].Partitions[0].UnknownTags
	require.EqualValues(t, 1<<40, Tag(tags, TagCovered))
	require.Zero(t, Tag(tags, TagSpentLease))
	tags = &got.Topics[0].Partitions[1].UnknownTags
	require.Zero(t, Tag(tags, TagCovered))
	tags.Set(TagCovered, []byte("short"))
	require.Zero(t, Tag(tags, TagCovered))
	SetTag(tags, TagCovered, -1)
	require.Zero(t, Tag(tags, TagCovered))
}
