package replica

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/log"
)

// Replica is one partition's replica on one broker.
type Replica struct {
	partition core.Partition
	self      int32
	lease     *Lease
	cfg       Config
	log       *log.Log

	role Role
	st   PartitionState // LeaderEpoch -1 before the first
	hw   int64          // high watermark: all that this replica knows to be committed
	// covered: every replica has had all below, see Covered. It is of the present epoch: each leader finds out for itself.
	covered int64

	leading   // of the present epoch, if it leads
	following // of the present epoch, if it follows
	work      // what the log is busy with

	clock    wallClock
	expireAt core.Time // when to look for expired producers
}

// leading is what only a leader has.
type leading struct {
	epochStart int64 // log end when it took the epoch (rule 2)
	followers  []progress
	change     change
	committed  waiters // acks=all: for the high watermark
	local      waiters // acks=1: for this replica's own log
	deletes    []deletion
	aligned    Value // see alignedStart; Set if known for a log that begins at alignedAt
	alignedAt  int64
}

// following is what only a follower has.
type following struct {
	leaderHW int64     // as last told, -1 if never
	fetchAt  core.Time // do not fetch before
}

// work is what the log is busy with.
type work struct {
	truncating int   // Truncates that are not answered
	truncateTo int64 // of the last of them
	rolledBack bool  // the last was because an append failed
	resetting  bool  // the log is being emptied, to begin at log.Start
	rebuilding bool  // the producer table is being read from the log again
	readFrom   int64 // next to be read for it
	startAsked int64 // of the last SetStart
	quietUntil core.Time
}

// New returns the idle replica of a log that was just opened. A nil lease never runs out.
func New(p core.Partition, self int32, st log.State, cfg Config, lease *Lease) *Replica {
	r := &Replica{
		partition: p, self: self, lease: lease, log: log.New(st),
		st:        PartitionState{Leader: -1, LeaderEpoch: -1, PartitionEpoch: -1},
		following: following{leaderHW: -1},
		expireAt:  core.Never,
	}
	// Never beyond the end, nor below the start: what retention deleted was committed (rule 19).
	r.hw = max(st.Start, min(st.HighWatermark, st.End))
	r.log.Producers().Committed(r.hw)
	r.log.Producers().Recovered()
	r.setConfig(cfg)
	if r.log.Producers().Len() > 0 {
		r.expireAt = 0
	}
	return r
}

func (r *Replica) setConfig(cfg Config) {
	r.cfg = cfg
	r.log.Producers().SetMax(cfg.MaxProducers)
}

// Configure changes the settings. It may advance the high watermark, and be what a DeleteRecords waited for.
func (r *Replica) Configure(now core.Time, cfg Config, out *Out) {
	r.setConfig(cfg)
	if r.role == Failed {
		return
	}
	if cfg.Sync && r.log.Durable() < r.log.End() {
		out.Sync = true // what was written at leisure counts only once it is synced
	}
	r.progressed(now, out)
	r.answerDeletes(now, out)
}

// Apply takes what the metadata says of the partition: the replica becomes leader, follower or idle, or learns a new
// in-sync set or new broker epochs. An older state is ignored; the same one may come again.
func (r *Replica) Apply(now core.Time, st PartitionState, out *Out) {
	switch {
	case st.LeaderEpoch < r.st.LeaderEpoch:
	case st.LeaderEpoch > r.st.LeaderEpoch:
		r.takeEpoch(now, clone(st), out)
	case st.PartitionEpoch < r.st.PartitionEpoch:
	case st.Leader != r.st.Leader:
		out.line(levelError, "metadata names another leader in the same epoch; ignored", r.attrs("leader", st.Leader)...)
	default:
		r.refresh(now, clone(st), out)
	}
}

func clone(st PartitionState) PartitionState {
	st.Replicas, st.ISR = slices.Clone(st.Replicas), slices.Clone(st.ISR)
	return st
}

