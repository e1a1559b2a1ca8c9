package replica

import (
	"fmt"
	"testing"
	"time"

	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// The tests of this file are named after the museum's entries: bugs that others paid for.

// leadAndWrite makes n the leader of an epoch and gives it records that nobody fetches.
func (n *node) leadAndWrite(epoch int32, values ...string) {
	n.apply(state(3, n.id, epoch, epoch, 1, 2, 3))
	for i, v := range values {
		n.produce(1, Waiter(1000*int(epoch)+i), -1, -1, -1, v)
	}
	n.settle()
}

// catchUp lets f follow leader in an epoch until it has everything. It returns how often it was cut.
func (n *node) catchUp(leader *node, epoch int32) (cuts int) {
	n.apply(state(3, leader.id, epoch, epoch, 1, 2, 3))
	for range 50 {
		before := n.end()
		ans := n.fetch(leader)
		if ans.Diverging != nil {
			cuts++
			require.LessOrEqual(n.t, n.end(), before)
		} else if len(ans.Batches) == 0 {
			return cuts
		}
	}
	require.Fail(n.t, "the follower does not catch up")
	return cuts
}

func TestA01FollowerDoesNotTruncateToItsHighWatermark(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(-1, 1, -1, -1, -1, "a")
	c[0].settle()
	c[1].fetch(c[0])
	c[2].fetch(c[0])
	c[0].answer(c[1], c[1].r.ask()) // the answers, which tell the high watermark, are lost
	c[0].answer(c[2], c[2].r.ask())
	require.Contains(t, c[0].produced, Waiter(1), "acknowledged")
	require.Zero(t, c[1].r.HighWatermark())

	c[1].crash(c[1].end(), false) // the follower bounces
	c[1].apply(state(3, 1, 1, 1, 1, 2, 3))
	c[1].settle()
	require.Equal(t, int64(1), c[1].r.LogEnd())
	c[1].apply(state(3, 2, 2, 2, 2, 3)) // the leader dies
	c[2].catchUp(c[1], 2)
	require.Equal(t, []string{"0=a"}, c[1].values())
	require.Equal(t, []string{"0=a"}, c[2].values())
	require.Equal(t, int64(1), c[1].r.HighWatermark())
}

func TestA02FollowerLooksAgainUntilTheHistoriesAgree(t *testing.T) {
	c := cluster(t, 3)
	for i := range 5 {
		c[0].replicate(fmt.Sprint("common ", i), c[1], c[2])
	}
	// Three fast failovers, each epoch with records that are not replicated.
	c[0].leadAndWrite(1, "lost", "lost", "lost", "lost", "lost", "lost", "lost")
	c[1].leadAndWrite(2, "kept 5", "kept 6", "kept 7", "kept 8", "kept 9", "kept 10", "kept 11", "kept 12", "kept 13", "kept 14")
	c[0].leadAndWrite(3, "lost", "lost", "lost")
	require.Equal(t, []log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 5}, {Epoch: 3, Start: 12}}, c[0].epochs)
	c[1].leadAndWrite(4, "kept 15")
	require.Equal(t, 2, c[0].catchUp(c[1], 4), "the leader's epoch 2 tells nothing of where epoch 1 began here")
	require.Equal(t, c[1].values(), c[0].values())
	require.Equal(t, c[1].epochs, c[0].epochs)
}

func TestA03FetchOfAnotherEpochIsRefused(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].apply(state(3, 1, 2, 2, 1, 2, 3))
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	hw := c[0].r.HighWatermark()
	for epoch, code := range map[int32]int16{1: codeFencedLeaderEpoch, 3: codeUnknownLeaderEpoch, -1: codeFencedLeaderEpoch} {
		for _, f := range c[1:] {
			ask := FetchAsk{Leader: 1, LeaderEpoch: epoch, Offset: c[0].end(), LastFetchedEpoch: -1}
			require.Equal(t, code, c[0].answer(f, ask).Code)
		}
	}
	require.Equal(t, hw, c[0].r.HighWatermark(), "it moves no progress (rule 6)")
	ask := FetchAsk{Leader: 1, LeaderEpoch: 2, Offset: 2, LastFetchedEpoch: 2}
	d := c[0].r.FollowerFetch(c[0].now, 2, 1, ask, &c[0].out)
	require.Equal(t, codeNotLeaderOrFollower, d.Code, "from an earlier life of broker 2")
	require.Equal(t, int64(-1), c[0].r.follower(2).end)
	d = c[0].r.FollowerFetch(c[0].now, 9, 9, ask, &c[0].out)
	require.Equal(t, codeUnknownLeaderEpoch, d.Code, "not a replica that this leader knows of")
}

