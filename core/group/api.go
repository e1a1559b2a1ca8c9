package group

import (
	"math"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetsTopic is the internal topic that holds committed offsets and the state of groups.
const OffsetsTopic = core.OffsetsTopic

// Token is the caller's name for a request; the answer comes with it.
type Token uint64

// Client is the sender of a request, as DescribeGroups shows it.
type Client struct{ ID, Host string }

// Topics is what the coordinator needs of the cluster's metadata.
type Topics interface {
	// Topic returns a topic's id and number of partitions, by name.
	Topic(name string) (id core.TopicID, partitions int32, ok bool)
	// TopicByID returns a topic's name and number of partitions.
	TopicByID(id core.TopicID) (name string, partitions int32, ok bool)
	// TopicNames calls yield with every topic's name in ascending order, for subscriptions by pattern (KIP-848).
	TopicNames(yield func(name string) bool)
	// Rack returns the racks of a partition's replicas, for rack-aware assignors; nil where there are none.
	Rack(id core.TopicID, partition int32) []string
}

// Record is one record of the offsets topic, in Kafka's own format. A nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Write is a batch of records to append to one partition of the offsets topic, whole or not at all. It is answered by
// Committed or WriteFailed with its Seq. Writes to one partition are appended in order.
type Write struct {
	Partition int32
	Seq       uint64
	Records   []Record
}

// Answer answers the request that came with Token.
type Answer struct {
	Token Token
	Msg   kmsg.Response
}

// Line is a line for the operator; the levels are those of log/slog.
type Line struct {
	Level int
	Msg   string
	Attrs []any
}

// Out collects what one call wants done.
type Out struct {
	Writes  []Write
	Answers []Answer
	Lines   []Line
}

// Reset empties o for the next call, keeping its memory.
func (o *Out) Reset() {
	clear(o.Writes)
	clear(o.Answers)
	clear(o.Lines)
	*o = Out{Writes: o.Writes[:0], Answers: o.Answers[:0], Lines: o.Lines[:0]}
}

// PartitionFor returns the partition of the offsets topic, of n, that a group belongs to: that of Java's
// Math.abs(groupId.hashCode()) % n, so that a topic written by Kafka is found again.
func PartitionFor(group string, n int32) int32 {
	var h int32
	for _, u := range utf16Of(group) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 { // has no absolute value; Kafka takes 0
		return 0
	}
	return max(h, -h) % n
}

// utf16Of returns the UTF-16 code units of s, which Java's hash goes over.
func utf16Of(s string) []uint16 {
	out := make([]uint16, 0, len(s))
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			out = append(out, uint16(0xd800+(r>>10)), uint16(0xdc00+(r&0x3ff)))
			continue
		}
		out = append(out, uint16(r))
	}
	return out
}
