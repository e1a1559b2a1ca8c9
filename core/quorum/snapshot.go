package quorum

import (
	"bytes"
	"fmt"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// snapshotFetch is a snapshot that comes in pieces.
type snapshotFetch struct {
	id  SnapshotID
	buf []byte
}

// LatestSnapshot names the newest stored snapshot; Offset 0 if there is none.
func (q *Quorum) LatestSnapshot() SnapshotID {
	if q.snapshot == nil {
		return SnapshotID{}
	}
	return q.snapshot.SnapshotID
}

// Tip names the snapshot that could be taken now: of everything delivered so far. Its offset is the first that has *not* been
// delivered (museum B25).
func (q *Quorum) Tip() SnapshotID {
	return SnapshotID{Offset: q.log.applied, Epoch: q.log.epochBelow(q.log.applied)}
}

// keep is the snapshot as it is held in memory: a voter may have to serve it, an observer only knows it by name.
func (q *Quorum) keep(s *Snapshot) *Snapshot {
	if s == nil || q.voter {
		return s
	}
	return &Snapshot{SnapshotID: s.SnapshotID}
}

// Snapshot gives the machine a snapshot of the image as it is now, taken at Tip: it is stored, and of the log
// is kept what lies after the snapshot before it, so that a replica that is only a little behind need not fetch it.
// The error is ErrSnapshotID, wrapped, or ErrBusy.
func (q *Quorum) Snapshot(now core.Time, id SnapshotID, image []byte, out *Out) error {
	if q.saving != nil {
		return ErrBusy
	}
	if id != q.Tip() || id.Offset <= q.LatestSnapshot().Offset {
		return fmt.Errorf("%w: (%d, epoch %d), delivered (%d, epoch %d)", ErrSnapshotID, id.Offset, id.Epoch, q.Tip().Offset, q.Tip().Epoch)
	}
	q.saving = &Snapshot{SnapshotID: id, Bytes: image}
	out.SaveSnapshot = q.saving
	return nil
}

// installing says whether a snapshot that the log does not reach is being stored.
func (q *Quorum) installing() bool { return q.saving != nil && q.saving.Offset > q.log.applied }

// SnapshotSaved answers SaveSnapshot.
func (q *Quorum) SnapshotSaved(now core.Time, id SnapshotID, out *Out) {
	s := q.saving
	if s == nil || s.SnapshotID != id {
		return
	}
	q.saving = nil
	before := q.LatestSnapshot()
	q.snapshot = q.keep(s)
	out.DropSnapshots = &id
	switch {
	case !q.log.holds(id):
		// Another history, or an older one: the snapshot takes its place as a whole. It is stored already, so a crash in
		// between is put right by Start.
		note(out, Info, "metadata snapshot takes the place of the log", "offset", id.Offset, "epoch", id.Epoch)
		out.Restore = s
		q.resetLog(id, out)
	case before.Offset > q.log.base.Offset:
		q.log.dropPrefix(before.Offset)
		out.Log = append(out.Log, DropPrefix{Start: before.Offset})
		fallthrough
	default:
		q.setHighWatermark(id.Offset, out)
	}
	q.fetchNow(now, out)
}

// beginSnapshotFetch fetches the leader's snapshot, because its log does not reach back to where ours ends.
func (q *Quorum) beginSnapshotFetch(now core.Time, c call, id SnapshotID, out *Out) {
	if id.Offset <= q.hw || q.saving != nil {
		q.fetchFailed(now, c.peer, out, "snapshot", id.Offset, "highWatermark", q.hw)
		return
	}
	note(out, Info, "fetching a metadata snapshot", "leader", c.peer, "offset", id.Offset, "epoch", id.Epoch)
	q.fetch.snapshot = &snapshotFetch{id: id}
}

func (q *Quorum) snapshotRequest() *kmsg.FetchSnapshotRequest {
	s := q.fetch.snapshot
	m := kmsg.NewPtrFetchSnapshotRequest()
	m.Version = 1
	m.ClusterID, m.ReplicaID, m.MaxBytes = q.clusterID(), q.cfg.Self, q.cfg.SnapshotBytes
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch = q.hard.Term
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = s.id.Offset, s.id.Epoch
	p.Position = int64(len(s.buf))
	m.Topics = []kmsg.FetchSnapshotRequestTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p},
	}}
	return m
}

