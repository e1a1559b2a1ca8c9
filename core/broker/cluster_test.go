package broker

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/log"
	"lockstep/core/quorum"
	"lockstep/core/record"
	"lockstep/core/replica"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// network joins several hosts under one clock. Messages take a millisecond. The simulator does this for real; here
// it is enough to see that the machines are joined rightly.
type network struct {
	t     *testing.T
	now   core.Time
	hosts []*host
	down  map[int32]bool
	queue []flight
	calls map[ConnID]flight // unanswered calls by the connection on which they came in
	conns ConnID
}

// flight is a message on its way, or a call that waits for its answer.
type flight struct {
	at   core.Time
	to   *host
	in   Input
	from *host
	call Call
}

const peerConns = ConnID(1 << 32) // connections of peers are numbered from here

var errDown = errors.New("connection refused")

// host makes the i-th of n brokers, all of them voters.
func (w *network) host(i, n int, boot Boot) *host {
	var voters []quorum.Voter
	for id := range n {
		voters = append(voters, quorum.Voter{ID: int32(id + 1), Host: "h", Port: 1})
	}
	h := &host{t: w.t, net: w, now: w.now, logs: map[core.Partition]*memLog{}, settings: map[core.Partition]log.Config{}, answers: map[uint64]Respond{}, closed: map[ConnID]string{}}
	h.b = New(Config{
		NodeID: int32(i + 1), Static: config.NewValues(map[string]string{"node.id": string(rune('1' + i))}), Voters: voters,
		Advertised:  controller.Endpoint{Name: clientListener, Host: "127.0.0.1", Port: uint16(9092 + i)},
		Peer:        controller.Endpoint{Name: peerListener, Host: "127.0.0.1", Port: uint16(9192 + i)},
		Incarnation: [16]byte{byte(i + 1)}, LogDir: [16]byte{byte(i + 1)}, Rand: rand.NewPCG(uint64(i), 1),
	}, boot)
	return h
}

func newNetwork(t *testing.T, n int) *network {
	w := &network{t: t, down: map[int32]bool{}, calls: map[ConnID]flight{}, conns: peerConns}
	for i := range n {
		w.hosts = append(w.hosts, w.host(i, n, Boot{}))
	}
	for _, h := range w.hosts {
		h.step(Start{Wall: wall})
	}
	w.run(5*time.Second, func() bool {
		return !slices.ContainsFunc(w.hosts, func(h *host) bool { return !h.ready })
	})
	return w
}

// run lets time pass until done, and fails if it takes longer than limit.
func (w *network) run(limit time.Duration, done func() bool) {
	w.t.Helper()
	for end := w.now.Add(limit); !done(); {
		next := end.Add(1)
		for _, h := range w.hosts {
			if !w.down[h.b.cfg.NodeID] {
				next = min(next, max(w.now, h.b.Deadline()))
			}
		}
		for _, f := range w.queue {
			next = min(next, f.at)
		}
		require.LessOrEqual(w.t, next, end, "it did not come about in time")
		w.now = next
		w.deliver()
		for _, h := range w.hosts {
			h.now = w.now
			if !w.down[h.b.cfg.NodeID] && h.b.Deadline() <= w.now {
				h.step(Tick{Wall: wall})
			}
		}
	}
}

func (w *network) deliver() {
	due := []flight{}
	w.queue = slices.DeleteFunc(w.queue, func(f flight) bool {
		if f.at <= w.now {
			due = append(due, f)
		}
		return f.at <= w.now
	})
	for _, f := range due {
		if f.to.now = w.now; !w.down[f.to.b.cfg.NodeID] {
			f.to.step(f.in)
		}
	}
}

func (w *network) send(to *host, in Input) { w.sendIn(time.Millisecond, to, in) }

func (w *network) sendIn(d time.Duration, to *host, in Input) {
	w.queue = append(w.queue, flight{at: w.now.Add(d), to: to, in: in})
}

