package config

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const maxLong, maxInt = math.MaxInt64, math.MaxInt32

// topicDefs is every setting that a topic has.
var topicDefs = newTable([]*Def{
	topicList("cleanup.policy", "delete", "log.cleanup.policy", []string{"delete", "compact"}, setCleanup,
		"What becomes of old data: delete drops whole segments by retention.ms and retention.bytes, compact keeps the last "+
			"record of each key."),
	// A batch is stored as its producer sent it, so only "producer" can be had; the name is known because tools set it.
	topicString("compression.type", "producer", "compression.type", []string{"producer"}, nil,
		"The codec of stored batches. Batches are stored exactly as producers sent them, so producer is the only value."),
	topicMillis("delete.retention.ms", "86400000", "log.cleaner.delete.retention.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.DeleteRetention },
		"How long, in milliseconds, a tombstone stays after compaction, which is the time a reader has to see it."),
	topicLong("flush.messages", "1", "log.flush.interval.messages", 1,
		func(c *TopicConfig) *int64 { return &c.FlushMessages },
		"How many records may be appended before a sync. 1, the default, syncs every append before it counts for "+
			"acknowledgement; Kafka's own default is 9223372036854775807, which leaves syncing to the system."),
	topicMillis("flush.ms", "9223372036854775807", "log.flush.interval.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.FlushInterval },
		"How long, in milliseconds, appended records may wait for a sync, where flush.messages lets them wait."),
	topicInt("index.interval.bytes", "4096", "log.index.interval.bytes", 0,
		func(c *TopicConfig, n int64) { c.IndexIntervalBytes = n },
		"About how many bytes of records lie between two entries of the offset index."),
	topicMillis("max.compaction.lag.ms", "9223372036854775807", "log.cleaner.max.compaction.lag.ms", 1,
		func(c *TopicConfig) *time.Duration { return &c.MaxCompactionLag },
		"The longest time, in milliseconds, that a record may stay uncompacted."),
	topicInt("max.message.bytes", "1048588", "message.max.bytes", 0,
		func(c *TopicConfig, n int64) { c.MaxMessageBytes = int32(n) },
		"The largest record batch, in bytes as sent, that is accepted."),
	topicMillis("message.timestamp.after.max.ms", "3600000", "log.message.timestamp.after.max.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.TimestampAfterMax },
		"How far, in milliseconds, a record's timestamp may lie in the future of the broker's clock."),
	topicMillis("message.timestamp.before.max.ms", "9223372036854775807", "log.message.timestamp.before.max.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.TimestampBeforeMax },
		"How far, in milliseconds, a record's timestamp may lie in the past of the broker's clock."),
	topicString("message.timestamp.type", "CreateTime", "log.message.timestamp.type", []string{"CreateTime", "LogAppendTime"},
		func(c *TopicConfig, v Value) { c.LogAppendTime = v.Str == "LogAppendTime" },
		"Whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime)."),
	{Name: "min.cleanable.dirty.ratio", Type: kmsg.ConfigTypeDouble, Default: "0.5", min: 0, max: 1,
		Broker:   "log.cleaner.min.cleanable.ratio",
		setTopic: func(c *TopicConfig, v Value) { c.MinCleanableRatio = v.Float },
		Doc:      "The share of a log that must be uncompacted before compaction looks at it."},
	topicMillis("min.compaction.lag.ms", "0", "log.cleaner.min.compaction.lag.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.MinCompactionLag },
		"The shortest time, in milliseconds, that a record stays uncompacted."),
	topicInt("min.insync.replicas", "1", "min.insync.replicas", 1,
		func(c *TopicConfig, n int64) { c.MinInsyncReplicas = int32(n) },
		"How many replicas must be in sync for acks=all to be accepted and for the high watermark to move. A new topic of "+
			"three or more replicas gets 2 unless it, or the cluster, says otherwise."),
	topicBool("preallocate", "false", "log.preallocate",
		func(c *TopicConfig, v Value) { c.Preallocate = v.Bool },
		"Whether a new segment's file is given its room on the disk at once."),
	topicLong("retention.bytes", "-1", "log.retention.bytes", -1,
		func(c *TopicConfig) *int64 { return &c.RetentionBytes },
		"How many bytes of a partition are kept before old segments are deleted; -1 for no bound."),
	topicMillis("retention.ms", "604800000", "log.retention.ms", -1,
		func(c *TopicConfig) *time.Duration { return &c.Retention },
		"How long, in milliseconds, records are kept before their segments are deleted; -1 for ever."),
	topicInt("segment.bytes", "1073741824", "log.segment.bytes", 14,
		func(c *TopicConfig, n int64) { c.SegmentBytes = n },
		"The size in bytes at which a segment is closed and the next one begun."),
	topicInt("segment.index.bytes", "10485760", "log.index.size.max.bytes", 4,
		func(c *TopicConfig, n int64) { c.IndexBytes = n },
		"The largest size, in bytes, of a segment's index; a full one closes the segment."),
	topicMillis("segment.jitter.ms", "0", "log.roll.jitter.ms", 0,
		func(c *TopicConfig) *time.Duration { return &c.SegmentJitter },
		"By how much, in milliseconds, segment.ms is shortened at most, so that segments do not all close at once."),
	topicMillis("segment.ms", "604800000", "log.roll.ms", 1,
		func(c *TopicConfig) *time.Duration { return &c.SegmentAge },
		"The age, in milliseconds, at which a segment is closed though it is not full."),
	topicBool("unclean.leader.election.enable", "false", "unclean.leader.election.enable",
		func(c *TopicConfig, v Value) { c.UncleanElection = v.Bool },
		"Whether a replica that may lack acknowledged records is made leader when no other is left. This loses data."),
})

