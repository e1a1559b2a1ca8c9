package group

import (
	"strings"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsumersShare(t *testing.T) {
	w := newWorld(t)
	a := w.consumer("g", "t", "u")
	require.Zero(t, a.beat())
	require.EqualValues(t, 1, a.epoch)
	require.Len(t, a.owned, 7)
	b := w.consumer("g", "t", "u")
	require.Zero(t, b.beat())
	require.EqualValues(t, 2, b.epoch)
	require.Empty(t, b.owned, "nothing is free before a has given it up")
	require.Equal(t, "Reconciling", w.describeConsumer("g").State)
	w.settleConsumers(a, b)
	require.Len(t, a.owned, 4)
	require.Len(t, b.owned, 3)
	require.Equal(t, "Stable", w.describeConsumer("g").State)
	require.Equal(t, []string{"g consumer Stable"}, w.list(nil, nil))
	require.Zero(t, a.leave(-1))
	require.Equal(t, "Assigning", w.describeConsumer("g").State)
	w.settleConsumers(b)
	require.Len(t, b.owned, 7)
	w.sleep(46 * time.Second)
	require.Equal(t, errUnknownMemberID, b.beat())
	require.Equal(t, []string{"g consumer Empty"}, w.list(nil, nil))
	require.Zero(t, b.beat())
	require.Len(t, b.owned, 7)
}

// E08: a slow member keeps what it has until it says that it has given it up, or its time for that is over.
func TestE08SlowMember(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t"), w.consumer("g", "t")
	a.timeout = 20 * time.Second
	a.beat()
	a.slow = true
	b.beat()
	for range 8 {
		w.sleep(2 * time.Second)
		require.Zero(t, a.beat())
		require.Zero(t, b.beat())
		require.Len(t, a.owned, 4)
		require.Empty(t, b.owned)
		w.exclusive(a, b)
		w.failover(0) // nor does another coordinator forget it
	}
	for range 23 { // each coordinator gives it its time anew, and once more when it knows that there is no other
		w.sleep(2 * time.Second)
		a.beat()
		require.Zero(t, b.beat())
		if a.epoch == 0 {
			break
		}
	}
	require.Zero(t, a.epoch, "its rebalance timeout is over")
	require.Len(t, w.describeConsumer("g").Members, 1)
	w.settleConsumers(b)
	require.Len(t, b.owned, 4)
	a.slow = false
	w.settleConsumers(a, b)
	require.Equal(t, 4, all(a, b))
}

func TestMemberEpochs(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t"), w.consumer("g", "t")
	a.beat()
	b.beat()
	w.settleConsumers(a, b)
	for _, epoch := range []int32{a.epoch + 1, 1} {
		r := a.request()
		r.MemberEpoch = epoch
		require.Equal(t, errFencedMemberEpoch, ask[*kmsg.ConsumerGroupHeartbeatResponse](w, r).ErrorCode)
	}
	// b learns of a new epoch, but the answer is lost.
	before := *b
	a.leave(-1)
	r := b.request()
	lost := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, r)
	require.Greater(t, lost.MemberEpoch, before.epoch)
	r = before.request()
	require.Equal(t, errFencedMemberEpoch, ask[*kmsg.ConsumerGroupHeartbeatResponse](w, r).ErrorCode, "it has to say what it has")
	before.full = true
	again := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, before.request())
	require.Zero(t, again.ErrorCode)
	require.Equal(t, lost.MemberEpoch, again.MemberEpoch)
	require.Equal(t, lost.Assignment, again.Assignment)
	before.owned = union(before.owned, []core.Partition{{Topic: w.topics.ids["u"]}})
	require.Equal(t, errFencedMemberEpoch, ask[*kmsg.ConsumerGroupHeartbeatResponse](w, before.request()).ErrorCode, "that it never had")
}

func TestRefusedHeartbeats(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ConsumerMaxSize = 1 })
	a := w.consumer("g", "t")
	require.Zero(t, a.beat())
	for _, c := range []struct {
		code   int16
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
	}{
		{errInvalidGroupID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr("") }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = ptr("") }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Topics = append(r.Topics, kmsg.NewConsumerGroupHeartbeatRequestTopic())
		}},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = strings.Repeat("x", 40_000) }},
		{errInvalidRequest, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr(strings.Repeat("x", 40_000)) }},
		{errInvalidGroupID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = strings.Repeat("x", 40_000) }},
		{errUnsupportedAssignor, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = ptr("sticky") }},
		{errInvalidRegularExpression, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("(") }},
		{errInvalidRegularExpression, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("a)|(?:b") }},
		{errInvalidRegularExpression, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = ptr(strings.Repeat("(a?){500}", 10))
		}},
		{errGroupMaxSizeReached, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "z" }},
		{errUnknownMemberID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "z", 1 }},
		{errUnknownMemberID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group, r.MemberEpoch = "none", 1 }},
		{errUnknownMemberID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group, r.MemberEpoch = "none", -1 }},
		{errUnknownMemberID, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch, r.InstanceID = 1, ptr("i") }},
	} {
		before := kept(w.c)
		r := w.consumer("g", "t").request()
		r.MemberID = a.id
		c.change(r)
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, r)
		require.Equal(t, c.code, resp.ErrorCode)
		require.Equal(t, before, kept(w.c))
	}
	require.Equal(t, []string{"g consumer Stable"}, w.list(nil, nil))
	old := w.consumer("h", "t").request()
	old.Version, old.MemberID = 0, ""
	require.Len(t, *ask[*kmsg.ConsumerGroupHeartbeatResponse](w, old).MemberID, 36)
}

