package replica

import (
	"fmt"
	"math"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

func TestAcks(t *testing.T) {
	n := single(t)
	res, pending := n.produce(0, 1, -1, -1, -1, "a")
	require.False(t, pending)
	require.Equal(t, int64(0), res.BaseOffset)
	_, pending = n.produce(1, 2, -1, -1, -1, "b", "c")
	require.True(t, pending)
	_, pending = n.produce(-1, 3, -1, -1, -1, "d")
	require.True(t, pending)
	for len(n.queue) > 0 {
		n.write(false)
	}
	require.Empty(t, n.produced, "written is not durable")
	require.Zero(t, n.r.HighWatermark())
	n.sync()
	require.Equal(t, int64(1), n.produced[2].BaseOffset)
	require.Equal(t, int64(3), n.produced[3].BaseOffset)
	require.Equal(t, int64(4), n.r.HighWatermark())
	require.Equal(t, []string{"0=a", "1=b", "2=c", "3=d"}, n.values())
}

func TestAcksWithoutSync(t *testing.T) {
	n := single(t, func(c *Config) { c.Sync = false })
	n.produce(1, 1, -1, -1, -1, "a")
	n.produce(-1, 2, -1, -1, -1, "b")
	require.False(t, n.wantSync)
	n.write(false)
	n.write(false)
	require.Len(t, n.produced, 2, "what is written counts where flush.messages says so")
	require.Zero(t, n.durable)
	cfg := n.cfg
	cfg.Sync = true
	n.r.Configure(n.now, cfg, &n.out)
	require.True(t, n.out.Sync, "from now on it has to be durable")
}

func TestAcksAllWaitsForTheInSyncSetAcksOneDoesNot(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(1, 1, -1, -1, -1, "a")
	c[0].produce(-1, 2, -1, -1, -1, "b")
	c[0].settle()
	require.Contains(t, c[0].produced, Waiter(1))
	require.NotContains(t, c[0].produced, Waiter(2))
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.NotContains(t, c[0].produced, Waiter(2), "the third has not fetched")
	c[2].fetch(c[0])
	require.NotContains(t, c[0].produced, Waiter(2), "it has, but its next fetch is what says so")
	c[2].fetch(c[0])
	require.Contains(t, c[0].produced, Waiter(2))
	require.Equal(t, int64(2), c[2].r.HighWatermark())
}

func TestProduceRefusals(t *testing.T) {
	n := single(t, func(c *Config) {
		c.MaxMessageBytes, c.TimestampBefore, c.TimestampAfter = 200, 5000, 1000
		c.Compact = true
	})
	const wall = 1_700_000_000_000
	good := checked(t, -1, -1, -1, "x")
	at := func(min, max int64) record.Checked {
		return record.Checked{Batch: good.Batch, Info: record.Info{MinTimestamp: min, MaxTimestamp: max}}
	}
	for _, c := range []struct {
		name string
		c    record.Checked
		code int16
	}{
		{"CRC", record.Checked{Err: fmt.Errorf("x: %w", record.ErrCRC)}, 2},
		{"two batches", record.Checked{Err: fmt.Errorf("x: %w", record.ErrOneBatch)}, 87},
		{"codec", record.Checked{Err: fmt.Errorf("x: %w", record.ErrCodec)}, 76},
		{"nothing", record.Checked{}, 87},
		{"too large", checked(t, -1, -1, -1, string(make([]byte, 200))), 10},
		{"old", at(wall-5001, wall), 32},
		{"young", at(wall, wall+1001), 32},
		{"very old", at(math.MinInt64, wall), 32},
		{"null key", record.Checked{Batch: good.Batch, Info: record.Info{NullKeys: true, FirstNullKey: 0, MinTimestamp: wall, MaxTimestamp: wall}}, 87},
		{"just within", at(wall-5000, wall+1000), 0},
		{"none", at(-1, -1), 0},
	} {
		res, _ := n.r.Produce(n.now, wall, c.c, 0, 1, &n.out)
		require.Equal(t, c.code, res.Code, c.name)
		if c.code != 0 {
			require.Equal(t, int64(-1), res.BaseOffset, c.name)
		}
	}
	require.Equal(t, int64(2), n.r.LogEnd(), "what is refused takes no offset")
	n.r.cfg.TimestampBefore, n.r.cfg.TimestampAfter = math.MaxInt64, math.MaxInt64
	res, _ := n.r.Produce(n.now, wall, at(math.MinInt64, math.MaxInt64), 0, 1, &n.out)
	require.Zero(t, res.Code, "no bounds")
}

func TestProduceToNoLeader(t *testing.T) {
	n := newNode(t, 1, testConfig())
	res, _ := n.produce(-1, 1, -1, -1, -1, "a")
	require.Equal(t, codeNotLeaderOrFollower, res.Code)
	n.apply(state(3, 2, 4, 0, 1, 2, 3))
	res, _ = n.produce(-1, 1, -1, -1, -1, "a")
	require.Equal(t, codeNotLeaderOrFollower, res.Code)
	n.apply(state(3, 1, 3, 0, 1, 2, 3))
	require.Equal(t, Follower, n.r.Role(), "an older state is ignored")
	n.apply(state(3, 1, 5, 1, 1, 2, 3))
	require.Equal(t, Leader, n.r.Role())
	n.r.Fail(n.now, fmt.Errorf("damage"), &n.out)
	res, _ = n.produce(-1, 1, -1, -1, -1, "a")
	require.Equal(t, codeStorage, res.Code)
	n.apply(state(3, 1, 6, 1, 1, 2, 3))
	require.Equal(t, Failed, n.r.Role(), "set aside for good")
}

func TestMinInsync(t *testing.T) {
	c := cluster(t, 3)
	_, pending := c[0].produce(-1, 1, -1, -1, -1, "a")
	require.True(t, pending)
	c[0].apply(state(3, 1, 0, 1, 1))
	res, _ := c[0].produce(-1, 2, -1, -1, -1, "b")
	require.Equal(t, codeNotEnoughReplicas, res.Code)
	require.Equal(t, int64(1), c[0].r.LogEnd(), "refused before the append")
	_, pending = c[0].produce(1, 3, -1, -1, -1, "c")
	require.True(t, pending, "acks=1 goes on")
	c[0].settle()
	require.Zero(t, c[0].r.HighWatermark())
	require.Equal(t, codeNotEnoughAfter, c[0].r.CancelProduce(1))
	require.Equal(t, codeRequestTimedOut, c[0].r.CancelProduce(1))
}

func TestMinInsyncAboveTheNumberOfReplicas(t *testing.T) {
	n := single(t, func(c *Config) { c.MinInsync = 3 })
	n.produce(-1, 1, -1, -1, -1, "a")
	n.settle()
	require.Contains(t, n.produced, Waiter(1))
}

func TestLogAppendTime(t *testing.T) {
	n := single(t, func(c *Config) { c.LogAppendTime, c.TimestampBefore = true, 1 })
	c := checked(t, 7, 0, 0, "a")
	_, pending := n.r.Produce(n.now, 1_800_000_000_000, c, -1, 1, &n.out)
	require.True(t, pending)
	n.carryOut()
	n.settle()
	require.Equal(t, int64(1_800_000_000_000), n.produced[1].AppendTime)
	b := n.batches[0]
	require.True(t, b.LogAppendTime())
	require.Equal(t, int64(1_800_000_000_000), b.MaxTimestamp())
	_, _, err := record.Parse(b.Bytes())
	require.NoError(t, err, "its CRC is right")
	res, _ := n.r.Produce(n.now, 1_800_000_009_000, checked(t, 7, 0, 0, "a"), -1, 2, &n.out)
	require.Equal(t, int64(1_800_000_000_000), res.AppendTime, "the original's")
}

func TestDuplicateOfAnUncommittedBatchWaitsForTheOriginal(t *testing.T) { // rule 10
	c := cluster(t, 3)
	c[0].produce(-1, 1, 7, 0, 0, "a")
	c[0].produce(-1, 2, 7, 0, 1, "b")
	_, pending := c[0].produce(-1, 3, 7, 0, 0, "a")
	require.True(t, pending)
	_, pending = c[0].produce(1, 4, 7, 0, 1, "b")
	require.True(t, pending, "acks=1 waits for the original's sync")
	c[0].settle()
	require.Equal(t, int64(1), c[0].produced[4].BaseOffset)
	require.NotContains(t, c[0].produced, Waiter(3))
	c[0].replicate("c", c[1], c[2])
	require.Equal(t, int64(0), c[0].produced[3].BaseOffset)
	res, pending := c[0].produce(-1, 5, 7, 0, 1, "b")
	require.False(t, pending)
	require.Equal(t, int64(1), res.BaseOffset)
	require.Len(t, c[0].values(), 3)
}

func TestDeposedLeaderAnswersItsWaitersWithAnError(t *testing.T) { // rule 10
	c := cluster(t, 3)
	c[0].produce(-1, 1, 7, 0, 0, "a")
	c[0].produce(1, 2, 7, 0, 1, "b")
	c[0].apply(state(3, 2, 1, 1, 1, 2, 3))
	require.Equal(t, codeNotLeaderOrFollower, c[0].produced[1].Code)
	require.Equal(t, codeNotLeaderOrFollower, c[0].produced[2].Code)
	require.True(t, c[0].readable, "parked fetches are to learn of it")
}

func TestSequenceErrorsAreKafkas(t *testing.T) {
	n := single(t)
	n.produce(1, 1, 7, 1, 0, "a")
	res, _ := n.produce(1, 2, 7, 1, 2, "c")
	require.Equal(t, int16(45), res.Code)
	res, _ = n.produce(1, 3, 7, 0, 1, "c")
	require.Equal(t, int16(47), res.Code)
	require.Equal(t, int64(1), n.r.LogEnd())
}

func TestFailedAppendRollsBack(t *testing.T) { // rule 1
	n := single(t)
	n.produce(-1, 1, 7, 0, 0, "a")
	n.settle()
	n.produce(-1, 2, 7, 0, 1, "b")
	n.produce(1, 3, 8, 0, 0, "c")
	n.write(true)
	require.Equal(t, codeStorage, n.produced[2].Code)
	require.Equal(t, codeStorage, n.produced[3].Code)
	res, _ := n.produce(-1, 4, 7, 0, 1, "b")
	require.Equal(t, codeStorage, res.Code, "until the log is cut")
	n.settle()
	require.Equal(t, int64(1), n.r.LogEnd())
	_, pending := n.produce(-1, 5, 7, 0, 1, "b")
	require.True(t, pending, "no duplicate: the producer table has been rolled back")
	n.settle()
	require.Equal(t, int64(1), n.produced[5].BaseOffset)
	require.Equal(t, []string{"0=a", "1=b"}, n.values())
	d := n.r.ConsumerFetch(n.now, 0, 0, -1, false)
	require.Equal(t, int64(2), d.Limit)
}

func TestFailedAppendKeepsTheLeadersEpoch(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, -1, -1, -1, "a")
	n.write(true)
	n.settle()
	require.Equal(t, int32(0), n.r.Log().Epochs().Latest(), "rule 2 holds after the rollback too")
	require.Equal(t, int32(0), n.epochs[0].Epoch)
}

