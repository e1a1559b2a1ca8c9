package config

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsDefs are the settings of the topic that holds committed offsets and the state of groups.
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
	}
}
