package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// statics makes a stable group of two static members.
func (w *world) statics() (leader, follower *classicMember) {
	ms := []*classicMember{w.member("g"), w.member("g")}
	ms[0].instance, ms[1].instance = ptr("one"), ptr("two")
	w.settleClassic(ms)
	if ms[0].leader {
		return ms[0], ms[1]
	}
	return ms[1], ms[0]
}

func TestStaticMemberReturns(t *testing.T) {
	for _, version := range []int16{5, 8, 9} {
		w := newWorld(t)
		for _, leads := range []bool{false, true} {
			a, b := w.statics()
			m, other := b, a
			if leads {
				m, other = a, b
			}
			oldID, generation := m.id, m.generation
			m.id, m.version = "", version
			s := kmsg.NewConsumerMemberMetadata() // the same topics, though not the same bytes
			s.Version, s.Topics = 3, []string{"t"}
			m.metadata = s.AppendTo(nil)
			resp := m.join().joined()
			require.Zero(t, resp.ErrorCode)
			require.Equal(t, generation, m.generation, "nobody has noticed")
			require.NotEqual(t, oldID, m.id)
			require.Zero(t, other.heartbeat())
			require.Equal(t, leads && version >= 9, m.leader)
			require.Equal(t, leads && version >= 9, m.skip)
			m.leader = false // it is not to assign
			require.Zero(t, m.sync().synced())
			require.NotEmpty(t, m.assignment)

			stale := *m
			stale.id = oldID
			require.Equal(t, errFencedInstanceID, stale.heartbeat())
			require.Equal(t, errFencedInstanceID, stale.commit(1))
			require.Equal(t, errFencedInstanceID, stale.join().joined().ErrorCode)
			require.Equal(t, errFencedInstanceID, stale.leave())
			w.failover(0)
			require.Zero(t, m.heartbeat())
			require.Equal(t, errFencedInstanceID, stale.heartbeat())
			m.version = 9
			require.Zero(t, a.leave())
			b.leave()
		}
	}
}

func TestStaticMemberReturnsChanged(t *testing.T) {
	w := newWorld(t)
	a, b := w.statics()
	b.id, b.metadata = "", subscription("t", "u")
	b.join()
	require.Equal(t, errRebalanceInProgress, a.heartbeat())
	a.join()
	require.Zero(t, b.joined().ErrorCode)
	require.Zero(t, a.joined().ErrorCode)
	require.EqualValues(t, 3, a.generation)
}

func TestStaticReturnThatIsNotWritten(t *testing.T) {
	w := newWorld(t)
	_, b := w.statics()
	old := *b
	w.hold = true
	b.id = ""
	b.join()
	w.failOne(6)
	require.Equal(t, errNotCoordinator, answerTo[*kmsg.JoinGroupResponse](w, b.token).ErrorCode)
	w.release()
	require.Zero(t, old.heartbeat(), "nothing has changed")
}

func TestStaticMembersKeepTheirPlace(t *testing.T) {
	w := newWorld(t)
	a, b := w.statics()
	a.session, b.session = 10*time.Second, 10*time.Second
	b.metadata = subscription("u")
	b.join() // a is away
	w.sleep(11 * time.Second)
	require.Zero(t, b.joined().ErrorCode)
	require.Len(t, w.describe("g").Members, 1, "its session has ended meanwhile")

	w = newWorld(t)
	a, b = w.statics()
	b.rebalance, a.rebalance = 5*time.Second, 5*time.Second
	w.settleClassic([]*classicMember{a, b})
	b.metadata = subscription("u")
	b.join()
	w.sleep(6 * time.Second)
	require.Zero(t, b.joined().ErrorCode)
	require.Len(t, w.describe("g").Members, 2, "is away no longer than its session timeout")
	require.True(t, b.leader)
	require.Len(t, b.others, 2)
	require.Zero(t, b.sync().synced())
	require.Zero(t, a.leave())
}

func TestAllStaticMembersAway(t *testing.T) {
	w := newWorld(t)
	ms := []*classicMember{w.member("g"), w.member("g"), w.member("g")}
	ms[0].instance, ms[1].instance = ptr("one"), ptr("two")
	for _, m := range ms {
		m.rebalance = 7 * time.Second
	}
	w.settleClassic(ms)
	require.Zero(t, ms[2].leave()) // a rebalance that none of the others joins
	w.sleep(8 * time.Second)
	require.Equal(t, "PreparingRebalance", w.state("g"))
	require.Equal(t, errRebalanceInProgress, ms[0].heartbeat())
	require.Zero(t, func() int16 { ms[0].join(); w.sleep(7 * time.Second); return ms[0].joined().ErrorCode }())
}

// A static member of KIP-848 that leaves for now has given up all, also what it had been told to: its place is its own for a session.
func TestStaticMemberLeavesWhileItRevokes(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t"), w.consumer("g", "t")
	a.instance, a.timeout = ptr("i"), 5*time.Second
	require.Zero(t, a.beat())
	a.slow = true
	require.Zero(t, b.beat())
	require.Zero(t, a.beat()) // is told to give up some
	require.Zero(t, a.leave(-2))
	for range 6 {
		w.sleep(6 * time.Second)
		require.Zero(t, b.beat())
	}
	require.Len(t, w.describeConsumer("g").Members, 2)
	w.sleep(10 * time.Second)
	require.Len(t, w.describeConsumer("g").Members, 1)
}
