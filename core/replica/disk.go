package replica

import (
	"fmt"
	"time"

	"lockstep/core"
	"lockstep/core/record"
)

const quiet = 10 * time.Second // between lines about failed appends

// settled says that what is heard of the log is about the log as it is now, not as it was before a truncation.
func (r *Replica) settled() bool { return r.truncating == 0 && !r.resetting && r.role != Failed }

// Written says that the log is written up to end.
func (r *Replica) Written(now core.Time, end int64, out *Out) {
	if !r.settled() {
		return
	}
	before := r.log.Written()
	r.log.SetWritten(end)
	out.Written = out.Written || r.log.Written() > before
	r.progressed(now, out)
}

// Durable says that the log is durable up to end.
func (r *Replica) Durable(now core.Time, end int64, out *Out) {
	if !r.settled() {
		return
	}
	before := r.log.Written()
	r.log.SetDurable(end)
	out.Written = out.Written || r.log.Written() > before
	r.progressed(now, out)
}

// AppendFailed says that the log ends at end and that appends beyond it failed: the replica rolls back (rule 1) and
// emits a Truncate; until it is answered, Produce gets KAFKA_STORAGE_ERROR. Nobody has read what is rolled back:
// readers, followers among them, get what is written.
func (r *Replica) AppendFailed(now core.Time, end int64, err error, out *Out) {
	if r.role == Failed || r.resetting || r.truncating > 0 && end >= r.truncateTo {
		return // what has been asked for since cuts the failed append off anyway
	}
	if r.truncating == 0 && end < r.log.Written() {
		r.Fail(now, fmt.Errorf("an append failed (%w) and left the log at %d, which was written up to %d", err, end, r.log.Written()), out)
		return
	}
	if now >= r.quietUntil { // on a full disk it will be so again and again
		r.quietUntil = now.Add(quiet)
		out.line(levelError, "append failed", r.attrs("end", end, "lost", r.log.End()-end, "error", fmt.Sprint(err))...)
	}
	r.truncate(now, end, out)
	r.rolledBack = true
	for _, q := range []*waiters{&r.committed, &r.local} {
		for p, ok := q.popLast(end); ok; p, ok = q.popLast(end) {
			out.Produced = append(out.Produced, r.refused(p.w, codeStorage, "the append failed"))
		}
	}
	if r.role == Follower {
		r.fetchAt = now.Add(storageBackoff)
	}
}

// truncate cuts the log to end, its epoch history and producer table with it (rule 16).
func (r *Replica) truncate(now core.Time, end int64, out *Out) {
	exact, epochs := r.log.Truncate(end)
	r.covered = min(r.covered, end)
	r.rebuilding = r.rebuilding || !exact
	if r.role == Leader && r.log.Epochs().Latest() < r.st.LeaderEpoch {
		// Only a leader's failed appends come here. The epoch goes on, and what it writes must be told from the last one's.
		epochs = r.log.Epochs().Add(r.st.LeaderEpoch, r.log.End()) || epochs
		r.epochStart = min(r.epochStart, r.log.End())
	}
	if end < r.hw {
		out.line(levelError, "truncating below the high watermark: committed records are lost, as by an unclean election", r.attrs("to", end, "high_watermark", r.hw)...)
		r.hw = end
	}
	r.truncating++
	r.truncateTo = end
	out.Truncate = Value{Set: true, Offset: end}
	if epochs {
		r.saveEpochs(out)
	}
}

// Truncated says that the log durably ends at end.
func (r *Replica) Truncated(now core.Time, end int64, out *Out) {
	if r.role == Failed || r.truncating == 0 {
		return
	}
	if r.truncating--; r.truncating > 0 {
		return
	}
	if end > r.log.End() {
		r.Fail(now, fmt.Errorf("the log was to end at %d and ends at %d", r.log.End(), end), out)
		return
	}
	if end < r.log.End() {
		// Ends of epochs are ends of batches in every log, except where a history was cut off at a log's start, which
		// may lie inside a batch. Then the whole batch went.
		exact, epochs := r.log.Truncate(end)
		r.rebuilding, r.hw = r.rebuilding || !exact, min(r.hw, end)
		if epochs {
			r.saveEpochs(out)
		}
	}
	r.rolledBack = false
	r.log.SetDurable(end)
	if r.rebuilding {
		r.log.ForgetProducers()
		r.log.Producers().Committed(min(r.hw, end))
		r.readFrom = r.log.Start()
		r.readOn(now, out)
		return
	}
	r.progressed(now, out)
}

// readOn asks for the next batches to rebuild the producer table from, or is done.
func (r *Replica) readOn(now core.Time, out *Out) {
	if r.readFrom < r.log.End() {
		out.ReadLog = Value{Set: true, Offset: r.readFrom}
		return
	}
	r.rebuilding = false
	r.progressed(now, out)
}

// LogRead answers Out.ReadLog with whole batches from there, at least one; err sets the replica aside. (Rule 18: the
// producer table is rebuilt from the log. This is for truncations too deep for what the table remembers, and for
// FollowerFetch to learn where the first batch begins.)
func (r *Replica) LogRead(now core.Time, batches []record.Batch, err error, out *Out) {
	if !r.settled() {
		return
	}
	if !r.rebuilding {
		if r.role == Leader && err == nil && len(batches) > 0 && batches[0].NextOffset() > r.log.Start() {
			r.align(batches[:1])
		}
		return
	}
	if r.readFrom < r.log.Start() { // deleted meanwhile
		r.readFrom = r.log.Start()
		r.readOn(now, out)
		return
	}
	if err == nil && len(batches) == 0 {
		err = fmt.Errorf("no batch at %d in a log that ends at %d", r.readFrom, r.log.End())
	}
	if err != nil {
		r.Fail(now, fmt.Errorf("rebuilding the producer table: %w", err), out)
		return
	}
	for _, b := range batches {
		if b.NextOffset() > r.readFrom {
			r.log.Producers().Replay(b.Header())
			r.readFrom = b.NextOffset()
		}
	}
	r.readOn(now, out)
}

// StartMoved says that the log's first offset is start now.
func (r *Replica) StartMoved(now core.Time, start int64, out *Out) {
	if r.role == Failed || r.resetting && start < r.log.Start() {
		return
	}
	if r.resetting {
		r.resetting = false
		r.progressed(now, out)
		return
	}
	if start <= r.log.Start() || start > r.log.End() { // beyond the end: it was asked for before the log began anew
		return
	}
	if r.log.SetStart(start) {
		r.saveEpochs(out)
	}
	out.Readable = true
	r.answerDeletes(now, out)
}

// Fail sets the replica aside for good: its log is damaged or its disk gone (rules 13, 15). What waits gets
// KAFKA_STORAGE_ERROR, and so does all that comes.
func (r *Replica) Fail(now core.Time, err error, out *Out) {
	if r.role == Failed {
		return
	}
	r.abandon(codeStorage, out)
	r.role = Failed
	r.change = change{}
	out.Readable, out.Written = true, true
	out.line(levelError, "replica set aside", r.attrs("error", fmt.Sprint(err))...)
}
