package sim

import (
	"time"

	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// Plan is one world before it runs, as plain data: what it is made of, what its
// clients do, and what goes wrong when. A seed draws it; a failing one is cut down.
type Plan struct {
	Seed     uint64
	Duration time.Duration // of work and faults; healing and judging come after it
	Net      NetPlan
	Brokers  []BrokerPlan
	Topics   []TopicPlan
	Clients  []ClientPlan
	Faults   []Fault
	// PowerLossAtEnd: every machine loses power at once before the world is judged.
	PowerLossAtEnd bool
	// LostAtEnd are brokers, by index, that are taken away for good before the world is judged: fewer than half.
	LostAtEnd []int
	Voters    int // the first so many brokers are the metadata quorum; 0 is all
	Cleaner   CleanerPlan
	// Luck chooses among worlds of the same plan that differ in what happens by chance while they run: how long messages
	// take, what a power loss leaves, when a broker asks for votes. 0 is what the seed draws.
	Luck uint64
}

// luck is the seed of what happens by chance while a world runs.
func (p *Plan) luck() uint64 {
	if p.Luck == 0 {
		return p.Seed
	}
	return seed.Mix(p.Seed ^ seed.Mix(p.Luck))
}

// CleanerPlan is how brokers compact, besides what their settings say.
type CleanerPlan struct {
	Offsets bool  // the topic of committed offsets is compacted
	Threads int   // as log.cleaner.threads
	Buffer  int64 // bytes for a map of keys, less than the settings allow, so that a run ends where it is full; 0 is what they say
}

// Setting is one configured name.
type Setting struct{ Name, Value string }

// BrokerPlan is one broker.
type BrokerPlan struct {
	Settings     []Setting
	DiskBytes    int64 // size of its disk; 0 is without bound
	DiskSlowness int64 // times slower than simdisk.DefaultCosts
	SyncAllAbove int   // segment.Options
	MaxOpenFiles int
	DriftPPM     int64 // how much faster than true time its monotonic clock runs, in parts of a million
	Off          bool  // it was cut away: it never runs
}

// TopicPlan is one topic that the world has from its beginning.
type TopicPlan struct {
	Name       string
	Partitions int32
	Replicas   int16
	Settings   []Setting
	Keys       int // of a compacted topic: how many there are; 0 if it is not compacted
	Tombstones int // of a compacted topic: in a thousand records
}

// set gives a setting a value, in the place of one that is there.
func (t *TopicPlan) set(name, value string) {
	for i := range t.Settings {
		if t.Settings[i].Name == name {
			t.Settings[i].Value = value
			return
		}
	}
	t.Settings = append(t.Settings, Setting{name, value})
}

// setting returns what a topic sets a name to.
func (t *TopicPlan) setting(name string) string {
	for _, s := range t.Settings {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// retains says that old records go by themselves. Where a topic is compacted, too, so do segments of which nothing is left.
func (t *TopicPlan) retains() bool {
	switch t.setting("cleanup.policy") {
	case "compact":
		return false
	case "compact,delete":
		return true
	}
	return t.setting("retention.bytes") != "" || t.setting("retention.ms") != ""
}

// weak says that an acknowledgement is no promise against power loss: the topic does not sync before it answers.
func (t *TopicPlan) weak() bool { v := t.setting("flush.messages"); return v != "" && v != "1" }

// ClientKind is what a client does.
type ClientKind uint8

// Kinds of clients.
const (
	Producer ClientKind = iota
	Consumer
	Reader // asks for offsets
	Admin  // deletes records, adds partitions, alters and describes; makes and deletes topics of its own
	Noise  // sends what is no request
	Member // belongs to a consumer group
	numClientKinds
)

var clientNames = [numClientKinds]string{"producer", "consumer", "reader", "admin", "noise", "member"}

// String returns the kind's name, which client ids begin with.
func (k ClientKind) String() string { return clientNames[k] }

// ClientPlan is one client.
type ClientPlan struct {
	Kind    ClientKind
	Seed    uint64
	Topics  []int            // indexes into Plan.Topics
	Ops     int              // at most so many operations; 0 is without bound
	Skips   []Span           // operations, counted from 1, that are passed over: nothing is sent, and their time goes by
	Think   [2]time.Duration // between operations
	Timeout time.Duration    // of a request
	Version int              // how many versions behind the newest, plus 1; 0 is the newest
	Start   time.Duration
	Off     bool // it was cut away

	// Producers.
	Acks       int16
	Idempotent bool
	InFlight   int // batches of one partition under way at once
	Spread     int // partitions in one request
	Records    [2]int
	Bytes      [2]int // of a record's value
	Codec      int8
	Retries    bool // sends again what got no answer

	// Consumers.
	Session        bool // incremental fetches (KIP-227)
	MaxWait        time.Duration
	MinBytes       int32
	MaxBytes       int32
	PartitionBytes int32
	Seek           int // chance in a thousand, after a fetch, to go elsewhere

	Member *MemberPlan // of a member of a group
}

// Span is numbers from one to another, both included.
type Span struct{ From, To int }

// skips says that a client passes over its operation n.
func (c *ClientPlan) skips(n int) bool {
	for _, s := range c.Skips {
		if s.From <= n && n <= s.To {
			return true
		}
	}
	return false
}

// FaultKind is what goes wrong.
type FaultKind uint8

// Kinds of faults.
const (
	Kill            FaultKind = iota // the process ends at once (kill -9); For: how long it is down
	PowerLoss                        // the machine does
	CleanStop                        // SIGTERM, and a start after For
	Pause                            // the process does not run for a while (SIGSTOP, garbage collection)
	DiskRule                         // Rule is armed
	DiskFull                         // nothing more fits for a while
	BitRot                           // a bit changes at rest
	Reset                            // connections break
	Clog                             // nothing arrives for a while
	SlowNet                          // every message takes longer for a while
	WallJump                         // the wall clock of a broker jumps by For
	Blackout                         // every machine loses power at once
	RollingRestart                   // each broker stops cleanly and starts again, one after another
	Split                            // machines are in two parts that do not reach each other
	OneWay                           // nothing gets from a broker to some others, or to it, while the other direction works
	Link                             // two brokers do not reach each other
	Swizzle                          // brokers are cut off one after another, and come back in another order
	Hold                             // one connection between brokers stands still, the others go on
	PeerReset                        // connections of a broker to others break
	BackToBack                       // a leader is killed, and so is its successor, and again
	Deaf                             // a broker learns nothing new of the metadata, while all else reaches it
	SeeSaw                           // a partition's leadership goes to and fro behind the back of a follower
	MemberDeath                      // a member of a group dies without a word; For: until it is started again
	MemberLost                       // a member dies as soon as it has joined, and is not started again
	MemberPause                      // a member does not run for a while
	MemberLeave                      // a member leaves its group, and is started again after For
	MemberSubscribe                  // a member reads other topics from now on
	MemberTwin                       // a process is started with the instance id of another one that is alive
	numFaultKinds
)

// Instead of an index, Fault.Broker may say whom it strikes by what it is at that moment.
const (
	TheLeader     = -1 // of some partition; of the one whose moment the fault waited for
	TheController = -2
	AFollower     = -3 // in sync, of the partition whose moment the fault waited for, else of some
)

// Moment is what a fault waits for from its time on, because it does the most harm right after it.
type Moment uint8

// Moments.
const (
	AtOnce        Moment = iota
	AfterAck             // a producer has an acknowledgement of acks=all
	AfterElection        // a partition has a new leader
	AfterChange          // the in-sync set of a partition has changed
	AfterAppend          // a leader has appended what is not committed yet
	numMoments
)

var momentNames = [numMoments]string{"", "an acknowledgement", "an election", "a change of the in-sync set", "an append"}

var faultNames = [numFaultKinds]string{"kill", "power-loss", "clean-stop", "pause", "disk-rule", "disk-full",
	"bit-rot", "reset", "clog", "slow-net", "wall-jump", "blackout", "rolling-restart", "split", "one-way", "link", "swizzle",
	"hold", "peer-reset", "back-to-back", "deaf", "see-saw", "member-death", "member-lost", "member-pause", "member-leave",
	"member-subscribe", "member-twin"}

// String returns the kind's name.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one thing that goes wrong.
type Fault struct {
	Kind   FaultKind
	At     time.Duration
	For    time.Duration
	Broker int
	Client int // Reset, Clog: whose connections; -1 is everybody's. Of a member: which client it is
	Rule   simdisk.Rule
	Seed   uint64
	When   Moment
	Skip   int // so many such moments pass first
}

// String describes the fault in a few words.
func (f *Fault) String() string {
	s := "b" + itoa(f.Broker) + " " + f.Name()
	switch f.Broker {
	case TheLeader:
		s = "leader " + f.Name()
	case TheController:
		s = "controller " + f.Name()
	case AFollower:
		s = "follower " + f.Name()
	}
	if f.ofMember() {
		s = "c" + itoa(f.Client) + " " + f.Name()
	}
	if f.Kind == DiskRule {
		return s + " at call " + itoa(f.Rule.Nth) + " of " + f.Rule.Op.String() + " " + f.Rule.Path
	}
	if f.For != 0 {
		s += " " + f.For.String()
	}
	if f.When != AtOnce {
		s += " after " + momentNames[f.When]
	}
	return s
}

// Name is how fault tables name it.
func (f *Fault) Name() string {
	if f.Kind == DiskRule {
		return "disk " + f.Rule.Effect.String()
	}
	return f.Kind.String()
}
