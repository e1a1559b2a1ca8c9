package replica

import (
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// Waiter is the caller's name for a request that waits; opaque here.
type Waiter uint64

// Config is what a topic's and the broker's settings say to a replica. The names are Kafka's.
type Config struct {
	MinInsync        int           // min.insync.replicas; counted as at most the number of replicas
	Sync             bool          // flush.messages=1: only what is synced counts, for acks and for the high watermark
	LagMax           time.Duration // replica.lag.time.max.ms
	MaxMessageBytes  int           // max.message.bytes, of one batch
	LogAppendTime    bool          // message.timestamp.type=LogAppendTime
	TimestampBefore  int64         // message.timestamp.before.max.ms
	TimestampAfter   int64         // message.timestamp.after.max.ms
	Compact          bool          // cleanup.policy has compact: every record needs a key
	ProducerIDExpiry time.Duration // producer.id.expiration.ms
	KeepRecords      bool          // cleanup.policy is compact alone: DeleteRecords is refused
	MaxProducers     int           // producers remembered at most; 0 is log.DefaultMaxProducers
}

// Member is one assigned replica as the cluster's metadata knows it.
type Member struct {
	ID       int32
	Epoch    int64 // broker epoch of its last registration, -1 if not known
	Eligible bool  // neither fenced nor stopping: may join the in-sync set (rule 7)
}

// PartitionState is what the cluster's metadata says of the partition.
type PartitionState struct {
	Leader         int32 // -1 if there is none
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       []Member // in order of assignment
	ISR            []int32
}

// Role is what a replica is.
type Role uint8

// Roles.
const (
	Idle     Role = iota // the partition has no leader, or nobody has said so yet
	Leader               // this replica leads
	Follower             // another leads
	Failed               // damaged or on a failed disk: set aside
)

// Produced is the outcome of a Produce, of one partition's batch.
type Produced struct {
	Waiter     Waiter
	Code       int16 // Kafka error code
	Message    string
	BaseOffset int64 // -1 on error
	AppendTime int64 // milliseconds with LogAppendTime, else -1
	LogStart   int64
	BadRecord  int32 // index in the batch of the record that is to blame, -1 if none is
}

// Deleted is the outcome of a DeleteRecords.
type Deleted struct {
	Waiter       Waiter
	Code         int16
	LowWatermark int64 // -1 on error
}

// FetchDecision says what a fetch may read now.
type FetchDecision struct {
	Code          int16 // Kafka error code; the offsets below are valid with OFFSET_OUT_OF_RANGE too
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	Limit         int64 // records from the asked offset to here (exclusive) may be read; no more than the offset: nothing now
	// Bytes is about how much that is, to hold against min_bytes: exact for recent records, else a lower bound, at
	// least 1 if there is anything. Data from before the log was opened counts as plenty.
	Bytes int64
	// News, for a follower: it has not been told of this high watermark, so answer at once though there are no records.
	News bool
	// Unsettled, for a client: a new leader, whose epoch's start is not committed yet. What lies at the high watermark
	// or beyond it may be committed though this leader does not know it; an answer is better delayed.
	Unsettled bool
	Covered   int64           // for a follower: as Replica.Covered
	End       int64           // for a follower: Limit, beyond which the answer holds nothing
	Producers bool            // for a follower that is to begin at LogStart: the answer carries Replica.ProducersBelow(LogStart)
	Diverging *log.EpochStart // (epoch, end offset) where the asker's log departs from this one; nothing is read then
}

// FetchAsk is what a follower wants from its leader; it goes back into Fetched with the answer.
type FetchAsk struct {
	Leader           int32
	LeaderEpoch      int32 // current_leader_epoch
	Offset           int64
	LastFetchedEpoch int32 // -1 if the log has none
	LogStart         int64
}

// FetchAnswer is the leader's answer to a FetchAsk.
type FetchAnswer struct {
	Code          int16
	HighWatermark int64
	LogStart      int64
	Covered       int64           // as Replica.Covered; 0 if the leader does not say
	Limit         int64           // as FetchDecision.End, of a log that is compacted; 0 if the leader does not say
	Producers     []byte          // with OFFSET_OUT_OF_RANGE: as Replica.ProducersBelow(LogStart); nil if the leader does not say
	Diverging     *log.EpochStart // nil if none
	Batches       []record.Batch
}

// Proposal is a change of the in-sync set that the leader asks the controller for (AlterPartition).
type Proposal struct {
	LeaderEpoch    int32
	PartitionEpoch int32    // of the state it departs from
	ISR            []Member // ID and Epoch
}

// OffsetAnswer is the answer to a ListOffsets, or what has to be looked up for it.
type OffsetAnswer struct {
	Code      int16
	Offset    int64 // -1 if none
	Timestamp int64 // -1 if none
	Epoch     int32 // leader epoch of the record, -1 if not known
	// Lookup asks for LookupTime{Timestamp, Limit}, whose outcome goes into TimeFound with LeaderEpoch.
	Lookup      bool
	Limit       int64
	LeaderEpoch int32
	Settled     bool // nothing is committed beyond Limit
}

// Value is an offset that may be missing.
type Value struct {
	Set    bool
	Offset int64
}

// Line is a line for the operator. Level is that of log/slog.
type Line struct {
	Level int
	Msg   string
	Attrs []any
}

// Out collects what one call wants done. What concerns the log is carried out in the order of the fields; only that SetStart
// comes after Append where there is one, so that the producer table, which counts it already, can be stored in between.
type Out struct {
	Truncate   Value            // cut the log here; answer with Truncated
	Restart    Value            // empty the log, to begin and end here, wherever it was; answer with Truncated
	SetStart   Value            // make this the log's first offset; beyond the log end: the log becomes empty and begins there. Answer with StartMoved
	Begins     bool             // SetStart is beyond the log end, and
	Producers  []byte           // this is what the records below it say of producers, to be durable with it
	SaveEpochs bool             // store Epochs
	Epochs     []log.EpochStart // not changed later
	Gap        bool             // Append has offsets missing: it is copied from a log that was compacted once
	Append     []record.Batch   // append; answer with Written and Durable, or AppendFailed. Not retained by the replica
	Sync       bool             // sync at once after Append; with no Append, sync what was appended before
	ReadLog    Value            // read batches from this offset, up to LogEnd, some MB at a time; answer with LogRead

	Produced []Produced // requests that are over
	Deleted  []Deleted

	Propose *Proposal // ask the controller; answer with Proposed, or with Apply
	Fetch   bool      // a follower: WantFetch has something now

	Readable bool // more (or, on a change of role, other) can be read by clients: parked fetches look again
	Written  bool // more can be read by followers, or they have news: their parked fetches look again
	Lines    []Line
}

// Reset empties o for the next call, keeping its memory.
func (o *Out) Reset() {
	clear(o.Append)
	*o = Out{Append: o.Append[:0], Produced: o.Produced[:0], Deleted: o.Deleted[:0], Lines: o.Lines[:0]}
}

// Lease is one broker's permission to answer as a leader, shared by its replicas: while it has run out they
// neither serve reads nor acknowledge writes. A nil *Lease never runs out.
type Lease struct{ Until core.Time }

// Valid says whether the lease holds at now.
func (l *Lease) Valid(now core.Time) bool { return l == nil || now < l.Until }
