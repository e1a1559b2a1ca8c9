package controller

import (
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func threeBrokers(t *testing.T) *cluster {
	c := newCluster(t, 2, nil)
	c.start(1, 2, 3)
	return c
}

// A leader that goes silent is replaced from the in-sync set, in the order of assignment, and what it asks for afterwards
// is refused (rules 7 and 8).
func TestLeaderFailsOverToTheInSyncSet(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}))
	require.Equal(t, "leader 1 isr [1 2 3]", c.state(p))
	old := c.proposal(p, 1, 2)
	c.live(3*time.Second, 2, 3)
	require.Equal(t, "leader 2 isr [2 3]", c.state(p))
	require.True(t, c.image().Broker(1).Fenced)
	require.EqualValues(t, 1, c.image().Partition(p).LeaderEpoch)
	require.Equal(t, codeFencedLeaderEpoch, c.alter(old).ErrorCode)
}

// Museum A12: a broker that is fenced, stopping, or restarted since it caught up does not enter the in-sync set.
func TestIneligibleBrokersStayOutOfTheInSyncSet(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}))
	require.Zero(t, c.alter(c.proposal(p, 1, 2)).ErrorCode, "3 lags")

	t.Run("fenced", func(t *testing.T) {
		c.live(3*time.Second, 1, 2)
		require.True(t, c.image().Broker(3).Fenced)
		require.Equal(t, codeIneligibleReplica, c.alter(c.proposal(p, 1, 2, 3)).ErrorCode)
		require.False(t, c.heartbeat(3).IsFenced)
	})
	t.Run("stopping", func(t *testing.T) {
		stop := c.beat(3)
		stop.WantShutdown = true
		c.ask(stop)
		require.True(t, c.image().Broker(3).Stopping)
		require.False(t, c.image().Broker(3).Fenced)
		require.Equal(t, codeIneligibleReplica, c.alter(c.proposal(p, 1, 2, 3)).ErrorCode)
	})
	t.Run("restarted", func(t *testing.T) {
		caughtUp := c.proposal(p, 1, 2, 3) // with the epoch of its earlier life
		c.live(time.Second, 1, 2)
		require.Zero(t, c.register(registrationOf(3, 2)).ErrorCode)
		require.False(t, c.heartbeat(3).IsFenced)
		require.Equal(t, codeIneligibleReplica, c.alter(caughtUp).ErrorCode)
		unknown := c.proposal(p, 1, 2, 3)
		unknown.Topics[0].Partitions[0].NewEpochISR[2].BrokerEpoch = -1
		require.Equal(t, codeIneligibleReplica, c.alter(unknown).ErrorCode, "a proposal must name the epoch")
		require.Zero(t, c.alter(c.proposal(p, 1, 2, 3)).ErrorCode)
		require.Equal(t, "leader 1 isr [1 2 3]", c.state(p))
	})
}

// Museum A31: a controller that knows less than the asker says so, and does not refuse with authority; so does one that has
// not heard its majority lately.
func TestDeposedControllerDoesNotRefuseWithAuthority(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}))
	ahead := c.proposal(p, 1, 2)
	ahead.Topics[0].Partitions[0].PartitionEpoch += 3
	require.Equal(t, codeNotController, c.alter(ahead).ErrorCode)
	ahead = c.proposal(p, 1, 2)
	ahead.Topics[0].Partitions[0].LeaderEpoch++
	require.Equal(t, codeNotController, c.alter(ahead).ErrorCode)

	c.active().HearsMajority(c.now.Add(-AuthoritySlack - 1))
	stale := c.proposal(p, 1, 2)
	stale.Topics[0].Partitions[0].PartitionEpoch--
	require.Equal(t, codeNotController, c.ask(stale).(*kmsg.AlterPartitionResponse).ErrorCode)
	beat := c.heartbeat(1)
	require.Equal(t, codeNotController, beat.ErrorCode)
	require.True(t, beat.IsFenced, "no lease is granted")
	c.live(10*time.Second, 0)
	require.False(t, c.image().Broker(1).Fenced, "nor is anybody fenced")
}

