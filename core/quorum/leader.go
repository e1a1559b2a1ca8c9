package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leadership is what a leader knows.
type leadership struct {
	epochStart int64     // offset of the LeaderChange record that began the term
	active     bool      // which is committed
	replicas   []replica // ascending by id: the other voters, and observers as they come
}

// replica is what a leader knows of another node in its term.
type replica struct {
	id        int32
	voter     bool
	end       int64     // its durable log end, -1 before it fetched in this term (rule 6)
	fetchedAt core.Time // when its last fetch came in
	caughtUp  core.Time // when its last fetch came in that was at the log end
	// confirmed: it followed this leader in this term at that instant or later, see MajorityHeard. It is the instant
	// at which something was sent that it has answered; rounds number what was sent to it.
	confirmed core.Time
	round     int32
	roundAt   core.Time
	calling   bool      // a BeginQuorumEpoch is not answered yet
	beginAt   core.Time // when the next may be sent
	parked    *parkedFetch
}

// observerExpiry is how long a silent observer is remembered.
const observerExpiry = 5 * time.Minute

// becomeLeader takes over, with a record of the own term: only that can commit what is older (rules 2 and 11).
func (q *Quorum) becomeLeader(now core.Time, out *Out) {
	granted, started := q.election.granted, q.election.started
	q.asked = false
	q.become(leader, q.cfg.Self)
	q.electionAt = core.Never
	q.lead = leadership{epochStart: q.log.end}
	m := kmsg.LeaderChangeMessage{Version: 1, LeaderID: q.cfg.Self}
	for _, v := range q.cfg.Voters {
		m.Voters = append(m.Voters, kmsg.LeaderChangeMessageVoter{VoterID: v.ID})
		if v.ID != q.cfg.Self {
			r := replica{id: v.ID, voter: true, end: -1, fetchedAt: now, caughtUp: neverHeard, confirmed: neverHeard}
			if slices.Contains(granted, v.ID) {
				r.confirmed = started
			}
			q.lead.replicas = append(q.lead.replicas, r)
		}
	}
	slices.Sort(granted)
	for _, id := range granted {
		m.GrantingVoters = append(m.GrantingVoters, kmsg.LeaderChangeMessageVoter{VoterID: id})
	}
	out.Elected = true
	note(out, Info, "leader of the metadata quorum", "epoch", q.hard.Term, "offset", q.log.end, "votes", granted)
	q.appendOwn(record.LeaderChange(q.log.end, q.hard.Term, q.wallNow(now), m), out)
	for i := range q.lead.replicas {
		q.begin(now, &q.lead.replicas[i], out)
	}
}

func (q *Quorum) appendOwn(b record.Batch, out *Out) {
	batches := []record.Batch{b}
	q.log.append(batches)
	out.Log = append(out.Log, Append{Batches: batches})
}

// Propose appends values as one batch, atomically: all or none of them will be
// committed. It returns the offset of the last; Commits deliver them. Errors are ErrNotLeader, ErrTruncating, and
// record's where values do not make a batch.
func (q *Quorum) Propose(now core.Time, wall core.WallMillis, values [][]byte, out *Out) (lastOffset int64, err error) {
	q.Clock(now, wall)
	if q.role != leader {
		return 0, ErrNotLeader
	}
	if q.truncating > 0 {
		return 0, ErrTruncating
	}
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch = q.log.end, q.hard.Term
	for _, v := range values {
		b.Add(record.Record{Timestamp: int64(wall), Value: v})
	}
	batch, err := b.Build()
	if err != nil {
		return 0, fmt.Errorf("propose %d metadata records: %w", len(values), err)
	}
	q.appendOwn(batch, out)
	return q.log.end - 1, nil
}

// advance moves the high watermark to what a majority holds durably, this node counted like any other (rule 11, museum
// B04). It passes over entries of earlier terms to the first of the own that has a majority (museum B09).
func (q *Quorum) advance(now core.Time, out *Out) {
	ends := []int64{q.durable}
	for i := range q.lead.replicas {
		if r := &q.lead.replicas[i]; r.voter {
			ends = append(ends, r.end)
		}
	}
	slices.Sort(ends)
	hw := ends[len(ends)-q.majority()]
	if hw <= q.lead.epochStart {
		return // only an entry of the own term commits by counting, and all before it with it (rule 11, museum B07)
	}
	q.setHighWatermark(hw, out)
	if !q.lead.active {
		q.lead.active, out.Active = true, true
	}
	q.wakeFetches(now, out)
}

// replica returns the state of a replica that fetches; one that is no voter becomes known by that.
func (q *Quorum) replica(now core.Time, id int32) *replica {
	at, ok := slices.BinarySearchFunc(q.lead.replicas, id, func(r replica, id int32) int { return cmp.Compare(r.id, id) })
	if ok {
		return &q.lead.replicas[at]
	}
	q.lead.replicas = slices.Insert(q.lead.replicas, at, replica{id: id, end: -1, fetchedAt: now, caughtUp: neverHeard, confirmed: neverHeard})
	return &q.lead.replicas[at]
}

// begin tells a voter who leads.
func (q *Quorum) begin(now core.Time, r *replica, out *Out) {
	m := kmsg.NewPtrBeginQuorumEpochRequest()
	m.Version = 1
	m.ClusterID, m.VoterID = q.clusterID(), r.id
	p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = q.cfg.Self, q.hard.Term
	m.Topics = []kmsg.BeginQuorumEpochRequestTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.BeginQuorumEpochRequestTopicPartition{p},
	}}
	r.calling, r.beginAt = true, now.Add(q.cfg.FetchWait)
	q.call(now, r.id, m, out)
}

