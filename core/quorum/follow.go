package quorum

import (
	"cmp"
	"fmt"
	"time"

	"lockstep/core"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchState is how far a follower, or an observer that looks for the leader, is with its fetch. There is
// one at a time, and a new one for every era.
type fetchState struct {
	token    uint64         // of the call that is not answered yet, 0 if there is none
	at       core.Time      // when the next may be sent
	hw       int64          // the leader's high watermark, as last heard
	round    int32          // of the leader's last answer, handed back to it: see replica.confirmed
	snapshot *snapshotFetch // a snapshot is being fetched, not records
}

// mayFetch says whether the next fetch could be sent. A follower asks for more when all it has is durable, because
// the offset that it asks for is what the leader counts (rule 11, museum B04); and a truncation must be durable too (rule 16).
func (q *Quorum) mayFetch() bool {
	if q.fetch.token != 0 || q.role != follower && (q.role != unattached || q.voter) {
		return false
	}
	return q.durable == q.log.end && q.truncating == 0 && !q.installing()
}

func (q *Quorum) fetchDeadline() core.Time {
	if q.mayFetch() {
		return q.fetch.at
	}
	return core.Never
}

// fetchNow sends the next fetch if it is time.
func (q *Quorum) fetchNow(now core.Time, out *Out) {
	if !q.mayFetch() || now < q.fetch.at {
		return
	}
	peer := q.leaderID
	if peer == None {
		peer = q.nextVoter()
	}
	if q.fetch.snapshot != nil {
		q.fetch.token = q.call(now, peer, q.snapshotRequest(), out)
		return
	}
	m := kmsg.NewPtrFetchRequest()
	m.Version = 18
	m.ClusterID = q.clusterID()
	m.ReplicaState.ID = q.cfg.Self
	m.MaxWaitMillis, m.MinBytes, m.MaxBytes = int32(q.cfg.FetchWait.Milliseconds()), 1, q.cfg.FetchBytes
	m.SessionID = q.fetch.round
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch = q.hard.Term
	p.FetchOffset, p.LastFetchedEpoch = q.log.end, q.log.lastEpoch()
	p.LogStartOffset, p.HighWatermark = q.log.base.Offset, q.hw
	p.PartitionMaxBytes = q.cfg.FetchBytes
	m.Topics = []kmsg.FetchRequestTopic{{
		Topic: core.MetadataTopic, TopicID: core.MetadataPartition.Topic, Partitions: []kmsg.FetchRequestTopicPartition{p},
	}}
	q.fetch.token = q.call(now, peer, m, out)
}

// nextVoter is whom an observer that knows no leader asks: each voter in turn.
func (q *Quorum) nextVoter() int32 {
	return q.cfg.Voters[q.callToken%uint64(len(q.cfg.Voters))].ID
}

// fetchFailed tries again after a pause.
func (q *Quorum) fetchFailed(now core.Time, peer int32, out *Out, attrs ...any) {
	q.fetch.token, q.fetch.at = 0, now.Add(q.cfg.Retry)
	note(out, Debug, "fetch of the metadata log failed", append([]any{"peer", peer}, attrs...)...)
}

func (q *Quorum) onFetchResponse(now core.Time, c call, m *kmsg.FetchResponse, batches []record.Batch, out *Out) {
	if m.ErrorCode != codeNone || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		q.fetchFailed(now, c.peer, out, "code", m.ErrorCode)
		if m.ErrorCode == codeInconsistentClusterID {
			q.fetch.at = q.foreign(now, c.peer, out)
		}
		return
	}
	p := &m.Topics[0].Partitions[0]
	if p.ErrorCode != codeNone {
		q.onFetchRefused(now, c, p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, out)
		return
	}
	if !q.leaderAnswered(now, c, out) {
		return
	}
	q.fetch.round = m.SessionID
	switch {
	case p.DivergingEpoch.EndOffset >= 0:
		q.diverged(now, c, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset, out) // and nothing else is taken from it (rule 5)
	case p.SnapshotID.EndOffset >= 0:
		q.beginSnapshotFetch(now, c, SnapshotID{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}, out)
	case len(batches) > 0:
		q.appendFetched(now, c, batches, p.HighWatermark, out)
	default:
		q.fetch.hw = p.HighWatermark
		q.followHighWatermark(out)
	}
	q.fetchNow(now, out)
}