// A lease is counted from when the majority was last heard, which is before any other controller was elected.
func TestLeaseIsCountedFromTheMajority(t *testing.T) {
	c := threeBrokers(t)
	for _, x := range []struct{ heard, spent time.Duration }{{-60 * time.Millisecond, 60 * time.Millisecond}, {0, 0}, {time.Millisecond, 0}} {
		c.active().HearsMajority(c.now.Add(x.heard))
		beat := c.heartbeat(1)
		require.False(t, beat.IsFenced)
		wire := kmsg.NewPtrBrokerHeartbeatResponse() // it has to survive the way to the broker
		wire.Version = beat.Version
		require.NoError(t, wire.ReadFrom(beat.AppendTo(nil)))
		require.Equal(t, x.spent, SpentLease(wire))
	}
	c.active().HearsMajority(core.Never)
	require.Zero(t, SpentLease(c.heartbeat(1)), "a quorum of one")
}

// Museum A13, the controller's part, with the schedule of KIP-966: the last in sync stops uncleanly. Where it did not sync what
// it acknowledged it is not trusted, and who was in sync when the high watermark stopped moving takes over.
func TestUncleanLastMemberIsNotTrusted(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}), configured("min.insync.replicas", "2"), configured("flush.messages", "1000"))
	c.alter(c.proposal(p, 1, 2))
	require.Equal(t, "leader 1 isr [1 2]", c.state(p), "3 left while the set was large enough: it falls behind")
	c.live(3*time.Second, 1, 3) // 2 dies
	require.Equal(t, "leader 1 isr [1] elr [2]", c.state(p), "the high watermark stands: 2 has all that is committed")
	c.live(3*time.Second, 3) // 1 loses power
	require.Equal(t, "leader -1 isr [] elr [2 1]", c.state(p))

	c.register(registrationOf(1, 2))
	require.Equal(t, "leader -1 isr [] elr [2] last [1]", c.state(p), "its tail may be gone")
	c.heartbeat(1)
	require.Equal(t, "leader -1 isr [] elr [2] last [1]", c.state(p))
	c.heartbeat(2) // comes back without having stopped
	require.Equal(t, "leader 2 isr [2] last [1]", c.state(p))
	require.False(t, c.logged(levelError, "UNCLEAN LEADER ELECTION: acknowledged records may be lost"))
}

// The same stop where every append is synced before it counts: the disk has it all, so the broker may lead again at once.
func TestUncleanLastMemberThatSyncsIsTrusted(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}), configured("min.insync.replicas", "2"))
	c.live(3*time.Second, 1)
	c.live(3*time.Second, 3)
	require.Equal(t, "leader -1 isr [] elr [2 1]", c.state(p))
	c.register(registrationOf(1, 2))
	c.heartbeat(1)
	require.Equal(t, "leader 1 isr [1] elr [2]", c.state(p))
}

// A broker that stopped cleanly says so by its last epoch, and is trusted whatever the topic syncs.
func TestCleanStopIsTrusted(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1}), configured("flush.messages", "1000"))
	c.live(3*time.Second, 2)
	require.Equal(t, "leader -1 isr [] elr [1]", c.state(p))
	r := registrationOf(1, 2)
	r.PreviousBrokerEpoch = c.epochs[1]
	c.register(r)
	c.heartbeat(1)
	require.Equal(t, "leader 1 isr [1]", c.state(p))
}

// The only replica, unsynced, comes back after an unclean stop: it is the last known one, so it leads, loudly.
func TestLastKnownReplicaLeadsLoudly(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1}), configured("flush.messages", "1000"))
	c.live(3*time.Second, 2)
	c.register(registrationOf(1, 2))
	require.Equal(t, "leader -1 isr [] last [1]", c.state(p))
	c.heartbeat(1)
	require.Equal(t, "leader 1 isr [1] recovering", c.state(p))
	require.True(t, c.logged(levelError, "UNCLEAN LEADER ELECTION: acknowledged records may be lost"))
	recovered := c.proposal(p, 1)
	require.Zero(t, c.alter(recovered).ErrorCode)
	require.Equal(t, "leader 1 isr [1]", c.state(p))
}

