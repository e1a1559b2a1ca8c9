package replica

import (
	"fmt"
	"math"
	"time"

	"lockstep/core"
	"lockstep/core/record"
)

// Produce appends one checked batch, or refuses it. If pending, the outcome comes in Out.Produced later under w (never
// in this call); else res is final. acks is 0, 1 or -1; with 0 nothing is ever pending. A duplicate of a batch that
// does not count yet waits for the original (rule 10).
func (r *Replica) Produce(now core.Time, wall core.WallMillis, c record.Checked, acks int16, w Waiter, out *Out) (res Produced, pending bool) {
	if res, ok := r.admit(wall, c, acks, w); !ok {
		return res, false
	}
	h := c.Batch.Header()
	switch v := r.log.Producers().Check(&h); {
	case v.Code != codeNone && !r.lease.Valid(now):
		// Who was deposed and does not know it has not seen what the producer sent since: it must not refuse with authority.
		return r.refused(w, codeNotLeaderOrFollower, "the lease has run out"), false
	case v.Code != codeNone:
		return r.refused(w, v.Code, fmt.Sprintf("producer %d, epoch %d, sequence %d", h.ProducerID, h.ProducerEpoch, h.BaseSequence)), false
	case v.Duplicate:
		return r.await(now, acks, w, v.Original.Base, v.Original.Last+1, v.Original.Timestamp)
	}
	base := r.log.End() // rule 1
	c.Batch.Assign(base, r.st.LeaderEpoch)
	if r.cfg.LogAppendTime {
		c.Batch.SetAppendTime(int64(wall))
	}
	r.log.Append(c.Batch, r.clock.at(now, wall))
	out.Append = append(out.Append, c.Batch)
	out.Sync = r.cfg.Sync
	if h.ProducerID >= 0 && r.expireAt == core.Never {
		r.expireAt = now.Add(expireEvery)
	}
	return r.await(now, acks, w, base, r.log.End(), int64(wall))
}

// await answers for a batch in the log at base, or makes w wait until it counts up to end.
func (r *Replica) await(now core.Time, acks int16, w Waiter, base, end, appendTime int64) (res Produced, wait bool) {
	p := pending{w: w, base: base, end: end, appendTime: record.NoTimestamp}
	if r.cfg.LogAppendTime {
		p.appendTime = appendTime
	}
	switch {
	case acks == 0:
	case acks == 1 && (end > r.counted() || !r.lease.Valid(now)):
		r.local.add(p)
		return Produced{}, true
	case acks == -1 && (end > r.hw || !r.lease.Valid(now)):
		r.committed.add(p)
		return Produced{}, true
	}
	return r.accepted(p), false
}

func (r *Replica) accepted(p pending) Produced {
	return Produced{Waiter: p.w, BaseOffset: p.base, AppendTime: p.appendTime, LogStart: r.log.Start(), BadRecord: -1}
}

func (r *Replica) refused(w Waiter, code int16, message string) Produced {
	return Produced{Waiter: w, Code: code, Message: message, BaseOffset: -1, AppendTime: record.NoTimestamp, LogStart: r.log.Start(), BadRecord: -1}
}

// admit makes all checks of a batch but those of its producer, in Kafka's order.
func (r *Replica) admit(wall core.WallMillis, c record.Checked, acks int16, w Waiter) (res Produced, ok bool) {
	if code := r.checkLeader(-1); code != codeNone {
		return r.refused(w, code, ""), false
	}
	if r.rolledBack || r.rebuilding {
		return r.refused(w, codeStorage, "the log is being repaired"), false
	}
	if r.truncating > 0 || r.resetting {
		return r.refused(w, codeNotLeaderOrFollower, "the leader is not ready yet"), false
	}
	if acks == -1 && r.inSync() < r.minInsync() {
		return r.refused(w, codeNotEnoughReplicas, fmt.Sprintf("%d in sync, min.insync.replicas is %d", r.inSync(), r.minInsync())), false
	}
	if c.Err == nil && c.Batch.IsZero() {
		return r.refused(w, codeInvalidRecord, "no batch"), false
	}
	if n := c.Batch.Size(); n > r.cfg.MaxMessageBytes {
		return r.refused(w, codeMessageTooLarge, fmt.Sprintf("batch of %d bytes, max.message.bytes is %d", n, r.cfg.MaxMessageBytes)), false
	}
	if c.Err != nil {
		return r.refused(w, record.Code(c.Err), c.Err.Error()), false
	}
	if !r.cfg.LogAppendTime && !r.timely(int64(wall), c.Info) {
		return r.refused(w, codeInvalidTimestamp, fmt.Sprintf("timestamps from %d to %d are out of range at %d", c.Info.MinTimestamp, c.Info.MaxTimestamp, wall)), false
	}
	if r.cfg.Compact && c.Info.NullKeys {
		res := r.refused(w, codeInvalidRecord, "a compacted topic takes no record without a key")
		res.BadRecord = c.Info.FirstNullKey
		return res, false
	}
	return Produced{}, true
}

// timely checks message.timestamp.before.max.ms and message.timestamp.after.max.ms; a record without a timestamp passes.
func (r *Replica) timely(wall int64, info record.Info) bool {
	if info.MaxTimestamp == record.NoTimestamp && info.MinTimestamp == record.NoTimestamp {
		return true
	}
	oldest, newest := int64(math.MinInt64), int64(math.MaxInt64)
	if before := r.cfg.TimestampBefore; before < math.MaxInt64/2 {
		oldest = wall - before
	}
	if after := r.cfg.TimestampAfter; after < math.MaxInt64/2 {
		newest = wall + after
	}
	return info.MinTimestamp >= oldest && info.MaxTimestamp <= newest
}

// complete answers those who waited for what counts now, while there is a lease.
func (r *Replica) complete(now core.Time, out *Out) {
	if !r.lease.Valid(now) {
		return
	}
	for p, ok := r.local.pop(r.counted()); ok; p, ok = r.local.pop(r.counted()) {
		out.Produced = append(out.Produced, r.accepted(p))
	}
	// Rule 10: all of these wait in this epoch; those of earlier ones were sent away when it began.
	for p, ok := r.committed.pop(r.hw); ok; p, ok = r.committed.pop(r.hw) {
		out.Produced = append(out.Produced, r.accepted(p))
	}
}

// CancelProduce forgets a pending Produce whose time is up or whose client is gone, and says which error it gets:
// REQUEST_TIMED_OUT, or NOT_ENOUGH_REPLICAS_AFTER_APPEND while too few are in sync.
func (r *Replica) CancelProduce(w Waiter) int16 {
	if r.committed.cancel(w) && r.role == Leader && r.inSync() < r.minInsync() {
		return codeNotEnoughAfter
	}
	r.local.cancel(w)
	return codeRequestTimedOut
}

// expireEvery is how often expired producers are looked for (Kafka's producer.id.expiration.check.interval.ms).
const expireEvery = 10 * time.Minute

// expireProducers forgets producers that were not seen for long.
func (r *Replica) expireProducers(now core.Time, wall core.WallMillis) {
	if now < r.expireAt {
		return
	}
	p := r.log.Producers()
	if ttl := r.cfg.ProducerIDExpiry.Milliseconds(); ttl > 0 {
		p.Expire(r.clock.at(now, wall), ttl)
	}
	r.expireAt = core.Never
	if p.Len() > 0 {
		r.expireAt = now.Add(expireEvery)
	}
}
