package core

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tagged fields (KIP-482) that Lockstep's brokers add to what they say to one another. They are far from those that Kafka gives out,
// and who does not know them passes over them. But for one each is a big-endian int64.
const (
	// TagCovered, of a partition in an answer to a follower's Fetch: the offset below which every replica has had everything.
	TagCovered uint32 = 10_000
	// TagSpentLease, of an answer to a BrokerHeartbeat: nanoseconds of the lease that were over when the heartbeat was sent.
	TagSpentLease uint32 = 10_001
	// TagLimit, of a partition in an answer to a follower's Fetch: the end of what the leader had to give, where gaps may be between batches.
	TagLimit uint32 = 10_003
	// TagProducers, of a partition in an answer to a follower's Fetch whose error is OFFSET_OUT_OF_RANGE: a snapshot, as log.Producers
	// makes it, of what the records below the log's start say of producers. It is bytes, and no number.
	TagProducers uint32 = 10_002
)

// SetTag sets a tagged field.
func SetTag(tags *kmsg.Tags, tag uint32, value int64) {
	tags.Set(tag, binary.BigEndian.AppendUint64(nil, uint64(value)))
}

// Tag returns a tagged field; 0 if it is not there, cannot be read, or is negative, which none of them is.
func Tag(tags *kmsg.Tags, tag uint32) (value int64) {
	if b := TagBytes(tags, tag); len(b) == 8 {
		value = max(0, int64(binary.BigEndian.Uint64(b)))
	}
	return value
}

// TagBytes returns a tagged field as it is, nil if it is not there.
func TagBytes(tags *kmsg.Tags, tag uint32) (value []byte) {
	if tags.Len() == 0 {
		return nil
	}
	tags.Each(func(t uint32, b []byte) {
		if t == tag {
			value = b
		}
	})
	return value
}
