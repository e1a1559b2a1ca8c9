package broker

import (
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/quorum"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLogsOfDeletedTopicsAreRemoved: what a deletion left that a crash cut off, or that happened while the broker was down.
func TestLogsOfDeletedTopicsAreRemoved(t *testing.T) {
	stray := core.Partition{Topic: core.TopicID{7}, Index: 3}
	cluster := newHost(t, nil).b.Image().ClusterID() // the same chance makes the same one
	logs := []core.Partition{core.MetadataPartition, stray}
	for _, c := range []struct {
		name, cluster string
		stays, stops  bool
	}{
		{"of this cluster", cluster, false, false},
		{"of an unknown cluster", "", true, false},
		{"of another cluster", "other", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := bootHost(t, nil, Boot{ClusterID: c.cluster, Logs: logs})
			require.Equal(t, c.stops, h.stop != nil)
			require.Equal(t, !c.stops, h.ready)
			if c.stops {
				require.ErrorContains(t, h.stop.Err, "it belongs to cluster other")
			}
			require.Equal(t, c.stays, h.logs[stray] != nil)
			require.NotNil(t, h.logs[core.MetadataPartition])
		})
	}
}

// TestNoRoomToMakeALog: its partition refuses with KAFKA_STORAGE_ERROR, and serves when there is room.
func TestNoRoomToMakeALog(t *testing.T) {
	h := newHost(t, nil)
	h.noRoom = true
	createTopic(h, "orders", 1)
	for range 3 {
		require.Equal(t, errStorage, produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("a"))).ErrorCode)
		h.now = h.now.Add(2 * roomPause)
		h.pass()
	}
	h.noRoom = false
	h.now = h.now.Add(2 * roomPause)
	h.pass()
	p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("a")))
	require.Zero(t, p.ErrorCode)
	require.Zero(t, p.BaseOffset)
	require.Zero(t, h.b.membership.opening)
}

// TestForgottenVoteIsNoFreshStart: without its term and vote a voter with a log might vote twice (rule 11).
func TestForgottenVoteIsNoFreshStart(t *testing.T) {
	h := bootHost(t, nil, Boot{})
	require.True(t, h.ready)
	b := New(h.b.cfg, Boot{})
	var out Effects
	b.Step(0, Start{Wall: wall}, &out)
	open := LogOpened{Log: core.MetadataPartition}
	open.State.End = 5
	out = Effects{}
	b.Step(0, open, &out)
	var stop *Stop
	for _, e := range out.List {
		if s, ok := e.(Stop); ok {
			stop = &s
		}
	}
	require.NotNil(t, stop)
	require.ErrorContains(t, stop.Err, "state is gone")
}

// What a snapshot holds is as good as what records tell: its partitions are opened, its settings hold, and no log of it is a
// stray. Before, a broker that was started again from a snapshot knew of its topics and had none of their logs, and removed those.
func TestStartFromSnapshotOpensItsPartitions(t *testing.T) {
	before := newHost(t, nil)
	createTopic(before, "orders", 2)
	bytes, err := encodeSnapshot(before.b.image.Snapshot())
	require.NoError(t, err)
	snapshot := quorum.Snapshot{SnapshotID: before.b.quorum.Tip(), Bytes: bytes}
	id := before.b.image.Topic("orders").ID
	logs := []core.Partition{{Topic: id, Index: 0}, {Topic: id, Index: 1}}

	after := bootHost(t, nil, Boot{Snapshot: &snapshot, Logs: logs, ClusterID: before.b.image.ClusterID()})
	require.True(t, after.ready)
	for _, l := range logs {
		require.Contains(t, after.logs, l, "the log is not removed")
		require.NotNil(t, after.b.parts[l])
	}
	after.pass()
	p := produced(ask[*kmsg.ProduceResponse](after, produceRequest("orders", 1, -1), batch("a")))
	require.Zero(t, p.ErrorCode)
}

// TestVoterOfAnotherCluster: a data directory that was put in the place of a voter's, with a later term than the cluster has seen. Its
// broker deposes nobody and is followed by nobody, nor does it follow; the cluster goes on without it. The others have learned which is
// theirs since they were started, on empty directories.
func TestVoterOfAnotherCluster(t *testing.T) {
	w := newNetwork(t, 3)
	w.ledTopic("orders")
	leader, term := w.hosts[0].b.quorum.Leader()
	other := leader%3 + 1
	w.kill(other)
	state := quorum.HardState{Term: term + 40, Vote: quorum.None}.Encode()
	stranger := w.host(int(other-1), 3, Boot{ClusterID: "other", State: state})
	w.hosts[other-1], w.down[other] = stranger, false
	stranger.step(Start{Wall: wall})
	end := w.now.Add(5 * time.Second)
	for w.now < end {
		at := w.now.Add(50 * time.Millisecond)
		w.run(time.Second, func() bool { return w.now >= at })
		for _, h := range w.hosts {
			id, now := h.b.quorum.Leader()
			if h == stranger {
				require.Equal(t, quorum.None, id, "it follows another cluster")
				continue
			}
			require.Equal(t, leader, id)
			require.Equal(t, term, now)
		}
	}
	require.False(t, stranger.ready)
	require.NoError(t, stopError(stranger))
	createAt(w.hosts[leader-1], "more")
}

func stopError(h *host) error {
	if h.stop != nil {
		return h.stop.Err
	}
	return nil
}

// TestNoMetadataBeforeJoining: a broker that was started while the others are down does not know what there is, and does not say that
// there is nothing. When it has joined it says what there is.
func TestNoMetadataBeforeJoining(t *testing.T) {
	w := newNetwork(t, 3)
	leader, _ := w.hosts[0].b.quorum.Leader()
	other := leader%3 + 1
	createAt(w.hosts[leader-1], "orders")
	w.kill(other)
	started := w.host(int(other-1), 3, Boot{})
	w.hosts[other-1] = started
	started.step(Start{Wall: wall})
	for _, r := range []kmsg.Request{kmsg.NewPtrMetadataRequest(), kmsg.NewPtrDescribeClusterRequest()} {
		seq := started.send(r)
		require.NotContains(t, started.answers, seq)
		require.Equal(t, unknownCluster, started.closed[1])
		delete(started.closed, 1)
	}
	w.down[other] = false
	w.run(5*time.Second, func() bool { return started.ready })
	resp := askAt[*kmsg.MetadataResponse](started, time.Second, kmsg.NewPtrMetadataRequest())
	require.Equal(t, "orders", *resp.Topics[0].Topic)
}
