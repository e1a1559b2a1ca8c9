package config

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const hourMillis, minuteMillis = 3_600_000, 60_000

// brokerDefs is every setting that a broker has: its own, and the defaults of its topics.
var brokerDefs = newTable(append(ownDefs(), topicDefaultDefs()...))

// ownDefs are the settings that BrokerConfig holds.
func ownDefs() []*Def {
	return slices.Concat(identityDefs(), topicCreationDefs(), limitDefs(), cleanerDefs(), clusterDefs(), offsetsDefs(), groupDefs())
}

func identityDefs() []*Def {
	return []*Def{
		{Name: "node.id", Type: kmsg.ConfigTypeInt, Default: "1", min: 0, max: maxInt, Instead: []string{"broker.id"},
			setOwn: func(c *BrokerConfig, v Value) { c.NodeID = int32(v.Int) }, Null: false,
			Doc: "The number of this broker; no two brokers of a cluster share one."},
		{Name: "broker.id", Type: kmsg.ConfigTypeInt, Null: true, min: 0, max: maxInt, Doc: "The older name of node.id."},
		{Name: "broker.rack", Type: kmsg.ConfigTypeString, Null: true,
			setOwn: func(c *BrokerConfig, v Value) { c.Rack = v.Str },
			Doc:    "The rack (or zone) of this broker. Replicas of a partition are spread over racks."},
		{Name: "log.dirs", Type: kmsg.ConfigTypeString, Null: true, Instead: []string{"log.dir"}, check: oneDirectory,
			setOwn: func(c *BrokerConfig, v Value) { c.LogDir = v.Str },
			Doc:    "The directory of this broker's data: one, not several."},
		{Name: "log.dir", Type: kmsg.ConfigTypeString, Default: "./lockstep-data", check: oneDirectory,
			Doc: "The directory of this broker's data, where log.dirs is not set."},
		listenersDef("listeners", "PLAINTEXT://127.0.0.1:9092",
			func(c *BrokerConfig, l []Listener) { c.Listeners = l },
			"Where this broker listens for clients: NAME://host:port, separated by commas. Port 0 takes any free one."),
		listenersDef("advertised.listeners", "",
			func(c *BrokerConfig, l []Listener) { c.AdvertisedListeners = l },
			"Where clients are told to connect: NAME://host:port, separated by commas. Empty: where it listens."),
		{Name: "controller.quorum.voters", Type: kmsg.ConfigTypeList, Default: "", check: checkVoters,
			setOwn: func(c *BrokerConfig, v Value) { c.Voters, _ = parseVoters(v.List) },
			Doc: "The voters of the metadata quorum, the same on every broker: id@host:port of their peer listeners, separated by " +
				"commas. Empty: this broker alone."},
	}
}

func topicCreationDefs() []*Def {
	return []*Def{
		ownBool("auto.create.topics.enable", "true", func(c *BrokerConfig, b bool) { c.AutoCreateTopics = b },
			"Whether a topic is made when a client first asks for it."),
		ownBool("delete.topic.enable", "true", func(c *BrokerConfig, b bool) { c.DeleteTopicEnable = b },
			"Whether topics may be deleted."),
		ownInt("num.partitions", "1", 1, maxInt, func(c *BrokerConfig, n int64) { c.NumPartitions = int32(n) },
			"How many partitions a topic gets when nobody says."),
		{Name: "default.replication.factor", Type: kmsg.ConfigTypeShort, Default: "-1", min: -1, max: math.MaxInt16,
			check: notZero, setOwn: func(c *BrokerConfig, v Value) { c.DefaultReplicationFactor = int16(v.Int) },
			Doc: "How many replicas a topic gets when nobody says; -1: three, or as many as there are brokers, if fewer."},
		ownBool("auto.leader.rebalance.enable", "true", func(c *BrokerConfig, b bool) { c.AutoLeaderRebalance = b },
			"Whether leadership goes back to the first replica of each partition from time to time."),
		{Name: "leader.imbalance.check.interval.seconds", Type: kmsg.ConfigTypeLong, Default: "300", min: 1, max: math.MaxInt32,
			setOwn: func(c *BrokerConfig, v Value) { c.LeaderRebalanceCheck = time.Duration(v.Int) * time.Second },
			Doc:    "How often, in seconds, auto.leader.rebalance.enable looks."},
	}
}