func TestAppendThatTookBackWhatWasWrittenSetsTheReplicaAside(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, -1, -1, -1, "a")
	n.settle()
	n.r.AppendFailed(n.now, 0, fmt.Errorf("x"), &n.out)
	require.Equal(t, Failed, n.r.Role())
}

func TestFailedReplicaAnswersStorageError(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, -1, -1, -1, "a")
	n.r.Fail(n.now, fmt.Errorf("damage"), &n.out)
	n.carryOut()
	require.Equal(t, codeStorage, n.produced[1].Code)
	require.Equal(t, codeStorage, n.r.ConsumerFetch(n.now, 0, 0, -1, false).Code)
	require.Equal(t, codeStorage, n.r.ListOffsets(n.now, -1, 0, false, false).Code)
	n.r.Durable(n.now, 1, &n.out)
	require.Zero(t, n.r.HighWatermark())
}

func TestConsumerFetchChecksEpochs(t *testing.T) {
	c := cluster(t, 3)
	require.Equal(t, codeNotLeaderOrFollower, c[1].r.ConsumerFetch(c[1].now, 0, -1, -1, false).Code)
	c[0].apply(state(3, 1, 2, 1, 1, 2, 3))
	require.Equal(t, codeFencedLeaderEpoch, c[0].r.ConsumerFetch(c[0].now, 0, 1, -1, false).Code)
	require.Equal(t, codeUnknownLeaderEpoch, c[0].r.ConsumerFetch(c[0].now, 0, 3, -1, false).Code)
	require.Zero(t, c[0].r.ConsumerFetch(c[0].now, 0, 2, -1, false).Code)
	require.Equal(t, codeOffsetOutOfRange, c[0].r.ConsumerFetch(c[0].now, 1, 2, -1, false).Code)
	require.Equal(t, codeOffsetOutOfRange, c[0].r.ConsumerFetch(c[0].now, -1, 2, -1, false).Code)
}

