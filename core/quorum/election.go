package quorum

import (
	"cmp"
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// election is a prospective's or a candidate's count.
type election struct {
	granted, rejected []int32
	heardOf           int32 // leader that a voter named, None if none did
	started           core.Time
	saveSeq           uint64 // hard state that holds the candidate's vote for itself
	ownVote           bool   // which is durable, and so counts
}

// hearsLeader says whether the current leader is alive as far as this node can tell.
func (q *Quorum) hearsLeader(now core.Time) bool {
	return q.role == leader || q.leaderID != None && q.heardAt.Add(q.cfg.ElectionMin) > now
}

// toldLeader is the leader that this node names to others: one that it hears itself.
func (q *Quorum) toldLeader(now core.Time) int32 {
	if q.hearsLeader(now) {
		return q.leaderID
	}
	return None
}

// askPreVotes asks the voters whether an election could be won, without disturbing anybody's term (KIP-996).
func (q *Quorum) askPreVotes(now core.Time, out *Out) {
	q.become(prospective, q.leaderID)
	q.resetElection(now)
	if !q.asked { // once until somebody leads: without a majority it asks several times a second, maybe for days
		q.asked = true
		note(out, Info, "asking for pre-votes, until there is a leader", "epoch", q.hard.Term, "leader", q.leaderID)
	}
	q.askVotes(now, true, out)
	q.countVote(now, q.cfg.Self, true, out)
}

// campaign begins a new term as a candidate. The own vote counts when it is durable, and the others are not asked before.
func (q *Quorum) campaign(now core.Time, out *Out) {
	q.setHard(HardState{Term: q.hard.Term + 1, Vote: q.cfg.Self}, out)
	q.become(candidate, None)
	q.heardAt = neverHeard
	q.election.started, q.election.saveSeq = now, q.saveSeq
	q.resetElection(now)
	note(out, Info, "candidate for the metadata quorum", "epoch", q.hard.Term)
	q.askVotes(now, false, out)
}

func (q *Quorum) askVotes(now core.Time, preVote bool, out *Out) {
	for _, v := range q.cfg.Voters {
		if v.ID == q.cfg.Self {
			continue
		}
		r := kmsg.NewPtrVoteRequest()
		r.Version = 2
		r.ClusterID, r.VoterID = q.clusterID(), v.ID
		p := kmsg.NewVoteRequestTopicPartition()
		p.CandidateEpoch, p.CandidateID, p.PreVote = q.hard.Term, q.cfg.Self, preVote
		claim := q.claim()
		p.LastOffsetEpoch, p.LastOffset = claim.Epoch, claim.Offset
		r.Topics = []kmsg.VoteRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.VoteRequestTopicPartition{p}}}
		q.call(now, v.ID, r, out)
	}
}

// onVoteResponse counts an answer, whose era Answer has checked, unless it tells of a later term. That one voter still
// hears a leader does not end the election: a majority may not.
func (q *Quorum) onVoteResponse(now core.Time, c call, m *kmsg.VoteResponse, out *Out) {
	if m.ErrorCode == codeInconsistentClusterID {
		q.foreign(now, c.peer, out)
		q.countVote(now, c.peer, false, out)
		return
	}
	if m.ErrorCode != codeNone || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		note(out, Warn, "vote refused", "voter", c.peer, "code", m.ErrorCode)
		return
	}
	p := &m.Topics[0].Partitions[0]
	if p.LeaderEpoch > q.hard.Term {
		q.observe(now, p.LeaderEpoch, p.LeaderID, out)
		return
	}
	if id := q.credible(p.LeaderID); id != None && p.LeaderEpoch == q.hard.Term {
		q.election.heardOf = id
	}
	q.countVote(now, c.peer, p.VoteGranted && p.ErrorCode == codeNone, out)
}

// countVote counts a vote, or pre-vote, of the current term, once for each voter.
func (q *Quorum) countVote(now core.Time, voter int32, granted bool, out *Out) {
	e := &q.election
	if slices.Contains(e.granted, voter) || slices.Contains(e.rejected, voter) {
		return
	}
	if granted {
		e.granted = append(e.granted, voter)
	} else {
		e.rejected = append(e.rejected, voter)
	}
	switch {
	case len(e.granted) >= q.majority() && q.role == prospective:
		q.campaign(now, out)
	case len(e.granted) >= q.majority():
		q.becomeLeader(now, out)
	case len(e.rejected) > len(q.cfg.Voters)-q.majority():
		q.lostElection(now, out)
	}
}

