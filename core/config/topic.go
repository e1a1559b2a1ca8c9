package config

import (
	"time"

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
	FileDeleteDelay    time.Duration // file.delete.delay.ms
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

// Log returns what the files of the topic's logs depend on.
func (c *TopicConfig) Log() log.Config {
	retention := c.Retention
	if retention == Forever {
		retention = -1
	}
	return log.Config{
		SegmentBytes:       c.SegmentBytes,
		SegmentMillis:      c.SegmentAge,
		IndexBytes:         c.IndexBytes,
		IndexIntervalBytes: c.IndexIntervalBytes,
		FlushMessages:      c.FlushMessages,
		FlushMillis:        c.FlushInterval,
		RetentionBytes:     c.RetentionBytes,
		RetentionMillis:    retention,
		Preallocate:        c.Preallocate,
		Delete:             c.Delete,
		Compact:            c.Compact,
	}
}

// Topic resolves a topic's configuration from its overrides and the broker's
// layers. Values that do not parse (none can get in) leave the default.
func Topic(overrides Values, broker *Layers) TopicConfig {
	c := broker.TopicDefaults()
	for _, e := range overrides {
		if d := topicDefs.get(e.Name); d != nil {
			if v, err := d.Parse(e.Value); err == nil {
				d.setTopic(&c, v)
			}
		}
	}
	return c
}