func TestReadCommittedStopsAtTheLastStableOffset(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, -1, -1, -1, "a")
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Attributes = 7, 0, 0, record.AttributeTransactional
	x, err := b.Add(record.Record{Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte("t")}).Build()
	require.NoError(t, err)
	n.r.Produce(n.now, 1_700_000_000_000, record.Check(x.Bytes(), nil, record.Limits{}), -1, 2, &n.out)
	n.carryOut()
	n.settle()
	require.Equal(t, int64(2), n.r.ConsumerFetch(n.now, 0, 0, -1, false).Limit)
	require.Equal(t, int64(1), n.r.ConsumerFetch(n.now, 0, 0, -1, true).Limit)
	require.Equal(t, int64(1), n.r.ListOffsets(n.now, -1, 0, true, false).Offset)
	require.Equal(t, int64(1), n.r.RetainLimit(), "rule 19")
}

func TestListOffsets(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].replicate("b", c[1], c[2])
	c[0].produce(1, 1, -1, -1, -1, "c") // not committed
	c[0].settle()
	offset := func(ts int64) OffsetAnswer { return c[0].r.ListOffsets(c[0].now, ts, 0, false, false) }
	require.Equal(t, int64(2), offset(-1).Offset, "latest")
	require.Equal(t, int64(3), c[0].r.ListOffsets(c[0].now, -1, 0, false, true).Offset, "latest, of the log itself")
	require.Equal(t, int64(0), offset(-2).Offset, "earliest")
	require.Equal(t, int32(0), offset(-2).Epoch)
	require.Equal(t, int64(0), offset(-4).Offset, "earliest here")
	require.Equal(t, int64(-1), offset(-5).Offset, "latest tiered")
	for _, ts := range []int64{-3, 1_700_000_000_000} {
		asked := offset(ts)
		require.True(t, asked.Lookup)
		require.Equal(t, int64(2), asked.Limit)
		found := c[0].r.TimeFound(c[0].now, asked, 1, 1_700_000_000_000, 0)
		require.Equal(t, OffsetAnswer{Offset: 1, Timestamp: 1_700_000_000_000}, found)
		none := c[0].r.TimeFound(c[0].now, asked, -1, -1, -1)
		require.Equal(t, OffsetAnswer{Offset: -1, Timestamp: -1, Epoch: -1}, none)
		c[0].apply(state(3, 1, asked.LeaderEpoch+1, 9, 1, 2, 3))
		require.Equal(t, codeNotLeaderOrFollower, c[0].r.TimeFound(c[0].now, asked, 1, 1, 0).Code, "asked in another epoch (rule 4)")
		c = cluster(t, 3)
		c[0].replicate("a", c[1], c[2])
		c[0].replicate("b", c[1], c[2])
	}
}

