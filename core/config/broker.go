package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Listener is one entry of listeners or advertised.listeners: NAME://host:port.
type Listener struct {
	Name string
	Host string // empty: every interface
	Port uint16 // 0: any free one
}

// Voter is one entry of controller.quorum.voters: id@host:port.
type Voter struct {
	ID   int32
	Host string
	Port uint16
}

// BrokerConfig is the effective configuration of one broker, but for the
// defaults of its topics, which Layers.TopicDefaults gives. Comments give
// Kafka's name. Durations without bound are Forever.
type BrokerConfig struct {
	NodeID              int32      // node.id, broker.id
	Rack                string     // broker.rack; empty for none
	LogDir              string     // log.dirs, log.dir
	Listeners           []Listener // listeners
	AdvertisedListeners []Listener // advertised.listeners; empty: the listeners
	Voters              []Voter    // controller.quorum.voters; empty: this broker alone

	AutoCreateTopics         bool          // auto.create.topics.enable
	DeleteTopicEnable        bool          // delete.topic.enable
	NumPartitions            int32         // num.partitions
	DefaultReplicationFactor int16         // default.replication.factor; -1: three, or as many as there are brokers
	AutoLeaderRebalance      bool          // auto.leader.rebalance.enable
	LeaderRebalanceCheck     time.Duration // leader.imbalance.check.interval.seconds

	SocketRequestMaxBytes  int32         // socket.request.max.bytes
	QueuedMaxRequestBytes  int64         // queued.max.request.bytes; -1 without bound
	MaxConnections         int32         // max.connections
	MaxConnectionsPerIP    int32         // max.connections.per.ip
	ConnectionsMaxIdle     time.Duration // connections.max.idle.ms
	FetchMaxBytes          int32         // fetch.max.bytes
	FetchSessionCacheSlots int32         // max.incremental.fetch.session.cache.slots
	RetentionCheckInterval time.Duration // log.retention.check.interval.ms
	ProducerIDExpiration   time.Duration // producer.id.expiration.ms

	CleanerEnable         bool          // log.cleaner.enable
	CleanerThreads        int32         // log.cleaner.threads
	CleanerBackoff        time.Duration // log.cleaner.backoff.ms
	CleanerBufferBytes    int64         // log.cleaner.dedupe.buffer.size: of all threads together
	CleanerBytesPerSecond float64       // log.cleaner.io.max.bytes.per.second: read and written, of all threads together

	HeartbeatInterval time.Duration // broker.heartbeat.interval.ms
	Lease             time.Duration // broker.lease.ms: Lockstep's own
	SessionTimeout    time.Duration // broker.session.timeout.ms
	ElectionTimeout   time.Duration // controller.quorum.election.timeout.ms; up to twice as long at random
	QuorumFetchWait   time.Duration // controller.quorum.fetch.wait.max.ms: Lockstep's own
	QuorumFetchBytes  int32         // controller.quorum.fetch.max.bytes (KIP-1219)
	QuorumPieceBytes  int32         // controller.quorum.fetch.snapshot.max.bytes (KIP-1219)

	ReplicaLagTimeMax     time.Duration // replica.lag.time.max.ms
	ReplicaFetchWaitMax   time.Duration // replica.fetch.wait.max.ms
	ReplicaFetchMinBytes  int32         // replica.fetch.min.bytes
	ReplicaFetchMaxBytes  int32         // replica.fetch.max.bytes: per partition
	ReplicaFetchRespBytes int32         // replica.fetch.response.max.bytes

	ControlledShutdown    bool          // controlled.shutdown.enable
	ShutdownGrace         time.Duration // controlled.shutdown.max.wait.ms: Lockstep's own
	MetadataSnapshotBytes int64         // metadata.log.max.record.bytes.between.snapshots
	MetadataSegmentBytes  int64         // metadata.log.segment.bytes

	OffsetsPartitions   int32 // offsets.topic.num.partitions
	OffsetsReplication  int16 // offsets.topic.replication.factor; -1: three, or as many as there are brokers
	OffsetsSegmentBytes int32 // offsets.topic.segment.bytes

	OffsetsMetadataMaxBytes       int32         // offset.metadata.max.bytes
	OffsetsRetention              time.Duration // offsets.retention.minutes
	OffsetsRetentionCheckInterval time.Duration // offsets.retention.check.interval.ms

	GroupInitialRebalanceDelay     time.Duration // group.initial.rebalance.delay.ms
	GroupMinSessionTimeout         time.Duration // group.min.session.timeout.ms
	GroupMaxSessionTimeout         time.Duration // group.max.session.timeout.ms
	GroupMaxSize                   int32         // group.max.size
	GroupConsumerHeartbeatInterval time.Duration // group.consumer.heartbeat.interval.ms
	GroupConsumerSessionTimeout    time.Duration // group.consumer.session.timeout.ms
	GroupConsumerMaxSize           int32         // group.consumer.max.size
	GroupConsumerAssignors         []string      // group.consumer.assignors
	GroupConsumerMigration         string        // group.consumer.migration.policy
}