func (q *Quorum) onBeginResponse(now core.Time, c call, m *kmsg.BeginQuorumEpochResponse, out *Out) {
	r := q.replica(now, c.peer)
	r.calling = false
	if m.ErrorCode == codeInconsistentClusterID {
		r.beginAt = q.foreign(now, c.peer, out)
		return
	}
	if m.ErrorCode != codeNone || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		note(out, Warn, "voter refused its leader", "voter", c.peer, "code", m.ErrorCode)
		return
	}
	p := &m.Topics[0].Partitions[0]
	if p.ErrorCode == codeNone {
		r.confirmed = max(r.confirmed, c.sent)
		return
	}
	note(out, Warn, "voter refused its leader", "voter", c.peer, "code", p.ErrorCode, "epoch", p.LeaderEpoch)
	q.observe(now, p.LeaderEpoch, p.LeaderID, out)
}

// tickLeader steps down without a majority, ends parked fetches whose time is up, and calls on silent voters.
func (q *Quorum) tickLeader(now core.Time, out *Out) {
	if now >= q.quorumDeadline() {
		note(out, Warn, "no majority heard: stepping down", "epoch", q.hard.Term)
		q.stepDown(now, out) // museum B16
		return
	}
	for i := range q.lead.replicas {
		r := &q.lead.replicas[i]
		if r.parked != nil && now >= r.parked.until {
			q.unpark(now, r, out)
		}
		if now >= q.beginDue(r) {
			q.begin(now, r, out)
		}
	}
	q.lead.replicas = slices.DeleteFunc(q.lead.replicas, func(r replica) bool {
		return !r.voter && r.parked == nil && r.fetchedAt.Add(observerExpiry) <= now
	})
}

// beginDue says when a voter is to be told again who leads: when it has not fetched for two pulses.
func (q *Quorum) beginDue(r *replica) core.Time {
	if !r.voter || r.calling {
		return core.Never
	}
	return max(r.beginAt, r.fetchedAt.Add(2*q.cfg.FetchWait))
}

// quorumDeadline is when the leader steps down unless more voters fetch: CheckQuorum after a majority, itself included, last did.
func (q *Quorum) quorumDeadline() core.Time {
	at := q.majorityTime(core.Never, func(r *replica) core.Time { return r.fetchedAt })
	return at.Add(q.cfg.CheckQuorum)
}

// majorityTime returns the latest instant that of a majority of voters is not later than theirs; self is this node's.
func (q *Quorum) majorityTime(self core.Time, of func(*replica) core.Time) core.Time {
	times := []core.Time{self}
	for i := range q.lead.replicas {
		if r := &q.lead.replicas[i]; r.voter {
			times = append(times, of(r))
		}
	}
	slices.Sort(times)
	return times[len(times)-q.majority()]
}

func (q *Quorum) leaderDeadline() core.Time {
	at := q.quorumDeadline()
	for i := range q.lead.replicas {
		r := &q.lead.replicas[i]
		if r.parked != nil {
			at = core.Earlier(at, r.parked.until)
		}
		at = core.Earlier(at, q.beginDue(r))
	}
	return at
}

// MajorityHeard is, on a leader, an instant at which a majority of voters, itself included, still followed it in its
// term: whoever is elected later was elected after it. A lease that ends by MajorityHeard plus the lease's length
// is over before a new leader that waits that long fences anybody. False if this node does not lead.
func (q *Quorum) MajorityHeard(now core.Time) (core.Time, bool) {
	if q.role != leader {
		return neverHeard, false
	}
	return q.majorityTime(now, func(r *replica) core.Time { return r.confirmed }), true
}

// stopLeading gives up what only a leader has. The caller changes role.
func (q *Quorum) stopLeading(now core.Time, out *Out) {
	if q.role != leader {
		return
	}
	for i := range q.lead.replicas {
		if p := q.lead.replicas[i].parked; p != nil {
			q.refuseFetch(p.token, p.req, codeNotLeaderOrFollower, None, out)
		}
	}
	q.lead = leadership{}
	out.LostLeadership = true
	note(out, Info, "no longer leader of the metadata quorum", "epoch", q.hard.Term)
}

// stepDown ends leadership within the term, in which nobody else can lead.
func (q *Quorum) stepDown(now core.Time, out *Out) {
	q.stopLeading(now, out)
	q.unattach(now)
}

// Resign gives leadership up, for a clean stop: the voter with the longest log is asked to follow on at once.
func (q *Quorum) Resign(now core.Time, out *Out) {
	if q.role != leader {
		return
	}
	heirs := slices.DeleteFunc(slices.Clone(q.lead.replicas), func(r replica) bool { return !r.voter })
	slices.SortStableFunc(heirs, func(a, b replica) int { return cmp.Compare(b.end, a.end) })
	q.stepDown(now, out)
	m := kmsg.NewPtrEndQuorumEpochRequest()
	m.Version, m.ClusterID = 1, q.clusterID()
	p := kmsg.NewEndQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = q.cfg.Self, q.hard.Term
	for _, r := range heirs {
		c := kmsg.NewEndQuorumEpochRequestTopicPartitionPreferredCandidate()
		c.CandidateID = r.id
		p.PreferredCandidates = append(p.PreferredCandidates, c)
	}
	m.Topics = []kmsg.EndQuorumEpochRequestTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.EndQuorumEpochRequestTopicPartition{p},
	}}
	for _, r := range heirs {
		q.call(now, r.id, m, out)
	}
}