func (w *network) call(from *host, c Call) {
	to := w.hosts[c.Peer-1]
	if w.down[c.Peer] {
		w.send(from, Answer{Token: c.Token, Peer: c.Peer, Err: errDown})
		return
	}
	w.conns++
	w.calls[w.conns] = flight{from: from, to: to, call: c}
	w.send(to, Request{Conn: w.conns, Peer: true, Wall: wall, Msg: c.Msg})
}

func (w *network) answer(from *host, r Respond) {
	f, ok := w.calls[r.Conn]
	if !ok {
		return
	}
	delete(w.calls, r.Conn)
	a := Answer{Token: f.call.Token, Peer: f.call.Peer, Msg: r.Msg}
	if resp, ok := r.Msg.(*kmsg.FetchResponse); ok {
		a.Batches = from.read(resp, r.Reads)
	}
	w.send(f.from, a)
	w.send(from, ConnClosed{Conn: r.Conn})
}

func (w *network) refuse(conn ConnID) {
	if f, ok := w.calls[conn]; ok {
		delete(w.calls, conn)
		w.send(f.from, Answer{Token: f.call.Token, Peer: f.call.Peer, Err: errDown})
	}
}

// read fills a Fetch response's records, copied as the wire would.
func (h *host) read(resp *kmsg.FetchResponse, reads []Read) (all [][]record.Batch) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			var of []record.Batch
			for _, r := range reads {
				if r.Topic != i || r.Partition != j {
					continue
				}
				require.GreaterOrEqual(h.t, r.From, h.logs[r.Log].start, "the store refuses what is below a log's start")
				for _, b := range h.logs[r.Log].batches {
					if b.LastOffset() >= r.From && b.NextOffset() <= r.Limit {
						c, _, err := record.Parse(slices.Clone(b.Bytes()))
						require.NoError(h.t, err)
						of = append(of, c)
					}
				}
			}
			all = append(all, of)
		}
	}
	return all
}

// kill ends a broker for good: its calls, and those to it, find no answer.
func (w *network) kill(id int32) {
	w.down[id] = true
	for _, conn := range slices.Sorted(func(yield func(ConnID) bool) {
		for c := range w.calls {
			if !yield(c) {
				return
			}
		}
	}) {
		if f := w.calls[conn]; f.to.b.cfg.NodeID == id || f.from.b.cfg.NodeID == id {
			w.refuse(conn)
		}
	}
	for i := range w.queue { // what it sent just now is lost
		if a, ok := w.queue[i].in.(Answer); ok && a.Peer == id {
			w.queue[i].in = Answer{Token: a.Token, Peer: id, Err: errDown}
		}
	}
	for _, h := range w.hosts {
		w.send(h, PeerClosed{Peer: id})
	}
}

// ask sends a request to a host and returns the answer.
func askAt[T kmsg.Response](h *host, limit time.Duration, req kmsg.Request, batches ...record.Checked) T {
	h.t.Helper()
	h.now = h.net.now
	seq := h.send(req, batches...)
	h.net.run(limit, func() bool { _, ok := h.answers[seq]; return ok })
	return h.answers[seq].Msg.(T)
}

func createAt(h *host, name string) { h.t.Helper(); createPartitionsAt(h, name, 1) }