func limitDefs() []*Def {
	return []*Def{
		ownInt("socket.request.max.bytes", "104857600", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.SocketRequestMaxBytes = int32(n) },
			"The largest request, in bytes; a connection that announces a larger one is closed."),
		ownLong("queued.max.request.bytes", "268435456", -1, func(c *BrokerConfig, n int64) { c.QueuedMaxRequestBytes = n },
			"How many bytes of requests may be in flight in all before connections are no longer read; -1 for no bound."),
		// Not 0, though Kafka takes it: nobody could connect to take it back, and a restart would not help.
		dynamic(ownInt("max.connections", "2147483647", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.MaxConnections = int32(n) }, "How many connections are accepted.")),
		dynamic(ownInt("max.connections.per.ip", "2147483647", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.MaxConnectionsPerIP = int32(n) },
			"How many connections from one address are accepted.")),
		ownMillis("connections.max.idle.ms", "600000", -1, func(c *BrokerConfig, d time.Duration) { c.ConnectionsMaxIdle = d },
			"After how long, in milliseconds, a connection without requests is closed; -1 for never."),
		ownInt("fetch.max.bytes", "57671680", 1024, maxInt, func(c *BrokerConfig, n int64) { c.FetchMaxBytes = int32(n) },
			"How many bytes one fetch is answered with at most, but for a first batch that is larger."),
		ownInt("max.incremental.fetch.session.cache.slots", "1000", 0, maxInt,
			func(c *BrokerConfig, n int64) { c.FetchSessionCacheSlots = int32(n) }, "How many fetch sessions are kept."),
		ownMillis("log.retention.check.interval.ms", "300000", 1,
			func(c *BrokerConfig, d time.Duration) { c.RetentionCheckInterval = d },
			"How often, in milliseconds, logs are looked at for segments to delete."),
		ownMillis("producer.id.expiration.ms", "86400000", 1,
			func(c *BrokerConfig, d time.Duration) { c.ProducerIDExpiration = d },
			"After how long, in milliseconds, an idempotent producer that sends nothing is forgotten."),
	}
}

// cleanerDefs are the settings of compaction that are not a topic's.
func cleanerDefs() []*Def {
	return []*Def{
		ownBool("log.cleaner.enable", "true", func(c *BrokerConfig, b bool) { c.CleanerEnable = b },
			"Whether topics whose cleanup.policy has compact are compacted."),
		ownInt("log.cleaner.threads", "1", 1, 64, func(c *BrokerConfig, n int64) { c.CleanerThreads = int32(n) },
			"How many logs are compacted at once."),
		dynamic(ownMillis("log.cleaner.backoff.ms", "15000", 1, func(c *BrokerConfig, d time.Duration) { c.CleanerBackoff = d },
			"How often, in milliseconds, compacted topics are looked at for something to compact.")),
		dynamic(ownLong("log.cleaner.dedupe.buffer.size", "134217728", 1<<20,
			func(c *BrokerConfig, n int64) { c.CleanerBufferBytes = n },
			"How many bytes of memory compaction may use for its maps of keys, in all threads together. One that compacts a log in "+
				"one go needs 30 for each key in what is new of it.")),
		dynamic(&Def{Name: "log.cleaner.io.max.bytes.per.second", Type: kmsg.ConfigTypeDouble, Default: "1.7976931348623157E308",
			setOwn: func(c *BrokerConfig, v Value) { c.CleanerBytesPerSecond = v.Float },
			check:  positive,
			Doc:    "How many bytes compaction may read and write in a second, in all threads together."}),
	}
}

func positive(v Value) error {
	if v.Float <= 0 {
		return errors.New("must be above 0")
	}
	return nil
}

