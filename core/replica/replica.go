package replica

import (
	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// Replica is one partition's replica on one broker.
type Replica struct{}

// New returns the idle replica of a log that was just opened. A nil lease never runs out.
func New(p core.Partition, self int32, st log.State, cfg Config, lease *Lease) *Replica { return nil }

// Configure changes the settings. It may advance the high watermark.
func (r *Replica) Configure(now core.Time, cfg Config, out *Out) {}

// Apply takes what the metadata says of the partition: the replica becomes leader, follower or idle, or learns a new
// in-sync set or new broker epochs. An older state is ignored; the same one may come again.
func (r *Replica) Apply(now core.Time, st PartitionState, out *Out) {}

// Produce appends one checked batch, or refuses it. If pending, the outcome comes in Out.Produced later under w (never
// in this call); else res is final. acks=0 is never pending. w may be cancelled.
func (r *Replica) Produce(now core.Time, wall core.WallMillis, c record.Checked, acks int16, w Waiter, out *Out) (res Produced, pending bool) {
	return
}

// CancelProduce forgets a pending Produce whose time is up or whose client is gone, and says which error it gets:
// REQUEST_TIMED_OUT, or NOT_ENOUGH_REPLICAS_AFTER_APPEND while too few are in sync.
func (r *Replica) CancelProduce(w Waiter) int16 { return 0 }

// Written says that the log is written up to end.
func (r *Replica) Written(now core.Time, end int64, out *Out) {}

// Durable says that the log is durable up to end.
func (r *Replica) Durable(now core.Time, end int64, out *Out) {}

// AppendFailed says that the log ends at end and that appends beyond it failed: the replica rolls back (rule 1) and
// emits a Truncate; until it is answered, Produce gets KAFKA_STORAGE_ERROR.
func (r *Replica) AppendFailed(now core.Time, end int64, err error, out *Out) {}

// Truncated says that the log durably ends at end.
func (r *Replica) Truncated(now core.Time, end int64, out *Out) {}

// StartMoved says that the log's first offset is start now.
func (r *Replica) StartMoved(now core.Time, start int64, out *Out) {}

// LogRead answers Out.ReadLog with whole batches from there, at least one; err sets the replica aside.
func (r *Replica) LogRead(now core.Time, batches []record.Batch, err error, out *Out) {}

// Fail sets the replica aside for good: its log is damaged or its disk gone (rules 13, 15). What waits gets
// KAFKA_STORAGE_ERROR, and so does all that comes.
func (r *Replica) Fail(now core.Time, err error, out *Out) {}

// Tick is time passing: in-sync members that lag are proposed for removal, expired producers are forgotten.
func (r *Replica) Tick(now core.Time, wall core.WallMillis, out *Out) {}

// Deadline says when Tick is wanted next.
func (r *Replica) Deadline() core.Time { return core.Never }

// ConsumerFetch decides what a client may read from offset. currentLeaderEpoch and lastFetchedEpoch are -1 if not
// given; committed asks for read_committed.
func (r *Replica) ConsumerFetch(now core.Time, offset int64, currentLeaderEpoch, lastFetchedEpoch int32, committed bool) FetchDecision {
	return FetchDecision{}
}

// FollowerFetch decides what a follower may read and takes its progress from the request (rule 6). A follower's
// request that was parked is decided again with FollowerRead, which takes nothing.
func (r *Replica) FollowerFetch(now core.Time, id int32, brokerEpoch int64, a FetchAsk, out *Out) FetchDecision {
	return FetchDecision{}
}

// FollowerRead is FollowerFetch for a request that was seen before.
func (r *Replica) FollowerRead(now core.Time, id int32, brokerEpoch int64, a FetchAsk) FetchDecision {
	return FetchDecision{}
}

// Told says that the decision's high watermark was sent to the follower.
func (r *Replica) Told(id int32, highWatermark int64) {}

// WantFetch says what a follower wants from its leader now; false while it is not a follower or its log is busy.
func (r *Replica) WantFetch() (FetchAsk, bool) { return FetchAsk{}, false }

// Fetched takes the leader's answer to an ask. One that belongs to another role, epoch or log end has no effect
// (rule 4), so an ask may be made again without waiting for its answer.
func (r *Replica) Fetched(now core.Time, wall core.WallMillis, a FetchAsk, ans FetchAnswer, out *Out) {
}

// Proposed is the controller's verdict on p. With code 0, partitionEpoch and isr are the new state; on an error that
// leaves the outcome open (a timeout, a controller that moved), code is REQUEST_TIMED_OUT or NOT_CONTROLLER and
// the proposal is made again.
func (r *Replica) Proposed(now core.Time, p *Proposal, code int16, partitionEpoch int32, isr []int32, out *Out) {
}

// ListOffsets answers for a timestamp in milliseconds or one of the special ones (-1 to -6).
func (r *Replica) ListOffsets(now core.Time, timestamp int64, currentLeaderEpoch int32, committed bool, fromReplica bool) OffsetAnswer {
	return OffsetAnswer{}
}

// TimeFound finishes a ListOffsets that asked for a lookup. offset is -1 if nothing was found.
func (r *Replica) TimeFound(now core.Time, asked OffsetAnswer, offset, timestamp int64, epoch int32) OffsetAnswer {
	return OffsetAnswer{}
}

// OffsetForLeaderEpoch returns the largest epoch not above the asked one, and its end (KIP-279); -1 and -1 if the
// asked one is not known here.
func (r *Replica) OffsetForLeaderEpoch(now core.Time, currentLeaderEpoch, epoch int32) (code int16, e int32, end int64) {
	return
}

// DeleteRecords moves the log's start to offset, -1 being the high watermark. It is answered when the start has moved
// on every live replica.
func (r *Replica) DeleteRecords(now core.Time, offset int64, w Waiter, out *Out) (res Deleted, pending bool) {
	return
}

// CancelDelete forgets a pending DeleteRecords whose time is up.
func (r *Replica) CancelDelete(w Waiter) {}

// ProducerSnapshot returns the producer table as of offset, the log end.
func (r *Replica) ProducerSnapshot() (offset int64, snapshot []byte) { return 0, nil }

// RetainLimit is the offset that no deletion may reach: the high watermark or the last stable offset (rule 19).
func (r *Replica) RetainLimit() int64 { return 0 }

// Role returns what the replica is.
func (r *Replica) Role() Role { return Idle }

// Leader returns the leader's id as far as known, or -1.
func (r *Replica) Leader() int32 { return -1 }

// LeaderEpoch returns the epoch of the latest state applied, -1 if none.
func (r *Replica) LeaderEpoch() int32 { return -1 }

// LogStart returns the log's first offset.
func (r *Replica) LogStart() int64 { return 0 }

// LogEnd returns the log end offset, unwritten appends included.
func (r *Replica) LogEnd() int64 { return 0 }

// HighWatermark returns the high watermark as this replica knows it.
func (r *Replica) HighWatermark() int64 { return 0 }

// LastStable returns the last stable offset, never beyond the high watermark.
func (r *Replica) LastStable() int64 { return 0 }

// ISR returns the in-sync set as last committed. Not to be changed.
func (r *Replica) ISR() []int32 { return nil }