// takeEpoch enters a new leader epoch. Whatever waits belongs to the old one (rules 4, 10).
func (r *Replica) takeEpoch(now core.Time, st PartitionState, out *Out) {
	r.st = st
	if r.role == Failed {
		return
	}
	r.abandon(codeNotLeaderOrFollower, out)
	r.leading = leading{committed: r.committed, local: r.local, deletes: r.deletes[:0]} // empty, with their memory
	r.following = following{leaderHW: -1}
	r.covered = 0
	r.role = Idle
	out.Readable, out.Written = true, true
	switch {
	case !slices.ContainsFunc(st.Replicas, func(m Member) bool { return m.ID == r.self }):
	case st.Leader == r.self:
		r.lead(now, out)
	case st.Leader >= 0:
		r.role = Follower
		out.Fetch = r.ready(now)
	}
}

// lead makes this replica the leader of the epoch in r.st.
func (r *Replica) lead(now core.Time, out *Out) {
	epoch, latest := r.st.LeaderEpoch, r.log.Epochs().Latest()
	if latest > epoch || latest == epoch && len(r.st.Replicas) > 1 {
		// Rule 9: that epoch has been led, here before a restart or elsewhere. Offsets of it may be out there that this
		// log does not have, and writing them again would make two records of one (epoch, offset).
		out.line(levelWarn, "does not lead an epoch again that it has led in an earlier life; waits for the next", r.attrs("log_epoch", latest)...)
		return
	}
	r.role = Leader
	r.epochStart = r.log.End()
	// Rule 2, before any write; museum A19.
	if r.log.Epochs().Add(epoch, r.epochStart) {
		r.saveEpochs(out)
	}
	for _, m := range r.st.Replicas {
		if m.ID != r.self {
			r.followers = append(r.followers, newProgress(m, now))
		}
	}
	r.advance(now, out)
}

// refresh takes a newer in-sync set, or newer broker epochs, of the present leader epoch.
func (r *Replica) refresh(now core.Time, st PartitionState, out *Out) {
	newer := st.PartitionEpoch > r.st.PartitionEpoch
	r.st = st
	if r.role != Leader {
		return
	}
	if newer {
		// What was proposed departed from an older state: it is this one, or it will never be.
		r.change = change{}
	}
	r.matchFollowers(now)
	r.advance(now, out) // rule 6: looked at again whenever the set changes
	r.answerDeletes(now, out)
}

// abandon ends everything that waits with an error.
func (r *Replica) abandon(code int16, out *Out) {
	for _, q := range []*waiters{&r.committed, &r.local} {
		for p, ok := q.pop(1<<63 - 1); ok; p, ok = q.pop(1<<63 - 1) {
			out.Produced = append(out.Produced, r.refused(p.w, code, ""))
		}
	}
	for _, d := range r.deletes {
		out.Deleted = append(out.Deleted, Deleted{Waiter: d.w, Code: code, LowWatermark: -1})
	}
	r.deletes = r.deletes[:0]
}

// counted is the end of what counts of this replica's own log: what is durable or, where a user has chosen not to
// sync before the ack, what is written.
func (r *Replica) counted() int64 {
	if r.cfg.Sync {
		return r.log.Durable()
	}
	return r.log.Written()
}

// progressed looks at everything that may go on when the own log has progressed.
func (r *Replica) progressed(now core.Time, out *Out) {
	switch r.role {
	case Leader:
		r.advance(now, out)
	case Follower:
		r.followHW()
		out.Fetch = out.Fetch || r.ready(now)
	}
}

// setHW moves the high watermark up.
func (r *Replica) setHW(hw int64) {
	r.hw = hw
	r.log.Producers().Committed(hw)
}

func (r *Replica) saveEpochs(out *Out) { out.SaveEpochs, out.Epochs = true, r.log.Epochs().List() }

// attrs puts what every line says before what this one says.
func (r *Replica) attrs(more ...any) []any {
	return append([]any{"log", r.partition.String(), "epoch", r.st.LeaderEpoch}, more...)
}

// checkEpoch compares the leader epoch that a request names (-1: none) with the present one (rule 4, museum A03).
func (r *Replica) checkEpoch(epoch int32) int16 {
	switch {
	case r.role == Failed:
		return codeStorage
	case epoch < 0 || epoch == r.st.LeaderEpoch:
		return codeNone
	case epoch < r.st.LeaderEpoch:
		return codeFencedLeaderEpoch
	}
	return codeUnknownLeaderEpoch
}

