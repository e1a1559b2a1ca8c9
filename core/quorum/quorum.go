package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// role is what a node currently is in the quorum.
type role uint8

const (
	unattached  role = iota // knows no leader in its term
	follower                // follows q.leader; an observer too
	prospective             // asks whether it could win an election (pre-vote)
	candidate               // asks for votes
	leader
)

var roleNames = [...]string{"unattached", "follower", "prospective", "candidate", "leader"}

func (r role) String() string { return roleNames[r] }

// leaderInTerm is who leads in which term.
type leaderInTerm struct {
	id   int32
	term int32
}

// Quorum is one node's part in the consensus on the metadata log.
type Quorum struct {
	cfg   Config // Voters ascending by id
	voter bool   // Self is one of them

	hard     HardState
	saveSeq  uint64 // of the newest hard state given to be saved
	savedSeq uint64 // of the newest that is durable
	held     []heldMessage

	asked    bool         // the operator was told that pre-votes are asked for
	told     leaderInTerm // the last leader that the operator was told this node follows
	role     role
	era      uint64 // rises with every change of role, term or leader; calls of an older one are void
	leaderID int32
	heardAt  core.Time // when the leader itself was last heard; neverHeard if it is known or thought to be gone
	// electionAt is when a voter that has not heard a leader asks for pre-votes, and an observer looks for another.
	electionAt core.Time

	log        tail
	hw         int64 // high watermark: all below is committed
	written    int64 // the log is in its file up to here, and may be read by others
	durable    int64 // the log is durable up to here, and may be counted
	truncating int   // Truncates and Resets not answered yet
	truncateTo int64 // of the last of them

	calls     map[uint64]call
	callToken uint64

	election election
	fetch    fetchState
	lead     leadership

	snapshot *Snapshot // the newest that is stored; an observer keeps no bytes
	saving   *Snapshot // given to be stored, not answered yet

	wall   core.WallMillis // the wall clock at wallAt
	wallAt core.Time
}

// neverHeard is before any instant at which somebody could have been heard.
const neverHeard = core.Time(-1 << 62)

// New makes the machine from what is durable: hard state, newest snapshot (nil if there
// is none; the host builds its first image from it), and what recovery found of the log. Load
// and Start follow.
func New(cfg Config, hard HardState, snap *Snapshot, st log.State) *Quorum {
	setDefaults(&cfg)
	q := &Quorum{cfg: cfg, hard: hard, leaderID: None, heardAt: neverHeard, electionAt: core.Never, calls: map[uint64]call{}}
	q.voter = q.isVoter(cfg.Self)
	q.snapshot = q.keep(snap)
	id := q.LatestSnapshot()
	base := SnapshotID{Offset: st.Start, Epoch: unknownEpoch}
	switch st.Start {
	case 0:
		base.Epoch = 0
	case id.Offset:
		base.Epoch = id.Epoch
	}
	q.log = tail{base: base, end: st.Start, applied: id.Offset}
	q.durable, q.hw = st.End, min(max(id.Offset, st.HighWatermark), max(id.Offset, st.End))
	return q
}

func setDefaults(c *Config) {
	c.Voters = slices.SortedFunc(slices.Values(c.Voters), func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	c.ElectionMin = cmp.Or(c.ElectionMin, 500*time.Millisecond)
	c.ElectionMax = max(cmp.Or(c.ElectionMax, 2*c.ElectionMin), c.ElectionMin+1)
	c.CheckQuorum = cmp.Or(c.CheckQuorum, c.ElectionMax)
	c.FetchWait = cmp.Or(c.FetchWait, 100*time.Millisecond)
	c.Retry = cmp.Or(c.Retry, 20*time.Millisecond)
	c.FetchBytes = cmp.Or(c.FetchBytes, 1<<20)
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, 1<<20)
}

// LoadFrom says from which offset the host is to read the log for the next Load, and whether there is more to read.
func (q *Quorum) LoadFrom() (from int64, more bool) { return q.log.end, q.log.end < q.durable }

// Load takes the next batches of the local log, read from LoadFrom on. The error is ErrCorruptLog, wrapped.
func (q *Quorum) Load(batches []record.Batch) error {
	if len(batches) == 0 {
		return fmt.Errorf("%w: nothing at offset %d, log ends at %d", ErrCorruptLog, q.log.end, q.durable)
	}
	const anyTerm = 1<<31 - 1 // appended under a term that was not saved yet: see Start
	if err := q.log.fits(batches, anyTerm); err != nil {
		return fmt.Errorf("%w: %w", ErrCorruptLog, err)
	}
	q.log.append(batches)
	return nil
}

