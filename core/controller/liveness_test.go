package controller

import (
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *cluster) peerClosed(id int32) {
	c.run(func(ctl *Controller, out *Out) { ctl.PeerClosed(c.now, id, out) })
	c.commit()
}

// fencedAfter lets time pass while the others live and returns how long the broker was silent when it was fenced.
func (c *cluster) fencedAfter(id int32, others ...int32) time.Duration {
	c.t.Helper()
	start := c.now
	for !c.image().Broker(id).Fenced {
		c.live(10*time.Millisecond, others...)
		if c.now.Sub(start) > time.Minute {
			c.t.Fatalf("never fenced")
		}
	}
	return c.now.Sub(start)
}

// Section 5: a silent broker is fenced after its session, one whose connection closed as soon as its lease has run out, never before.
func TestFencingTimes(t *testing.T) {
	c := threeBrokers(t)
	c.heartbeat(1)
	require.InDelta(t, 2*time.Second, c.fencedAfter(1, 2, 3), float64(20*time.Millisecond))

	c.heartbeat(2)
	c.peerClosed(2)
	require.False(t, c.image().Broker(2).Fenced, "it holds a lease")
	silent := c.fencedAfter(2, 1, 3)
	require.GreaterOrEqual(t, silent, 550*time.Millisecond, "the lease, and a tenth for clocks that differ")
	require.Less(t, silent, 600*time.Millisecond)

	c.heartbeat(3)
	c.peerClosed(3)
	c.tick(300 * time.Millisecond)
	c.heartbeat(3) // it has another connection
	c.live(time.Second, 1, 2)
	require.False(t, c.image().Broker(3).Fenced)
}

// A broker that froze sends its first heartbeat before it has read what it missed: with a lease it would serve as the
// leader that it was, and stale reads with that (found by jepsen with SIGSTOP).
func TestFencedBrokerGetsNoLeaseBeforeItKnowsWhatItLost(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("orders", assigned([]int32{1, 2, 3}))
	c.heartbeat(1)
	before := c.beat(1)
	c.fencedAfter(1, 2, 3)
	require.NotEqual(t, int32(1), c.image().Partition(p).Leader)

	for range 3 {
		r := c.ask(before).(*kmsg.BrokerHeartbeatResponse)
		require.True(t, r.IsFenced, "it takes itself for the leader still")
		require.True(t, r.IsCaughtUp, "it does know its registration")
	}
	c.depose(1, 0) // nor from another controller
	require.True(t, c.ask(before).(*kmsg.BrokerHeartbeatResponse).IsFenced)
	require.False(t, c.heartbeat(1).IsFenced)
}

// A new controller waits a full lease out before it fences anybody: the one before may have granted it a moment ago.
func TestNewControllerWaitsALease(t *testing.T) {
	c := threeBrokers(t)
	c.live(time.Second, 1, 2, 3)
	c.tick(1800 * time.Millisecond) // nearly a session of silence
	var out Out
	c.members[1].PeerClosed(c.now, 2, &out) // the next controller sees 2 die before it leads
	c.depose(1, 0)
	start := c.now
	c.tick(500 * time.Millisecond)
	for id := range int32(3) {
		require.False(t, c.image().Broker(id+1).Fenced)
	}
	c.tick(50 * time.Millisecond)
	require.True(t, c.image().Broker(2).Fenced, "its connection closed, and its lease is out")
	require.False(t, c.image().Broker(1).Fenced)
	c.tick(start.Add(1999 * time.Millisecond).Sub(c.now))
	require.False(t, c.image().Broker(1).Fenced)
	c.tick(10 * time.Millisecond)
	require.True(t, c.image().Broker(1).Fenced, "a session after it began")
}

// A controller that did not run when it should have fenced somebody reads its mail first.
func TestPausedControllerReadsItsMailFirst(t *testing.T) {
	c := threeBrokers(t)
	c.now = c.now.Add(5 * time.Second)
	c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	c.commit()
	for id := range int32(3) {
		require.False(t, c.image().Broker(id+1).Fenced)
		require.False(t, c.heartbeat(id+1).IsFenced)
	}
	c.now = c.now.Add(5 * time.Second)
	c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	c.live(300*time.Millisecond, 1, 2)
	require.True(t, c.image().Broker(3).Fenced)
	require.False(t, c.image().Broker(1).Fenced)
}