func TestA05AnswerOfAnotherEpochHasNoEffect(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[1].leadAndWrite(1, "b")
	c[0].apply(state(3, 2, 1, 1, 1, 2, 3))
	ask, _ := c[0].r.WantFetch(c[0].now)
	late := c[1].answer(c[0], ask)
	require.Len(t, late.Batches, 1)

	c[0].leadAndWrite(2, "c") // the answer is held past an election
	c[0].fetched(ask, late)
	require.Equal(t, []string{"0=a", "1=c"}, c[0].values())

	c[0].apply(state(3, 3, 3, 3, 1, 2, 3)) // and past the next: a follower again, of another leader
	c[0].fetched(ask, FetchAnswer{Diverging: &log.EpochStart{Epoch: 0, Start: 0}, HighWatermark: 9})
	require.Equal(t, int64(2), c[0].r.LogEnd())
	require.Equal(t, int64(1), c[0].r.HighWatermark())
	require.Empty(t, c[0].queue)
}

func TestRule5DivergingAnswerChangesNothingButTheTail(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].leadAndWrite(1, "lost", "lost")
	c[1].leadAndWrite(2, "b")
	c[2].catchUp(c[1], 2)
	require.Equal(t, int64(1), c[1].r.HighWatermark())
	c[0].apply(state(3, 2, 2, 2, 1, 2, 3))
	ask, _ := c[0].r.WantFetch(c[0].now)
	require.Equal(t, int64(3), ask.Offset)
	ans := c[1].answer(c[0], ask)
	require.NotNil(t, ans.Diverging)
	require.Equal(t, int64(-1), c[1].r.follower(1).end, "no progress is taken from it: its log is another one")
	require.Equal(t, int64(1), c[1].r.HighWatermark())
	ans.HighWatermark = 2
	c[0].fetched(ask, ans)
	c[0].settle()
	require.Equal(t, int64(1), c[0].r.HighWatermark(), "nor a high watermark")
	require.Equal(t, []string{"0=a"}, c[0].values())
}

func TestA06NoJoinBelowTheStartOfTheLeadersEpoch(t *testing.T) { // rule 7
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	// b is committed by 1 and 2, of which only 1 knows; 3 has fallen behind and left.
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[0].answer(c[1], c[1].r.ask())
	require.Contains(t, c[0].produced, Waiter(1))
	require.Equal(t, int64(1), c[1].r.HighWatermark())
	c[1].apply(state(3, 2, 1, 2, 2))
	c[2].apply(state(3, 2, 1, 2, 2))
	ask, _ := c[2].r.WantFetch(c[2].now)
	c[2].fetched(ask, c[1].answer(c[2], ask))
	require.Equal(t, int64(1), c[1].r.HighWatermark())
	require.Empty(t, c[1].proposed, "3 is at the high watermark that 2 knows, but lacks b")
	c[2].settle()
	c[2].fetch(c[1])
	require.Len(t, c[1].proposed, 1, "now it has it")
	require.Equal(t, &Proposal{LeaderEpoch: 1, PartitionEpoch: 2, ISR: []Member{{ID: 2, Epoch: 2}, {ID: 3, Epoch: 3}}}, c[1].proposed[0])
}