func setCleanup(c *TopicConfig, v Value) {
	c.Delete, c.Compact = slices.Contains(v.List, "delete"), slices.Contains(v.List, "compact")
}

func topicLong(name, def, broker string, lo int64, field func(*TopicConfig) *int64, doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeLong, Default: def, Broker: broker, Doc: doc, min: lo, max: maxLong,
		setTopic: func(c *TopicConfig, v Value) { *field(c) = v.Int }}
}

func topicMillis(name, def, broker string, lo int64, field func(*TopicConfig) *time.Duration, doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeLong, Default: def, Broker: broker, Doc: doc, min: lo, max: maxLong,
		setTopic: func(c *TopicConfig, v Value) { *field(c) = millis(v.Int) }}
}

func topicInt(name, def, broker string, lo int64, set func(*TopicConfig, int64), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeInt, Default: def, Broker: broker, Doc: doc, min: lo, max: maxInt,
		setTopic: func(c *TopicConfig, v Value) { set(c, v.Int) }}
}

func topicBool(name, def, broker string, set func(*TopicConfig, Value), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeBoolean, Default: def, Broker: broker, Doc: doc, setTopic: set}
}

func topicString(name, def, broker string, allowed []string, set func(*TopicConfig, Value), doc string) *Def {
	if set == nil {
		set = func(*TopicConfig, Value) {}
	}
	return &Def{Name: name, Type: kmsg.ConfigTypeString, Default: def, Broker: broker, Doc: doc, allowed: allowed, setTopic: set}
}

func topicList(name, def, broker string, allowed []string, set func(*TopicConfig, Value), doc string) *Def {
	d := topicString(name, def, broker, allowed, set, doc)
	d.Type = kmsg.ConfigTypeList
	d.check = func(v Value) error {
		if len(v.List) == 0 {
			return errors.New("must not be empty")
		}
		for i, item := range v.List {
			if slices.Contains(v.List[:i], item) {
				return errors.New("has " + strconv.Quote(item) + " twice")
			}
		}
		return nil
	}
	return d
}

// CheckTopic validates a topic's overrides, alone and together. The error says what is wrong with which.
func CheckTopic(overrides Values) error {
	for _, e := range overrides {
		d := TopicDef(e.Name)
		if d == nil {
			return unknownTopicConfig(e.Name)
		}
		if _, err := d.Parse(e.Value); err != nil {
			return err
		}
	}
	c := Topic(overrides, &Layers{})
	if c.MinCompactionLag > c.MaxCompactionLag {
		return errors.New("min.compaction.lag.ms must not be above max.compaction.lag.ms")
	}
	return nil
}
