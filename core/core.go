// Package core and the packages under it decide everything Lockstep does, as
// pure state machines: a function from (state, time, one input) to (state,
// effects). Nothing here may start a goroutine, use a channel or a lock, read
// a clock or a random source, touch a file or a socket, or let the order of a
// map decide anything; purity_test.go reads the syntax trees and fails if it
// does. This package itself holds only the few words that all rooms share.
package core

import (
	"encoding/hex"
	"fmt"
	"time"
)

// Time is an instant on one broker's monotonic clock, in nanoseconds since an
// arbitrary origin. It is always given to the core, never read by it. Clocks
// of different brokers are not comparable.
type Time int64

// Never is a deadline that does not come.
const Never = Time(1<<63 - 1)

// Add returns the instant d after t; it saturates at Never.
func (t Time) Add(d time.Duration) Time {
	if s := t + Time(d); d < 0 || s >= t {
		return s
	}
	return Never
}

// Sub returns the duration from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Earlier returns the earlier of two instants.
func Earlier(a, b Time) Time { return min(a, b) }

// WallMillis is wall-clock time in milliseconds since the Unix epoch. It is
// data (record timestamps, retention), never a clock to wait by.
type WallMillis int64

// TopicID is the id that a topic keeps for life (KIP-516). The zero id names no topic.
type TopicID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// Partition identifies one partition, and the log that each of its replicas
// keeps. It is by topic id, so a topic deleted and created again under the
// same name is another one.
type Partition struct {
	Topic TopicID
	Index int32
}

// String returns "id-index".
func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Index) }

// Compare orders partitions by topic id, then index.
func (p Partition) Compare(q Partition) int {
	for i := range p.Topic {
		if d := int(p.Topic[i]) - int(q.Topic[i]); d != 0 {
			return d
		}
	}
	return int(p.Index) - int(q.Index)
}

// MetadataTopic is the name of the topic that holds the cluster's metadata log.
const MetadataTopic = "__cluster_metadata"

// OffsetsTopic is the internal topic that holds committed offsets and the state of groups.
const OffsetsTopic = "__consumer_offsets"

// MetadataPartition is the one partition of the metadata log (its topic id is
// Kafka's reserved 00…01).
var MetadataPartition = Partition{Topic: TopicID{15: 1}}

// Rand is the source of randomness handed to the core at birth (election
// jitter, ids). In production it is seeded from the system, in a simulation
// from the world's seed. *rand/v2.PCG and *rand/v2.ChaCha8 satisfy it.
type Rand interface {
	Uint64() uint64
}
