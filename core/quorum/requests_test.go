package quorum

import (
	"testing"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask hands a request to a node and returns the only answer.
func ask(t *testing.T, w *world, n *node, m kmsg.Request) kmsg.Response {
	t.Helper()
	var out Out
	require.True(t, n.q.Handle(w.now, 1<<40, m, &out))
	require.NoError(t, out.Fatal)
	if out.Save != nil {
		require.Empty(t, out.Responds, "rule 11")
		n.q.Saved(w.now, out.SaveToken, &out)
	}
	require.NotEmpty(t, out.Responds)
	r := out.Responds[len(out.Responds)-1]
	require.EqualValues(t, 1<<40, r.Token)
	recodeResponse(r.Msg)
	return r.Msg
}

func voteRequest(change func(*kmsg.VoteRequest, *kmsg.VoteRequestTopicPartition)) *kmsg.VoteRequest {
	m := kmsg.NewPtrVoteRequest()
	m.Version, m.VoterID = 2, 2
	p := kmsg.NewVoteRequestTopicPartition()
	p.CandidateEpoch, p.CandidateID, p.LastOffsetEpoch, p.LastOffset = 2, 3, 1, 1
	m.Topics = []kmsg.VoteRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.VoteRequestTopicPartition{p}}}
	change(m, &m.Topics[0].Partitions[0])
	return m
}

// What is asked wrongly is refused with the precise error, and has no effect (rule 4).
func TestVoteRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*kmsg.VoteRequest, *kmsg.VoteRequestTopicPartition)
		code   int16
	}{
		{"meant for another voter", func(m *kmsg.VoteRequest, _ *kmsg.VoteRequestTopicPartition) { m.VoterID = 1 }, codeInvalidVoterKey},
		{"candidate is no voter", func(_ *kmsg.VoteRequest, p *kmsg.VoteRequestTopicPartition) { p.CandidateID = 9 }, codeInconsistentVoterSet},
		{"candidate is the voter itself", func(_ *kmsg.VoteRequest, p *kmsg.VoteRequestTopicPartition) { p.CandidateID = 2 }, codeInvalidRequest},
		{"log of a later epoch than the term", func(_ *kmsg.VoteRequest, p *kmsg.VoteRequestTopicPartition) { p.LastOffsetEpoch = 3 }, codeInvalidRequest},
		{"an earlier term", func(_ *kmsg.VoteRequest, p *kmsg.VoteRequestTopicPartition) {
			p.CandidateEpoch, p.LastOffsetEpoch = 0, 0
		}, codeFencedLeaderEpoch},
		{"another partition", func(_ *kmsg.VoteRequest, p *kmsg.VoteRequestTopicPartition) { p.Partition = 1 }, codeUnknownTopicOrPartition},
		{"another topic", func(m *kmsg.VoteRequest, _ *kmsg.VoteRequestTopicPartition) { m.Topics[0].Topic = "x" }, codeUnknownTopicOrPartition},
		{"no topic", func(m *kmsg.VoteRequest, _ *kmsg.VoteRequestTopicPartition) { m.Topics = nil }, codeUnknownTopicOrPartition},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := silent(3, 0)
			elect(t, w, 1)
			resp := ask(t, w, w.node(2), voteRequest(c.change)).(*kmsg.VoteResponse)
			p := resp.Topics[0].Partitions[0]
			require.Equal(t, c.code, p.ErrorCode)
			require.False(t, p.VoteGranted)
			_, term := w.node(2).q.Leader()
			require.EqualValues(t, 1, term)
		})
	}
	w := silent(3, 1)
	elect(t, w, 1)
	other := "other"
	resp := ask(t, w, w.node(2), voteRequest(func(m *kmsg.VoteRequest, _ *kmsg.VoteRequestTopicPartition) { m.ClusterID = &other }))
	require.Equal(t, codeInconsistentClusterID, resp.(*kmsg.VoteResponse).ErrorCode)
	resp = ask(t, w, w.node(4), voteRequest(func(m *kmsg.VoteRequest, _ *kmsg.VoteRequestTopicPartition) { m.VoterID = 4 }))
	require.Equal(t, codeInconsistentVoterSet, resp.(*kmsg.VoteResponse).Topics[0].Partitions[0].ErrorCode, "an observer never votes")
}