func TestA07HighWatermarkOverTheMaximalInSyncSet(t *testing.T) { // rule 6
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].replicate("a", c[1])
	c[2].fetch(c[0])
	c[2].fetch(c[0])
	require.Len(t, c[0].proposed, 1, "3 joins; the controller's answer is delayed")
	require.Len(t, c[0].proposed[0].ISR, 3)
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.NotContains(t, c[0].produced, Waiter(1), "3 may be a member already, and be elected")
	for _, code := range []int16{codeRequestTimedOut, codeInvalidUpdate} {
		c[0].verdict(code, 0)
		require.NotContains(t, c[0].produced, Waiter(1), "that says nothing")
	}
	c[0].apply(state(3, 1, 0, 3, 1, 2))
	require.Contains(t, c[0].produced, Waiter(1), "a later state without 3: it never was, or is no longer")
}

func TestProposalIsMadeAgainWhileItsOutcomeIsOpen(t *testing.T) {
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].replicate("a", c[1])
	c[2].fetch(c[0])
	c[2].fetch(c[0])
	c[0].verdict(codeRequestTimedOut, 0)
	c[0].now = c[0].r.Deadline()
	c[0].tick()
	require.Len(t, c[0].proposed, 2)
	require.Same(t, c[0].proposed[0], c[0].proposed[1])

	const ineligible = 107
	c[0].verdict(ineligible, 0)
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.NotContains(t, c[0].produced, Waiter(1), "the first attempt may still come true")
	c[0].now = c[0].r.Deadline()
	c[0].tick()
	require.Len(t, c[0].proposed, 3)
	require.Len(t, c[0].proposed[2].ISR, 2, "a change from the same state that rules it out")
	c[0].verdict(0, 2, 1, 2)
	require.Contains(t, c[0].produced, Waiter(1))
}

func TestRefusedProposalIsForgotten(t *testing.T) {
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].replicate("a", c[1])
	c[2].fetch(c[0])
	c[2].fetch(c[0])
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.NotContains(t, c[0].produced, Waiter(1))
	c[0].verdict(107, 0)
	require.Contains(t, c[0].produced, Waiter(1), "refused at the first attempt: 3 is no member")
}

func TestA12FencedFollowerIsNotProposed(t *testing.T) { // rule 7
	c := cluster(t, 3)
	st := state(3, 1, 0, 1, 1, 2)
	st.Replicas[2].Eligible = false
	c[0].apply(st)
	c[0].replicate("a", c[1])
	c[2].fetch(c[0])
	c[2].fetch(c[0])
	require.Empty(t, c[0].proposed)
	c[0].apply(state(3, 1, 0, 2, 1, 2))
	c[2].fetch(c[0])
	require.Len(t, c[0].proposed, 1)
}

func TestA13HighWatermarkStopsBelowMinInsync(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].produce(-1, 1, -1, -1, -1, "b")
	c[0].settle()
	c[0].apply(state(3, 1, 0, 1, 1)) // the set shrinks to the leader alone
	require.Equal(t, int64(1), c[0].r.HighWatermark())
	require.NotContains(t, c[0].produced, Waiter(1))
	c[1].fetch(c[0])
	c[1].fetch(c[0])
	require.Equal(t, int64(1), c[0].r.HighWatermark(), "nor while a member is only proposed")
	c[0].verdict(0, 2, 1, 2)
	require.Equal(t, int64(2), c[0].r.HighWatermark())
	require.Contains(t, c[0].produced, Waiter(1))
}

func TestRule6ProgressOfAnEarlierBrokerEpochDoesNotCount(t *testing.T) {
	c := cluster(t, 3)
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	c[0].produce(1, 1, -1, -1, -1, "a")
	for len(c[0].queue) > 0 {
		c[0].write(false) // written, not yet durable here
	}
	c[1].fetch(c[0])
	c[0].answer(c[1], c[1].r.ask())
	st := state(3, 1, 0, 2, 1, 2)
	st.Replicas[1].Epoch = 20 // 2 has restarted, and nobody knows what it still has
	c[0].apply(st)
	c[0].sync()
	require.Zero(t, c[0].r.HighWatermark())
	ask := c[1].r.ask()
	require.Equal(t, codeNotLeaderOrFollower, c[0].r.FollowerFetch(c[0].now, 2, 2, ask, &c[0].out).Code, "an old fetch, delivered late")
	require.Zero(t, c[0].r.HighWatermark())
	c[0].r.FollowerFetch(c[0].now, 2, 20, ask, &c[0].out)
	require.Equal(t, int64(1), c[0].r.HighWatermark())
}

