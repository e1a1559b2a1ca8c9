package replica

import (
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"

	"github.com/stretchr/testify/require"
)

func TestFollowerBelowTheLeadersStartBeginsAgain(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	for range 4 {
		c[0].replicate("b", c[1])
	}
	c[0].r.DeleteRecords(c[0].now, 4, 1, &c[0].out)
	c[0].carryOut()
	c[0].settle()
	require.Equal(t, codeOffsetNotAvailable, c[2].fetch(c[0]).Code)
	c[0].settle()
	c[2].now = c[2].r.Deadline()
	c[2].tick()
	c[2].fetch(c[0])
	require.Equal(t, int64(4), c[2].r.LogStart())
	require.Equal(t, int64(4), c[2].r.HighWatermark())
	c[2].fetch(c[0])
	require.Equal(t, []string{"4=b"}, c[2].values())
	c[2].fetch(c[0])
	require.Equal(t, int64(5), c[2].r.HighWatermark())
	c[2].fetched(c[2].r.ask(), FetchAnswer{HighWatermark: 5, LogStart: 6})
	c[2].settle()
	require.Equal(t, int64(5), c[2].r.LogStart(), "nothing is deleted beyond the high watermark (rule 19)")
}

func TestFollowersReadWhatIsWrittenAndNotBefore(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(1, 1, -1, -1, -1, "a")
	ask := c[1].r.ask()
	require.Zero(t, c[0].r.FollowerRead(c[0].now, 2, 2, ask).Limit, "an append that may yet fail")
	for len(c[0].queue) > 0 {
		c[0].write(false)
	}
	d := c[0].r.FollowerRead(c[0].now, 2, 2, ask)
	require.Equal(t, int64(1), d.Limit, "not durable yet, and on its way to the followers meanwhile")
	require.Equal(t, int64(c[0].batches[0].Size()), d.Bytes)
}

func TestDeletedRecordsDoNotComeBackWithAReplicaThatJoins(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	st := state(3, 1, 0, 1, 1, 2)
	st.Replicas[2].Eligible = false
	c[0].apply(st)
	_, pending := c[0].r.DeleteRecords(c[0].now, 1, 1, &c[0].out)
	require.True(t, pending)
	c[0].carryOut()
	c[0].settle()
	st.Replicas[1].Eligible = false
	c[0].apply(clone(st))
	require.NotContains(t, c[0].deleted, Waiter(1), "2 may be fenced, but is still in sync and could lead")
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.Contains(t, c[0].deleted, Waiter(1), "3 is not waited for")
	st.Replicas[2].Eligible = true
	c[0].apply(clone(st))
	c[2].fetch(c[0])
	require.Empty(t, c[0].proposed, "it has all records, and one too many")
	c[2].fetch(c[0])
	require.Len(t, c[0].proposed, 1)
}

// DeleteRecords has put the start inside a batch: the follower begins with that batch.
func TestFollowerBelowAStartInsideABatch(t *testing.T) {
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].replicate("a", c[1])
	c[0].produce(1, 1, -1, -1, -1, "b", "c", "d", "e")
	c[0].replicate("f", c[1])
	c[0].r.DeleteRecords(c[0].now, 3, 1, &c[0].out)
	c[0].carryOut()
	c[0].settle()
	require.Equal(t, codeOffsetNotAvailable, c[2].fetch(c[0]).Code, "where that batch begins has to be read first")
	c[0].settle()
	c[2].now = c[2].r.Deadline()
	c[2].tick()
	require.Equal(t, codeOffsetOutOfRange, c[2].fetch(c[0]).Code)
	require.Equal(t, int64(1), c[2].r.LogEnd())
	for range 4 {
		c[2].fetch(c[0])
	}
	require.Equal(t, []string{"1=b", "2=c", "3=d", "4=e", "5=f"}, c[2].values())
	require.Equal(t, int64(3), c[2].r.LogStart())
	require.Equal(t, int64(6), c[2].r.HighWatermark())
}

