package quorum

import (
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// silent is a world that tells nobody.
func silent(voters, observers int) *world {
	w := newWorld(3, voters, observers, func(string, ...any) {})
	for _, n := range w.nodes {
		n.start()
	}
	return w
}

// elect lets node id become leader of a world in which time stands still.
func elect(t *testing.T, w *world, id int32) *node {
	t.Helper()
	n := w.node(id)
	n.q.electionAt = w.now
	n.do(func(out *Out) { n.q.Tick(w.now, out) })
	w.settle()
	_, active := n.q.Leading()
	require.True(t, active)
	return n
}

func propose(t *testing.T, w *world, n *node, values ...string) {
	t.Helper()
	var raw [][]byte
	for _, v := range values {
		raw = append(raw, []byte(v))
	}
	n.do(func(out *Out) {
		_, err := n.q.Propose(w.now, 0, raw, out)
		require.NoError(t, err)
	})
	w.settle()
}

func one(offset int64, epoch int32, value string) record.Batch {
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch = offset, epoch
	batch, err := b.Add(record.Record{Value: []byte(value)}).Build()
	if err != nil {
		panic(err)
	}
	return batch
}

func fetched(batches ...record.Batch) (*kmsg.FetchResponse, []record.Batch) {
	resp := kmsg.NewPtrFetchResponse()
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark = 100
	resp.Topics = []kmsg.FetchResponseTopic{{TopicID: core.MetadataPartition.Topic, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
	return resp, batches
}

// Museum B12 and A24: what does not continue the log is not appended, and cuts nothing off.
func TestFollowerAppendsOnlyWhatFits(t *testing.T) {
	for name, batches := range map[string][]record.Batch{
		"an old append, delivered late": {one(1, 1, "late")},
		"a gap":                         {one(7, 1, "gap")},
		"a gap within":                  {one(3, 1, "c"), one(5, 1, "e")},
		"an epoch that goes back":       {one(3, 0, "c")},
		"an epoch above the asked one":  {one(3, 2, "c")},
	} {
		t.Run(name, func(t *testing.T) {
			w := silent(3, 0)
			leader := elect(t, w, 1)
			propose(t, w, leader, "a")
			propose(t, w, leader, "b")
			f := w.node(2)
			require.EqualValues(t, 3, f.q.log.end)
			var out Out
			resp, parsed := fetched(batches...)
			f.q.Answer(w.now, f.q.fetch.token, resp, parsed, nil, &out)
			require.Empty(t, out.Log)
			require.Empty(t, out.Commits)
			require.EqualValues(t, 3, f.q.log.end)
			require.EqualValues(t, 3, f.q.HighWatermark())
			require.Greater(t, f.q.Deadline(), w.now, "asks again after a pause")
		})
	}
}

// Rule 5: a diverging answer changes nothing but the tail. Rule 16: the next fetch waits for the truncation.
func TestDivergingAnswer(t *testing.T) {
	w := silent(3, 0)
	elect(t, w, 1)
	f := w.node(2)
	f.disk.ops = nil
	f.slow = true
	var out Out
	resp, parsed := fetched(one(1, 1, "a"))
	f.q.Answer(w.now, f.q.fetch.token, resp, parsed, nil, &out)
	f.q.Durable(w.now, 2, &out)
	require.EqualValues(t, 2, f.q.log.end)
	f.q.hw = 1 // the answer above claimed more

	out.Reset()
	resp, _ = fetched()
	resp.Topics[0].Partitions[0].DivergingEpoch.Epoch, resp.Topics[0].Partitions[0].DivergingEpoch.EndOffset = 1, 1
	f.q.Answer(w.now, f.q.fetch.token, resp, nil, nil, &out)
	require.Equal(t, []LogOp{Truncate{To: 1}}, out.Log)
	require.EqualValues(t, 1, f.q.HighWatermark())
	require.Empty(t, out.Calls)

	f.q.Durable(w.now, 2, &out) // of before the truncation
	require.Empty(t, out.Calls)
	f.q.Truncated(w.now, 1, &out)
	require.Len(t, out.Calls, 1)
	require.EqualValues(t, 1, out.Calls[0].Msg.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset)
}

// What was durable before a truncation says nothing of what a new leader has written since in its place (museum B04).
func TestDurableOfACutLog(t *testing.T) {
	w := silent(3, 0)
	propose(t, w, elect(t, w, 1), "a")
	f := w.node(2)
	f.slow = true
	var out Out
	resp, parsed := fetched(one(2, 1, "b"), one(3, 1, "c"))
	resp.Topics[0].Partitions[0].HighWatermark = 2
	f.q.Answer(w.now, f.q.fetch.token, resp, parsed, nil, &out)
	f.q.truncate(2, &out)
	f.q.become(candidate, None)
	f.q.becomeLeader(w.now, &out)
	require.EqualValues(t, 3, f.q.log.end)
	f.q.Written(w.now, 4, &out)
	f.q.Durable(w.now, 4, &out) // b and c, before they were cut off
	require.EqualValues(t, 2, f.q.durable)
	f.q.Truncated(w.now, 2, &out)
	require.EqualValues(t, 2, f.q.durable)
	f.q.Durable(w.now, 3, &out)
	require.EqualValues(t, 3, f.q.durable)
}

// Rule 3: what is committed is never cut off, whatever a leader says.
func TestCommittedIsNeverTruncated(t *testing.T) {
	w := silent(3, 0)
	propose(t, w, elect(t, w, 1), "a")
	f := w.node(2)
	var out Out
	resp, _ := fetched()
	resp.Topics[0].Partitions[0].DivergingEpoch.Epoch, resp.Topics[0].Partitions[0].DivergingEpoch.EndOffset = 1, 1
	f.q.Answer(w.now, f.q.fetch.token, resp, nil, nil, &out)
	require.ErrorContains(t, out.Fatal, "all below 2 is committed")
	require.Empty(t, out.Log)
}

// MajorityHeard moves only with answers to what the leader itself has sent, and to when it sent that.
func TestMajorityHeard(t *testing.T) {
	w := silent(3, 0)
	_, leads := w.node(1).q.MajorityHeard(w.now)
	require.False(t, leads)
	l := elect(t, w, 1)
	w.run(300 * time.Millisecond)
	heard, leads := l.q.MajorityHeard(w.now)
	require.True(t, leads)
	require.GreaterOrEqual(t, heard, w.now.Add(-110*time.Millisecond))

	w.cut = map[[2]int32]bool{{2, 1}: true, {3, 1}: true}
	before := w.now
	w.run(700 * time.Millisecond)
	heard, _ = l.q.MajorityHeard(w.now)
	require.LessOrEqual(t, heard, before)

	// A fetch that was long on its way says nothing of the time in between: its sender may follow another since.
	w = silent(3, 0)
	l = elect(t, w, 1)
	before = w.now
	w.held = map[[2]int32]bool{{2, 1}: true, {3, 1}: true}
	l.do(func(out *Out) { l.q.wakeFetches(w.now.Add(l.q.cfg.FetchWait), out) })
	w.settle()
	w.now = w.now.Add(400 * time.Millisecond)
	clear(w.held)
	w.settle()
	heard, leads = l.q.MajorityHeard(w.now)
	require.True(t, leads)
	require.LessOrEqual(t, heard, before.Add(l.q.cfg.FetchWait))

	alone := silent(1, 0)
	alone.now = 77
	heard, leads = alone.node(1).q.MajorityHeard(alone.now)
	require.True(t, leads)
	require.EqualValues(t, 77, heard)
}

func TestDescribe(t *testing.T) {
	w := silent(3, 1)
	l := elect(t, w, 2)
	w.run(250 * time.Millisecond)
	d := l.q.Describe(w.now, 10_000)
	require.EqualValues(t, 0, d.ErrorCode)
	require.EqualValues(t, 2, d.LeaderID)
	require.EqualValues(t, 1, d.LeaderEpoch)
	require.EqualValues(t, 1, d.HighWatermark)
	require.Len(t, d.CurrentVoters, 3)
	for i, v := range d.CurrentVoters {
		require.EqualValues(t, i+1, v.ReplicaID)
		require.EqualValues(t, 1, v.LogEndOffset)
	}
	require.EqualValues(t, -1, d.CurrentVoters[1].LastFetchTimestamp)
	require.InDelta(t, 9_950, d.CurrentVoters[0].LastFetchTimestamp, 51)
	require.InDelta(t, 9_950, d.CurrentVoters[0].LastCaughtUpTimestamp, 51)
	require.Len(t, d.Observers, 1)
	require.EqualValues(t, 4, d.Observers[0].ReplicaID)

	other := w.node(1).q.Describe(w.now, 10_000)
	require.EqualValues(t, codeNotLeaderOrFollower, other.ErrorCode)
	require.EqualValues(t, 2, other.LeaderID)
}

// A silent observer is forgotten in the end.
func TestObserversExpire(t *testing.T) {
	w := silent(1, 1)
	w.run(time.Second)
	l := w.node(1)
	require.Len(t, l.q.lead.replicas, 1)
	w.node(2).stop(false, 0)
	w.run(time.Second)
	require.Equal(t, core.Never, l.q.quorumDeadline())
	w.now = w.now.Add(observerExpiry)
	l.do(func(out *Out) { l.q.Tick(w.now, out) })
	require.Empty(t, l.q.lead.replicas)
}

// TestALeaderFoundAgainIsNotNews: addresses that are swapped in the list of voters make an observer lose and find the leader many
// times a second.
func TestALeaderFoundAgainIsNotNews(t *testing.T) {
	w := silent(1, 1)
	w.run(time.Second)
	q := w.node(2).q
	var out Out
	for range 3 {
		q.unattach(w.now)
		q.follow(w.now, 1, time.Second, &out)
	}
	require.Empty(t, out.Notes)
	q.enterTerm(w.now, q.hard.Term+1, &out)
	q.follow(w.now, 1, time.Second, &out)
	require.Len(t, out.Notes, 1)
}

// TestAskingAgainIsNotNews: a voter without a majority asks several times a second, for as long as it is alone.
func TestAskingAgainIsNotNews(t *testing.T) {
	w := silent(3, 0)
	q := w.node(1).q
	var out Out
	for range 3 {
		q.askPreVotes(w.now, &out)
	}
	require.Len(t, out.Notes, 1)
	q.follow(w.now, 2, time.Second, &out)
	q.askPreVotes(w.now, &out)
	require.Len(t, out.Notes, 3, "that it follows, and that it asks again")
}

// The connection of a parked fetch is gone: it gets no answer.
func TestCancel(t *testing.T) {
	w := silent(1, 0)
	l := w.node(1)
	m := fetchRequest(9, 1, 1, 1)
	l.do(func(out *Out) {
		require.True(t, l.q.Handle(w.now, 55, m, out))
		require.Empty(t, out.Responds)
	})
	l.q.Cancel(54)
	l.q.Cancel(55)
	var out Out
	l.q.Tick(w.now.Add(time.Second), &out)
	require.Empty(t, out.Responds)
}

func fetchRequest(replica int32, term int32, offset int64, epoch int32) *kmsg.FetchRequest {
	m := kmsg.NewPtrFetchRequest()
	m.Version = 18
	m.ReplicaState.ID = replica
	m.MaxWaitMillis = 100
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark = term, offset, epoch, 1
	m.Topics = []kmsg.FetchRequestTopic{{TopicID: core.MetadataPartition.Topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return m
}

// A term and its records may be durable before the term itself was saved: it is taken from the log then.
func TestTermFromLog(t *testing.T) {
	w := newWorld(3, 3, 0, func(string, ...any) {})
	n := w.node(2)
	n.disk.batches = []record.Batch{one(0, 4, "a")}
	n.slow = true
	n.start()
	_, term := n.q.Leader()
	require.EqualValues(t, 4, term)
	require.Len(t, n.disk.saves, 1)
}

// The log is read back in pieces, and what contradicts itself is refused, never repaired (rule 15).
func TestLoad(t *testing.T) {
	cfg := Config{Self: 1, Voters: []Voter{{ID: 1}}, Rand: newWorld(1, 1, 0, nil).rng}
	state := log.State{Start: 0, End: 4}
	load := func(st log.State, snap *Snapshot, pieces ...[]record.Batch) (*Quorum, error) {
		q := New(cfg, HardState{Term: 3, Vote: None}, snap, st)
		for _, p := range pieces {
			if err := q.Load(p); err != nil {
				return q, err
			}
		}
		return q, nil
	}
	q, err := load(state, nil, []record.Batch{one(0, 1, "a"), one(1, 1, "b")}, []record.Batch{one(2, 2, "c")})
	require.NoError(t, err)
	from, more := q.LoadFrom()
	require.EqualValues(t, 3, from)
	require.True(t, more)
	require.NoError(t, q.Load([]record.Batch{one(3, 3, "d")}))
	_, more = q.LoadFrom()
	require.False(t, more)

	_, err = load(state, nil, nil)
	require.ErrorIs(t, err, ErrCorruptLog)
	_, err = load(state, nil, []record.Batch{one(1, 1, "b")})
	require.ErrorIs(t, err, ErrCorruptLog)
	_, err = load(state, nil, []record.Batch{one(0, 2, "a"), one(1, 1, "b")})
	require.ErrorIs(t, err, ErrCorruptLog)

	// The log begins at 3, and there is no snapshot, or an older one, for what lies below.
	for _, snap := range []*Snapshot{nil, {SnapshotID: SnapshotID{Offset: 2, Epoch: 1}}} {
		q, err = load(log.State{Start: 3, End: 4}, snap, []record.Batch{one(3, 3, "d")})
		require.NoError(t, err)
		var out Out
		q.Start(0, &out)
		require.ErrorIs(t, out.Fatal, ErrCorruptLog)
	}
}

// A crash between storing a fetched snapshot and emptying the log is put right at the next start. Where log and
// snapshot agree the log stays.
func TestStartFromSnapshot(t *testing.T) {
	snap := &Snapshot{SnapshotID{Offset: 3, Epoch: 2}, []byte("image")}
	for _, c := range []struct {
		name    string
		start   int64
		batches []record.Batch
		reset   bool
		commits []int64
	}{
		{"log older than the snapshot", 0, []record.Batch{one(0, 1, "a")}, true, nil},
		{"another history", 0, []record.Batch{one(0, 1, "a"), one(1, 1, "x"), one(2, 1, "y"), one(3, 1, "z")}, true, nil},
		{"no log at all", 0, nil, true, nil},
		{"log and snapshot agree", 0, []record.Batch{one(0, 1, "a"), one(1, 2, "b"), one(2, 2, "c"), one(3, 2, "d")}, false, []int64{3}},
		{"log begins before the snapshot's end", 2, []record.Batch{one(2, 2, "c"), one(3, 2, "d")}, false, []int64{3}},
		{"log begins at the snapshot's end", 3, []record.Batch{one(3, 2, "d")}, false, []int64{3}},
		{"log ends at the snapshot's end", 3, nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			end := c.start + int64(len(c.batches))
			q := New(Config{Self: 1, Voters: []Voter{{ID: 1}}, Rand: newWorld(1, 1, 0, nil).rng},
				HardState{Term: 2, Vote: None}, snap, log.State{Start: c.start, End: end})
			if len(c.batches) > 0 {
				require.NoError(t, q.Load(c.batches))
			}
			var out Out
			q.Start(0, &out)
			require.NoError(t, out.Fatal)
			require.Nil(t, out.Restore, "the host has its image from the snapshot already")
			if c.reset {
				require.Equal(t, []LogOp{Reset{Start: 3}}, out.Log)
				q.Truncated(0, 3, &out)
				end = 3
			}
			out.Reset()
			q.Saved(0, 1, &out)
			require.True(t, out.Elected)
			require.Equal(t, end, out.Log[0].(Append).Batches[0].BaseOffset())
			out.Reset()
			q.Durable(0, end+1, &out)
			require.True(t, out.Active)
			var commits []int64
			for _, c := range out.Commits {
				commits = append(commits, c.Offset)
			}
			require.Equal(t, c.commits, commits)
		})
	}
}

// A high watermark that was checkpointed is delivered at once.
func TestStartDeliversUpToHighWatermark(t *testing.T) {
	q := New(Config{Self: 1, Voters: []Voter{{ID: 1}, {ID: 2}}, Rand: newWorld(1, 1, 0, nil).rng},
		HardState{Term: 1, Vote: None}, nil, log.State{End: 3, HighWatermark: 2})
	require.NoError(t, q.Load([]record.Batch{one(0, 1, "a"), one(1, 1, "b"), one(2, 1, "c")}))
	var out Out
	q.Start(0, &out)
	require.Len(t, out.Commits, 2)
	require.Equal(t, SnapshotID{Offset: 2, Epoch: 1}, q.Tip())
}

func TestProposeErrors(t *testing.T) {
	w := silent(3, 0)
	var out Out
	_, err := w.node(2).q.Propose(w.now, 0, [][]byte{{1}}, &out)
	require.ErrorIs(t, err, ErrNotLeader)
	l := elect(t, w, 1)
	_, err = l.q.Propose(w.now, 0, nil, &out)
	require.Error(t, err)
	require.Empty(t, out.Log)
	l.slow = true
	l.q.Propose(w.now, 0, [][]byte{{1}}, &out)
	l.q.AppendFailed(w.now, 1, errLost, &out)
	_, err = l.q.Propose(w.now, 0, [][]byte{{1}}, &out)
	require.ErrorIs(t, err, ErrTruncating)
}
