package replica

import (
	"slices"

	"lockstep/core"
)

// Timestamps that mean something else in ListOffsets.
const (
	timestampLatest        = -1
	timestampEarliest      = -2
	timestampMax           = -3
	timestampEarliestLocal = -4
	timestampLatestTiered  = -5
	timestampPendingUpload = -6
)

// ListOffsets answers for a timestamp in milliseconds or one of the special ones (-1 to -6). committed is for
// read_committed; a replica asks for the log's own end.
func (r *Replica) ListOffsets(now core.Time, timestamp int64, currentLeaderEpoch int32, committed bool, fromReplica bool) OffsetAnswer {
	if code := r.checkServing(now, currentLeaderEpoch); code != codeNone {
		return noOffset(code)
	}
	ans := noOffset(codeNone)
	ans.LeaderEpoch = r.st.LeaderEpoch
	ans.Settled = r.hw >= r.epochStart
	ans.Limit = r.hw
	switch {
	case fromReplica:
		ans.Limit, ans.Settled = r.log.End(), true
	case committed:
		ans.Limit = r.LastStable()
	}
	switch timestamp {
	case timestampLatest:
		if !ans.Settled {
			// KIP-207: until the start of this epoch is committed, the end may lie below what clients have seen.
			return noOffset(codeOffsetNotAvailable)
		}
		ans.Offset, ans.Epoch = ans.Limit, r.log.Epochs().Latest()
	case timestampEarliest, timestampEarliestLocal:
		ans.Offset, ans.Epoch = r.log.Start(), r.log.Epochs().At(r.log.Start())
	case timestampLatestTiered, timestampPendingUpload:
		// There is no tier but this one.
	default:
		ans.Lookup = true
	}
	return ans
}

func noOffset(code int16) OffsetAnswer {
	return OffsetAnswer{Code: code, Offset: -1, Timestamp: -1, Epoch: -1}
}

// TimeFound finishes a ListOffsets that asked for a lookup. offset is -1 if nothing was found.
func (r *Replica) TimeFound(now core.Time, asked OffsetAnswer, offset, timestamp int64, epoch int32) OffsetAnswer {
	if code := r.checkServing(now, asked.LeaderEpoch); code != codeNone {
		return noOffset(codeNotLeaderOrFollower)
	}
	if offset < 0 || offset >= asked.Limit {
		if !asked.Settled {
			return noOffset(codeOffsetNotAvailable)
		}
		return noOffset(codeNone)
	}
	return OffsetAnswer{Offset: offset, Timestamp: timestamp, Epoch: epoch}
}

// Serving returns 0 if the replica leads, and may answer a client now; else the error code that says why it may not.
func (r *Replica) Serving(now core.Time) int16 { return r.checkServing(now, -1) }

// OffsetForLeaderEpoch returns the largest epoch not above the asked one, and its end (KIP-279); -1 and -1 if the
// asked one is above all that is known here.
func (r *Replica) OffsetForLeaderEpoch(now core.Time, currentLeaderEpoch, epoch int32) (code int16, e int32, end int64) {
	if code := r.checkServing(now, currentLeaderEpoch); code != codeNone {
		return code, -1, -1
	}
	e, end, _ = r.log.EndOffsetFor(epoch)
	return codeNone, e, end
}

// deletion is a DeleteRecords that waits until no live replica has anything below offset.
type deletion struct {
	w      Waiter
	offset int64
}

// DeleteRecords moves the log's start to offset, -1 being the high watermark. It is answered when the start has moved
// on every live replica. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE (rule 19). With too few replicas in sync it is
// refused, as a write is: an eligible replica that has not deleted anything could be elected (KIP-966).
func (r *Replica) DeleteRecords(now core.Time, offset int64, w Waiter, out *Out) (res Deleted, pending bool) {
	code := r.checkServing(now, -1)
	if code == codeNone && r.rebuilding {
		code = codeStorage // as Produce
	}
	if code == codeNone && r.cfg.KeepRecords {
		code = codePolicyViolation
	}
	if code == codeNone && r.hw < r.epochStart && (offset == -1 || offset > r.hw) {
		code = codeOffsetNotAvailable // a new leader does not know yet how far the high watermark is (rule 6)
	}
	if offset == -1 {
		offset = r.hw
	}
	if code == codeNone && (offset < 0 || offset > r.hw) {
		code = codeOffsetOutOfRange
	}
	if code == codeNone && len(r.st.ISR) < r.minInsync() {
		code = codeNotEnoughReplicas
	}
	if code != codeNone {
		return Deleted{Waiter: w, Code: code, LowWatermark: -1}, false
	}
	if offset > max(r.log.Start(), r.startAsked) {
		r.startAsked = offset
		out.SetStart = Value{Set: true, Offset: offset}
	}
	if low := r.lowWatermark(); low >= offset {
		return Deleted{Waiter: w, LowWatermark: low}, false
	}
	r.deletes = append(r.deletes, deletion{w: w, offset: offset})
	return Deleted{}, true
}

// lowWatermark is the least log start of all replicas that are live or in sync, -1 while one of them has not told. With fewer
// in sync than min.insync.replicas it is -1 as well: deletions that are under way are acknowledged only when they outlive an election.
func (r *Replica) lowWatermark() int64 {
	if len(r.st.ISR) < r.minInsync() {
		return -1
	}
	low := r.log.Start()
	for i := range r.followers {
		if f := &r.followers[i]; f.Eligible || r.mayBeMember(f.ID) {
			low = min(low, f.logStart)
		}
	}
	return low
}

func (r *Replica) answerDeletes(now core.Time, out *Out) {
	if r.role != Leader || len(r.deletes) == 0 || !r.lease.Valid(now) {
		return
	}
	low := r.lowWatermark()
	r.deletes = slices.DeleteFunc(r.deletes, func(d deletion) bool {
		if low < d.offset {
			return false
		}
		out.Deleted = append(out.Deleted, Deleted{Waiter: d.w, LowWatermark: low})
		return true
	})
}

// CancelDelete forgets a pending DeleteRecords whose time is up.
func (r *Replica) CancelDelete(w Waiter) {
	r.deletes = slices.DeleteFunc(r.deletes, func(d deletion) bool { return d.w == w })
}