func TestNewLeaderDoesNotKnowTheEndYet(t *testing.T) { // KIP-207
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[2].fetch(c[0])
	c[0].answer(c[1], c[1].r.ask())
	c[0].answer(c[2], c[2].r.ask())
	require.Equal(t, int64(2), c[0].r.HighWatermark())
	require.Equal(t, int64(1), c[1].r.HighWatermark(), "not told yet")
	c[1].apply(state(3, 2, 1, 1, 2, 3))
	require.Equal(t, codeOffsetNotAvailable, c[1].r.ListOffsets(c[1].now, -1, 1, false, false).Code)
	for _, offset := range []int64{-1, 2} {
		res, pending := c[1].r.DeleteRecords(c[1].now, offset, 7, &c[1].out)
		require.False(t, pending)
		require.Equal(t, codeOffsetNotAvailable, res.Code, "it may be committed")
	}
	d := c[1].r.ConsumerFetch(c[1].now, 1, 1, -1, false)
	require.Zero(t, d.Code)
	require.Equal(t, int64(1), d.Limit)
	require.True(t, d.Unsettled)
	c[2].apply(state(3, 2, 1, 1, 2, 3))
	c[2].fetch(c[1])
	require.Equal(t, int64(2), c[1].r.ListOffsets(c[1].now, -1, 1, false, false).Offset)
	require.False(t, c[1].r.ConsumerFetch(c[1].now, 1, 1, -1, false).Unsettled)
}