// Start begins, when LoadFrom says that all is loaded.
func (q *Quorum) Start(now core.Time, out *Out) {
	q.durable, q.written = q.log.end, q.log.end
	if q.log.lastEpoch() > q.hard.Term {
		// The leader's records were appended before its term was saved. No vote of that term was sent, or it would have been.
		q.setHard(HardState{Term: q.log.lastEpoch(), Vote: None}, out)
	}
	// A leader of before comes back without its role: it may have lost what it had not synced (museum B03).
	q.role = unattached
	q.reconcile(out)
	q.deliver(q.hw, out)
	switch {
	case !q.voter:
		q.fetch.at = now
	case len(q.cfg.Voters) == 1:
		q.campaign(now, out)
	default:
		q.resetElection(now)
	}
}

// reconcile makes log and newest snapshot agree: where the log does not hold the snapshot's last record,
// it is older, or another history, and begins anew at the snapshot (Raft, figure 13).
func (q *Quorum) reconcile(out *Out) {
	id := q.LatestSnapshot()
	switch {
	case id.Offset < q.log.base.Offset:
		q.fatal(out, fmt.Errorf("%w: begins at offset %d, the newest snapshot ends at %d", ErrCorruptLog, q.log.base.Offset, id.Offset))
	case !q.log.holds(id):
		q.resetLog(id, out)
	}
}

// setHard changes what must not be forgotten. Nothing is sent until it is saved: see send.
func (q *Quorum) setHard(h HardState, out *Out) {
	if h == q.hard {
		return
	}
	q.hard = h
	q.saveSeq++
	out.Save, out.SaveToken = h.Encode(), q.saveSeq
}

// Saved says that the hard state given with token is durable.
func (q *Quorum) Saved(now core.Time, token uint64, out *Out) {
	q.savedSeq = max(q.savedSeq, token)
	q.release(out)
	if q.role == candidate && !q.election.ownVote && q.election.saveSeq <= q.savedSeq {
		q.election.ownVote = true
		q.countVote(now, q.cfg.Self, true, out)
	}
}

// become changes role, and with it era: what was asked before is void.
func (q *Quorum) become(r role, leaderID int32) {
	q.role, q.leaderID = r, leaderID
	q.era++
	q.fetch = fetchState{at: core.Never}
	q.election = election{heardOf: None}
}

// observe takes note of a term, and of the leader in it as far as told, that came with a message.
func (q *Quorum) observe(now core.Time, term, leaderID int32, out *Out) {
	leaderID = q.credible(leaderID)
	if term > q.hard.Term {
		q.enterTerm(now, term, out)
	}
	if term == q.hard.Term && leaderID != None && q.leaderID == None {
		q.follow(now, leaderID, 0, out)
	}
}

// credible is the leader that others name, unless it is this node: nobody knows better than it whether it leads (museum B03).
func (q *Quorum) credible(leaderID int32) int32 {
	if leaderID == q.cfg.Self || !q.isVoter(leaderID) {
		return None
	}
	return leaderID
}

// enterTerm moves to a later term, in which nobody is known to lead and no vote is given.
func (q *Quorum) enterTerm(now core.Time, term int32, out *Out) {
	q.stopLeading(now, out)
	q.setHard(HardState{Term: term, Vote: None}, out)
	q.unattach(now)
}

func (q *Quorum) unattach(now core.Time) {
	q.become(unattached, None)
	q.heardAt = neverHeard
	if q.voter {
		q.resetElection(now)
	} else {
		q.electionAt, q.fetch.at = core.Never, now
	}
}

// follow makes this node a follower of leaderID in the current term, which fetches after a pause.
func (q *Quorum) follow(now core.Time, leaderID int32, pause time.Duration, out *Out) {
	if q.leaderID != leaderID {
		q.heardAt = neverHeard
	}
	if told := (leaderInTerm{leaderID, q.hard.Term}); q.told != told { // once, also if it is lost and found again all the time
		q.told = told
		note(out, Info, "following the leader of the metadata quorum", "leader", leaderID, "epoch", q.hard.Term)
	}
	q.asked = false
	q.become(follower, leaderID)
	q.resetElection(now)
	q.fetch.at = now.Add(pause)
	q.fetchNow(now, out)
}

func (q *Quorum) resetElection(now core.Time) {
	q.electionAt = now.Add(q.cfg.ElectionMin + q.draw(q.cfg.ElectionMax-q.cfg.ElectionMin))
}

func (q *Quorum) draw(d time.Duration) time.Duration {
	return time.Duration(q.cfg.Rand.Uint64() % uint64(max(d, 1)))
}

// setHighWatermark commits everything below hw, and delivers it.
func (q *Quorum) setHighWatermark(hw int64, out *Out) {
	if hw > q.hw {
		q.hw = hw
		q.deliver(hw, out)
	}
}

// deliver hands over committed batches. This is the only way out of the log into the image (rule 12, museum B30).
func (q *Quorum) deliver(committed int64, out *Out) {
	for _, b := range q.log.take(committed) {
		if b.Control() {
			continue
		}
		c, err := commitOf(b)
		if err != nil {
			q.fatal(out, fmt.Errorf("metadata batch at offset %d: %w", b.BaseOffset(), err))
			return
		}
		out.Commits = append(out.Commits, c)
	}
}