// A broker that is deaf to the metadata log gets no lease: it would believe for ever that it leads.
func TestDeafBrokerLosesItsLease(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{3, 1}))
	deaf := int64(c.done - 1)
	c.live(time.Second, 1, 2)
	c.create("u")
	granted := core.Time(0)
	start := c.now
	for !c.image().Broker(3).Fenced {
		r := c.beat(3)
		r.CurrentMetadataOffset = deaf
		if resp := c.ask(r).(*kmsg.BrokerHeartbeatResponse); !resp.IsFenced {
			granted = c.now
		}
		c.live(50*time.Millisecond, 1, 2)
		require.Less(t, c.now.Sub(start), 10*time.Second)
	}
	require.Greater(t, c.now.Sub(granted), 550*time.Millisecond)
	require.Equal(t, "leader 1 isr [1]", c.state(p))
	require.Less(t, c.now.Sub(start), 5*time.Second, "well within replica.lag.time.max.ms")
}

func TestRegistration(t *testing.T) {
	c := newCluster(t, 1, nil)
	first := c.register(registrationOf(1, 1))
	require.Zero(t, first.ErrorCode)
	require.True(t, c.image().Broker(1).Fenced)
	again := c.register(registrationOf(1, 1))
	require.Equal(t, first.BrokerEpoch, again.BrokerEpoch, "an answer was lost; it is the same life")

	// Rule 9: another life is another epoch, and waits until the earlier one surely holds no lease.
	require.False(t, c.heartbeat(1).IsFenced)
	require.Equal(t, codeDuplicateRegistration, c.register(registrationOf(1, 2)).ErrorCode)
	c.tick(549 * time.Millisecond)
	require.Equal(t, codeDuplicateRegistration, c.register(registrationOf(1, 2)).ErrorCode)
	c.tick(2 * time.Millisecond)
	second := c.register(registrationOf(1, 2))
	require.Zero(t, second.ErrorCode)
	require.Greater(t, second.BrokerEpoch, first.BrokerEpoch)
	require.True(t, c.image().Broker(1).Fenced)

	stale := c.beat(1)
	stale.BrokerEpoch = first.BrokerEpoch
	require.Equal(t, codeStaleBrokerEpoch, c.ask(stale).(*kmsg.BrokerHeartbeatResponse).ErrorCode)
	stale.BrokerID = 9
	require.Equal(t, codeBrokerIDNotRegistered, c.ask(stale).(*kmsg.BrokerHeartbeatResponse).ErrorCode)

	// One that is starting and fenced is alive too; but a closed connection says that it is gone, and it has no lease.
	c.heartbeat(1)
	fence := c.beat(1)
	fence.WantFence = true
	require.True(t, c.ask(fence).(*kmsg.BrokerHeartbeatResponse).IsFenced)
	require.Equal(t, codeDuplicateRegistration, c.register(registrationOf(1, 3)).ErrorCode)
	c.peerClosed(1)
	require.Zero(t, c.register(registrationOf(1, 3)).ErrorCode)
}

func TestRegistrationRefusals(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.start(1)
	edit := func(f func(*kmsg.BrokerRegistrationRequest)) int16 {
		r := registrationOf(2, 1)
		f(r)
		resp := c.register(r)
		require.True(t, resp.ErrorCode == 0 || resp.BrokerEpoch == -1)
		return resp.ErrorCode
	}
	type req = *kmsg.BrokerRegistrationRequest
	require.Equal(t, codeInconsistentClusterID, edit(func(r req) { r.ClusterID = "another" }))
	require.Equal(t, codeInvalidRequest, edit(func(r req) { r.BrokerID = -1 }))
	require.Equal(t, codeInvalidRequest, edit(func(r req) { r.IncarnationID = [16]byte{} }))
	require.Equal(t, codeInvalidRegistration, edit(func(r req) { r.Listeners = nil }))
	require.Equal(t, codeInvalidRegistration, edit(func(r req) { r.LogDirs = registrationOf(1, 1).LogDirs }), "a copied data directory")
	require.Equal(t, codeUnsupportedVersion, edit(func(r req) {
		f := kmsg.NewBrokerRegistrationRequestFeature()
		f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = MetadataFeature, MetadataLevel+1, MetadataLevel+2
		r.Features = append(r.Features, f)
	}))
	require.Equal(t, codeDuplicateRegistration, edit(func(r req) { r.BrokerID = 100 }), "the controller's own id")
	require.Zero(t, edit(func(r req) { r.ClusterID = c.image().ClusterID() }))
}