// followHighWatermark commits what the leader has committed, as far as it has come into this node's own file: what
// could still fail to get there could not be taken back from the image.
func (q *Quorum) followHighWatermark(out *Out) {
	q.setHighWatermark(min(q.fetch.hw, q.written), out)
}

// leaderAnswered notes that the leader of this term was heard. It returns false if that is news to an observer, who
// asks again as a follower.
func (q *Quorum) leaderAnswered(now core.Time, c call, out *Out) bool {
	if q.role != follower {
		q.follow(now, c.peer, 0, out)
		return false
	}
	q.fetch.token, q.fetch.at = 0, now
	q.heardAt = now
	q.resetElection(now)
	return true
}

// onFetchRefused deals with an answer that is an error.
func (q *Quorum) onFetchRefused(now core.Time, c call, code int16, leaderID, term int32, out *Out) {
	era := q.era
	q.observe(now, term, leaderID, out)
	if q.era != era {
		q.fetchNow(now, out)
		return
	}
	q.fetch.snapshot = nil
	q.fetchFailed(now, c.peer, out, "code", code)
	if code != codeNotLeaderOrFollower || q.role != follower {
		return
	}
	// The leader of this term has stepped down, so only a new term can have one.
	q.unattach(now)
	if q.voter {
		q.askPreVotes(now, out)
		return
	}
	q.fetch.at = now.Add(q.cfg.Retry)
}

// diverged cuts off what the leader does not have: its largest epoch not above ours ends at end. If ours of that epoch
// goes on beyond, it is cut there, and if we have not got that epoch, where ours ends that comes before it; and then
// we ask again, until the histories agree (rule 3; KIP-595, as KIP-279).
func (q *Quorum) diverged(now core.Time, c call, epoch int32, end int64, out *Out) {
	found, to, ok := q.log.endOf(epoch)
	if ok && found == epoch {
		to = min(to, end)
	}
	switch {
	case !ok || to < q.hw:
		q.fatal(out, fmt.Errorf("leader %d of epoch %d has epoch %d end at offset %d, but here all below %d is committed",
			c.peer, q.hard.Term, epoch, end, q.hw))
	case to >= q.log.end:
		q.fetchFailed(now, c.peer, out, "divergingEpoch", epoch, "endOffset", end)
	default:
		note(out, Info, "truncating the metadata log", "from", q.log.end, "to", to, "leader", c.peer, "epoch", q.hard.Term)
		q.truncate(to, out)
	}
}

// appendFetched appends what the leader sent.
func (q *Quorum) appendFetched(now core.Time, c call, batches []record.Batch, hw int64, out *Out) {
	if err := q.log.fits(batches, q.hard.Term); err != nil {
		q.fetchFailed(now, c.peer, out, "err", err)
		return
	}
	q.log.append(batches)
	out.Log = append(out.Log, Append{Batches: batches})
	q.fetch.hw = hw
	q.followHighWatermark(out)
}

