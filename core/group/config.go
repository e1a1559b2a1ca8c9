package group

import (
	"time"

	"lockstep/core/config"
)

// Config is what the broker's settings say to the coordinator. Fields that are zero get Kafka's defaults.
type Config struct {
	Partitions int32 // of the offsets topic, until it is made

	InitialDelay time.Duration // group.initial.rebalance.delay.ms
	MinSession   time.Duration // group.min.session.timeout.ms
	MaxSession   time.Duration // group.max.session.timeout.ms
	MaxSize      int32         // group.max.size

	MaxMetadataBytes int32         // offset.metadata.max.bytes
	Retention        time.Duration // offsets.retention.minutes
	RetentionCheck   time.Duration // offsets.retention.check.interval.ms

	ConsumerHeartbeat time.Duration // group.consumer.heartbeat.interval.ms
	ConsumerSession   time.Duration // group.consumer.session.timeout.ms
	ConsumerMaxSize   int32         // group.consumer.max.size
	Assignors         []string      // group.consumer.assignors; the first is the default
	Migration         string        // group.consumer.migration.policy
}

// Policies of migration between the protocols.
const (
	MigrateNever     = "disabled"
	MigrateUp        = "upgrade"
	MigrateDown      = "downgrade"
	MigrateBothWays  = "bidirectional"
	assignorUniform  = "uniform"
	assignorRange    = "range"
	defaultPartition = 50
)

// ConfigOf takes the coordinator's settings out of the broker's.
func ConfigOf(b *config.BrokerConfig) Config {
	return Config{
		Partitions:        b.OffsetsPartitions,
		InitialDelay:      b.GroupInitialRebalanceDelay,
		MinSession:        b.GroupMinSessionTimeout,
		MaxSession:        b.GroupMaxSessionTimeout,
		MaxSize:           b.GroupMaxSize,
		MaxMetadataBytes:  b.OffsetsMetadataMaxBytes,
		Retention:         b.OffsetsRetention,
		RetentionCheck:    b.OffsetsRetentionCheckInterval,
		ConsumerHeartbeat: b.GroupConsumerHeartbeatInterval,
		ConsumerSession:   b.GroupConsumerSessionTimeout,
		ConsumerMaxSize:   b.GroupConsumerMaxSize,
		Assignors:         b.GroupConsumerAssignors,
		Migration:         b.GroupConsumerMigration,
	}
}

// whole returns c with defaults where nothing is set.
func (c Config) whole() Config {
	orElse(&c.Partitions, defaultPartition)
	orElse(&c.MinSession, 6*time.Second)
	orElse(&c.MaxSession, 30*time.Minute)
	orElse(&c.MaxSize, 1<<31-1)
	orElse(&c.MaxMetadataBytes, 4096)
	orElse(&c.Retention, 7*24*time.Hour)
	orElse(&c.RetentionCheck, 10*time.Minute)
	orElse(&c.ConsumerHeartbeat, 5*time.Second)
	orElse(&c.ConsumerSession, 45*time.Second)
	orElse(&c.ConsumerMaxSize, 1<<31-1)
	orElse(&c.Migration, MigrateBothWays)
	if len(c.Assignors) == 0 {
		c.Assignors = []string{assignorUniform, assignorRange}
	}
	return c
}

func orElse[T comparable](p *T, otherwise T) {
	var zero T
	if *p == zero {
		*p = otherwise
	}
}