// TestRefusedRegistrationsAreLoggedOnce: a broker that is refused asks again many times a second, maybe for days.
func TestRefusedRegistrationsAreLoggedOnce(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.start(1)
	refused := func() (n int) {
		for _, l := range c.lines {
			if l.Msg == "registration of a broker refused" {
				n++
			}
		}
		return n
	}
	r := registrationOf(2, 1)
	another := registrationOf(2, 1)
	another.ClusterID = "another"
	for range 3 {
		require.NotZero(t, c.register(another).ErrorCode)
	}
	require.Equal(t, 1, refused())
	another.IncarnationID = [16]byte{}
	another.ClusterID = ""
	require.NotZero(t, c.register(another).ErrorCode)
	require.Equal(t, 2, refused(), "for another reason")
	require.Zero(t, c.register(r).ErrorCode)
	require.NotZero(t, c.register(another).ErrorCode)
	require.Equal(t, 3, refused(), "it was in meanwhile")
}

// The broker that runs the controller is the newest life of its id and need not wait for its own earlier lease.
func TestControllersOwnBrokerRegistersAtOnce(t *testing.T) {
	c := newCluster(t, 2, nil)
	for i := range c.members {
		c.members[i].settings.Incarnation = registrationOf(101, byte(i)).IncarnationID
	}
	c.start(1)
	c.epochs[101] = c.register(registrationOf(101, 7)).BrokerEpoch // an earlier life of the second member
	c.heartbeat(101)
	c.depose(1, 0)
	require.Equal(t, codeDuplicateRegistration, c.register(registrationOf(101, 8)).ErrorCode, "somebody else with its id")
	require.Zero(t, c.register(registrationOf(101, 1)).ErrorCode)
}

// A controlled stop: leaderships move at once; the broker stays in sync until it and the others have learned that; then it is
// fenced and may go.
func TestControlledShutdown(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}))
	alone := c.create("u", assigned([]int32{1}))
	c.live(100*time.Millisecond, 1, 2, 3)
	stop := func() *kmsg.BrokerHeartbeatResponse {
		r := c.beat(1)
		r.WantShutdown = true
		return c.ask(r).(*kmsg.BrokerHeartbeatResponse)
	}
	behind := c.beat(1)
	behind.WantShutdown = true
	require.False(t, stop().ShouldShutdown)
	require.Equal(t, "leader 2 isr [1 2]", c.state(p), "in sync still: what it reads cannot be stale while nothing is committed without it")
	require.Equal(t, "leader -1 isr [1]", c.state(alone))
	require.True(t, c.image().Broker(1).Stopping)
	require.False(t, stop().ShouldShutdown, "the others do not know yet")
	c.heartbeat(2)
	require.False(t, stop().ShouldShutdown)
	c.heartbeat(3)
	require.False(t, c.ask(behind).(*kmsg.BrokerHeartbeatResponse).ShouldShutdown, "it does not know yet that it leads no more")
	last := stop()
	require.True(t, last.ShouldShutdown)
	require.True(t, last.IsFenced)
	require.Equal(t, "leader 2 isr [2]", c.state(p))
	require.Equal(t, "leader -1 isr [] elr [1]", c.state(alone))
	require.True(t, stop().ShouldShutdown, "asked again, as when that answer is lost")

	back := registrationOf(1, 2)
	back.PreviousBrokerEpoch = c.epochs[1]
	c.register(back)
	require.False(t, c.heartbeat(1).IsFenced)
	require.False(t, c.image().Broker(1).Stopping)
	require.Equal(t, "leader 1 isr [1]", c.state(alone))
}