// All replicas, unsynced, come back after unclean stops, one after another: who led last leads again, and not before.
func TestLastLeaderLeadsLoudlyWhenAllStoppedUncleanly(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}), configured("flush.messages", "1000"), configured("min.insync.replicas", "2"))
	c.live(3*time.Second, 1, 3)
	require.Equal(t, "leader 1 isr [1] elr [2]", c.state(p))
	c.live(3*time.Second, 3)
	c.register(registrationOf(2, 2))
	c.heartbeat(2)
	c.register(registrationOf(1, 2))
	require.Equal(t, "leader -1 isr [] last [1]", c.state(p))
	c.heartbeat(2)
	require.Equal(t, "leader -1 isr [] last [1]", c.state(p), "it led earlier than 1, and may hold less")
	c.heartbeat(1)
	require.Equal(t, "leader 1 isr [1] recovering", c.state(p))
	require.True(t, c.logged(levelError, "UNCLEAN LEADER ELECTION: acknowledged records may be lost"))
}

// A broker whose disk was replaced holds nothing, whatever its stop was.
func TestWipedDiskIsEligibleForNothing(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}), configured("min.insync.replicas", "2"))
	c.live(3*time.Second, 1)
	c.live(3*time.Second, 3)
	r := registrationOf(1, 2)
	r.LogDirs = [][16]byte{{1, 99}}
	r.PreviousBrokerEpoch = c.epochs[1]
	c.register(r)
	c.heartbeat(1)
	require.Equal(t, "leader -1 isr [] elr [2]", c.state(p))
	c.heartbeat(2)
	require.Equal(t, "leader 2 isr [2]", c.state(p))
}

// min.insync.replicas lowered: the high watermark moves with the in-sync set alone from now on, so nobody else is eligible.
func TestLoweringMinInsyncReplicasForgetsTheEligible(t *testing.T) {
	for name, resource := range map[string]Resource{"topic": TopicResource("t"), "cluster": allBrokers} {
		t.Run(name, func(t *testing.T) {
			c := threeBrokers(t)
			c.alterConfig(allBrokers, "min.insync.replicas", "2")
			p := c.create("t", assigned([]int32{1, 2}))
			c.alter(c.proposal(p, 1))
			require.Equal(t, "leader 1 isr [1] elr [2]", c.state(p))
			require.Zero(t, c.alterConfig(resource, "min.insync.replicas", "1"))
			require.Equal(t, "leader 1 isr [1]", c.state(p))
			require.Zero(t, c.alterConfig(resource, "min.insync.replicas", "2"))
			require.Equal(t, "leader 1 isr [1]", c.state(p), "what left the set before is not eligible now")
		})
	}
}

// alterConfig sets one config and returns the error code.
func (c *cluster) alterConfig(r Resource, name, value string) int16 {
	c.t.Helper()
	return c.ask(alterRequest(r, name, value)).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
}

func alterRequest(r Resource, name, value string) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = r.Type, r.Name
	y := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	y.Name, y.Value = name, &value
	x.Configs = append(x.Configs, y)
	req.Resources = append(req.Resources, x)
	return req
}