// A leader that has forgotten an epoch tells of an end that may be inside a batch of a log that departs before it.
func TestTruncationInsideABatchTakesItWhole(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(1, 1, 7, 0, 0, "lost", "lost", "lost")
	c[0].settle()
	for epoch := int32(1); epoch <= 2; epoch++ {
		c[1].apply(state(3, 2, epoch, epoch, 2, 3))
		c[2].apply(state(3, 2, epoch, epoch, 2, 3))
		c[1].replicate("a", c[2])
	}
	c[1].replicate("b", c[2])
	c[1].r.DeleteRecords(c[1].now, 2, 3, &c[1].out)
	c[1].carryOut()
	c[1].settle()
	require.Equal(t, []log.EpochStart{{Epoch: 2, Start: 1}}, c[1].epochs, "epoch 1 is forgotten")
	c[0].apply(state(3, 2, 2, 2, 2, 3))
	ans := c[0].fetch(c[1])
	require.Equal(t, &log.EpochStart{Epoch: 0, Start: 1}, ans.Diverging)
	require.Zero(t, c[0].r.LogEnd())
	require.Zero(t, c[0].r.Log().Producers().Len())
	for range 5 {
		if _, ok := c[0].r.WantFetch(c[0].now); ok {
			c[0].fetch(c[1])
		}
		c[1].settle()
		c[0].now = c[0].now.Add(time.Second)
		c[0].tick()
	}
	require.Equal(t, []string{"2=b"}, c[0].values())
	require.Equal(t, int64(2), c[0].r.LogStart())
}

// What departs below the leader's start goes, though the leader has deleted what is there.
func TestFollowerThatDepartsBelowTheLeadersStart(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(1, 1, 7, 0, 0, "lost")
	c[0].produce(1, 2, 7, 0, 1, "lost")
	c[0].settle()
	c[1].apply(state(3, 2, 1, 1, 2, 3))
	c[2].apply(state(3, 2, 1, 1, 2, 3))
	c[1].replicate("a", c[2])
	c[1].replicate("b", c[2])
	c[1].r.DeleteRecords(c[1].now, 1, 3, &c[1].out)
	c[1].carryOut()
	c[1].settle()
	c[0].apply(state(3, 2, 1, 1, 2, 3))
	c[0].fetch(c[1])
	require.Zero(t, c[0].r.LogEnd(), "the first record is another one too")
	require.Zero(t, c[0].r.Log().Producers().Len())
}

func TestFollowerThatDepartsBelowItsOwnStart(t *testing.T) {
	c := cluster(t, 3)
	for range 5 {
		c[0].replicate("a", c[1], c[2])
	}
	c[0].r.DeleteRecords(c[0].now, 4, 1, &c[0].out)
	c[0].carryOut()
	c[0].settle()
	c[0].apply(state(3, 2, 1, 1, 2, 3))
	ask, _ := c[0].r.WantFetch(c[0].now)
	c[0].fetched(ask, FetchAnswer{Diverging: &log.EpochStart{Epoch: 0, Start: 2}})
	c[0].settle()
	ask, ok := c[0].r.WantFetch(c[0].now)
	require.True(t, ok)
	require.Equal(t, FetchAsk{Leader: 2, LeaderEpoch: 1, LastFetchedEpoch: -1}, ask, "else it would be told the same again and again")
	require.Zero(t, c[0].end())

	// As one does that begins above the leader's end and holds nothing.
	for _, x := range []struct{ start, end int64 }{{5, 5}, {1, 0}, {1, 1}} {
		c[0].fetched(ask, FetchAnswer{Code: codeOffsetOutOfRange, LogStart: x.start})
		c[0].settle()
		ask, ok = c[0].r.WantFetch(c[0].now)
		require.True(t, ok)
		require.Equal(t, x.end, ask.Offset)
	}
}

func TestFollowerWaitsAfterAnErrorAndAFullDisk(t *testing.T) {
	c := cluster(t, 3)
	ask, _ := c[1].r.WantFetch(c[1].now)
	c[1].fetched(ask, FetchAnswer{Code: codeNotLeaderOrFollower})
	_, ok := c[1].r.WantFetch(c[1].now)
	require.False(t, ok)
	c[1].now = c[1].r.Deadline()
	c[1].r.Tick(c[1].now, 0, &c[1].out)
	require.True(t, c[1].out.Fetch)
	c[1].carryOut()
	c[0].produce(1, 1, 7, 0, 0, "a")
	c[0].settle()
	ask, ok = c[1].r.WantFetch(c[1].now)
	require.True(t, ok)
	c[1].fetched(ask, c[0].answer(c[1], ask))
	for c[1].queue[0].append == nil {
		c[1].write(false)
	}
	c[1].write(true)
	c[1].settle()
	require.Zero(t, c[1].r.LogEnd())
	require.Zero(t, c[1].r.Log().Producers().Len())
	_, ok = c[1].r.WantFetch(c[1].now)
	require.False(t, ok)
	c[1].now = c[1].r.Deadline()
	c[1].tick()
	c[1].fetch(c[0])
	require.Equal(t, []string{"0=a"}, c[1].values())
}

