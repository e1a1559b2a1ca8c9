package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func ptr[T any](v T) *T { return &v }

func TestMemberIDRequired(t *testing.T) {
	w := newWorld(t)
	m := w.member("g")
	a := ask[*kmsg.JoinGroupResponse](w, m.joinRequest())
	require.Equal(t, errMemberIDRequired, a.ErrorCode)
	require.Regexp(t, `^client-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, a.MemberID)
	m.id = "another"
	require.Equal(t, errUnknownMemberID, ask[*kmsg.JoinGroupResponse](w, m.joinRequest()).ErrorCode)
	m.id = a.MemberID
	require.Zero(t, m.join().joined().ErrorCode)

	late := w.member("h")
	late.id = ask[*kmsg.JoinGroupResponse](w, late.joinRequest()).MemberID
	w.sleep(11 * time.Second) // its session timeout
	require.Equal(t, errUnknownMemberID, late.join().joined().ErrorCode)
	require.Nil(t, w.c.parts[0].groups["h"], "nothing is left of it")

	old := w.member("i")
	old.version = 3 // knows nothing of this
	require.Zero(t, old.join().joined().ErrorCode)
}

func TestHandedOutIDsAreBounded(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 1)
	first := ask[*kmsg.JoinGroupResponse](w, w.member("g").joinRequest()).MemberID
	w.sleep(time.Millisecond)
	for range maxPending {
		require.Equal(t, errMemberIDRequired, ask[*kmsg.JoinGroupResponse](w, w.member("g").joinRequest()).ErrorCode)
	}
	require.Len(t, w.c.parts[0].groups["g"].classic.pending, maxPending)
	m := w.member("g")
	m.id = first
	require.Equal(t, errUnknownMemberID, m.join().joined().ErrorCode, "the oldest is forgotten")
	require.Zero(t, ms[0].heartbeat())
	ms[0].metadata = subscription("u")
	ms[0].join()
	w.sleep(2 * time.Second) // nobody waits longer for those that never come back
	require.Zero(t, ms[0].joined().ErrorCode)
}

func TestRefusedJoins(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxSize = 2 })
	for _, c := range []struct {
		code   int16
		change func(*kmsg.JoinGroupRequest)
	}{
		{errInvalidGroupID, func(r *kmsg.JoinGroupRequest) { r.Group = "" }},
		{errInvalidSessionTimeout, func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 }},
		{errInvalidSessionTimeout, func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_001 }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }},
		{errUnknownMemberID, func(r *kmsg.JoinGroupRequest) { r.MemberID = "x" }},
		{errInvalidRequest, func(r *kmsg.JoinGroupRequest) { r.InstanceID = ptr(strings.Repeat("x", 40_000)) }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = strings.Repeat("x", 40_000) }},
		{errUnknownMemberID, func(r *kmsg.JoinGroupRequest) { r.MemberID, r.InstanceID = "x", ptr("i") }},
	} {
		r := w.member("g").joinRequest()
		c.change(r)
		a := ask[*kmsg.JoinGroupResponse](w, r)
		require.Equal(t, c.code, a.ErrorCode)
		require.EqualValues(t, -1, a.Generation)
	}
	require.Empty(t, w.list(nil, nil), "refused joins leave nothing behind")
	w.stable("g", 2)
	r := w.member("g").joinRequest()
	require.Equal(t, errGroupMaxSizeReached, ask[*kmsg.JoinGroupResponse](w, r).ErrorCode)
	r = w.member("g").joinRequest()
	r.Protocols[0].Name = "other"
	require.Equal(t, errInconsistentProtocol, ask[*kmsg.JoinGroupResponse](w, r).ErrorCode)
	r = w.member("g").joinRequest()
	r.ProtocolType = "connect"
	require.Equal(t, errInconsistentProtocol, ask[*kmsg.JoinGroupResponse](w, r).ErrorCode)
}

func TestProtocolIsWhatMostPrefer(t *testing.T) {
	w := newWorld(t)
	ms := []*classicMember{w.member("g"), w.member("g"), w.member("g")}
	ms[0].protocols = []string{"a", "b", "c"}
	ms[1].protocols = []string{"d", "c", "b"}
	ms[2].protocols = []string{"c", "b"}
	w.settleClassic(ms)
	require.Equal(t, "c", w.describe("g").Protocol)
}

func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	for _, m := range ms { // a follower that joins again with the same gets the same; a leader wants a new assignment
		if !m.leader {
			generation := m.generation
			require.Zero(t, m.join().joined().ErrorCode)
			require.Equal(t, generation, m.generation)
			require.Zero(t, m.sync().synced())
		}
	}
	require.Equal(t, "Stable", w.state("g"))
	for _, m := range ms {
		if m.leader {
			m.join()
		}
	}
	require.Equal(t, "PreparingRebalance", w.state("g"))
	for _, m := range ms {
		m.join()
	}
	for _, m := range ms { // and while the leader assigns, a join is answered again, too
		m.joined()
		require.EqualValues(t, 3, m.generation)
		m.join()
		require.EqualValues(t, 3, m.joined().Generation)
	}
	require.Equal(t, "CompletingRebalance", w.state("g"))
}

func TestWhoDoesNotJoinIsOut(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	ms[0].metadata = subscription("u")
	ms[0].join()
	for range 6 {
		w.sleep(9 * time.Second)
		require.Equal(t, errRebalanceInProgress, ms[1].heartbeat(), "it lives, but does not join")
	}
	w.sleep(6 * time.Second)
	require.Zero(t, ms[0].joined().ErrorCode)
	require.True(t, ms[0].leader)
	require.Len(t, ms[0].others, 1)
	require.Equal(t, errUnknownMemberID, ms[1].heartbeat())
}

// E05: a member dies between JoinGroup and SyncGroup; heartbeats of its process, or a session that is longer than the rebalance
// timeout, must not keep the others waiting.
func TestE05MissingSync(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("g"), w.member("g")
	a.rebalance, b.rebalance = 20*time.Second, 20*time.Second
	a.join().joined()
	b.join()
	a.join()
	a.joined()
	b.joined()
	b.sync()
	if b.leader {
		a, b = b, a
		b.sync()
	}
	require.Equal(t, "CompletingRebalance", w.state("g"))
	for range 2 {
		w.sleep(9 * time.Second)
		require.Zero(t, a.heartbeat(), "the leader lives, but does not assign")
	}
	w.sleep(3 * time.Second)
	require.Equal(t, errRebalanceInProgress, b.synced())
	require.Equal(t, errUnknownMemberID, a.heartbeat())
	b.join()
	require.Zero(t, b.joined().ErrorCode)
	require.Zero(t, b.sync().synced())
}

func TestRefusedSyncs(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	for _, c := range []struct {
		code   int16
		change func(*kmsg.SyncGroupRequest)
	}{
		{errNone, func(r *kmsg.SyncGroupRequest) {}},
		{errUnknownMemberID, func(r *kmsg.SyncGroupRequest) { r.MemberID = "x" }},
		{errUnknownMemberID, func(r *kmsg.SyncGroupRequest) { r.InstanceID = ptr("x") }},
		{errUnknownMemberID, func(r *kmsg.SyncGroupRequest) { r.Group = "none" }},
		{errIllegalGeneration, func(r *kmsg.SyncGroupRequest) { r.Generation++ }},
		{errIllegalGeneration, func(r *kmsg.SyncGroupRequest) { r.Generation-- }},
		{errInconsistentProtocol, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = ptr("connect") }},
		{errInconsistentProtocol, func(r *kmsg.SyncGroupRequest) { r.Protocol = ptr("x") }},
		{errInvalidGroupID, func(r *kmsg.SyncGroupRequest) { r.Group = "" }},
	} {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 5, "g", m.id, m.generation
		c.change(r)
		require.Equal(t, c.code, ask[*kmsg.SyncGroupResponse](w, r).ErrorCode)
	}
	require.Equal(t, errIllegalGeneration, func() int16 { m.generation++; defer func() { m.generation-- }(); return m.heartbeat() }())
}

func TestAssignmentIsGivenWhenCommitted(t *testing.T) {
	w := newWorld(t)
	m := w.member("g").join()
	m.joined()
	w.hold = true
	m.sync()
	require.Nil(t, answerTo[*kmsg.SyncGroupResponse](w, m.token))
	require.Equal(t, []string{"g classic CompletingRebalance"}, w.list(nil, nil))
	other := w.send(w.member("g").joinRequest()) // waits for its turn
	require.Nil(t, answerTo[*kmsg.JoinGroupResponse](w, other))
	w.release()
	require.Zero(t, m.synced())
	require.Equal(t, errMemberIDRequired, answerTo[*kmsg.JoinGroupResponse](w, other).ErrorCode)
}

func TestAssignmentThatIsNotWritten(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	m.join()
	m.joined()
	w.hold = true
	m.sync()
	w.failOne(19) // too few in-sync replicas
	require.Equal(t, errCoordinatorNotAvailable, m.synced())
	require.Equal(t, errRebalanceInProgress, m.heartbeat())
	w.release()
	m.join()
	m.joined()
	require.EqualValues(t, 3, m.generation)
	require.Zero(t, m.sync().synced())
}

func TestEmptyIsWrittenUntilItIsCommitted(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	w.hold = true
	require.Zero(t, m.leave())
	require.Equal(t, []string{"g classic PreparingRebalance"}, w.list(nil, nil))
	w.failOne(19)
	require.Empty(t, w.pending)
	w.sleep(2 * time.Second)
	require.Len(t, w.pending, 1)
	w.release()
	require.Equal(t, []string{"g classic Empty"}, w.list(nil, nil))
	w.failover(0)
	require.Equal(t, []string{"g classic Empty"}, w.list(nil, nil))
	m = w.stable("g", 1)[0]
	require.EqualValues(t, 3, m.generation, "generations go on")
}

// A broker whose initial delay is longer than a member's rebalance timeout looked at the group for ever.
func TestInitialDelayBeyondTheRebalanceTimeout(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.InitialDelay = 3 * time.Second })
	m := w.member("g")
	m.rebalance = 2 * time.Second
	m.join()
	w.sleep(1900 * time.Millisecond)
	require.Equal(t, "PreparingRebalance", w.state("g"))
	w.sleep(100 * time.Millisecond)
	require.Zero(t, m.joined().ErrorCode)
}

func TestInitialDelay(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.InitialDelay = 3 * time.Second })
	var ms []*classicMember
	for range 4 {
		ms = append(ms, w.member("g").join())
		w.sleep(2 * time.Second) // each is waited for anew
	}
	require.Equal(t, "PreparingRebalance", w.state("g"))
	w.sleep(2 * time.Second)
	for _, m := range ms {
		m.joined()
		require.EqualValues(t, 1, m.generation)
	}
	w.sleep(9 * time.Second)
	last := w.member("h").join()
	last2 := w.member("h")
	last2.rebalance, last.rebalance = 5*time.Second, 5*time.Second
	for range 10 {
		w.sleep(2 * time.Second)
		w.member("h").join()
	}
	w.sleep(60 * time.Second)
	require.Zero(t, last.joined().ErrorCode, "nobody waits longer than its rebalance timeout")
}

func TestConnectionClosesInJoin(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	ms[0].metadata, ms[1].metadata = subscription("u"), subscription("u")
	ms[0].join()
	w.c.Cancel(w.now, ms[0].token)
	ms[1].join()
	require.Nil(t, answerTo[*kmsg.JoinGroupResponse](w, ms[1].token), "the other has not joined")
	w.sleep(9 * time.Second)
	ms[0].join() // comes back
	require.Zero(t, ms[0].joined().ErrorCode)
	require.Zero(t, ms[1].joined().ErrorCode)

	old := w.member("g")
	old.version = 3
	old.join()
	w.c.Cancel(w.now, old.token) // nobody knows its id
	w.sleep(0)
	require.NotContains(t, fmt.Sprint(w.describe("g").Members), old.id+"x")
	require.Len(t, w.describe("g").Members, 2)
}

// A member whose connection closes after all have waited for long, with nothing else to do for the coordinator, has a session to come back.
func TestConnectionClosesLateInJoin(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	ms[0].metadata, ms[1].metadata = subscription("u"), subscription("u")
	w.sleep(5 * time.Second)
	require.Zero(t, ms[1].heartbeat())
	ms[0].join()
	w.now = w.now.Add(9 * time.Second) // no deadline has come
	w.c.Cancel(w.now, ms[0].token)
	w.now = w.now.Add(999 * time.Millisecond)
	ms[1].join()
	w.sleep(8 * time.Second)
	ms[0].join()
	require.Zero(t, ms[0].joined().ErrorCode)
	require.Zero(t, ms[1].joined().ErrorCode)
}

func TestEphemeralGroupLeavesNothing(t *testing.T) {
	w := newWorld(t)
	m := w.member("g").join()
	m.joined()
	require.Zero(t, m.leave())
	require.Empty(t, w.list(nil, nil))
	require.Empty(t, w.log)
}

func TestGenerationsWrap(t *testing.T) {
	require.EqualValues(t, 1, nextGeneration(1<<31-1))
}

func TestLeaveInBatches(t *testing.T) {
	w := newWorld(t)
	ms := []*classicMember{w.member("g"), w.member("g"), w.member("g")}
	ms[1].instance, ms[2].instance = ptr("one"), ptr("two")
	w.settleClassic(ms)
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = 3, "g"
	for _, c := range []struct {
		id       string
		instance *string
	}{{"x", nil}, {"", ptr("none")}, {"x", ptr("one")}, {"", ptr("two")}, {"", ptr("two")}, {ms[0].id, nil}} {
		x := kmsg.NewLeaveGroupRequestMember()
		x.MemberID, x.InstanceID = c.id, c.instance
		r.Members = append(r.Members, x)
	}
	var codes []int16
	for _, x := range ask[*kmsg.LeaveGroupResponse](w, r).Members {
		codes = append(codes, x.ErrorCode)
	}
	require.Equal(t, []int16{errUnknownMemberID, errUnknownMemberID, errFencedInstanceID, 0, errUnknownMemberID, 0}, codes)
	require.Len(t, w.describe("g").Members, 1)
	old := kmsg.NewPtrLeaveGroupRequest()
	old.Version, old.Group, old.MemberID = 1, "g", "x"
	require.Equal(t, errUnknownMemberID, ask[*kmsg.LeaveGroupResponse](w, old).ErrorCode)
	old.MemberID = ms[1].id
	require.Zero(t, ask[*kmsg.LeaveGroupResponse](w, old).ErrorCode)
	require.Equal(t, "Empty", w.state("g"))
	pending := w.member("g")
	pending.id = ask[*kmsg.JoinGroupResponse](w, pending.joinRequest()).MemberID
	require.Zero(t, pending.leave())
	require.Equal(t, errUnknownMemberID, pending.leave())
}

func TestLongClientIDs(t *testing.T) {
	w := newWorld(t)
	token := w.sendAs(strings.Repeat("é", 15_000), w.member("g").joinRequest())
	id := answerTo[*kmsg.JoinGroupResponse](w, token).MemberID
	require.Len(t, id, 254+37, "cut between characters")
}

// A new coordinator goes on with the generation, and gives every member a full session timeout.
func TestFailoverOfStableGroup(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	ms[0].commit(5)
	for range 3 {
		w.sleep(9 * time.Second)
		w.failover(0)
	}
	require.Zero(t, ms[0].heartbeat())
	require.Zero(t, ms[1].sync().synced())
	require.Zero(t, ms[0].commit(6))
	w.failover(0)
	require.EqualValues(t, 6, w.fetch("g", "t"))
	w.sleep(11 * time.Second)
	require.Equal(t, "Stable", w.state("g"), "they may have been heard by the former coordinator, until a write is committed")
	w.sleep(11 * time.Second)
	require.Equal(t, "Empty", w.state("g"))
	require.Equal(t, errUnknownMemberID, ms[0].heartbeat())
}

// A coordinator whose writes are not committed judges nobody: the one before it may still be answering members.
func TestNobodyIsJudgedBeforeAWriteIsCommitted(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	w.failover(0)
	w.hold = true
	for range 5 {
		w.sleep(time.Minute)
		require.Equal(t, "Stable", w.state("g"))
		require.Len(t, w.pending, 1, "one write is to tell")
		w.failOne(19) // NOT_ENOUGH_REPLICAS
	}
	w.sleep(time.Minute)
	w.release()
	require.Zero(t, ms[0].heartbeat(), "nor is the time counted that has passed")
	require.Zero(t, ms[1].heartbeat())
	w.hold = false
	w.sleep(11 * time.Second)
	require.Equal(t, "Empty", w.state("g"))
}

// That the group is empty cannot be written, somebody joins and leaves before that is tried again: the broker looked at the group
// without end.
func TestJoinAndLeaveWhileEmptinessCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 1)
	w.hold = true
	require.Zero(t, ms[0].leave())
	w.failOne(19) // NOT_ENOUGH_REPLICAS
	m := w.member("g").join()
	w.sleep(100 * time.Millisecond)
	require.Zero(t, m.joined().ErrorCode)
	require.Zero(t, m.leave())
	w.sleep(500 * time.Millisecond)
	w.release()
	require.Equal(t, "Empty", w.state("g"))
}