// Rule 8: nobody outside the in-sync set leads unless a user allows it, and then it is logged loudly.
func TestUncleanElectionOnlyWhenAllowed(t *testing.T) {
	const cry = "UNCLEAN LEADER ELECTION: acknowledged records may be lost"
	setup := func(t *testing.T) (*cluster, string) {
		c := threeBrokers(t)
		p := c.create("t", assigned([]int32{1, 2}), configured("min.insync.replicas", "1"))
		c.alter(c.proposal(p, 1))
		c.live(3*time.Second, 2, 3)
		require.Equal(t, "leader -1 isr [] elr [1]", c.state(p))
		require.False(t, c.logged(levelWarn, cry))
		return c, "leader 2 isr [2] recovering"
	}
	t.Run("by config", func(t *testing.T) {
		c, want := setup(t)
		require.Zero(t, c.alterConfig(TopicResource("t"), "unclean.leader.election.enable", "true"))
		require.Equal(t, want, c.state(c.partitionOf("t")))
		require.True(t, c.logged(levelError, cry))
	})
	t.Run("by cluster-wide config", func(t *testing.T) {
		c, want := setup(t)
		require.Zero(t, c.alterConfig(allBrokers, "unclean.leader.election.enable", "true"))
		require.Equal(t, want, c.state(c.partitionOf("t")))
	})
	t.Run("by request", func(t *testing.T) {
		c, want := setup(t)
		require.Equal(t, codePreferredLeaderUnavailable, c.elect("t", 0))
		require.Zero(t, c.elect("t", 1))
		require.Equal(t, want, c.state(c.partitionOf("t")))
		require.True(t, c.logged(levelError, cry))
		require.Equal(t, codeElectionNotNeeded, c.elect("t", 1))
	})
	t.Run("nobody alive", func(t *testing.T) {
		c, _ := setup(t)
		c.live(3*time.Second, 3)
		require.Equal(t, codeEligibleLeadersUnavailable, c.elect("t", 1))
	})
}

// After an unclean election nobody is eligible who was before: their logs go another way than the leader's.
func TestUncleanElectionForgetsTheEligible(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2, 3}), configured("min.insync.replicas", "2"))
	c.alter(c.proposal(p, 1, 2))
	c.live(3*time.Second, 1, 3)
	c.live(3*time.Second, 3)
	require.Equal(t, "leader -1 isr [] elr [2 1]", c.state(p))
	require.Zero(t, c.elect("t", 1))
	require.Equal(t, "leader 3 isr [3] recovering", c.state(p))
	c.live(3*time.Second, 1, 2)
	require.Equal(t, "leader -1 isr [] elr [3] recovering", c.state(p))
}

// elect asks for an election of the topic's first partition and returns the error code.
func (c *cluster) elect(topic string, kind int8) int16 {
	c.t.Helper()
	r := kmsg.NewPtrElectLeadersRequest()
	r.Version, r.ElectionType = 2, kind
	x := kmsg.NewElectLeadersRequestTopic()
	x.Topic, x.Partitions = topic, []int32{0}
	r.Topics = append(r.Topics, x)
	return c.ask(r).(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0].ErrorCode
}

func TestPreferredLeaders(t *testing.T) {
	c := newCluster(t, 1, config.Values{{Name: "leader.imbalance.check.interval.seconds", Value: "60"}})
	c.start(1, 2)
	p := c.create("t", assigned([]int32{1, 2}))
	q := c.create("u", assigned([]int32{1, 2}))
	c.live(3*time.Second, 2)
	require.Equal(t, "leader 2 isr [2]", c.state(p))
	c.heartbeat(1)
	require.Equal(t, codePreferredLeaderUnavailable, c.elect("t", 0))
	c.alter(c.proposal(p, 2, 1))
	c.alter(c.proposal(q, 2, 1))
	require.Zero(t, c.elect("t", 0))
	require.Equal(t, "leader 1 isr [2 1]", c.state(p), "the old leader stays in sync")
	require.Equal(t, codeElectionNotNeeded, c.elect("t", 0))
	require.Equal(t, codeUnknownTopicOrPartition, c.elect("x", 0))

	all := kmsg.NewPtrElectLeadersRequest()
	all.Version = 2
	resp := c.ask(all).(*kmsg.ElectLeadersResponse)
	require.Len(t, resp.Topics, 1)
	require.Equal(t, "u", resp.Topics[0].Topic)
	require.Equal(t, "leader 1 isr [2 1]", c.state(q))

	c.live(3*time.Second, 2)
	c.heartbeat(1)
	c.alter(c.proposal(p, 2, 1))
	require.Equal(t, "leader 2 isr [2 1]", c.state(p))
	c.live(61*time.Second, 1, 2)
	require.Equal(t, "leader 1 isr [2 1]", c.state(p), "rebalanced by time")
}

