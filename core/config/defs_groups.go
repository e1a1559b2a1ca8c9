package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsDefs are the settings of committed offsets and of the topic that holds them.
func offsetsDefs() []*Def {
	return []*Def{
		ownInt("offsets.topic.num.partitions", "50", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.OffsetsPartitions = int32(n) },
			"How many partitions the topic of committed offsets gets when it is made; later it is fixed."),
		{Name: "offsets.topic.replication.factor", Type: kmsg.ConfigTypeShort, Default: "-1", min: -1, max: math.MaxInt16,
			check: notZero, setOwn: func(c *BrokerConfig, v Value) { c.OffsetsReplication = int16(v.Int) },
			Doc: "How many replicas the topic of committed offsets gets when it is made; -1: three, or as many as there are brokers, " +
				"if fewer."},
		ownInt("offsets.topic.segment.bytes", "104857600", 14, maxInt,
			func(c *BrokerConfig, n int64) { c.OffsetsSegmentBytes = int32(n) },
			"The size in bytes at which a segment of the topic of committed offsets is closed and the next one begun."),
		ownInt("offset.metadata.max.bytes", "4096", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.OffsetsMetadataMaxBytes = int32(n) },
			"How long, in bytes, the text may be that a client stores beside an offset."),
		{Name: "offsets.retention.minutes", Type: kmsg.ConfigTypeInt, Default: "10080", min: 1, max: maxInt,
			setOwn: func(c *BrokerConfig, v Value) { c.OffsetsRetention = time.Duration(v.Int) * time.Minute },
			Doc:    "How many minutes committed offsets are kept once their group has no members (KIP-211)."},
		ownMillis("offsets.retention.check.interval.ms", "600000", 1,
			func(c *BrokerConfig, d time.Duration) { c.OffsetsRetentionCheckInterval = d },
			"How often, in milliseconds, committed offsets are looked at for those whose time is over."),
	}
}

// groupDefs are the settings of the groups themselves.
func groupDefs() []*Def {
	return []*Def{
		ownMillis("group.initial.rebalance.delay.ms", "0", 0,
			func(c *BrokerConfig, d time.Duration) { c.GroupInitialRebalanceDelay = d },
			"How long, in milliseconds, the first member of an empty group waits for others before the first assignment. Kafka's "+
				"own default is 3000."),
		ownMillis("group.min.session.timeout.ms", "6000", 1,
			func(c *BrokerConfig, d time.Duration) { c.GroupMinSessionTimeout = d },
			"The shortest session timeout, in milliseconds, that a member of the classic protocol may ask for."),
		ownMillis("group.max.session.timeout.ms", "1800000", 1,
			func(c *BrokerConfig, d time.Duration) { c.GroupMaxSessionTimeout = d },
			"The longest session timeout, in milliseconds, that a member of the classic protocol may ask for."),
		ownInt("group.max.size", "2147483647", 1, maxInt, func(c *BrokerConfig, n int64) { c.GroupMaxSize = int32(n) },
			"How many members a group of the classic protocol may have."),
		ownMillis("group.consumer.heartbeat.interval.ms", "5000", 1,
			func(c *BrokerConfig, d time.Duration) { c.GroupConsumerHeartbeatInterval = d },
			"How often, in milliseconds, a member of the consumer protocol (KIP-848) is to send a heartbeat."),
		ownMillis("group.consumer.session.timeout.ms", "45000", 1,
			func(c *BrokerConfig, d time.Duration) { c.GroupConsumerSessionTimeout = d },
			"After how long, in milliseconds, a member of the consumer protocol (KIP-848) that is silent is removed."),
		ownInt("group.consumer.max.size", "2147483647", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.GroupConsumerMaxSize = int32(n) },
			"How many members a group of the consumer protocol (KIP-848) may have."),
		{Name: "group.consumer.assignors", Type: kmsg.ConfigTypeList, Default: "uniform,range", check: checkAssignors,
			setOwn: func(c *BrokerConfig, v Value) { c.GroupConsumerAssignors = v.List },
			Doc: "The assignors of the consumer protocol (KIP-848), separated by commas: uniform, range. The first is taken where " +
				"no member asks for one."},
		{Name: "group.consumer.migration.policy", Type: kmsg.ConfigTypeString, Default: "bidirectional",
			allowed: []string{"disabled", "upgrade", "downgrade", "bidirectional"},
			setOwn:  func(c *BrokerConfig, v Value) { c.GroupConsumerMigration = v.Str },
			Doc:     "Which way a group with members may change between the classic and the consumer protocol."},
	}
}

var knownAssignors = []string{"uniform", "range"}

func checkAssignors(v Value) error {
	if len(v.List) == 0 {
		return errors.New("must not be empty")
	}
	for i, name := range v.List {
		switch {
		case !slices.Contains(knownAssignors, name):
			return fmt.Errorf("%q is not one of uniform, range", name)
		case slices.Contains(v.List[:i], name):
			return fmt.Errorf("has %q twice", name)
		}
	}
	return nil
}
