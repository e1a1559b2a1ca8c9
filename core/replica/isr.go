package replica

import (
	"slices"
	"time"

	"lockstep/core"
)

const (
	proposalBackoff = 100 * time.Millisecond // before a proposal whose outcome is open is made again
	storageBackoff  = time.Second            // before a follower whose append failed tries again
	fetchBackoff    = 100 * time.Millisecond // before a follower tries again after an error
)

// progress is how far a follower is known to be, in the present leader epoch.
type progress struct {
	Member
	end      int64 // it holds all below this, counted as it counts; -1 if it has not fetched in this epoch
	logStart int64 // -1 if not known
	toldHW   int64 // the high watermark it was last sent

	// It was last caught up at caughtUp: then it had all that the leader had written, or it has since fetched
	// from the end that the leader had at the fetch before (as Kafka reckons).
	caughtUp, lastFetch core.Time
	endAtLastFetch      int64
}

func newProgress(m Member, now core.Time) progress {
	return progress{Member: m, end: -1, logStart: -1, toldHW: -1, caughtUp: now, lastFetch: now}
}

// change is a change of the in-sync set that is on its way.
type change struct {
	proposal *Proposal
	// unsure: an earlier attempt's outcome was left open, so it may yet come true after a refusal of a later one.
	unsure bool
	// maybe is everybody who was ever proposed on top of the committed state; they may be members already.
	maybe   []int32
	retryAt core.Time // when to propose again; Never while an answer is awaited
}

func (r *Replica) follower(id int32) *progress {
	for i := range r.followers {
		if r.followers[i].ID == id {
			return &r.followers[i]
		}
	}
	return nil
}

// matchFollowers makes the followers those of the present state, keeping what is known of them. A newer broker epoch
// is another life of that broker: what it fetched in an earlier one does not count any more (rule 6).
func (r *Replica) matchFollowers(now core.Time) {
	old := r.followers
	r.followers = nil
	for _, m := range r.st.Replicas {
		if m.ID == r.self {
			continue
		}
		p := newProgress(m, now)
		for i := range old {
			if old[i].ID == m.ID {
				p = old[i]
			}
		}
		if m.Epoch > p.Epoch {
			p.end, p.logStart = -1, -1
		}
		p.Epoch, p.Eligible = max(p.Epoch, m.Epoch), m.Eligible
		r.followers = append(r.followers, p)
	}
}

// minInsync is min.insync.replicas, which cannot ask for more replicas than there are.
func (r *Replica) minInsync() int { return min(r.cfg.MinInsync, len(r.st.Replicas)) }

// inSync is the size of the in-sync set, the smaller one while a change is on its way.
func (r *Replica) inSync() int {
	n := len(r.st.ISR)
	if p := r.change.proposal; p != nil {
		n = min(n, len(p.ISR))
	}
	return n
}

// advance moves the high watermark as far as the maximal in-sync set allows (rule 6, museum A07 and A13), and answers
// those who waited for that or for the own log.
func (r *Replica) advance(now core.Time, out *Out) {
	if r.role != Leader {
		return
	}
	if hw := r.commitEnd(); hw > r.hw {
		r.setHW(hw)
		out.Readable, out.Written = true, true
	}
	r.complete(now, out)
}

// commitEnd is the end of what the maximal in-sync set holds, or 0 while the set is too small.
func (r *Replica) commitEnd() int64 {
	if r.inSync() < r.minInsync() {
		return 0
	}
	end := r.counted()
	for i := range r.followers {
		f := &r.followers[i]
		if r.mayBeMember(f.ID) {
			end = min(end, f.end)
		}
	}
	return end
}

// mayBeMember says whether a replica is in the maximal in-sync set: committed, or proposed and perhaps committed.
func (r *Replica) mayBeMember(id int32) bool {
	return slices.Contains(r.st.ISR, id) || slices.Contains(r.change.maybe, id)
}

// propose asks the controller for another in-sync set. One change is on its way at a time.
func (r *Replica) propose(now core.Time, isr []int32, out *Out) {
	p := &Proposal{LeaderEpoch: r.st.LeaderEpoch, PartitionEpoch: r.st.PartitionEpoch}
	for _, id := range isr {
		m := Member{ID: id, Epoch: -1}
		if f := r.follower(id); f != nil {
			m.Epoch = f.Epoch
		} else {
			for _, x := range r.st.Replicas {
				if x.ID == id {
					m.Epoch = x.Epoch
				}
			}
		}
		p.ISR = append(p.ISR, m)
		if !slices.Contains(r.st.ISR, id) && !slices.Contains(r.change.maybe, id) {
			r.change.maybe = append(r.change.maybe, id)
		}
	}
	r.change.proposal, r.change.retryAt = p, core.Never
	out.Propose = p
}