func TestA19LeaderRecordsItsEpochAtOnce(t *testing.T) { // rule 2
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].leadAndWrite(1, "lost")
	c[1].leadAndWrite(2)         // elections back to back, without writes
	c[1].leadAndWrite(3, "kept") // at the offset of what is lost
	require.Equal(t, []log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 1}}, c[1].epochs)
	c[2].leadAndWrite(4)
	require.Equal(t, int32(4), c[2].r.Log().Epochs().Latest(), "before any write")
	require.Equal(t, []log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 1}}, c[2].epochs)
	require.Equal(t, 1, c[0].catchUp(c[2], 4))
	require.Equal(t, []string{"0=a"}, c[0].values())
}

func TestA20TruncationAtTheEndTakesEmptyEpochs(t *testing.T) { // rule 16
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	c[0].leadAndWrite(1) // an epoch without a record
	c[1].leadAndWrite(2, "b")
	require.Equal(t, 1, c[0].catchUp(c[1], 2), "if the empty epoch stayed, the logs would diverge for ever")
	require.Equal(t, []string{"0=a", "1=b"}, c[0].values())
	require.Equal(t, c[1].epochs, c[0].epochs)
}

func TestA24FollowerTakesOnlyWhatFollowsFromWhatItAsked(t *testing.T) { // rule 4
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	batch := func(base int64, epoch int32) record.Batch {
		b := checked(t, -1, -1, -1, "x").Batch
		b.Assign(base, epoch)
		return b
	}
	c[1].apply(state(3, 1, 2, 2, 1, 2, 3))
	for _, bad := range [][]record.Batch{
		{batch(1, 3)},              // the leader has learned of its next epoch meanwhile
		{batch(0, 2)},              // not at the end
		{batch(1, 2), batch(1, 2)}, // twice
	} {
		ask, ok := c[1].r.WantFetch(c[1].now)
		require.True(t, ok)
		end := c[1].r.LogEnd()
		c[1].fetched(ask, FetchAnswer{HighWatermark: 9, Batches: bad})
		require.Equal(t, end+int64(len(bad)-1), c[1].r.LogEnd())
		_, ok = c[1].r.WantFetch(c[1].now)
		require.False(t, ok, "not again at once")
		c[1].settle()
		c[1].now = c[1].now.Add(time.Second)
		c[1].tick()
	}
	ask, _ := c[1].r.WantFetch(c[1].now)
	c[1].fetched(ask, FetchAnswer{Batches: []record.Batch{batch(2, 0)}})
	require.Equal(t, int64(2), c[1].r.LogEnd(), "of an epoch before the last")
}

func TestA29BetweenHighWatermarkAndLogEndThereIsNothingYet(t *testing.T) {
	c := cluster(t, 3)
	c[0].replicate("a", c[1], c[2])
	for range 3 {
		c[0].produce(1, 1, -1, -1, -1, "b")
	}
	for offset := int64(1); offset <= 4; offset++ {
		d := c[0].r.ConsumerFetch(c[0].now, offset, 0, -1, false)
		require.Zero(t, d.Code)
		require.Equal(t, int64(1), d.Limit)
		require.Zero(t, d.Bytes)
	}
	require.Equal(t, codeOffsetOutOfRange, c[0].r.ConsumerFetch(c[0].now, 5, 0, -1, false).Code)
}

func TestD01FollowerKnowsTheProducersToo(t *testing.T) { // rule 18
	c := cluster(t, 3)
	c[0].produce(-1, 1, 7, 0, 0, "a")
	c[0].produce(-1, 2, 7, 0, 1, "b")
	c[0].replicate("c", c[1], c[2])
	c[1].apply(state(3, 2, 1, 1, 2, 3)) // the acknowledgement is lost, and the leader dies
	c[2].catchUp(c[1], 1)
	res, pending := c[1].produce(-1, 3, 7, 0, 1, "b")
	require.False(t, pending)
	require.Equal(t, int64(1), res.BaseOffset, "the producer retries at the new leader")
	require.Equal(t, []string{"0=a", "1=b", "2=c"}, c[1].values())
	c[2].crash(c[2].end(), false)
	c[2].apply(state(3, 3, 2, 2, 2, 3))
	res, _ = c[2].produce(0, 4, 7, 0, 0, "a")
	require.Equal(t, int64(0), res.BaseOffset, "also after a restart")
}