func beginRequest(voter, leaderID, term int32) *kmsg.BeginQuorumEpochRequest {
	m := kmsg.NewPtrBeginQuorumEpochRequest()
	m.Version, m.VoterID = 1, voter
	p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = leaderID, term
	m.Topics = []kmsg.BeginQuorumEpochRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.BeginQuorumEpochRequestTopicPartition{p}}}
	return m
}

func TestBeginRefusals(t *testing.T) {
	for _, c := range []struct {
		name                  string
		voter, leaderID, term int32
		code                  int16
	}{
		{"meant for another voter", 3, 1, 2, codeInvalidVoterKey},
		{"leader is no voter", 2, 9, 2, codeInconsistentVoterSet},
		{"the voter itself leads", 2, 2, 2, codeInvalidRequest},
		{"a second leader in the term", 2, 3, 1, codeInvalidRequest},
		{"an earlier term", 2, 3, 0, codeFencedLeaderEpoch},
		{"the leader again", 2, 1, 1, codeNone},
		{"a leader of a later term", 2, 3, 5, codeNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := silent(3, 0)
			elect(t, w, 1)
			resp := ask(t, w, w.node(2), beginRequest(c.voter, c.leaderID, c.term)).(*kmsg.BeginQuorumEpochResponse)
			require.Equal(t, c.code, resp.Topics[0].Partitions[0].ErrorCode)
			id, term := w.node(2).q.Leader()
			if c.code != codeNone {
				c.leaderID, c.term = 1, 1 // nothing has changed
			}
			require.Equal(t, []int32{c.leaderID, c.term}, []int32{id, term})
		})
	}
}

func TestFetchRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		node int32
		req  *kmsg.FetchRequest
		code int16
	}{
		{"an earlier term", 1, fetchRequest(2, 0, 0, 0), codeFencedLeaderEpoch},
		{"a later term", 1, fetchRequest(2, 2, 1, 1), codeUnknownLeaderEpoch},
		{"not the leader", 2, fetchRequest(3, 1, 1, 1), codeNotLeaderOrFollower},
		{"the leader itself", 1, fetchRequest(1, 1, 1, 1), codeInvalidRequest},
		{"a negative offset", 1, fetchRequest(2, 1, -1, 1), codeInvalidRequest},
		{"records of a later epoch", 1, fetchRequest(2, 1, 1, 2), codeInvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := silent(3, 0)
			elect(t, w, 1)
			resp := ask(t, w, w.node(c.node), c.req).(*kmsg.FetchResponse)
			p := resp.Topics[0].Partitions[0]
			require.Equal(t, c.code, p.ErrorCode)
			require.EqualValues(t, 1, p.CurrentLeader.LeaderEpoch)
			require.Equal(t, core.MetadataPartition.Topic, core.TopicID(resp.Topics[0].TopicID))
		})
	}
	w := silent(3, 0)
	elect(t, w, 1)
	consumer := fetchRequest(-1, 1, 0, 0)
	var out Out
	require.False(t, w.node(1).q.Handle(w.now, 1, consumer, &out), "a consumer's fetch is none of the quorum's")
	require.False(t, w.node(1).q.Handle(w.now, 1, kmsg.NewPtrMetadataRequest(), &out))
}

func snapshotRequestTo(change func(*kmsg.FetchSnapshotRequest, *kmsg.FetchSnapshotRequestTopicPartition)) *kmsg.FetchSnapshotRequest {
	m := kmsg.NewPtrFetchSnapshotRequest()
	m.Version, m.ReplicaID, m.MaxBytes = 1, 2, 100
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch, p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 1, 2, 1
	m.Topics = []kmsg.FetchSnapshotRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p}}}
	change(m, &m.Topics[0].Partitions[0])
	return m
}

