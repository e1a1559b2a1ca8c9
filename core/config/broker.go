package config

import "time"

// Listener is one entry of listeners or advertised.listeners: NAME://host:port.
type Listener struct {
	Name string // PLAINTEXT; the security protocol is the same
	Host string // empty: every interface
	Port uint16 // 0: any free one
}

// Voter is one entry of controller.quorum.voters: id@host:port.
type Voter struct {
	ID   int32
	Host string
	Port uint16
}

// BrokerConfig is the effective configuration of one broker, without the log.*
// defaults, which TopicDefaults holds. Comments give Kafka's name.
type BrokerConfig struct {
	NodeID              int32      // node.id, broker.id
	Rack                string     // broker.rack; empty for none
	LogDir              string     // log.dirs, log.dir: one directory
	Listeners           []Listener // listeners
	AdvertisedListeners []Listener // advertised.listeners; empty: the listeners
	Voters              []Voter    // controller.quorum.voters; empty: this broker alone

	AutoCreateTopics         bool  // auto.create.topics.enable
	NumPartitions            int32 // num.partitions
	DefaultReplicationFactor int16 // default.replication.factor; -1: three, or as many as there are brokers
	DeleteTopicEnable        bool  // delete.topic.enable

	SocketRequestMaxBytes  int32         // socket.request.max.bytes
	QueuedMaxRequestBytes  int64         // queued.max.request.bytes; -1 without bound
	MaxConnections         int32         // max.connections
	MaxConnectionsPerIP    int32         // max.connections.per.ip
	ConnectionsMaxIdle     time.Duration // connections.max.idle.ms
	FetchMaxBytes          int32         // fetch.max.bytes
	FetchSessionCacheSlots int32         // max.incremental.fetch.session.cache.slots
	RetentionCheckInterval time.Duration // log.retention.check.interval.ms
	RecoveryThreads        int32         // num.recovery.threads.per.data.dir
	ProducerIDExpiration   time.Duration // producer.id.expiration.ms

	HeartbeatInterval time.Duration // broker.heartbeat.interval.ms
	Lease             time.Duration // broker.lease.ms (Lockstep's own)
	SessionTimeout    time.Duration // broker.session.timeout.ms
	ElectionTimeout   time.Duration // controller.quorum.election.timeout.ms; up to twice as long at random
	QuorumFetchWait   time.Duration // controller.quorum.fetch.timeout.ms

	ReplicaLagTimeMax     time.Duration // replica.lag.time.max.ms
	ReplicaFetchWaitMax   time.Duration // replica.fetch.wait.max.ms
	ReplicaFetchMinBytes  int32         // replica.fetch.min.bytes
	ReplicaFetchMaxBytes  int32         // replica.fetch.max.bytes: per partition
	ReplicaFetchRespBytes int32         // replica.fetch.response.max.bytes: per response

	AutoLeaderRebalance   bool          // auto.leader.rebalance.enable
	LeaderRebalanceCheck  time.Duration // leader.imbalance.check.interval.seconds
	ControlledShutdown    bool          // controlled.shutdown.enable
	MetadataSnapshotBytes int64         // metadata.log.max.record.bytes.between.snapshots
	MetadataSegmentBytes  int64         // metadata.log.segment.bytes
	ShutdownGrace         time.Duration // controlled.shutdown.max.wait.ms (Lockstep's own)
	SocketSendBufferBytes int32         // socket.send.buffer.bytes; -1: the system's choice
	SocketRecvBufferBytes int32         // socket.receive.buffer.bytes; -1: the system's choice
}