func TestD04TruncationTakesTheProducerTableWithIt(t *testing.T) { // rule 16
	c := cluster(t, 3)
	c[0].produce(-1, 1, 7, 0, 0, "a")
	c[0].replicate("x", c[1], c[2])
	c[0].produce(-1, 2, 7, 0, 1, "b") // not replicated
	c[0].settle()
	c[1].leadAndWrite(1, "y")
	require.Equal(t, 1, c[0].catchUp(c[1], 1))
	c[0].apply(state(3, 1, 2, 2, 1, 2, 3))
	_, pending := c[0].produce(-1, 3, 7, 0, 1, "b")
	require.True(t, pending)
	c[0].settle()
	require.Equal(t, []string{"0=a", "1=x", "2=y", "3=b"}, c[0].values(), "what was cut off is no duplicate")
}

// Deeper than the table can undo, it is read from the log again.
func TestD04UncleanTruncationRebuildsTheProducerTable(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(-1, 1, 7, 0, 0, "a")
	c[0].replicate("x", c[1])
	for i := range int32(6) {
		c[0].produce(-1, Waiter(10+i), 7, 0, i+1, "b")
	}
	c[0].settle()
	c[0].apply(state(3, 1, 0, 1, 1, 2))
	for range 4 {
		c[1].fetch(c[0])
	}
	require.Equal(t, int64(8), c[0].r.HighWatermark(), "committed by 1 and 2")
	c[2].fetch(c[0])
	c[2].leadAndWrite(1, "y") // an unclean election
	require.Equal(t, []string{"0=a", "1=x", "2=y"}, c[2].values())
	c[0].apply(state(3, 3, 1, 1, 3))
	c[0].settle()
	ask, _ := c[0].r.WantFetch(c[0].now)
	c[0].fetched(ask, c[2].answer(c[0], ask))
	for len(c[0].queue) > 0 && !c[0].queue[0].read.Set {
		c[0].write(false)
	}
	_, ok := c[0].r.WantFetch(c[0].now)
	require.False(t, ok, "not before the table is right again")
	require.Contains(t, c[0].lines[len(c[0].lines)-1].Msg, "committed records are lost")
	c[0].catchUp(c[2], 1)
	c[0].apply(state(3, 1, 2, 2, 1, 3))
	res, _ := c[0].produce(0, 20, 7, 0, 0, "a")
	require.Equal(t, int64(0), res.BaseOffset)
	res, _ = c[0].produce(0, 21, 7, 0, 2, "b")
	require.Equal(t, int16(45), res.Code)
	res, _ = c[0].produce(0, 22, 7, 0, 1, "b")
	require.Equal(t, int64(3), res.BaseOffset)
}

func TestRule9RestartedBrokerDoesNotLeadTheSameEpochAgain(t *testing.T) {
	c := cluster(t, 3)
	c[0].produce(1, 1, -1, -1, -1, "a")
	for len(c[0].queue) > 0 {
		c[0].write(false)
	}
	c[1].fetch(c[0]) // fetched before it was durable at the leader
	c[0].crash(0, false)
	c[0].apply(state(3, 1, 0, 0, 1, 2, 3))
	require.NotEqual(t, Leader, c[0].r.Role(), "it would give offset 0 of epoch 0 to another record")
	c[0].apply(state(3, 1, 1, 1, 1, 2, 3))
	require.Equal(t, Leader, c[0].r.Role())

	n := single(t)
	n.produce(1, 1, -1, -1, -1, "a")
	n.settle()
	n.crash(1, false)
	n.apply(state(1, 1, 0, 0, 1))
	require.Equal(t, Leader, n.r.Role(), "alone, there is no other copy to differ from")
}