func TestStaticConsumers(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t"), w.consumer("g", "t")
	a.instance, b.instance = ptr("one"), ptr("two")
	a.beat()
	b.beat()
	w.settleConsumers(a, b)
	owned, epoch := a.owned, b.epoch
	thief := w.consumer("g", "t")
	thief.instance = a.instance
	require.Equal(t, errUnreleasedInstanceID, thief.beat())
	r := a.request()
	r.MemberID = b.id
	require.Equal(t, errFencedInstanceID, ask[*kmsg.ConsumerGroupHeartbeatResponse](w, r).ErrorCode)

	require.Zero(t, a.leave(-2)) // for now
	w.failover(0)
	require.Zero(t, b.beat())
	require.Equal(t, epoch, b.epoch, "its partitions wait for it")
	require.Zero(t, thief.beat(), "under another member id")
	require.Equal(t, owned, thief.owned)
	require.Equal(t, errFencedInstanceID, func() int16 { a.epoch = 2; return a.beat() }())
	w.settleConsumers(thief, b)
	require.Equal(t, epoch, b.epoch)

	require.Zero(t, b.leave(-2))
	require.Zero(t, b.beat(), "under the same member id")
	w.settleConsumers(thief, b)
	require.Zero(t, b.leave(-2))
	w.sleep(20 * time.Second)
	thief.beat()
	w.sleep(26 * time.Second)
	w.settleConsumers(thief)
	require.Len(t, thief.owned, 4, "it did not come back within its session timeout")
	require.Zero(t, thief.leave(-1))
	require.Equal(t, "Empty", w.describeConsumer("g").State)
}

func TestSubscriptionByPattern(t *testing.T) {
	w := newWorld(t)
	w.topics.create(OffsetsTopic, 1)
	w.topics.create("orders-1", 2)
	a, b := w.consumer("g"), w.consumer("g", "t")
	a.regex = ptr("orders-[0-9]+|.*offsets")
	a.beat()
	require.Len(t, a.owned, 3, "a broker's pattern matches internal topics, too")
	require.Equal(t, a.regex, w.describeConsumer("g").Members[0].SubscribedTopicRegex)
	b.beat()
	w.settleConsumers(a, b)
	w.topics.create("orders-22", 3)
	w.topics.create("orders-x", 3)
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.settleConsumers(a, b)
	require.Len(t, a.owned, 6)
	require.Len(t, b.owned, 4)
	w.failover(0)
	w.topics.drop("orders-1")
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.settleConsumers(a, b)
	require.Len(t, a.owned, 4)
	a.regex, a.topics, a.full = ptr(""), []string{"t"}, true
	w.settleConsumers(a, b)
	require.Len(t, a.owned, 2)
	require.Empty(t, w.c.parts[0].groups["g"].consumer.regexes)
}

func TestTopicsGrow(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t", "later"), w.consumer("g", "t")
	a.beat()
	b.beat()
	w.settleConsumers(a, b)
	require.Equal(t, 4, all(a, b))
	epoch := a.epoch
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.settleConsumers(a, b)
	require.Equal(t, epoch, a.epoch, "nothing that concerns them")
	w.topics.create("later", 5)
	w.topics.parts["t"] = 6
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.settleConsumers(a, b)
	require.Equal(t, 11, all(a, b))
	w.topics.drop("later")
	w.failover(0)
	w.settleConsumers(a, b)
	require.Equal(t, 6, all(a, b))
}

func TestAssignorIsWhatMostAskFor(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.consumer("g", "t", "u"), w.consumer("g", "t", "u"), w.consumer("g", "t", "u")
	a.beat()
	require.Equal(t, "uniform", w.describeConsumer("g").AssignorName)
	b.assignor, c.assignor = ptr("range"), ptr("range")
	b.beat()
	c.beat()
	w.settleConsumers(a, b, c)
	require.Equal(t, "range", w.describeConsumer("g").AssignorName)
	b.assignor, b.full = ptr("uniform"), true
	a.assignor, a.full = ptr("uniform"), true
	w.settleConsumers(a, b, c)
	require.Equal(t, "uniform", w.describeConsumer("g").AssignorName)
}