// A stopping broker does not wait for ever for one that is deaf.
func TestControlledShutdownWithADeafPeer(t *testing.T) {
	c := threeBrokers(t)
	deaf := c.beat(3)
	for start := c.now; ; {
		r := c.beat(1)
		r.WantShutdown = true
		if c.ask(r).(*kmsg.BrokerHeartbeatResponse).ShouldShutdown {
			break
		}
		c.ask(deaf)
		c.live(100*time.Millisecond, 2)
		require.Less(t, c.now.Sub(start), 3*time.Second)
	}
}

// A broker is unfenced only when it has caught up with its own registration, and wants to be.
func TestUnfencingWaitsForCatchingUp(t *testing.T) {
	c := newCluster(t, 1, nil)
	before := int64(c.done - 1)
	c.register(registrationOf(1, 1))
	r := c.beat(1)
	r.CurrentMetadataOffset = before
	resp := c.ask(r).(*kmsg.BrokerHeartbeatResponse)
	require.True(t, resp.IsFenced)
	require.False(t, resp.IsCaughtUp)
	r = c.beat(1)
	r.WantFence = true
	resp = c.ask(r).(*kmsg.BrokerHeartbeatResponse)
	require.True(t, resp.IsFenced)
	require.True(t, resp.IsCaughtUp)
	require.False(t, c.heartbeat(1).IsFenced)
}

// A heartbeat grants no lease on the strength of an unfencing that is not committed (rule 12, museum B30).
func TestLeaseWaitsForTheCommit(t *testing.T) {
	c := newCluster(t, 2, nil)
	c.register(registrationOf(1, 1))
	first, second := c.send(c.beat(1)), c.send(c.beat(1))
	require.Nil(t, c.answers[first])
	require.Nil(t, c.answers[second])
	c.depose(1, 0)
	for _, token := range []Token{first, second} {
		resp := c.answers[token].(*kmsg.BrokerHeartbeatResponse)
		require.Equal(t, codeNotController, resp.ErrorCode)
		require.True(t, resp.IsFenced)
	}
}

// Rule 13: a broker whose disk failed gives up what it leads there.
func TestFailedDiskFences(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}))
	r := c.beat(1)
	r.OfflineLogDirs = c.image().Broker(1).LogDirs
	require.True(t, c.ask(r).(*kmsg.BrokerHeartbeatResponse).IsFenced)
	require.Equal(t, "leader 2 isr [2]", c.state(p))
	require.True(t, c.ask(r).(*kmsg.BrokerHeartbeatResponse).IsFenced, "and stays so")
}

func TestUnregister(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1}))
	r := kmsg.NewPtrUnregisterBrokerRequest()
	r.BrokerID = 1
	require.Equal(t, codeInvalidRequest, c.ask(r).(*kmsg.UnregisterBrokerResponse).ErrorCode)
	c.live(3*time.Second, 2, 3)
	last := c.image().Broker(1).Epoch
	require.Zero(t, c.ask(r).(*kmsg.UnregisterBrokerResponse).ErrorCode)
	require.Nil(t, c.image().Broker(1))
	require.Equal(t, codeBrokerIDNotRegistered, c.ask(r).(*kmsg.UnregisterBrokerResponse).ErrorCode)
	c.register(registrationOf(1, 2))
	require.Greater(t, c.epochs[1], last, "epochs are never used again")
	c.heartbeat(1)
	require.Equal(t, "leader -1 isr []", c.state(p), "nothing is known of its disk")
}

// While a stopping broker is the only one in sync, nobody from outside the set takes over before it is fenced: it may hold a
// lease and answer reads, and the new leader could commit without it.
func TestStoppingBrokerKeepsItsPartitionUntilItIsFenced(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}), configured("min.insync.replicas", "2"))
	c.alter(c.proposal(p, 1))
	require.Equal(t, "leader 1 isr [1] elr [2 3]", c.state(p))
	stop := func() bool {
		r := c.beat(1)
		r.WantShutdown = true
		return c.ask(r).(*kmsg.BrokerHeartbeatResponse).ShouldShutdown
	}
	require.False(t, stop())
	require.Equal(t, "leader -1 isr [1] elr [2 3]", c.state(p))
	c.heartbeat(2)
	c.heartbeat(3)
	require.True(t, stop())
	require.Equal(t, "leader 2 isr [2] elr [3 1]", c.state(p))
}