// commitOf takes the values out of a data batch.
func commitOf(b record.Batch) (Commit, error) {
	c := Commit{
		Offset: b.BaseOffset(), Epoch: b.LeaderEpoch(), Wall: core.WallMillis(b.MaxTimestamp()),
		Values: make([][]byte, 0, b.Count()),
	}
	for r, err := range b.Records(nil, record.Limits{}) {
		if err != nil {
			return Commit{}, err
		}
		c.Values = append(c.Values, r.Value)
	}
	return c, nil
}

// Tick is time passing.
func (q *Quorum) Tick(now core.Time, out *Out) {
	if q.role == leader {
		q.tickLeader(now, out)
		return
	}
	if now >= q.electionAt {
		if q.voter {
			q.askPreVotes(now, out)
		} else {
			q.unattach(now)
		}
	}
	q.fetchNow(now, out)
}

// Deadline says when the machine next wants a Tick.
func (q *Quorum) Deadline() core.Time {
	if q.role == leader {
		return q.leaderDeadline()
	}
	return core.Earlier(q.electionAt, q.fetchDeadline())
}

// PeerClosed says that a connection to or from a peer broke. If it was the leader's, as when its process died, a
// voter does not wait for its silence to become long.
func (q *Quorum) PeerClosed(now core.Time, peer int32, out *Out) {
	if peer != q.leaderID || peer == q.cfg.Self {
		return
	}
	q.heardAt = neverHeard
	switch {
	case q.role == follower && q.voter:
		q.askPreVotes(now, out)
	case q.role == follower:
		q.unattach(now)
		q.fetchNow(now, out)
	}
}

// Clock tells the wall clock, for the timestamp of a new leader's control record.
func (q *Quorum) Clock(now core.Time, wall core.WallMillis) { q.wall, q.wallAt = wall, now }

func (q *Quorum) wallNow(now core.Time) int64 {
	if q.wall == 0 {
		return 0
	}
	return int64(q.wall) + now.Sub(q.wallAt).Milliseconds()
}

// Leader returns the leader's id, or None, and the current term, which is the leader epoch.
func (q *Quorum) Leader() (id, term int32) { return q.leaderID, q.hard.Term }

// Leading says whether this node leads, and if so whether it is active: whether its term's start is committed and delivered.
func (q *Quorum) Leading() (leads, active bool) {
	return q.role == leader, q.role == leader && q.lead.active
}

// HighWatermark is the end of what is known committed. All below has been delivered.
func (q *Quorum) HighWatermark() int64 { return q.hw }

// EndOffset is the log end offset: where the next proposal would be.
func (q *Quorum) EndOffset() int64 { return q.log.end }

// VoterEndpoint returns where voter id is reached.
func (q *Quorum) VoterEndpoint(id int32) (Voter, bool) {
	for _, v := range q.cfg.Voters {
		if v.ID == id {
			return v, true
		}
	}
	return Voter{}, false
}

func (q *Quorum) isVoter(id int32) bool {
	_, ok := q.VoterEndpoint(id)
	return ok
}

func (q *Quorum) majority() int { return len(q.cfg.Voters)/2 + 1 }

// fatal reports that the rules of the quorum are broken here.
func (q *Quorum) fatal(out *Out, err error) {
	if out.Fatal == nil {
		out.Fatal = err
	}
}

func note(out *Out, level Level, msg string, attrs ...any) {
	out.Notes = append(out.Notes, Note{Level: level, Msg: msg, Attrs: attrs})
}

// KnowCluster tells a node that was born without it which cluster it belongs to, once a record that says so is committed. From then on
// it refuses another's voters, whose log and term would take the place of its own. It never changes its cluster.
func (q *Quorum) KnowCluster(id string) {
	if q.cfg.ClusterID == "" {
		q.cfg.ClusterID = id
	}
}

// foreign notes that a call was refused by a voter of another cluster. Who of the two is where it does not belong, neither can
// tell, so neither stops. Nothing but an operator ends it, so the call is not tried again before a while.
func (q *Quorum) foreign(now core.Time, voter int32, out *Out) (retry core.Time) {
	note(out, Warn, "a voter is of another cluster, or this node is: a data directory or an address is not where it belongs",
		"voter", voter, "cluster", q.cfg.ClusterID)
	return now.Add(q.cfg.ElectionMax)
}

// clusterMismatch says whether a request names another cluster.
func (q *Quorum) clusterMismatch(id *string) bool {
	return id != nil && q.cfg.ClusterID != "" && *id != q.cfg.ClusterID
}

func (q *Quorum) clusterID() *string {
	if q.cfg.ClusterID == "" {
		return nil
	}
	return kmsg.StringPtr(q.cfg.ClusterID)
}
