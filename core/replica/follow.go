package replica

import (
	"fmt"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// ready says that the follower may ask for more: all that it has counts, so that the offset from which it asks says
// how far it is, and no truncation is on its way (rule 16).
func (r *Replica) ready(now core.Time) bool {
	return r.role == Follower && r.settled() && !r.rebuilding && now >= r.fetchAt && r.counted() == r.log.End()
}

// WantFetch says what a follower wants from its leader now; false while it is no follower or its log is busy.
func (r *Replica) WantFetch(now core.Time) (FetchAsk, bool) {
	if !r.ready(now) {
		return FetchAsk{}, false
	}
	return r.ask(), true
}

func (r *Replica) ask() FetchAsk {
	return FetchAsk{
		Leader: r.st.Leader, LeaderEpoch: r.st.LeaderEpoch,
		Offset: r.log.End(), LastFetchedEpoch: r.log.Epochs().Latest(), LogStart: r.log.Start(),
	}
}

// Fetched takes the leader's answer to an ask. One that belongs to another role, epoch or log end has no effect
// (rule 4, museum A05), so an ask may be made again without waiting for its answer.
func (r *Replica) Fetched(now core.Time, wall core.WallMillis, a FetchAsk, ans FetchAnswer, out *Out) {
	if !r.ready(now) || !sameAsk(a, r.ask()) {
		return
	}
	switch {
	case ans.Code == codeOffsetOutOfRange && ans.LogStart > r.log.End():
		r.restartAt(now, ans, out)
	case ans.Code == codeOffsetOutOfRange && ans.LogStart >= 0 && ans.LogStart < r.log.Start() && r.log.Start() == r.log.End():
		r.startOver(ans.LogStart, out) // nothing is here, and the leader's log ends below it
	case ans.Code == codeCorruptMessage:
		r.fetchAt = now.Add(fetchBackoff)
		if now >= r.quietUntil {
			r.quietUntil = now.Add(quiet)
			out.line(levelError, "what the leader has at the end of this log is damaged", r.attrs("leader", a.Leader, "offset", a.Offset)...)
		}
	case ans.Code != codeNone:
		r.fetchAt = now.Add(fetchBackoff)
	case ans.Diverging != nil:
		r.diverged(now, *ans.Diverging, out)
	default:
		r.take(now, wall, a, ans, out)
	}
}

// sameAsk compares all but the log's start, which may move at any time.
func sameAsk(a, b FetchAsk) bool {
	a.LogStart, b.LogStart = 0, 0
	return a == b
}

// take appends what the leader sent.
func (r *Replica) take(now core.Time, wall core.WallMillis, a FetchAsk, ans FetchAnswer, out *Out) {
	epochs := false
	for _, b := range ans.Batches {
		if err := r.acceptable(b, a, ans.Limit); err != nil {
			out.line(levelError, "the leader sent a batch that does not follow", r.attrs("error", err.Error())...)
			r.fetchAt = now.Add(fetchBackoff)
			break
		}
		out.Gap = out.Gap || b.BaseOffset() > r.log.End()
		// Rule 18: a follower keeps the producer table too (museum D01).
		epochs = r.log.Append(b, r.clock.at(now, wall)) || epochs
		out.Append = append(out.Append, b)
		if b.ProducerID() >= 0 && r.expireAt == core.Never {
			r.expireAt = now.Add(expireEvery)
		}
	}
	if len(out.Append) > 0 {
		out.Sync = r.cfg.Sync
	}
	if epochs {
		r.saveEpochs(out)
	}
	r.leaderHW, r.covered = ans.HighWatermark, max(r.covered, ans.Covered)
	r.followHW()
	if start := min(ans.LogStart, r.hw); start > max(r.log.Start(), r.startAsked) {
		r.startAsked = start
		out.SetStart = Value{Set: true, Offset: start}
	}
	out.Fetch = r.ready(now)
}

// acceptable says why a batch may not be appended: it must follow what is here, and must not be of a later epoch than
// the one in which it was asked for, which would be another leader's to give, nor of one before the last (museum A24).
// That its CRC is right is what makes it a record.Batch (rule 17, museum C06); but that covers neither base offset nor epoch. Compaction
// leaves gaps between batches, but nothing is at limit, the end of what the leader had to give, or beyond it.
func (r *Replica) acceptable(b record.Batch, a FetchAsk, limit int64) error {
	switch latest := r.log.Epochs().Latest(); {
	case b.BaseOffset() < r.log.End():
		return fmt.Errorf("base offset %d, the log ends at %d", b.BaseOffset(), r.log.End())
	case limit > 0 && b.NextOffset() > limit:
		return fmt.Errorf("batch from %d to %d, and the leader's log ends at %d", b.BaseOffset(), b.NextOffset(), limit)
	case b.LeaderEpoch() > a.LeaderEpoch:
		return fmt.Errorf("batch at %d of epoch %d, asked in epoch %d", b.BaseOffset(), b.LeaderEpoch(), a.LeaderEpoch)
	case b.LeaderEpoch() < latest:
		return fmt.Errorf("batch at %d of epoch %d, the log is in epoch %d", b.BaseOffset(), b.LeaderEpoch(), latest)
	}
	return nil
}

// followHW takes the leader's high watermark as far as this replica's own log counts. What was known to be committed
// stays so, whatever a leader says that has yet to find out.
func (r *Replica) followHW() {
	if hw := min(r.leaderHW, r.counted()); hw > r.hw {
		r.setHW(hw)
	}
}

// diverged truncates to where the two logs may agree: no further than where the leader's epoch ends there, nor than
// where the largest epoch not above it ends here. The next fetch tells whether that was far enough (rule 3, museum
// A01 and A02). Nothing else is taken from a diverging answer (rule 5).
func (r *Replica) diverged(now core.Time, d log.EpochStart, out *Out) {
	to := min(d.Start, r.log.End())
	if _, end, ok := r.log.EndOffsetFor(d.Epoch); ok {
		to = min(to, end)
	}
	if to < r.log.End() {
		out.line(levelInfo, "truncating to where the leader's log departs", r.attrs("leader_log_epoch", d.Epoch, "leader_epoch_end", d.Start, "end", r.log.End(), "to", to)...)
	}
	if to >= r.log.Start() {
		r.truncate(now, to, out)
		return
	}
	// They departed below what is here, and what was deleted here cannot come back: nothing is left, and no epoch either.
	r.startOver(to, out)
}

// startOver empties the log, to copy the leader's from wherever that begins: it departs below where this one began. What was deleted
// here as committed and old is gone in the leader's log too, as after an unclean election.
func (r *Replica) startOver(at int64, out *Out) {
	out.line(levelWarn, "the leader's log departs below our start: starting over", r.attrs("start", r.log.Start(), "end", r.log.End(), "at", at)...)
	r.log.Reset(0, nil)
	r.hw, r.rebuilding, r.startAsked = 0, false, 0
	r.truncating++
	r.truncateTo = 0
	out.Restart = Value{Set: true, Offset: 0}
	r.saveEpochs(out)
}

// restartAt empties the log, to begin again where the leader's begins, which is above its end: the leader has deleted what would
// follow. What those records say of producers comes from the leader.
func (r *Replica) restartAt(now core.Time, ans FetchAnswer, out *Out) {
	start := ans.LogStart
	var producers *log.Producers
	if ans.Producers != nil {
		var err error
		if producers, err = log.LoadSnapshot(ans.Producers); err != nil {
			out.line(levelError, "what the leader sent of producers cannot be read", r.attrs("error", err.Error())...)
			r.fetchAt = now.Add(fetchBackoff)
			return
		}
		r.expireAt = core.Earlier(r.expireAt, now.Add(expireEvery))
	}
	out.line(levelWarn, "the leader's log begins above our end: starting over", r.attrs("end", r.log.End(), "start", start)...)
	r.log.Reset(start, producers)
	r.hw, r.resetting, r.startAsked = start, true, start
	out.SetStart, out.Begins, out.Producers = Value{Set: true, Offset: start}, true, ans.Producers
	r.saveEpochs(out)
}
