package config

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"lockstep/core"
	"lockstep/core/log"
)

// Forever stands for a duration without bound: a limit of -1, or one whose milliseconds do not fit.
const Forever = time.Duration(1<<63 - 1)

// TopicConfig is the effective configuration of one topic, resolved through all sources.
// Comments give Kafka's name. Durations without bound are Forever.
type TopicConfig struct {
	Delete             bool          // cleanup.policy has delete
	Compact            bool          // cleanup.policy has compact
	DeleteRetention    time.Duration // delete.retention.ms: how long a tombstone outlives compaction
	FlushMessages      int64         // flush.messages; 1 is sync before ack
	FlushInterval      time.Duration // flush.ms
	IndexIntervalBytes int64         // index.interval.bytes
	MaxCompactionLag   time.Duration // max.compaction.lag.ms
	MaxMessageBytes    int32         // max.message.bytes: the largest batch
	TimestampAfterMax  time.Duration // message.timestamp.after.max.ms
	TimestampBeforeMax time.Duration // message.timestamp.before.max.ms
	LogAppendTime      bool          // message.timestamp.type is LogAppendTime
	MinCleanableRatio  float64       // min.cleanable.dirty.ratio
	MinCompactionLag   time.Duration // min.compaction.lag.ms
	MinInsyncReplicas  int32         // min.insync.replicas; see EffectiveMinISR
	Preallocate        bool          // preallocate
	RetentionBytes     int64         // retention.bytes; -1 without bound
	Retention          time.Duration // retention.ms
	SegmentBytes       int64         // segment.bytes
	IndexBytes         int64         // segment.index.bytes
	SegmentJitter      time.Duration // segment.jitter.ms
	SegmentAge         time.Duration // segment.ms
	UncleanElection    bool          // unclean.leader.election.enable
}

// EffectiveMinISR is the smallest in-sync set under which the high watermark
// of a partition with that many replicas moves (rule 6): a topic with fewer
// replicas than min.insync.replicas cannot be asked for more than it has.
func (c *TopicConfig) EffectiveMinISR(replicas int) int {
	return min(int(c.MinInsyncReplicas), replicas)
}

// SyncBeforeAck reports whether every append is durable before it counts.
func (c *TopicConfig) SyncBeforeAck() bool { return c.FlushMessages == 1 }

// Log returns what the files of one of the topic's logs depend on. Partitions
// share segment.jitter.ms out among them, each always taking the same part, so
// that their segments do not all close at once.
func (c *TopicConfig) Log(p core.Partition) log.Config {
	age := c.SegmentAge
	if c.Compact { // what is in the last segment is not compacted
		age = min(age, c.MaxCompactionLag)
	}
	retention := c.Retention
	if retention == Forever {
		retention = -1
	}
	return log.Config{
		SegmentBytes:       c.SegmentBytes,
		SegmentMillis:      age - jitter(p, min(c.SegmentJitter, age)),
		IndexBytes:         c.IndexBytes,
		IndexIntervalBytes: c.IndexIntervalBytes,
		FlushMessages:      c.FlushMessages,
		FlushMillis:        c.FlushInterval,
		RetentionBytes:     c.RetentionBytes,
		RetentionMillis:    retention,
		Preallocate:        c.Preallocate,
		Delete:             c.Delete,
		Compact:            c.Compact,
		MinCleanableRatio:  c.MinCleanableRatio,
		MinCompactionLag:   c.MinCompactionLag,
		MaxCompactionLag:   c.MaxCompactionLag,
		DeleteRetention:    c.DeleteRetention,
	}
}

// jitter returns the partition's own duration below limit.
func jitter(p core.Partition, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write(p.Topic[:])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(p.Index)))
	return time.Duration(h.Sum64() % uint64(limit))
}

// Topic resolves a topic's configuration from its overrides and the broker's layers.
func Topic(overrides Values, broker *Layers) TopicConfig {
	return broker.TopicDefaults().With(overrides)
}

// With returns c, which is Layers.TopicDefaults, changed by a topic's
// overrides. A name or value that this broker does not understand, which only
// a later version can have let in, leaves the default.
func (c TopicConfig) With(overrides Values) TopicConfig {
	for _, e := range overrides {
		if d := topicDefs.get(e.Name); d != nil {
			if v, err := d.Parse(e.Value); err == nil {
				d.setTopic(&c, v)
			}
		}
	}
	return c
}