func createPartitionsAt(h *host, name string, partitions int32) {
	h.t.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, -1
	r.Topics = append(r.Topics, topic)
	resp := askAt[*kmsg.CreateTopicsResponse](h, time.Second, r)
	require.Zero(h.t, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
}

// ledTopic makes a topic of one partition and returns its leader, once that knows that it is.
func (w *network) ledTopic(name string) *host {
	w.t.Helper()
	createAt(w.hosts[0], name)
	w.run(time.Second, func() bool { l := w.leaderOf(w.hosts[0], name); return l != nil && l.b.led(name) })
	return w.leaderOf(w.hosts[0], name)
}

// leaderOf returns the host that leads a topic's only partition by h's metadata, or nil.
func (w *network) leaderOf(h *host, topic string) *host {
	t := h.b.image.Topic(topic)
	if t == nil {
		return nil
	}
	if l := h.b.image.Partition(core.Partition{Topic: t.ID}).Leader; l >= 0 {
		return w.hosts[l-1]
	}
	return nil
}

func TestClusterReplicatesAndFailsOver(t *testing.T) {
	w := newNetwork(t, 3)
	leader := w.ledTopic("orders")
	p := produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch("a", "b")))
	require.Zero(t, p.ErrorCode)

	id := core.Partition{Topic: leader.b.image.Topic("orders").ID}
	for _, h := range w.hosts {
		require.Equal(t, int64(2), h.logs[id].end, "an acknowledged write is on every replica in sync")
	}
	w.kill(leader.b.cfg.NodeID)
	other := w.hosts[leader.b.cfg.NodeID%3]
	w.run(2*time.Second, func() bool {
		l := w.leaderOf(other, "orders")
		return l != nil && l != leader && l.b.led("orders")
	})
	next := w.leaderOf(other, "orders")
	p = produced(askAt[*kmsg.ProduceResponse](next, 2*time.Second, produceRequest("orders", 0, -1), batch("c")))
	require.Zero(t, p.ErrorCode)
	require.Equal(t, int64(2), p.BaseOffset, "nothing acknowledged is lost, nothing is skipped")
}

func TestClusterKeepsServingAtRest(t *testing.T) {
	w := newNetwork(t, 3)
	createAt(w.hosts[1], "orders")
	w.run(time.Second, func() bool { return w.leaderOf(w.hosts[0], "orders") != nil })
	leader := w.leaderOf(w.hosts[0], "orders")
	for range 20 {
		end := w.now.Add(300 * time.Millisecond)
		w.run(time.Second, func() bool { return w.now >= end })
		p := produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch("a")))
		require.Zero(t, p.ErrorCode, "a leader that is heard keeps its lease")
	}
}

// Each partition that is written to asks by a call of its own, while the others wait for news in theirs. However many
// there are, no acknowledgement waits until a parked fetch has waited enough.
func TestClusterAcknowledgesAtOnce(t *testing.T) {
	const partitions = 3 * 8 // more that follow one leader than there are calls to it
	w := newNetwork(t, 3)
	createPartitionsAt(w.hosts[0], "orders", partitions)
	id := w.hosts[0].b.image.Topic("orders").ID
	w.run(time.Second, func() bool {
		return !slices.ContainsFunc(w.hosts, func(h *host) bool { return !h.b.led("orders") })
	})
	for _, h := range w.hosts {
		h.syncTime = 2 * time.Millisecond
	}
	for i := range int32(5 * partitions) {
		p := i % partitions
		leader := w.hosts[w.hosts[0].b.image.Partition(core.Partition{Topic: id, Index: p}).Leader-1]
		began := w.now
		resp := produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", p, -1), batch("a")))
		require.Zero(t, resp.ErrorCode)
		require.Less(t, w.now.Sub(began), 20*time.Millisecond, "write %d: messages take 1 ms here and syncs 2", i)
	}
}

// Rule 15: a damaged replica leaves the in-sync set and is fetched again; and not before it has left.
func TestClusterDamagedFollowerStartsOver(t *testing.T) {
	w := newNetwork(t, 3)
	leader := w.ledTopic("orders")
	produce := func() {
		p := produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch("a")))
		require.Zero(t, p.ErrorCode)
	}
	produce()

	id := core.Partition{Topic: leader.b.image.Topic("orders").ID}
	follower := w.hosts[leader.b.cfg.NodeID%3]
	epoch := leader.b.image.Partition(id).LeaderEpoch
	follower.now = w.now
	follower.step(LogFailed{Log: id, Err: errors.New("rot")})
	require.Equal(t, int64(1), follower.logs[id].end, "it is in sync, so its files may be the last ones")
	leader.now = w.now
	leader.send(produceRequest("orders", 0, -1), batch("b")) // so that there is something that it lacks
	w.run(time.Minute, func() bool { return len(leader.b.image.Partition(id).ISR) == 2 })
	w.run(time.Minute, func() bool { return len(leader.b.image.Partition(id).ISR) == 3 })
	require.Equal(t, int64(2), follower.logs[id].end)
	require.False(t, follower.b.parts[id].damaged)
	require.Equal(t, epoch+1, leader.b.image.Partition(id).LeaderEpoch, "what the damaged log had counts for nothing")
}

