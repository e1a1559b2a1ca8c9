package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinatorOf returns the host that coordinates a group, by what one of those that run says.
func (w *network) coordinatorOf(id string) *host {
	w.t.Helper()
	var at *host
	w.run(10*time.Second, func() bool {
		for _, h := range w.hosts {
			if w.down[h.b.cfg.NodeID] {
				continue
			}
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.Version, r.CoordinatorKeys = 4, []string{id}
			c := askAt[*kmsg.FindCoordinatorResponse](h, 5*time.Second, r).Coordinators[0]
			if c.ErrorCode == 0 && !w.down[c.NodeID] {
				at = w.hosts[c.NodeID-1]
				return askAt[*kmsg.OffsetFetchResponse](at, 5*time.Second, fetchOffset(id)).Groups[0].ErrorCode == 0
			}
			break
		}
		w.now = w.now.Add(50 * time.Millisecond)
		return false
	})
	return at
}

// TestTransactionalProducersAreToldAtOnce: librdkafka, which asks in versions before 4, goes on asking whatever the error is, but for
// those of authorization, and then shows the message; others get the precise error.
func TestTransactionalProducersAreToldAtOnce(t *testing.T) {
	h := newHost(t, nil)
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = transactionCoordinator, "t", []string{"t"}
	r.Version = 3
	old := ask[*kmsg.FindCoordinatorResponse](h, r)
	require.Equal(t, errTransactionalIDAuthorizationFailed, old.ErrorCode)
	require.Contains(t, *old.ErrorMessage, "transactions and share groups are not served")
	r.Version = 4
	c := ask[*kmsg.FindCoordinatorResponse](h, r).Coordinators[0]
	require.Equal(t, errInvalidRequest, c.ErrorCode)
	require.Equal(t, *old.ErrorMessage, *c.ErrorMessage)
}

func fetchOffset(id string) *kmsg.OffsetFetchRequest {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 8
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = id
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = "orders", []int32{0}
	g.Topics = append(g.Topics, t)
	r.Groups = append(r.Groups, g)
	return r
}

func commitOffset(id string, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 8, id, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "orders"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// pass lets time pass. A host that is down then is frozen: what is sent to it is lost.
func (w *network) pass(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	w.sendIn(d, w.hosts[0], Tick{Wall: wall})
	w.run(d, func() bool { return w.now >= end })
}

// at asks a host at this very instant, which must answer at once.
func at[T kmsg.Response](h *host, req kmsg.Request) T {
	h.t.Helper()
	h.now = h.net.now
	seq := h.send(req)
	require.Contains(h.t, h.answers, seq)
	return h.answers[seq].Msg.(T)
}

// A coordinator that was frozen, and another took its groups: it does not say what it knew of them when it is back.
func TestCoordinatorThatWasFrozenIsMute(t *testing.T) {
	w := newNetwork(t, 3)
	createAt(w.hosts[0], "orders")
	old := w.coordinatorOf("g")
	require.Zero(t, askAt[*kmsg.OffsetCommitResponse](old, 5*time.Second, commitOffset("g", 5)).Topics[0].Partitions[0].ErrorCode)
	require.EqualValues(t, 5, at[*kmsg.OffsetFetchResponse](old, fetchOffset("g")).Groups[0].Topics[0].Partitions[0].Offset)
	w.down[old.b.cfg.NodeID] = true
	w.pass(5 * time.Second)
	successor := w.coordinatorOf("g")
	require.NotSame(t, old, successor)
	require.Zero(t, askAt[*kmsg.OffsetCommitResponse](successor, 5*time.Second, commitOffset("g", 9)).Topics[0].Partitions[0].ErrorCode)
	w.down[old.b.cfg.NodeID] = false
	require.Equal(t, errNotCoordinator, at[*kmsg.OffsetFetchResponse](old, fetchOffset("g")).Groups[0].ErrorCode)
	require.Equal(t, errNotCoordinator, at[*kmsg.OffsetCommitResponse](old, commitOffset("g", 6)).Topics[0].Partitions[0].ErrorCode)
	list := kmsg.NewPtrListGroupsRequest()
	list.Version = 4
	require.Equal(t, errCoordinatorNotAvailable, at[*kmsg.ListGroupsResponse](old, list).ErrorCode)
	w.pass(5 * time.Second)
	require.EqualValues(t, 9, askAt[*kmsg.OffsetFetchResponse](w.coordinatorOf("g"), 5*time.Second, fetchOffset("g")).Groups[0].Topics[0].Partitions[0].Offset)
}

// A coordinator that had no lease for a while, and stayed one, does not end the sessions of members that it could not hear.
func TestSessionsDoNotRunWithoutALease(t *testing.T) {
	w := newNetwork(t, 3)
	createAt(w.hosts[0], "orders")
	h := w.coordinatorOf("g")
	beat := joinOne(h)
	require.Zero(t, at[*kmsg.HeartbeatResponse](h, beat).ErrorCode)
	w.down[h.b.cfg.NodeID] = true
	w.pass(1500 * time.Millisecond) // longer than the lease, shorter than a broker's session
	w.down[h.b.cfg.NodeID] = false
	require.Equal(t, errNotCoordinator, at[*kmsg.HeartbeatResponse](h, beat).ErrorCode)
	w.pass(5 * time.Second) // with which the member's session of 6 s is over, but for the time without a lease
	require.Zero(t, at[*kmsg.HeartbeatResponse](h, beat).ErrorCode)
	w.pass(6100 * time.Millisecond)
	require.NotZero(t, at[*kmsg.HeartbeatResponse](h, beat).ErrorCode, "it ends by the member's own silence")
}

// joinOne has one member join group g, with a session of 6 s, and returns its heartbeat.
func joinOne(h *host) *kmsg.HeartbeatRequest {
	h.t.Helper()
	j := kmsg.NewPtrJoinGroupRequest()
	j.Version, j.Group, j.SessionTimeoutMillis, j.RebalanceTimeoutMillis, j.ProtocolType = 3, "g", 6000, 6000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	j.Protocols = append(j.Protocols, p)
	joined := askAt[*kmsg.JoinGroupResponse](h, 10*time.Second, j)
	require.Zero(h.t, joined.ErrorCode)
	s := kmsg.NewPtrSyncGroupRequest()
	s.Version, s.Group, s.Generation, s.MemberID = 3, "g", joined.Generation, joined.MemberID
	require.Zero(h.t, askAt[*kmsg.SyncGroupResponse](h, 5*time.Second, s).ErrorCode)
	b := kmsg.NewPtrHeartbeatRequest()
	b.Version, b.Group, b.Generation, b.MemberID = 3, "g", joined.Generation, joined.MemberID
	return b
}