func (q *Quorum) onFetchSnapshotResponse(now core.Time, c call, m *kmsg.FetchSnapshotResponse, out *Out) {
	if m.ErrorCode != codeNone || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		q.fetch.snapshot = nil
		q.fetchFailed(now, c.peer, out, "code", m.ErrorCode)
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
	s := q.fetch.snapshot
	id := SnapshotID{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}
	if id != s.id || p.Position != int64(len(s.buf)) || len(p.Bytes) == 0 && p.Position < p.Size {
		q.fetch.snapshot = nil
		q.fetchFailed(now, c.peer, out, "snapshot", id.Offset, "position", p.Position)
		return
	}
	s.buf = append(s.buf, p.Bytes...)
	if int64(len(s.buf)) >= p.Size {
		q.fetch.snapshot = nil
		q.saving = &Snapshot{SnapshotID: s.id, Bytes: s.buf}
		out.SaveSnapshot = q.saving
	}
	q.fetchNow(now, out)
}

// onFetchSnapshot serves a piece of the newest snapshot.
func (q *Quorum) onFetchSnapshot(now core.Time, token uint64, m *kmsg.FetchSnapshotRequest, out *Out) {
	resp := m.ResponseKind().(*kmsg.FetchSnapshotResponse)
	if q.clusterMismatch(m.ClusterID) {
		resp.ErrorCode = codeInconsistentClusterID
		q.respond(token, resp, nil, out)
		return
	}
	answer := kmsg.NewFetchSnapshotResponseTopicPartition()
	if len(m.Topics) != 1 || m.Topics[0].Topic != core.MetadataTopic || len(m.Topics[0].Partitions) != 1 {
		answer.ErrorCode = codeUnknownTopicOrPartition
	} else {
		p := &m.Topics[0].Partitions[0]
		answer.Partition, answer.Position = p.Partition, p.Position
		answer.SnapshotID.EndOffset, answer.SnapshotID.Epoch = p.SnapshotID.EndOffset, p.SnapshotID.Epoch
		if answer.ErrorCode = q.checkFetchSnapshot(m.ReplicaID, p); answer.ErrorCode == codeNone {
			q.heardReplica(now, q.replica(now, m.ReplicaID), 0)
			answer.Size = int64(len(q.snapshot.Bytes))
			end := min(answer.Size, p.Position+int64(max(m.MaxBytes, 1)))
			answer.Bytes = bytes.Clone(q.snapshot.Bytes[p.Position:end])
		}
	}
	answer.CurrentLeader.LeaderID, answer.CurrentLeader.LeaderEpoch = q.toldLeader(now), q.hard.Term
	resp.Topics = []kmsg.FetchSnapshotResponseTopic{{
		Topic: core.MetadataTopic, Partitions: []kmsg.FetchSnapshotResponseTopicPartition{answer},
	}}
	q.respond(token, resp, nil, out)
}

func (q *Quorum) checkFetchSnapshot(replica int32, p *kmsg.FetchSnapshotRequestTopicPartition) int16 {
	switch {
	case p.Partition != core.MetadataPartition.Index:
		return codeUnknownTopicOrPartition
	case p.CurrentLeaderEpoch < q.hard.Term:
		return codeFencedLeaderEpoch
	case p.CurrentLeaderEpoch > q.hard.Term:
		return codeUnknownLeaderEpoch
	case q.role != leader:
		return codeNotLeaderOrFollower
	case replica < 0 || replica == q.cfg.Self:
		return codeInvalidRequest
	case q.snapshot == nil || q.snapshot.SnapshotID != SnapshotID{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}:
		return codeSnapshotNotFound
	case p.Position < 0 || p.Position > int64(len(q.snapshot.Bytes)) || p.Position > 0 && p.Position == int64(len(q.snapshot.Bytes)):
		return codePositionOutOfRange
	}
	return codeNone
}
