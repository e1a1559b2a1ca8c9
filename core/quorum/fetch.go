package quorum

import (
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// parkedFetch is a replica's fetch that waits for something new.
type parkedFetch struct {
	token  uint64
	req    *kmsg.FetchRequest
	offset int64 // asked for
	hw     int64 // that the replica knows
	until  core.Time
}

// fetchReplica returns the replica that fetches, or None.
func fetchReplica(m *kmsg.FetchRequest) int32 {
	return max(m.ReplicaState.ID, m.ReplicaID, None)
}

// isReplicaFetch says whether m is a replica's fetch of the metadata log and of nothing else.
func isReplicaFetch(m *kmsg.FetchRequest) bool {
	if fetchReplica(m) == None || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	t := &m.Topics[0]
	named := t.Topic == core.MetadataTopic
	if m.Version >= 13 {
		named = t.TopicID == core.MetadataPartition.Topic
	}
	return named && t.Partitions[0].Partition == core.MetadataPartition.Index
}

// onFetch answers a follower's or an observer's fetch, or parks it. To everything but the exact term the answer is an
// error (rule 4).
func (q *Quorum) onFetch(now core.Time, token uint64, m *kmsg.FetchRequest, out *Out) {
	id, p := fetchReplica(m), &m.Topics[0].Partitions[0]
	switch {
	case q.clusterMismatch(m.ClusterID):
		resp := m.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = codeInconsistentClusterID
		q.respond(token, resp, nil, out)
	case p.CurrentLeaderEpoch < q.hard.Term:
		q.refuseFetch(token, m, codeFencedLeaderEpoch, q.toldLeader(now), out)
	case p.CurrentLeaderEpoch > q.hard.Term:
		q.refuseFetch(token, m, codeUnknownLeaderEpoch, q.toldLeader(now), out)
	case q.role != leader:
		q.refuseFetch(token, m, codeNotLeaderOrFollower, q.toldLeader(now), out)
	case id == q.cfg.Self || p.FetchOffset < 0 || p.LastFetchedEpoch < 0 || p.LastFetchedEpoch > q.hard.Term:
		q.refuseFetch(token, m, codeInvalidRequest, q.cfg.Self, out)
	default:
		q.serveFetch(now, token, m, q.replica(now, id), out)
	}
}

// serveFetch answers a fetch of the leader's own term.
func (q *Quorum) serveFetch(now core.Time, token uint64, m *kmsg.FetchRequest, r *replica, out *Out) {
	q.heardReplica(now, r, m.SessionID)
	if r.parked != nil {
		q.unpark(now, r, out) // it has given that one up
	}
	p := &m.Topics[0].Partitions[0]
	epoch, end, ok := q.log.endOf(p.LastFetchedEpoch)
	if !ok || p.FetchOffset < q.log.base.Offset {
		q.answerFetch(now, r, token, m, nil, func(a *kmsg.FetchResponseTopicPartition) {
			id := q.LatestSnapshot()
			a.SnapshotID.EndOffset, a.SnapshotID.Epoch = id.Offset, id.Epoch
		}, out)
		return
	}
	if epoch != p.LastFetchedEpoch || end < p.FetchOffset {
		q.answerFetch(now, r, token, m, nil, func(a *kmsg.FetchResponseTopicPartition) {
			a.DivergingEpoch.Epoch, a.DivergingEpoch.EndOffset = epoch, end
		}, out) // and nothing is learned of the follower (rule 5)
		return
	}
	r.end = p.FetchOffset // which is durable there, and agrees with this log
	if r.end == q.log.end {
		r.caughtUp = now
	}
	until := now.Add(min(time.Duration(m.MaxWaitMillis)*time.Millisecond, q.cfg.CheckQuorum/4))
	r.parked = &parkedFetch{token: token, req: m, offset: p.FetchOffset, hw: p.HighWatermark, until: until}
	if r.voter {
		q.advance(now, out)
	}
	q.wakeFetch(now, r, out)
}

// heardReplica notes that a replica has fetched, and which answer it had in hand when it did.
func (q *Quorum) heardReplica(now core.Time, r *replica, round int32) {
	r.fetchedAt = now
	if round > 0 && round == r.round {
		r.confirmed = max(r.confirmed, r.roundAt)
	}
}

// wakeFetches answers the parked fetches for which there is something new.
func (q *Quorum) wakeFetches(now core.Time, out *Out) {
	for i := range q.lead.replicas {
		q.wakeFetch(now, &q.lead.replicas[i], out)
	}
}

func (q *Quorum) wakeFetch(now core.Time, r *replica, out *Out) {
	if p := r.parked; p != nil && (p.offset < q.written || p.hw < q.hw || p.until <= now) {
		q.unpark(now, r, out)
	}
}

// unpark answers a parked fetch with what there is.
func (q *Quorum) unpark(now core.Time, r *replica, out *Out) {
	p := r.parked
	r.parked = nil
	var read *Read
	if p.offset < q.written {
		part := &p.req.Topics[0].Partitions[0]
		read = &Read{From: p.offset, Limit: q.written, MaxBytes: max(min(p.req.MaxBytes, part.PartitionMaxBytes), 1)}
	}
	q.answerFetch(now, r, p.token, p.req, read, func(*kmsg.FetchResponseTopicPartition) {}, out)
}

// answerFetch answers a fetch of the leader's own term.
func (q *Quorum) answerFetch(now core.Time, r *replica, token uint64, m *kmsg.FetchRequest, read *Read,
	fill func(*kmsg.FetchResponseTopicPartition), out *Out) {
	resp, a := fetchResponse(m)
	a.HighWatermark, a.LastStableOffset, a.LogStartOffset = q.hw, q.hw, q.log.base.Offset
	a.CurrentLeader.LeaderID, a.CurrentLeader.LeaderEpoch = q.cfg.Self, q.hard.Term
	fill(a)
	r.round++
	r.roundAt = now
	resp.SessionID = r.round
	q.respond(token, resp, read, out)
}

// refuseFetch answers with an error, and with the leader as far as it is known.
func (q *Quorum) refuseFetch(token uint64, m *kmsg.FetchRequest, code int16, leaderID int32, out *Out) {
	resp, a := fetchResponse(m)
	a.ErrorCode, a.HighWatermark = code, -1
	a.CurrentLeader.LeaderID, a.CurrentLeader.LeaderEpoch = leaderID, q.hard.Term
	q.respond(token, resp, nil, out)
}

func fetchResponse(m *kmsg.FetchRequest) (*kmsg.FetchResponse, *kmsg.FetchResponseTopicPartition) {
	resp := m.ResponseKind().(*kmsg.FetchResponse)
	resp.Topics = []kmsg.FetchResponseTopic{{
		Topic: m.Topics[0].Topic, TopicID: m.Topics[0].TopicID,
		Partitions: []kmsg.FetchResponseTopicPartition{kmsg.NewFetchResponseTopicPartition()},
	}}
	return resp, &resp.Topics[0].Partitions[0]
}

// Cancel forgets the parked request token: its connection is gone.
func (q *Quorum) Cancel(token uint64) {
	for i := range q.lead.replicas {
		if r := &q.lead.replicas[i]; r.parked != nil && r.parked.token == token {
			r.parked = nil
		}
	}
}