func TestDeleteRecords(t *testing.T) {
	c := cluster(t, 2)
	for range 4 {
		c[0].replicate("a", c[1])
	}
	c[0].produce(1, 1, -1, -1, -1, "b")
	c[0].settle()
	ask := func(offset int64, w Waiter) (Deleted, bool) {
		res, pending := c[0].r.DeleteRecords(c[0].now, offset, w, &c[0].out)
		c[0].carryOut()
		return res, pending
	}
	res, _ := ask(5, 1)
	require.Equal(t, codeOffsetOutOfRange, res.Code, "beyond the high watermark (rule 19)")
	res, _ = ask(-2, 1)
	require.Equal(t, codeOffsetOutOfRange, res.Code)
	_, pending := ask(3, 2)
	require.True(t, pending)
	c[0].settle()
	require.Equal(t, int64(3), c[0].r.LogStart())
	require.NotContains(t, c[0].deleted, Waiter(2), "the follower's log still begins below")
	c[1].fetch(c[0])
	require.Equal(t, int64(3), c[1].r.LogStart())
	c[1].fetch(c[0])
	require.Equal(t, Deleted{Waiter: 2, LowWatermark: 3}, c[0].deleted[2])
	res, pending = ask(2, 3)
	require.False(t, pending, "gone already")
	require.Equal(t, int64(3), res.LowWatermark)
	_, pending = ask(-1, 4)
	require.True(t, pending)
	c[0].settle()
	st := state(2, 1, 0, 1, 1)
	st.Replicas[1].Eligible = false
	c[0].apply(st)
	require.NotContains(t, c[0].deleted, Waiter(4), "too few are in sync: the one that is not, which has all that is committed, may be elected")
	res, _ = ask(-1, 5)
	require.Equal(t, codeNotEnoughReplicas, res.Code, "and what is asked for by then is refused")
	cfg := c[0].r.cfg
	cfg.MinInsync = 1
	c[0].r.Configure(c[0].now, cfg, &c[0].out)
	c[0].carryOut()
	require.Equal(t, int64(5), c[0].deleted[4].LowWatermark, "a dead replica is not waited for; the watermark was 5 by then")
	d := c[0].r.ConsumerFetch(c[0].now, 2, 0, -1, false)
	require.Equal(t, codeOffsetOutOfRange, d.Code)
	require.Equal(t, int64(5), d.LogStart)

	c[0].r.cfg.KeepRecords = true
	res, _ = ask(5, 5)
	require.Equal(t, codePolicyViolation, res.Code)
}

