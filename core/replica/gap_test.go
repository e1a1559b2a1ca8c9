package replica

import (
	"errors"
	"slices"
	"testing"

	"lockstep/core"

	"github.com/stretchr/testify/require"
)

// A follower copies what compaction has left of its leader's log, gaps and all, tells its own log so, and a replica that departed in
// the gap is cut back to where it begins.
func TestAFollowerCopiesGaps(t *testing.T) {
	c := cluster(t, 3)
	leader, copied, departed := c[0], c[1], c[2]
	for i, v := range []string{"a", "b", "c"} {
		leader.produce(1, Waiter(i), -1, -1, -1, v)
	}
	leader.settle()
	departed.catchUp(leader, 1)
	departed.leadAndWrite(2, "never", "committed") // offsets 3 and 4, in epoch 2
	leader.leadAndWrite(3, "x", "y", "z", "last")  // 3 to 6
	leader.batches = slices.Delete(leader.batches, 2, 6)

	copied.apply(state(3, leader.id, 3, 3, 1, 2, 3))
	copied.settle()
	gap, refused := false, core.Time(0)
	for copied.end() < 7 {
		ask, ok := copied.r.WantFetch(copied.now)
		require.True(t, ok)
		ans := leader.answer(copied, ask)
		if ans.Limit = 7; copied.end() == 2 && refused == 0 { // a bit of a base offset has changed
			ans.Limit = 6
			copied.fetched(ask, ans)
			require.EqualValues(t, 2, copied.end())
			refused = copied.r.Deadline()
			copied.now = refused
			copied.tick()
			continue
		}
		copied.r.Fetched(copied.now, 1_700_000_000_000, ask, ans, &copied.out)
		gap = gap || copied.out.Gap
		copied.carryOut()
		copied.settle()
	}
	require.True(t, gap)
	require.Equal(t, []string{"0=a", "1=b", "6=last"}, copied.values())

	copied.leadAndWrite(4, "more")
	require.Positive(t, departed.catchUp(copied, 4))
	require.Equal(t, copied.values(), departed.values(), "nothing that was never committed stays")
}

// What is compacted ends at the high watermark, and nothing is while the table of producers is rebuilt.
func TestCompactLimit(t *testing.T) {
	c := cluster(t, 3)
	leader := c[0]
	_, _, ok := leader.r.CompactLimit()
	require.False(t, ok, "there is nothing")
	leader.produce(-1, 1, 8, 0, 0, "a")
	leader.settle()
	_, _, ok = leader.r.CompactLimit()
	require.False(t, ok, "nothing is committed")
	for _, f := range c[1:] {
		f.fetch(leader)
		f.fetch(leader)
	}
	leader.produce(-1, 2, 5, 0, 0, "b")
	leader.settle()
	limit, producers, ok := leader.r.CompactLimit()
	require.True(t, ok)
	require.EqualValues(t, 1, limit)
	require.Equal(t, []int64{5, 8}, producers)
	leader.r.rebuilding = true
	res, pending := leader.r.DeleteRecords(leader.now, 1, 9, &leader.out)
	require.False(t, pending)
	require.Equal(t, codeStorage, res.Code, "nor is anything deleted that has not been read again")
	_, _, ok = leader.r.CompactLimit()
	require.False(t, ok)
	leader.r.rebuilding = false
	leader.r.Fail(leader.now, errNoDisk, &leader.out)
	_, _, ok = leader.r.CompactLimit()
	require.False(t, ok)
}

// What every replica has is known to the leader as followers fetch, and to them by its answers. One that is away holds it back, also
// out of the in-sync set, and so does one that a new leader has not heard of.
func TestCovered(t *testing.T) {
	c := cluster(t, 3)
	leader := c[0]
	fetchAll := func(from *node, followers ...*node) {
		for range 3 {
			for _, f := range followers {
				f.fetch(from)
			}
		}
	}
	leader.produce(-1, 1, 8, 0, 0, "a")
	leader.settle()
	require.Zero(t, leader.r.Covered(), "nobody has fetched it")
	fetchAll(leader, c[1], c[2])
	require.EqualValues(t, 1, leader.r.Covered())
	require.EqualValues(t, 1, c[1].r.Covered(), "the answer said so")

	leader.apply(state(3, 1, 0, 1, 1, 2))
	leader.produce(-1, 2, 8, 0, 1, "b")
	leader.settle()
	fetchAll(leader, c[1])
	require.EqualValues(t, 2, leader.r.HighWatermark())
	require.EqualValues(t, 1, leader.r.Covered(), "the third has not got it, though it is committed")
	require.EqualValues(t, 1, c[1].r.Covered())
	fetchAll(leader, c[2])
	require.EqualValues(t, 2, leader.r.Covered())
}

var errNoDisk = errors.New("no disk")