// A former leader that is deaf to the metadata log, for its disk is slow, has its lease for a session, and answers reads. Its successor
// must not commit without it in that time (rule 6): it stays in sync until it knows, or is fenced. So does one of which a new controller,
// which began with a snapshot, has not heard yet.
func TestFormerLeaderThatDoesNotKnowStaysInSync(t *testing.T) {
	setup := func(t *testing.T) (*cluster, core.Partition, *kmsg.BrokerHeartbeatRequest) {
		c := threeBrokers(t)
		p := c.create("t", assigned([]int32{1, 2, 3}), configured("min.insync.replicas", "2"))
		require.Zero(t, c.alter(c.proposal(p, 1, 2)).ErrorCode, "nobody led before")
		for _, id := range []int32{1, 2, 3} {
			c.heartbeat(id)
		}
		require.Zero(t, c.alter(c.proposal(p, 1, 2, 3)).ErrorCode)
		deaf := c.beat(1)
		deaf.WantShutdown = true
		require.False(t, c.ask(deaf).(*kmsg.BrokerHeartbeatResponse).IsFenced)
		require.Equal(t, "leader 2 isr [1 2 3]", c.state(p))
		require.Equal(t, codeRequestTimedOut, c.alter(c.proposal(p, 2, 3)).ErrorCode)
		require.False(t, c.ask(deaf).(*kmsg.BrokerHeartbeatResponse).IsFenced, "it has its lease")
		require.Equal(t, codeRequestTimedOut, c.alter(c.proposal(p, 2, 3)).ErrorCode)
		return c, p, deaf
	}
	t.Run("it learns", func(t *testing.T) {
		c, p, _ := setup(t)
		c.heartbeat(1)
		require.Zero(t, c.alter(c.proposal(p, 2, 3)).ErrorCode)
		require.Equal(t, "leader 2 isr [2 3]", c.state(p))
	})
	t.Run("it is fenced", func(t *testing.T) {
		c, p, deaf := setup(t)
		for !c.image().Broker(1).Fenced {
			c.ask(deaf)
			c.live(100*time.Millisecond, 2, 3)
		}
		require.Equal(t, "leader 2 isr [2 3]", c.state(p))
	})
	t.Run("a snapshot", func(t *testing.T) {
		c, p, deaf := setup(t)
		c.image().SetNext(c.image().Next())
		c.image().Partition(p).decided = 0
		require.Equal(t, codeRequestTimedOut, c.alter(c.proposal(p, 2, 3)).ErrorCode)
		deaf.CurrentMetadataOffset = int64(c.done - 1)
		c.ask(deaf)
		require.Zero(t, c.alter(c.proposal(p, 2, 3)).ErrorCode)
	})
}

// A controller that hears no majority does not ask for ticks without end.
func TestNoBusyLoopWithoutMajority(t *testing.T) {
	c := threeBrokers(t)
	c.active().HearsMajority(c.now.Add(-AuthoritySlack))
	ticks := 0
	for end := c.now.Add(5 * time.Second); c.now < end; ticks++ {
		c.now = max(c.now, c.active().Deadline())
		c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	}
	require.Less(t, ticks, 100)
	require.False(t, c.image().Broker(1).Fenced)
	c.active().HearsMajority(core.Never)
	c.tick(300 * time.Millisecond)
	require.True(t, c.image().Broker(1).Fenced)
}

// A controller whose metadata log takes nothing tries again after a while, and not at once for ever.
func TestRefusedFencingIsNotRepeatedAtOnce(t *testing.T) {
	c := threeBrokers(t)
	active := c.members[0]
	var out Out
	for range 100 {
		if c.now = max(c.now, active.Deadline()); len(out.Records) > 0 {
			break
		}
		out = Out{}
		active.Tick(c.now, &out)
	}
	require.NotEmpty(t, out.Records, "nobody is heard, so somebody is fenced")
	active.Refused(c.now, &out)
	require.Greater(t, active.Deadline(), c.now)
}