func clusterDefs() []*Def {
	return []*Def{
		ownMillis("broker.heartbeat.interval.ms", "100", 1, func(c *BrokerConfig, d time.Duration) { c.HeartbeatInterval = d },
			"How often, in milliseconds, a broker tells the controller that it is alive."),
		ownMillis("broker.lease.ms", "500", 1, func(c *BrokerConfig, d time.Duration) { c.Lease = d },
			"For how long, in milliseconds after it sent a heartbeat that was answered, a broker may serve as leader. The same on "+
				"every broker."),
		ownMillis("broker.session.timeout.ms", "2000", 1, func(c *BrokerConfig, d time.Duration) { c.SessionTimeout = d },
			"After how long, in milliseconds, the controller fences a broker that is silent. The same on every broker."),
		ownMillis("controller.quorum.election.timeout.ms", "500", 1,
			func(c *BrokerConfig, d time.Duration) { c.ElectionTimeout = d },
			"How long, in milliseconds, a voter hears no leader before it wants an election; up to twice as long, by chance."),
		ownMillis("controller.quorum.fetch.wait.max.ms", "100", 1,
			func(c *BrokerConfig, d time.Duration) { c.QuorumFetchWait = d },
			"How long, in milliseconds, a fetch of the metadata log waits for records: the pulse by which the quorum's leader and "+
				"its followers know of each other."),
		ownInt("controller.quorum.fetch.max.bytes", "1048576", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.QuorumFetchBytes = int32(n) },
			"How many bytes one fetch of the metadata log takes, but for a first batch that is larger."),
		ownInt("controller.quorum.fetch.snapshot.max.bytes", "1048576", 1, maxInt,
			func(c *BrokerConfig, n int64) { c.QuorumPieceBytes = int32(n) },
			"How many bytes of a metadata snapshot one fetch of it takes."),
		ownMillis("replica.lag.time.max.ms", "10000", 1, func(c *BrokerConfig, d time.Duration) { c.ReplicaLagTimeMax = d },
			"How long, in milliseconds, a follower may not have caught up with its leader before it leaves the in-sync set."),
		ownMillis("replica.fetch.wait.max.ms", "500", 1,
			func(c *BrokerConfig, d time.Duration) { c.ReplicaFetchWaitMax = d },
			"How long, in milliseconds, a follower's fetch waits for data."),
		ownInt("replica.fetch.min.bytes", "1", 0, maxInt, func(c *BrokerConfig, n int64) { c.ReplicaFetchMinBytes = int32(n) },
			"How many bytes a follower's fetch waits for."),
		ownInt("replica.fetch.max.bytes", "1048576", 0, maxInt,
			func(c *BrokerConfig, n int64) { c.ReplicaFetchMaxBytes = int32(n) },
			"How many bytes of one partition a follower's fetch takes, but for a first batch that is larger."),
		ownInt("replica.fetch.response.max.bytes", "10485760", 0, maxInt,
			func(c *BrokerConfig, n int64) { c.ReplicaFetchRespBytes = int32(n) },
			"How many bytes a follower's fetch takes in all, but for a first batch that is larger."),
		ownBool("controlled.shutdown.enable", "true", func(c *BrokerConfig, b bool) { c.ControlledShutdown = b },
			"Whether a broker that stops hands its partitions over first."),
		ownMillis("controlled.shutdown.max.wait.ms", "5000", 0, func(c *BrokerConfig, d time.Duration) { c.ShutdownGrace = d },
			"For how long, in milliseconds, a broker that stops waits for its partitions to be taken over."),
		ownInt("metadata.log.segment.bytes", "67108864", 1<<20, maxInt,
			func(c *BrokerConfig, n int64) { c.MetadataSegmentBytes = n },
			"The size in bytes at which a segment of the metadata log is closed and the next one begun."),
		ownLong("metadata.log.max.record.bytes.between.snapshots", "20971520", 1,
			func(c *BrokerConfig, n int64) { c.MetadataSnapshotBytes = n },
			"After how many bytes of metadata records a snapshot is made and the log before it dropped."),
	}
}

// topicDefaultDefs makes of each topic setting the broker setting that gives its default.
func topicDefaultDefs() []*Def {
	defs := []*Def{
		hours("log.retention.hours", "168", "retention", -1), minutes("log.retention.minutes", "retention", -1),
		hours("log.roll.hours", "168", "age of a segment", 1), hours("log.roll.jitter.hours", "0", "jitter of segments", 0),
	}
	instead := map[string][]string{
		"log.retention.ms":   {"log.retention.minutes", "log.retention.hours"},
		"log.roll.ms":        {"log.roll.hours"},
		"log.roll.jitter.ms": {"log.roll.jitter.hours"},
	}
	for _, t := range topicDefs {
		d := *t
		d.Name, d.Broker, d.setTopic, d.Update = t.Broker, "", nil, ClusterWide
		d.Instead = instead[d.Name]
		if d.Null = d.Instead != nil; d.Null {
			d.Default = ""
		}
		if d.Name == "min.insync.replicas" {
			d.Update, d.seed = ClusterOnly, true
		}
		d.Doc = "The default of the topic setting " + t.Name + ". " + t.Doc
		defs = append(defs, &d)
	}
	return defs
}

func hours(name, def, of string, lo int64) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeInt, Default: def, min: lo, max: maxInt, scale: hourMillis,
		Doc: "The default " + of + " in hours, where it is not set in smaller units."}
}

func minutes(name, of string, lo int64) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeInt, Null: true, min: lo, max: maxInt, scale: minuteMillis,
		Doc: "The default " + of + " in minutes, where it is not set in milliseconds."}
}

func dynamic(d *Def) *Def { d.Update = ClusterWide; return d }

func ownInt(name, def string, lo, hi int64, set func(*BrokerConfig, int64), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeInt, Default: def, Doc: doc, min: lo, max: hi,
		setOwn: func(c *BrokerConfig, v Value) { set(c, v.Int) }}
}

func ownLong(name, def string, lo int64, set func(*BrokerConfig, int64), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeLong, Default: def, Doc: doc, min: lo, max: maxLong,
		setOwn: func(c *BrokerConfig, v Value) { set(c, v.Int) }}
}

func ownMillis(name, def string, lo int64, set func(*BrokerConfig, time.Duration), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeLong, Default: def, Doc: doc, min: lo, max: maxLong,
		setOwn: func(c *BrokerConfig, v Value) { set(c, millis(v.Int)) }}
}

func ownBool(name, def string, set func(*BrokerConfig, bool), doc string) *Def {
	return &Def{Name: name, Type: kmsg.ConfigTypeBoolean, Default: def, Doc: doc,
		setOwn: func(c *BrokerConfig, v Value) { set(c, v.Bool) }}
}