// Rule 15: a leader that finds its own log damaged gives the partition up, and is eligible for nothing.
func TestDamagedLeaderGivesUp(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}), configured("min.insync.replicas", "2"))
	got := c.alter(c.proposal(p))
	require.Zero(t, got.ErrorCode)
	require.EqualValues(t, 2, got.LeaderID)
	require.Equal(t, "leader 2 isr [2]", c.state(p))
}

// Rules 6 and 15: with a follower's damaged log a new epoch of the same leader begins, so that neither what it asked for before nor
// a proposal that rests on that can bring the log that is begun anew into the in-sync set.
func TestDamagedFollowerBeginsAnEpoch(t *testing.T) {
	for _, inSync := range [][]int32{{1, 2, 3}, {1, 2}} {
		c := threeBrokers(t)
		p := c.create("t", assigned([]int32{1, 2, 3}))
		if len(inSync) < 3 {
			c.alter(c.proposal(p, inSync...))
		}
		late, epoch := c.proposal(p, 1, 2, 3), c.image().Partition(p).LeaderEpoch
		damaged := c.proposal(p)
		damaged.BrokerID, damaged.BrokerEpoch = 3, c.image().Broker(3).Epoch
		require.Zero(t, c.alter(damaged).ErrorCode)
		require.Equal(t, "leader 1 isr [1 2]", c.state(p))
		require.Equal(t, epoch+1, c.image().Partition(p).LeaderEpoch)
		require.Equal(t, codeFencedLeaderEpoch, c.alter(late).ErrorCode)
		require.Zero(t, c.alter(c.proposal(p, 1, 2, 3)).ErrorCode)
	}
}

func TestAlterPartitionErrors(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", assigned([]int32{1, 2}))
	edit := func(f func(*kmsg.AlterPartitionRequest, *kmsg.AlterPartitionRequestTopicPartition)) int16 {
		r := c.proposal(p, 1, 2)
		f(r, &r.Topics[0].Partitions[0])
		resp := c.ask(r).(*kmsg.AlterPartitionResponse)
		if resp.ErrorCode != 0 {
			return resp.ErrorCode
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	type (
		req  = *kmsg.AlterPartitionRequest
		part = *kmsg.AlterPartitionRequestTopicPartition
	)
	require.Equal(t, codeStaleBrokerEpoch, edit(func(r req, _ part) { r.BrokerEpoch-- }))
	require.Equal(t, codeStaleBrokerEpoch, edit(func(r req, _ part) { r.BrokerID = 77 }))
	require.Equal(t, codeUnknownTopicID, edit(func(r req, _ part) { r.Topics[0].TopicID[3]++ }))
	require.Equal(t, codeUnknownTopicOrPartition, edit(func(_ req, p part) { p.Partition = 5 }))
	require.Equal(t, codeInvalidRequest, edit(func(r req, _ part) { r.BrokerID, r.BrokerEpoch = 2, c.epochs[2] }))
	require.Equal(t, codeInvalidUpdateVersion, func() int16 {
		old := c.proposal(p, 1)
		c.alter(c.proposal(p, 1))
		return c.alter(old).ErrorCode
	}())
	require.Equal(t, codeInvalidRequest, edit(func(_ req, p part) { p.NewEpochISR[1].BrokerID = 3 }))
	require.Equal(t, codeInvalidRequest, edit(func(_ req, p part) { p.NewEpochISR = p.NewEpochISR[1:] }))
	require.Equal(t, codeInvalidRequest, edit(func(_ req, p part) { p.LeaderRecoveryState = 1 }))
	before := c.image().Partition(p).Epoch
	require.Zero(t, c.alter(c.proposal(p, 1)).ErrorCode)
	require.Equal(t, before, c.image().Partition(p).Epoch, "what is so already is no change")
}