// Rule 6: the high watermark never goes back where a client can see it. A leader learns from its followers what is
// committed before they learn it from the leader; a successor must not tell of less.
func TestClusterSuccessorDoesNotTellAnOlderHighWatermark(t *testing.T) {
	w := newNetwork(t, 3)
	leader := w.ledTopic("orders")
	id := core.Partition{Topic: leader.b.image.Topic("orders").ID}
	for _, value := range []string{"a", "b"} {
		end := w.now.Add(time.Second) // so that all know of the one before
		w.run(2*time.Second, func() bool { return w.now >= end })
		require.Zero(t, produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch(value))).ErrorCode)
	}
	w.kill(leader.b.cfg.NodeID)
	var next *host
	w.run(2*time.Second, func() bool {
		for _, h := range w.hosts {
			if h != leader && h.b.parts[id].replica.Role() == replica.Leader {
				next = h
			}
		}
		return next != nil
	})
	fetch := func() *kmsg.FetchResponseTopicPartition {
		return &askAt[*kmsg.FetchResponse](next, time.Second, fetchRequest("orders", 0, 0, 0, 1)).Topics[0].Partitions[0]
	}
	p := fetch()
	require.Zero(t, p.ErrorCode)
	require.Equal(t, int64(-1), p.HighWatermark, "two records were acknowledged, and this broker knows of one")
	end := w.now.Add(100 * time.Millisecond)
	w.run(time.Second, func() bool { return w.now >= end })
	p = fetch()
	require.Equal(t, int64(2), p.HighWatermark)
}

func describeQuorum() *kmsg.DescribeQuorumRequest {
	r := kmsg.NewPtrDescribeQuorumRequest()
	r.Version = 2
	r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: core.MetadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	return r
}

// Whatever broker a client asks, the controller or not: it gets an answer, and the same one.
func TestClusterAnyBrokerServesClients(t *testing.T) {
	w := newNetwork(t, 3)
	ids := map[int64]bool{}
	var coordinators []int32
	for i, h := range w.hosts {
		d := askAt[*kmsg.DescribeQuorumResponse](h, time.Second, describeQuorum())
		require.Zero(t, d.Topics[0].Partitions[0].ErrorCode)
		require.Len(t, d.Topics[0].Partitions[0].CurrentVoters, 3)
		createAt(h, string(rune('a'+i)))
		p := kmsg.NewPtrInitProducerIDRequest()
		p.Version = 4
		a := askAt[*kmsg.InitProducerIDResponse](h, time.Second, p)
		require.Zero(t, a.ErrorCode)
		ids[a.ProducerID] = true
		f := kmsg.NewPtrFindCoordinatorRequest()
		f.Version, f.CoordinatorKeys = 4, []string{"group"}
		c := askAt[*kmsg.FindCoordinatorResponse](h, 2*time.Second, f).Coordinators[0]
		require.Zero(t, c.ErrorCode, c.ErrorMessage)
		coordinators = append(coordinators, c.NodeID)
	}
	require.Len(t, ids, 3, "producer ids are given once")
	require.Equal(t, coordinators[0], coordinators[1])
	require.Equal(t, coordinators[0], coordinators[2])
	end := w.now.Add(time.Second)
	w.run(2*time.Second, func() bool { return w.now >= end })
	for _, h := range w.hosts {
		m := kmsg.NewPtrMetadataRequest()
		m.Version = 12
		a := askAt[*kmsg.MetadataResponse](h, time.Second, m)
		require.Len(t, a.Brokers, 3)
		require.Positive(t, a.ControllerID)
		require.Len(t, a.Topics, 4)
		for _, topic := range a.Topics {
			for _, p := range topic.Partitions {
				require.Zero(t, p.ErrorCode)
				require.Len(t, p.ISR, 3)
			}
		}
	}
}