// A change whose write fails leaves no trace, and nobody sees it before it is committed.
func TestChangesThatFail(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t", "u"), w.consumer("g", "t")
	a.instance, b.regex = ptr("one"), ptr("u.*")
	a.beat()
	b.beat()
	w.settleConsumers(a, b)
	joining, other := w.consumer("g", "t"), w.consumer("new", "t")
	joining.regex = ptr("[tu]")
	thief := w.consumer("g", "u")
	thief.instance = ptr("one")
	b.topics, b.full = []string{"u"}, true
	leave := a.request()
	leave.MemberEpoch = -1
	for i, r := range []*kmsg.ConsumerGroupHeartbeatRequest{joining.request(), b.request(), leave, other.request()} {
		before, list := kept(w.c), w.list(nil, nil)
		w.hold = true
		token := w.send(r)
		require.Len(t, w.pending, 1, i)
		require.Nil(t, answerTo[*kmsg.ConsumerGroupHeartbeatResponse](w, token))
		require.Equal(t, list, w.list(nil, nil))
		behind := w.send(b.request())
		w.failOne(19)
		require.Equal(t, errCoordinatorNotAvailable, answerTo[*kmsg.ConsumerGroupHeartbeatResponse](w, token).ErrorCode)
		for len(w.pending) > 0 {
			w.failOne(19)
		}
		require.NotNil(t, answerTo[*kmsg.ConsumerGroupHeartbeatResponse](w, behind))
		require.Equal(t, before, kept(w.c), i)
		w.hold = false
	}
	require.Zero(t, a.leave(-2))
	before := kept(w.c)
	w.hold = true
	w.send(thief.request())
	w.failOne(19)
	require.Equal(t, before, kept(w.c))
	w.hold = false
	require.Zero(t, thief.beat())
	w.settleConsumers(b, thief)
}

func TestRemovalIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	a := w.consumer("g", "t")
	a.beat()
	w.hold = true
	w.sleep(46 * time.Second)
	require.Len(t, w.pending, 1)
	w.failOne(19)
	require.Empty(t, w.pending)
	w.sleep(time.Second)
	require.Len(t, w.pending, 1)
	w.release()
	require.Equal(t, []string{"g consumer Empty"}, w.list(nil, nil))
}

func TestEmptyGroupsChangeTheirProtocol(t *testing.T) {
	w := newWorld(t)
	w.stable("g", 1)[0].leave()
	w.commitTo("g", map[string]int64{"t": 7})
	a := w.consumer("g", "t")
	require.Zero(t, a.beat())
	w.failover(0)
	require.Zero(t, a.beat())
	require.EqualValues(t, 7, w.fetch("g", "t"))
	require.Zero(t, a.leave(-1))
	m := w.member("g")
	w.settleClassic([]*classicMember{m})
	w.failover(0)
	require.Zero(t, m.heartbeat())
	require.EqualValues(t, 7, w.fetch("g", "t"))
	require.Equal(t, []string{"g classic Stable"}, w.list(nil, nil))
}

func TestConsumerOffsetsExpire(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ConsumerSession = time.Hour })
	a := w.consumer("g", "t")
	a.beat()
	ask[*kmsg.OffsetCommitResponse](w, commitRequest("g", a.id, a.epoch, map[string]int64{"t": 1, "u": 1}))
	for end := w.now.Add(8 * 24 * time.Hour); w.now < end; {
		w.sleep(30 * time.Minute)
		require.Zero(t, a.beat())
	}
	require.EqualValues(t, 1, w.fetch("g", "t"))
	require.EqualValues(t, -1, w.fetch("g", "u"))
	a.leave(-1)
	w.sleep(7*24*time.Hour + time.Hour)
	require.Empty(t, w.list(nil, nil))
}

// A member that has not given up what it was told to, and then wants to read less, is not assigned what it does not want (KAFKA-19431).
func TestUnrevokedMemberReadsLess(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("g", "t", "u"), w.consumer("g", "t")
	require.Zero(t, a.beat())
	require.Len(t, a.owned, 7)
	a.slow = true
	require.Zero(t, b.beat())
	require.Zero(t, a.beat()) // is told to give up some of t
	unread := w.topics.ids["u"]
	a.topics, a.full = []string{"t"}, true
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, a.request())
	require.Zero(t, resp.ErrorCode)
	require.NotNil(t, resp.Assignment)
	for _, x := range resp.Assignment.Topics {
		require.NotEqual(t, unread, core.TopicID(x.TopicID))
	}
	a.slow = false
	w.settleConsumers(a, b)
	require.Equal(t, 4, len(a.owned)+len(b.owned))
}