func TestFetchSnapshotRefusals(t *testing.T) {
	type req = kmsg.FetchSnapshotRequest
	type part = kmsg.FetchSnapshotRequestTopicPartition
	for _, c := range []struct {
		name   string
		node   int32
		change func(*req, *part)
		code   int16
	}{
		{"the snapshot", 1, func(*req, *part) {}, codeNone},
		{"its last byte", 1, func(_ *req, p *part) { p.Position = 1 }, codeNone},
		{"beyond its end", 1, func(_ *req, p *part) { p.Position = 2 }, codePositionOutOfRange},
		{"before its start", 1, func(_ *req, p *part) { p.Position = -1 }, codePositionOutOfRange},
		{"one offset less", 1, func(_ *req, p *part) { p.SnapshotID.EndOffset = 1 }, codeSnapshotNotFound},
		{"another epoch", 1, func(_ *req, p *part) { p.SnapshotID.Epoch = 0 }, codeSnapshotNotFound},
		{"an earlier term", 1, func(_ *req, p *part) { p.CurrentLeaderEpoch = 0 }, codeFencedLeaderEpoch},
		{"a later term", 1, func(_ *req, p *part) { p.CurrentLeaderEpoch = 2 }, codeUnknownLeaderEpoch},
		{"not the leader", 2, func(m *req, _ *part) { m.ReplicaID = 3 }, codeNotLeaderOrFollower},
		{"no replica", 1, func(m *req, _ *part) { m.ReplicaID = -1 }, codeInvalidRequest},
		{"another partition", 1, func(_ *req, p *part) { p.Partition = 3 }, codeUnknownTopicOrPartition},
		{"another topic", 1, func(m *req, _ *part) { m.Topics[0].Topic = "x" }, codeUnknownTopicOrPartition},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := silent(3, 0)
			l := elect(t, w, 1)
			propose(t, w, l, "a")
			require.NoError(t, l.takeSnapshot()) // ",a": offset 0 is the leader's
			m := snapshotRequestTo(c.change)
			resp := ask(t, w, w.node(c.node), m).(*kmsg.FetchSnapshotResponse)
			p := resp.Topics[0].Partitions[0]
			require.Equal(t, c.code, p.ErrorCode)
			if c.code == codeNone {
				require.EqualValues(t, 2, p.Size)
				require.Equal(t, ",a"[m.Topics[0].Partitions[0].Position:], string(p.Bytes))
			}
		})
	}
}

func TestHardState(t *testing.T) {
	for _, h := range []HardState{{0, None}, {7, 0}, {1<<31 - 1, 1<<31 - 1}} {
		got, err := DecodeHardState(h.Encode())
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	fresh, err := DecodeHardState(nil)
	require.NoError(t, err)
	require.Equal(t, HardState{Term: 0, Vote: None}, fresh)
	_, err = DecodeHardState(HardState{Term: -1}.Encode())
	require.ErrorIs(t, err, ErrHardState)
}

// A damaged vote is an error, never another vote.
func FuzzDecodeHardState(f *testing.F) {
	f.Add([]byte{})
	f.Add(HardState{Term: 3, Vote: 2}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHardState(b)
		if err == nil && len(b) > 0 {
			require.Equal(t, b, h.Encode())
		}
	})
}

// Whatever a peer sends, a node answers it once, or parks it, and goes on.
func FuzzHandle(f *testing.F) {
	add := func(m kmsg.Request) { f.Add(m.Key(), m.GetVersion(), m.AppendTo(nil)) }
	add(voteRequest(func(*kmsg.VoteRequest, *kmsg.VoteRequestTopicPartition) {}))
	add(beginRequest(2, 1, 1))
	add(fetchRequest(2, 1, 1, 1))
	add(snapshotRequestTo(func(*kmsg.FetchSnapshotRequest, *kmsg.FetchSnapshotRequestTopicPartition) {}))
	end := kmsg.NewPtrEndQuorumEpochRequest()
	end.Version = 1
	end.Topics = []kmsg.EndQuorumEpochRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.EndQuorumEpochRequestTopicPartition{{LeaderID: 1, LeaderEpoch: 1}}}}
	add(end)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		switch kmsg.Key(key) {
		case kmsg.Fetch, kmsg.Vote, kmsg.BeginQuorumEpoch, kmsg.EndQuorumEpoch, kmsg.FetchSnapshot:
		default:
			return
		}
		m := kmsg.RequestForKey(key)
		m.SetVersion(min(max(version, 0), m.MaxVersion()))
		if m.ReadFrom(body) != nil {
			return
		}
		w := silent(3, 0)
		l := elect(t, w, 1)
		propose(t, w, l, "a")
		for _, n := range w.nodes {
			var out Out
			if !n.q.Handle(w.now, 1<<40, m, &out) {
				continue
			}
			n.q.Saved(w.now, n.q.saveSeq, &out)
			answers := 0
			for _, r := range out.Responds {
				if r.Token == 1<<40 {
					answers++
					r.Msg.AppendTo(nil)
				}
			}
			require.LessOrEqual(t, answers, 1)
			n.q.Tick(w.now.Add(n.q.cfg.ElectionMax), &out)
		}
	})
}