// grow proposes f for the in-sync set if it may join: it has reached the high watermark and the start of this epoch,
// so it lacks nothing that may be committed (rule 7, museum A06), and it has deleted what is deleted here, so that
// deleted records do not come back with it.
func (r *Replica) grow(now core.Time, f *progress, out *Out) {
	if r.change.proposal != nil || !f.Eligible || slices.Contains(r.st.ISR, f.ID) {
		return
	}
	if f.end < r.hw || f.end < r.epochStart || f.logStart < r.log.Start() {
		return
	}
	r.propose(now, append(slices.Clone(r.st.ISR), f.ID), out)
}

// lagging says whether a member of the in-sync set has not been caught up for too long, or when it will have been.
func (r *Replica) lagging(f *progress, now core.Time) (lags bool, at core.Time) {
	if f.end >= r.log.Written() || !slices.Contains(r.st.ISR, f.ID) {
		return false, core.Never
	}
	at = f.caughtUp.Add(r.cfg.LagMax).Add(1)
	return now >= at, at
}

// shrink proposes to go on without the members that lag.
func (r *Replica) shrink(now core.Time, out *Out) {
	if r.change.proposal != nil {
		return
	}
	isr := slices.DeleteFunc(slices.Clone(r.st.ISR), func(id int32) bool {
		f := r.follower(id)
		if f == nil {
			return false
		}
		lags, _ := r.lagging(f, now)
		return lags
	})
	if len(isr) < len(r.st.ISR) {
		out.line(levelWarn, "shrinking the in-sync set", r.attrs("from", r.st.ISR, "to", isr)...)
		r.propose(now, isr, out)
	}
}

// Proposed is the controller's verdict on p. With code 0, partitionEpoch and isr are the new state. REQUEST_TIMED_OUT
// and NOT_CONTROLLER stand for all that leaves the outcome open: the proposal is made again. With
// INVALID_UPDATE_VERSION or FENCED_LEADER_EPOCH there is newer metadata to come.
func (r *Replica) Proposed(now core.Time, p *Proposal, code int16, partitionEpoch int32, isr []int32, out *Out) {
	c := &r.change
	if r.role != Leader || c.proposal == nil || p.LeaderEpoch != c.proposal.LeaderEpoch || p.PartitionEpoch != c.proposal.PartitionEpoch {
		return // rule 4
	}
	switch code {
	case codeNone:
		st := r.st
		st.PartitionEpoch, st.ISR = max(partitionEpoch, st.PartitionEpoch), slices.Clone(isr)
		r.change = change{}
		r.refresh(now, st, out)
	case codeRequestTimedOut, codeNotController:
		c.unsure, c.retryAt = true, now.Add(proposalBackoff)
	case codeInvalidUpdate, codeFencedLeaderEpoch:
		// It may have been accepted before: until the metadata says, both sets hold (museum A07).
	default:
		out.line(levelWarn, "the controller refused a change of the in-sync set", r.attrs("code", code)...)
		if !c.unsure {
			r.change = change{}
			r.advance(now, out)
			return
		}
		// An earlier attempt may still come true; a change from the same state rules that out.
		r.propose(now, r.st.ISR, out)
		out.Propose, c.retryAt = nil, now.Add(proposalBackoff)
	}
}

// Tick is time passing: members that lag are proposed for removal, proposals are made again, expired producers are
// forgotten, and a follower tries again.
func (r *Replica) Tick(now core.Time, wall core.WallMillis, out *Out) {
	r.expireProducers(now, wall)
	switch r.role {
	case Leader:
		if c := &r.change; c.proposal != nil && now >= c.retryAt {
			c.retryAt = core.Never
			out.Propose = c.proposal
		}
		r.shrink(now, out)
	case Follower:
		if r.fetchAt != 0 && now >= r.fetchAt {
			r.fetchAt = 0
			out.Fetch = out.Fetch || r.ready(now)
		}
	}
}

// Deadline says when Tick is wanted next.
func (r *Replica) Deadline() core.Time {
	at := r.expireAt
	switch r.role {
	case Leader:
		if r.change.proposal != nil {
			return core.Earlier(at, r.change.retryAt)
		}
		for i := range r.followers {
			_, lagsAt := r.lagging(&r.followers[i], 0)
			at = core.Earlier(at, lagsAt)
		}
	case Follower:
		if r.fetchAt != 0 {
			at = core.Earlier(at, r.fetchAt)
		}
	}
	return at
}