func TestWithoutALeaseNothingIsServedOrAcknowledged(t *testing.T) {
	n := single(t)
	lease := &Lease{Until: n.now.Add(time.Second)}
	n.r.lease = lease
	n.produce(-1, 1, 7, 0, 0, "a")
	n.settle()
	require.Contains(t, n.produced, Waiter(1))
	n.now = n.now.Add(time.Second)
	require.Equal(t, codeNotLeaderOrFollower, n.r.ConsumerFetch(n.now, 0, 0, -1, false).Code)
	require.Equal(t, codeNotLeaderOrFollower, n.r.ListOffsets(n.now, -2, 0, false, false).Code)
	n.produce(-1, 2, 7, 0, 1, "b")
	n.produce(1, 3, 7, 0, 2, "c")
	_, pending := n.produce(-1, 4, 7, 0, 0, "a")
	require.True(t, pending, "a duplicate is an acknowledgement too")
	res, _ := n.produce(-1, 5, 7, 0, 9, "d")
	require.Equal(t, codeNotLeaderOrFollower, res.Code, "a successor may have what is missing here: that is not said with authority")
	n.settle()
	require.Len(t, n.produced, 1)
	lease.Until = n.now.Add(time.Second)
	n.r.Resume(n.now, &n.out)
	n.carryOut()
	require.Len(t, n.produced, 4)
}

func TestLaggingMemberIsProposedForRemoval(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	require.Equal(t, core.Never, c[0].r.Deadline(), "who has everything does not lag, however silent")
	c[0].now = c[0].now.Add(time.Minute)
	c[0].tick()
	require.Empty(t, c[0].proposed)
	c[1].now = c[0].now
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	due := c[0].r.Deadline()
	require.Less(t, due, core.Never)
	c[0].now = due
	c[0].tick()
	require.Equal(t, []*Proposal{{LeaderEpoch: 0, PartitionEpoch: 0, ISR: []Member{{ID: 1, Epoch: 1}, {ID: 2, Epoch: 2}}}}, c[0].proposed)
	require.NotContains(t, c[0].produced, Waiter(1), "until the controller has agreed, the third counts")
	c[0].verdict(0, 1, 1, 2)
	require.Contains(t, c[0].produced, Waiter(1))
	require.Equal(t, []int32{1, 2}, c[0].r.ISR())
}

func (n *node) tick() {
	n.r.Tick(n.now, 1_700_000_000_000, &n.out)
	n.carryOut()
}

// verdict answers the last proposal.
func (n *node) verdict(code int16, partitionEpoch int32, isr ...int32) {
	n.r.Proposed(n.now, n.proposed[len(n.proposed)-1], code, partitionEpoch, isr, &n.out)
	n.carryOut()
}

// What may be cut off again is not in a snapshot, for it would be lost with that (museum D06).
func TestSnapshotIsAsOfTheHighWatermark(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, 7, 0, 0, "a")
	n.settle()
	n.produce(-1, 2, 7, 0, 1, "b")
	offset, b := n.r.ProducerSnapshot()
	require.Equal(t, int64(1), offset)
	table, err := log.LoadSnapshot(b)
	require.NoError(t, err)
	for p := range table.Active() {
		require.Equal(t, log.ActiveProducer{ID: 7, LastTimestamp: 1_700_000_000_000, TxnFirst: -1}, p)
	}
	require.Equal(t, 1, table.Len())
}

func TestProducersExpireWhateverTheWallClockDoes(t *testing.T) {
	n := single(t)
	n.produce(-1, 1, 7, 0, 0, "a")
	n.settle()
	n.now = n.r.Deadline()
	n.r.Tick(n.now, 1_700_000_000_000+1000*86_400_000, &n.out) // a jump of a thousand days
	require.Equal(t, 1, n.r.Log().Producers().Len())
	for range 24 * 6 {
		n.now = n.r.Deadline()
		n.r.Tick(n.now, 1_700_000_000_000, &n.out)
	}
	require.Zero(t, n.r.Log().Producers().Len(), "after a day of silence")
	require.Equal(t, core.Never, n.r.Deadline())
}
