package quorum

import (
	"fmt"
	"strings"

	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// This file puts messages and operations into words, for transcripts.

func who(id int32) string {
	if id == None {
		return "none"
	}
	return fmt.Sprint(id)
}

func (id SnapshotID) text() string { return fmt.Sprintf("(%d, epoch %d)", id.Offset, id.Epoch) }

func describeOp(op LogOp) string {
	switch op := op.(type) {
	case Append:
		return "appends " + describeBatches(op.Batches)
	case Truncate:
		return fmt.Sprintf("truncates to %d", op.To)
	case Reset:
		return fmt.Sprintf("begins its log anew at %d", op.Start)
	case DropPrefix:
		return fmt.Sprintf("drops its log below %d", op.Start)
	}
	panic("unknown operation")
}

// describeBatches says offset:content@epoch for each.
func describeBatches(batches []record.Batch) string {
	var words []string
	for _, b := range batches {
		content := "leader"
		if !b.Control() {
			c, err := commitOf(b)
			if err != nil {
				panic(err)
			}
			var values []string
			for _, v := range c.Values {
				values = append(values, string(v))
			}
			content = strings.Join(values, "+")
		}
		words = append(words, fmt.Sprintf("%d:%s@%d", b.BaseOffset(), content, b.LeaderEpoch()))
	}
	return strings.Join(words, " ")
}

func describe(p *packet) string {
	if p.req != nil {
		return fmt.Sprintf("%d>%d %s", p.from, p.to, describeRequest(p.req))
	}
	return fmt.Sprintf("%d>%d %s", p.from, p.to, describeResponse(p.resp))
}

func describeRequest(m kmsg.Request) string {
	switch m := m.(type) {
	case *kmsg.VoteRequest:
		p := m.Topics[0].Partitions[0]
		kind := "vote"
		if p.PreVote {
			kind = "pre-vote"
		}
		return fmt.Sprintf("%s? term=%d log=%d@%d", kind, p.CandidateEpoch, p.LastOffset, p.LastOffsetEpoch)
	case *kmsg.BeginQuorumEpochRequest:
		return fmt.Sprintf("begin term=%d", m.Topics[0].Partitions[0].LeaderEpoch)
	case *kmsg.EndQuorumEpochRequest:
		p := m.Topics[0].Partitions[0]
		var heirs []string
		for _, c := range p.PreferredCandidates {
			heirs = append(heirs, fmt.Sprint(c.CandidateID))
		}
		return fmt.Sprintf("end term=%d heirs=%s", p.LeaderEpoch, strings.Join(heirs, ","))
	case *kmsg.FetchRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("fetch term=%d from=%d@%d hw=%d", p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark)
	case *kmsg.FetchSnapshotRequest:
		p := m.Topics[0].Partitions[0]
		id := SnapshotID{p.SnapshotID.EndOffset, p.SnapshotID.Epoch}
		return fmt.Sprintf("snapshot? term=%d %s from byte %d", p.CurrentLeaderEpoch, id.text(), p.Position)
	}
	panic(fmt.Sprintf("unexpected %T", m))
}

var codeNames = map[int16]string{
	codeUnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	codeNotLeaderOrFollower:     "NOT_LEADER_OR_FOLLOWER",
	codeInvalidRequest:          "INVALID_REQUEST",
	codeFencedLeaderEpoch:       "FENCED_LEADER_EPOCH",
	codeUnknownLeaderEpoch:      "UNKNOWN_LEADER_EPOCH",
	codeInconsistentVoterSet:    "INCONSISTENT_VOTER_SET",
	codeSnapshotNotFound:        "SNAPSHOT_NOT_FOUND",
	codePositionOutOfRange:      "POSITION_OUT_OF_RANGE",
	codeInconsistentClusterID:   "INCONSISTENT_CLUSTER_ID",
	codeInvalidVoterKey:         "INVALID_VOTER_KEY",
}

func refusal(code int16, leaderID, term int32) string {
	return fmt.Sprintf("%s (term=%d leader=%s)", codeNames[code], term, who(leaderID))
}

func describeResponse(m kmsg.Response) string {
	switch m := m.(type) {
	case *kmsg.VoteResponse:
		p := m.Topics[0].Partitions[0]
		switch {
		case p.ErrorCode != 0:
			return "vote: " + refusal(p.ErrorCode, p.LeaderID, p.LeaderEpoch)
		case p.VoteGranted:
			return fmt.Sprintf("vote: yes term=%d", p.LeaderEpoch)
		}
		return fmt.Sprintf("vote: no term=%d leader=%s", p.LeaderEpoch, who(p.LeaderID))
	case *kmsg.BeginQuorumEpochResponse:
		p := m.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return "begin: " + refusal(p.ErrorCode, p.LeaderID, p.LeaderEpoch)
		}
		return fmt.Sprintf("begin: ok term=%d", p.LeaderEpoch)
	case *kmsg.EndQuorumEpochResponse:
		return fmt.Sprintf("end: ok term=%d", m.Topics[0].Partitions[0].LeaderEpoch)
	case *kmsg.FetchResponse:
		return "fetch: " + describeFetched(m)
	case *kmsg.FetchSnapshotResponse:
		p := m.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return "snapshot: " + refusal(p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
		}
		return fmt.Sprintf("snapshot: bytes %d to %d of %d", p.Position, p.Position+int64(len(p.Bytes)), p.Size)
	}
	panic(fmt.Sprintf("unexpected %T", m))
}

func describeFetched(m *kmsg.FetchResponse) string {
	p := m.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode != 0:
		return refusal(p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	case p.DivergingEpoch.EndOffset >= 0:
		return fmt.Sprintf("diverging, epoch %d ends at %d", p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset)
	case p.SnapshotID.EndOffset >= 0:
		return "take the snapshot " + SnapshotID{p.SnapshotID.EndOffset, p.SnapshotID.Epoch}.text()
	}
	batches, _, err := record.ParseAll(p.RecordBatches)
	if err != nil {
		panic(err)
	}
	if len(batches) == 0 {
		return fmt.Sprintf("nothing, hw=%d", p.HighWatermark)
	}
	return fmt.Sprintf("%s, hw=%d", describeBatches(batches), p.HighWatermark)
}