// Check reports what settings contradict each other. The time bounds are those that leases rest on.
func (c *BrokerConfig) Check() error {
	switch {
	case c.HeartbeatInterval >= c.Lease:
		return errors.New("broker.heartbeat.interval.ms must be below broker.lease.ms, or no lease is ever renewed in time")
	case c.Lease+c.Lease/10 >= c.SessionTimeout:
		return errors.New("broker.session.timeout.ms must be above broker.lease.ms by more than a tenth, or a broker is fenced while it serves")
	case c.SessionTimeout > Forever/4 || 2*c.SessionTimeout+2*c.Lease > c.ReplicaLagTimeMax:
		return errors.New("replica.lag.time.max.ms must be at least twice broker.session.timeout.ms and broker.lease.ms together, " +
			"or a deposed leader's lease outlives its place in the in-sync set")
	case 2*c.QuorumFetchWait > c.ElectionTimeout:
		return errors.New("controller.quorum.fetch.wait.max.ms must be at most half of controller.quorum.election.timeout.ms, " +
			"or a leader seems dead between two fetches")
	case c.GroupMinSessionTimeout > c.GroupMaxSessionTimeout:
		return errors.New("group.min.session.timeout.ms must not be above group.max.session.timeout.ms")
	case c.GroupConsumerHeartbeatInterval >= c.GroupConsumerSessionTimeout:
		return errors.New("group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms, or every member " +
			"is thrown out between two heartbeats")
	case len(c.Listeners) == 0:
		return errors.New("listeners must not be empty")
	}
	for _, a := range c.AdvertisedListeners {
		if !slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Name == a.Name }) {
			return fmt.Errorf("advertised.listeners has %s, which listeners has not", a.Name)
		}
	}
	return nil
}

func notZero(v Value) error {
	if v.Int == 0 {
		return errors.New("must be -1 or at least 1")
	}
	return nil
}

func oneDirectory(v Value) error {
	switch {
	case v.Str == "":
		return errors.New("must not be empty")
	case strings.Contains(v.Str, ","):
		return errors.New("several directories are not supported")
	}
	return nil
}

func listenersDef(name, def string, set func(*BrokerConfig, []Listener), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeList, Default: def, Doc: doc,
		check: func(v Value) error { _, err := ParseListeners(v.List); return err },
		setOwn: func(c *BrokerConfig, v Value) {
			l, _ := ParseListeners(v.List)
			set(c, l)
		}}
}

// ParseListeners parses items of the form NAME://host:port, of which no two have one name.
func ParseListeners(items []string) ([]Listener, error) {
	var out []Listener
	for _, item := range items {
		name, address, ok := strings.Cut(item, "://")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME://host:port", item)
		}
		host, port, err := splitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("%q is not NAME://host:port: %w", item, err)
		}
		name = strings.ToUpper(name)
		if slices.ContainsFunc(out, func(l Listener) bool { return l.Name == name }) {
			return nil, fmt.Errorf("two listeners have the name %s", name)
		}
		out = append(out, Listener{name, host, port})
	}
	return out, nil
}

func checkVoters(v Value) error { _, err := parseVoters(v.List); return err }

func parseVoters(items []string) ([]Voter, error) {
	var out []Voter
	for _, item := range items {
		id, address, ok := strings.Cut(item, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not id@host:port", item)
		}
		host, port, err := splitHostPort(address)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is not id@host:port", item)
		}
		if slices.ContainsFunc(out, func(v Voter) bool { return v.ID == int32(n) }) {
			return nil, fmt.Errorf("voter %d is given twice", n)
		}
		if slices.ContainsFunc(out, func(v Voter) bool { return v.Host == host && v.Port == port }) {
			return nil, fmt.Errorf("%s is given to two voters", address)
		}
		out = append(out, Voter{int32(n), host, port})
	}
	return out, nil
}

// splitHostPort splits host:port, where an IPv6 address stands in brackets.
func splitHostPort(s string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, errors.New("no port")
	}
	host = s[:i]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.ContainsAny(host, ":/[]") {
		return "", 0, errors.New("bad host")
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil {
		return "", 0, errors.New("bad port")
	}
	return host, uint16(n), nil
}