// What deleted records said of producers is known to a follower that begins above them, too: when it leads, their batches are still
// duplicates (rule 18, museum D05).
func TestAFollowerThatBeginsAgainKnowsTheProducersOfWhatIsDeleted(t *testing.T) {
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	_, pending := c[0].produce(1, 1, 8, 0, 0, "a")
	require.True(t, pending)
	c[0].settle()
	for range 3 {
		c[1].fetch(c[0])
	}
	c[0].r.DeleteRecords(c[0].now, 1, 2, &c[0].out)
	c[0].carryOut()
	c[0].settle()
	c[2].fetch(c[0])
	require.Equal(t, int64(1), c[2].r.LogStart())
	require.Empty(t, c[2].values())

	c[2].apply(state(3, 3, 1, 2, 1, 3))
	again, pending := c[2].produce(-1, 3, 8, 0, 0, "a")
	require.False(t, pending)
	require.Equal(t, Produced{Waiter: 3, BaseOffset: 0, AppendTime: -1, LogStart: 1, BadRecord: -1}, again)
	_, pending = c[2].produce(-1, 4, 8, 0, 1, "b")
	require.True(t, pending, "the next one is not")
}

// A follower that cannot read what it is told of producers does not begin without it.
func TestDamagedProducersAreNotTaken(t *testing.T) {
	c := cluster(t, 3)
	ask, ok := c[2].r.WantFetch(c[2].now)
	require.True(t, ok)
	c[2].fetched(ask, FetchAnswer{Code: codeOffsetOutOfRange, LogStart: 7, Producers: []byte("LKPT?")})
	c[2].settle()
	require.Zero(t, c[2].r.LogStart())
	require.NotEmpty(t, c[2].lines)
	c[2].now = c[2].r.Deadline()
	c[2].tick()
	_, ok = c[2].r.WantFetch(c[2].now)
	require.True(t, ok, "it asks again")
}

// A deletion that is on its way when the producer table has to be read from the log again takes records that it cannot be read from (rule 18).
func TestDeletionOnItsWayWhenTheTableIsReadAgain(t *testing.T) {
	n := single(t)
	for i, id := range []int64{8, 9, 10} {
		n.produce(-1, Waiter(i), id, 0, 0, "a")
		n.settle()
	}
	require.EqualValues(t, 3, n.r.HighWatermark())
	n.r.truncate(n.now, 2, &n.out) // as after an unclean election: below what the table can be taken back to
	n.carryOut()
	require.True(t, n.r.Rebuilding())
	n.setStart(1) // asked for before, and done before
	n.r.StartMoved(n.now, 1, &n.out)
	n.carryOut()
	n.settle()
	require.False(t, n.r.Rebuilding())
	require.Equal(t, []int64{8, 9}, n.r.Log().Producers().IDs())
}

// When a producer was seen is not known by the clock of another process.
func TestARestartDoesNotExpireProducers(t *testing.T) {
	table := log.NewProducers(0)
	h := checked(t, 8, 0, 0, "a").Batch.Header()
	table.Append(&h, 1000) // when the clock was wrong
	table, err := log.LoadSnapshot(table.Snapshot())
	require.NoError(t, err)
	cfg := testConfig()
	cfg.ProducerIDExpiry = 24 * time.Hour
	r := New(testPartition, 1, log.State{Start: 1, End: 1, Producers: table}, cfg, nil)
	var out Out
	now := core.Time(time.Hour)
	r.Tick(now, 1_700_000_000_000, &out)
	require.Equal(t, []int64{8}, r.Log().Producers().IDs())
	r.Tick(now.Add(25*time.Hour), 1_700_000_000_000, &out)
	require.Empty(t, r.Log().Producers().IDs())
}