// checkLeader is checkEpoch for what only a leader may answer.
func (r *Replica) checkLeader(epoch int32) int16 {
	if code := r.checkEpoch(epoch); code != codeNone {
		return code
	}
	if r.role != Leader {
		return codeNotLeaderOrFollower
	}
	return codeNone
}

// checkServing is checkLeader for what it may answer only while it has its lease.
func (r *Replica) checkServing(now core.Time, epoch int32) int16 {
	if code := r.checkLeader(epoch); code != codeNone {
		return code
	}
	if !r.lease.Valid(now) {
		return codeNotLeaderOrFollower
	}
	return codeNone
}

// Resume acknowledges what could not be acknowledged while the lease had run out.
func (r *Replica) Resume(now core.Time, out *Out) {
	if r.role == Leader {
		r.complete(now, out)
		r.answerDeletes(now, out)
	}
}

// ProducerSnapshot returns the producer table as of offset, the high watermark. As of the log's end it would be dropped with the end,
// by a truncation or a crash, and then nothing would be left of producers whose records are deleted (rule 18, museum D06). The snapshot
// is nil if nothing is known.
func (r *Replica) ProducerSnapshot() (offset int64, snapshot []byte) {
	offset = r.hw
	t, ok := r.log.Producers().AsOf(offset)
	if !ok {
		offset = r.log.Start()
		t = r.log.Producers().Below(offset)
	}
	if t.Len() == 0 {
		return offset, nil
	}
	return offset, t.Snapshot()
}

// Rebuilding says that the producer table is being read from the log again: it is not to be stored as it is, nor is anything
// to be deleted that may not have been read yet (rule 18).
func (r *Replica) Rebuilding() bool { return r.rebuilding }

// RetainLimit is the offset that no deletion may reach: the last stable offset, never beyond the high watermark (rule 19).
func (r *Replica) RetainLimit() int64 { return r.LastStable() }

// CompactLimit is the offset that no compaction may reach, as RetainLimit, and the producers whose last batches must stay; not ok
// while the log is not settled, or the table of producers is being rebuilt from the very batches.
func (r *Replica) CompactLimit() (limit int64, producers []int64, ok bool) {
	limit = r.RetainLimit()
	if !r.settled() || r.rebuilding || limit <= r.log.Start() {
		return 0, nil, false
	}
	return limit, r.log.Producers().IDs(), true
}

// Role returns what the replica is.
func (r *Replica) Role() Role { return r.role }

// Leader returns the leader's id as far as known, or -1.
func (r *Replica) Leader() int32 { return r.st.Leader }

// LeaderEpoch returns the epoch of the latest state applied, -1 if none.
func (r *Replica) LeaderEpoch() int32 { return r.st.LeaderEpoch }

// LogStart returns the log's first offset.
func (r *Replica) LogStart() int64 { return r.log.Start() }

// LogEnd returns the log end offset, unwritten appends included.
func (r *Replica) LogEnd() int64 { return r.log.End() }

// HighWatermark returns the high watermark as this replica knows it.
func (r *Replica) HighWatermark() int64 { return r.hw }

// LastStable returns the last stable offset, never beyond the high watermark.
func (r *Replica) LastStable() int64 { return max(r.log.Start(), r.log.FirstUnstable(r.hw)) }

// ISR returns the in-sync set as last committed. Not to be changed.
func (r *Replica) ISR() []int32 { return r.st.ISR }

// Log returns the log for reading; for tests and descriptions.
func (r *Replica) Log() *log.Log { return r.log }

// wallClock is wall time that does not jump while the process lives: where it began, plus monotonic time.
type wallClock struct {
	set  bool
	base core.WallMillis
}

func (c *wallClock) at(now core.Time, wall core.WallMillis) core.WallMillis {
	sinceOrigin := core.WallMillis(time.Duration(now) / time.Millisecond)
	if !c.set {
		c.set, c.base = true, wall-sinceOrigin
	}
	return max(1, c.base+sinceOrigin)
}