// onBeginEpoch hears of a leader from itself.
func (q *Quorum) onBeginEpoch(now core.Time, token uint64, m *kmsg.BeginQuorumEpochRequest, out *Out) {
	resp := m.ResponseKind().(*kmsg.BeginQuorumEpochResponse)
	if q.clusterMismatch(m.ClusterID) {
		resp.ErrorCode = codeInconsistentClusterID
		q.respond(token, resp, nil, out)
		return
	}
	answer := kmsg.NewBeginQuorumEpochResponseTopicPartition()
	if len(m.Topics) != 1 || m.Topics[0].Topic != core.MetadataTopic || len(m.Topics[0].Partitions) != 1 {
		answer.ErrorCode = codeUnknownTopicOrPartition
	} else {
		p := &m.Topics[0].Partitions[0]
		answer.ErrorCode = q.checkEpochRequest(m.VoterID, p.LeaderID, p.LeaderEpoch)
		if answer.ErrorCode == codeNone {
			answer.ErrorCode = q.begun(now, p.LeaderID, p.LeaderEpoch, out)
		}
	}
	answer.LeaderID, answer.LeaderEpoch = q.toldLeader(now), q.hard.Term
	resp.Topics = []kmsg.BeginQuorumEpochResponseTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.BeginQuorumEpochResponseTopicPartition{answer},
	}}
	q.respond(token, resp, nil, out)
}

// checkEpochRequest checks what a leader says of itself.
func (q *Quorum) checkEpochRequest(voter, leaderID, term int32) int16 {
	switch {
	case voter != None && voter != q.cfg.Self:
		return codeInvalidVoterKey
	case !q.isVoter(leaderID):
		return codeInconsistentVoterSet
	case leaderID == q.cfg.Self:
		return codeInvalidRequest
	case term < q.hard.Term:
		return codeFencedLeaderEpoch
	}
	return codeNone
}

// begun follows the leader that has just spoken.
func (q *Quorum) begun(now core.Time, leaderID, term int32, out *Out) int16 {
	if term == q.hard.Term && q.leaderID != None && q.leaderID != leaderID {
		note(out, Warn, "two leaders in one epoch", "epoch", term, "leader", q.leaderID, "other", leaderID)
		return codeInvalidRequest
	}
	q.observe(now, term, leaderID, out)
	if q.role != follower {
		q.follow(now, leaderID, 0, out)
	}
	q.heardAt = now
	q.resetElection(now)
	return codeNone
}

// onEndEpoch hears that the leader resigns: its preferred successor stands for election at once, the others later, one after another.
func (q *Quorum) onEndEpoch(now core.Time, token uint64, m *kmsg.EndQuorumEpochRequest, out *Out) {
	resp := m.ResponseKind().(*kmsg.EndQuorumEpochResponse)
	if q.clusterMismatch(m.ClusterID) {
		resp.ErrorCode = codeInconsistentClusterID
		q.respond(token, resp, nil, out)
		return
	}
	answer := kmsg.NewEndQuorumEpochResponseTopicPartition()
	if len(m.Topics) != 1 || m.Topics[0].Topic != core.MetadataTopic || len(m.Topics[0].Partitions) != 1 {
		answer.ErrorCode = codeUnknownTopicOrPartition
	} else {
		p := &m.Topics[0].Partitions[0]
		answer.ErrorCode = q.checkEpochRequest(None, p.LeaderID, p.LeaderEpoch)
		if answer.ErrorCode == codeNone && p.LeaderEpoch == q.hard.Term && (q.leaderID == p.LeaderID || q.leaderID == None) {
			q.ended(now, p, out)
		}
	}
	answer.LeaderID, answer.LeaderEpoch = q.toldLeader(now), q.hard.Term
	resp.Topics = []kmsg.EndQuorumEpochResponseTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.EndQuorumEpochResponseTopicPartition{answer},
	}}
	q.respond(token, resp, nil, out)
}

func (q *Quorum) ended(now core.Time, p *kmsg.EndQuorumEpochRequestTopicPartition, out *Out) {
	if !q.voter || q.role == candidate {
		return
	}
	place := len(p.PreferredCandidates)
	for i, c := range p.PreferredCandidates {
		if c.CandidateID == q.cfg.Self {
			place = i
		}
	}
	q.unattach(now)
	if place == 0 {
		q.askPreVotes(now, out)
		return
	}
	q.electionAt = now.Add(time.Duration(place) * cmp.Or(q.cfg.ElectionMin/4, 1))
}