// lostElection goes back to the leader that others still hear, or tries again after a while.
func (q *Quorum) lostElection(now core.Time, out *Out) {
	id := q.election.heardOf
	if id == None {
		id = q.leaderID
	}
	if id != None {
		q.follow(now, id, q.cfg.Retry, out)
		return
	}
	q.electionAt = core.Earlier(q.electionAt, now.Add(q.cfg.Retry+q.draw(q.cfg.ElectionMin)))
}

// onVote answers a candidate, or a prospective.
func (q *Quorum) onVote(now core.Time, token uint64, m *kmsg.VoteRequest, out *Out) {
	resp := m.ResponseKind().(*kmsg.VoteResponse)
	if q.clusterMismatch(m.ClusterID) {
		resp.ErrorCode = codeInconsistentClusterID
		q.respond(token, resp, nil, out)
		return
	}
	answer := kmsg.NewVoteResponseTopicPartition()
	if len(m.Topics) != 1 || m.Topics[0].Topic != core.MetadataTopic || len(m.Topics[0].Partitions) != 1 {
		answer.ErrorCode = codeUnknownTopicOrPartition
	} else {
		p := &m.Topics[0].Partitions[0]
		answer.ErrorCode = q.checkVote(m.VoterID, p)
		switch {
		case answer.ErrorCode != codeNone:
		case p.PreVote:
			answer.VoteGranted = q.grantPreVote(now, p)
		default:
			answer.VoteGranted = q.grantVote(now, p, out)
		}
	}
	answer.LeaderID, answer.LeaderEpoch = q.toldLeader(now), q.hard.Term
	resp.Topics = []kmsg.VoteResponseTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.VoteResponseTopicPartition{answer}}}
	q.respond(token, resp, nil, out)
}

func (q *Quorum) checkVote(voter int32, p *kmsg.VoteRequestTopicPartition) int16 {
	switch {
	case p.Partition != core.MetadataPartition.Index:
		return codeUnknownTopicOrPartition
	case voter != None && voter != q.cfg.Self:
		return codeInvalidVoterKey
	case !q.voter || !q.isVoter(p.CandidateID):
		return codeInconsistentVoterSet
	case p.CandidateID == q.cfg.Self || p.LastOffsetEpoch > p.CandidateEpoch || p.LastOffset < 0:
		return codeInvalidRequest
	case p.CandidateEpoch < q.hard.Term:
		return codeFencedLeaderEpoch
	}
	return codeNone
}

// grantPreVote says whether p could win an election. It changes no term and gives no vote away; a voter that hears its
// leader says no (rule 11, museum B18).
func (q *Quorum) grantPreVote(now core.Time, p *kmsg.VoteRequestTopicPartition) bool {
	if q.hearsLeader(now) {
		return false
	}
	if !q.upToDate(p) {
		return false
	}
	if q.role == prospective && q.worseClaim(p) {
		// Two that ask at once would split the vote: the one with the worse claim steps back for a moment.
		q.unattach(now)
		q.electionAt = now.Add(q.cfg.ElectionMin/8 + q.draw(q.cfg.ElectionMin/8))
	}
	return true
}

// grantVote gives p the vote of its term, if it can have it.
func (q *Quorum) grantVote(now core.Time, p *kmsg.VoteRequestTopicPartition, out *Out) bool {
	if p.CandidateEpoch > q.hard.Term {
		q.enterTerm(now, p.CandidateEpoch, out)
	}
	if q.leaderID != None && q.leaderID != p.CandidateID {
		return false
	}
	if q.hard.Vote != None && q.hard.Vote != p.CandidateID {
		return false
	}
	if !q.upToDate(p) {
		return false
	}
	q.setHard(HardState{Term: q.hard.Term, Vote: p.CandidateID}, out)
	if q.role != follower {
		q.unattach(now)
	}
	return true
}

// claim is what this node's log is worth in an election: its durable part. What is not durable may still be lost, or
// refused by the disk, before the election is won (rule 11).
func (q *Quorum) claim() SnapshotID {
	return SnapshotID{Offset: q.durable, Epoch: q.log.epochBelow(q.durable)}
}

// upToDate says whether the candidate's log is at least as good as this one (Raft, section 5.4.1).
func (q *Quorum) upToDate(p *kmsg.VoteRequestTopicPartition) bool {
	mine := q.claim()
	return cmp.Or(cmp.Compare(p.LastOffsetEpoch, mine.Epoch), cmp.Compare(p.LastOffset, mine.Offset)) >= 0
}

// worseClaim says whether p has a better log than this node, or an equal one and a lower id.
func (q *Quorum) worseClaim(p *kmsg.VoteRequestTopicPartition) bool {
	mine := q.claim()
	return cmp.Or(cmp.Compare(p.LastOffsetEpoch, mine.Epoch), cmp.Compare(p.LastOffset, mine.Offset),
		cmp.Compare(q.cfg.Self, p.CandidateID)) > 0
}