// Rules 13 and 15: a leader whose log is damaged leads no longer than it takes to tell the controller, and fetches everything
// again from its successor.
func TestClusterDamagedLeaderIsReplaced(t *testing.T) {
	w := newNetwork(t, 3)
	leader := w.ledTopic("orders")
	p := produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch("a")))
	require.Zero(t, p.ErrorCode)
	id := core.Partition{Topic: leader.b.image.Topic("orders").ID}
	w.run(time.Second, func() bool { return len(leader.b.image.Partition(id).ISR) == 3 })

	leader.now = w.now
	leader.step(LogFailed{Log: id, Err: errors.New("rot")})
	w.run(100*time.Millisecond, func() bool {
		next := w.leaderOf(leader, "orders")
		return next != nil && next != leader && next.b.led("orders")
	})
	next := w.leaderOf(leader, "orders")
	p = produced(askAt[*kmsg.ProduceResponse](next, time.Second, produceRequest("orders", 0, -1), batch("b")))
	require.Zero(t, p.ErrorCode)
	w.run(time.Minute, func() bool { return len(next.b.image.Partition(id).ISR) == 3 })
	require.Equal(t, int64(2), leader.logs[id].end)
	require.False(t, leader.b.parts[id].damaged)
}

// A log may start inside a batch. A follower that begins there is sent that batch whole; from the store it is to be read by an
// offset that the log still has.
func TestClusterFollowerBeginsInsideABatch(t *testing.T) {
	w := newNetwork(t, 3)
	leader := w.ledTopic("orders")
	id := core.Partition{Topic: leader.b.image.Topic("orders").ID}
	w.run(time.Second, func() bool { return len(leader.b.image.Partition(id).ISR) == 3 })
	for range 2 {
		require.Zero(t, produced(askAt[*kmsg.ProduceResponse](leader, time.Second, produceRequest("orders", 0, -1), batch("a", "b", "c"))).ErrorCode)
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.TimeoutMillis = 1000
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "orders", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 5}}}}
	require.Zero(t, askAt[*kmsg.DeleteRecordsResponse](leader, 2*time.Second, del).Topics[0].Partitions[0].ErrorCode)

	follower := w.hosts[leader.b.cfg.NodeID%3]
	follower.now = w.now
	follower.step(LogFailed{Log: id, Err: errors.New("rot")})
	w.run(time.Second, func() bool { return len(leader.b.image.Partition(id).ISR) == 2 })
	w.run(time.Minute, func() bool { return len(leader.b.image.Partition(id).ISR) == 3 })
	require.Equal(t, int64(6), follower.logs[id].end)
}

// A broker hears that it is registered before the metadata says so: until then it is told nothing of what an earlier life of it
// is to lead or to follow (rule 9).
func TestClusterRolesWaitForTheMetadata(t *testing.T) {
	w := newNetwork(t, 3)
	l := w.ledTopic("t")
	l.b.membership.epoch, l.b.membership.roles = l.b.membership.epoch+1, false // as if the answer had come alone
	createAt(w.hosts[l.b.cfg.NodeID%3], "u")
	idle := 0
	w.run(5*time.Second, func() bool { // it comes to know itself again: the controller does not know that epoch
		u := l.b.image.Topic("u")
		if u == nil {
			return false
		}
		p := l.b.parts[core.Partition{Topic: u.ID}]
		if p == nil || p.replica == nil {
			return false
		}
		if p.replica.Role() == replica.Idle {
			idle++
			return false
		}
		require.True(t, l.b.knowsItself(), "it has a role by metadata that do not know this life of it")
		return true
	})
	require.Positive(t, idle)
}
