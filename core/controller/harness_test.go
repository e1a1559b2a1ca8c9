package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tester is what *testing.T and *rapid.T have in common here.
type tester interface {
	require.TestingT
	Helper()
	Fatalf(string, ...any)
}

const ms = core.Time(time.Millisecond)

// cluster is a metadata quorum of one log, and the controllers of its members,
// one of which leads. Proposals are committed when the test says so.
type cluster struct {
	t       tester
	now     core.Time
	log     [][]byte // proposed; the first len(committed) are committed
	done    int
	ends    []int // of the batches proposed
	images  []*Image
	members []*Controller
	leader  int
	rand    *rand.PCG
	token   Token
	answers map[Token]kmsg.Response
	lines   []Line
	epochs  map[int32]int64
	onApply func(Delta)
}

func newCluster(t tester, members int, static config.Values) *cluster {
	c := &cluster{t: t, rand: rand.NewPCG(1, 2), answers: map[Token]kmsg.Response{}, epochs: map[int32]int64{}, now: 1000 * ms}
	for i := range members {
		im := NewImage()
		c.images = append(c.images, im)
		c.members = append(c.members, New(Settings{NodeID: int32(100 + i), Static: static, Rand: c.rand}, im))
	}
	c.lead(0)
	c.commit()
	return c
}

func (c *cluster) active() *Controller { return c.members[c.leader] }
func (c *cluster) image() *Image       { return c.images[c.leader] }

// run makes a call and carries out what it wants.
func (c *cluster) run(call func(*Controller, *Out)) {
	c.t.Helper()
	ctl := c.active()
	var out Out
	call(ctl, &out)
	c.collect(&out)
	if len(out.Records) > 0 {
		c.log = append(c.log, out.Records...)
		c.ends = append(c.ends, len(c.log))
		ctl.Proposed(int64(len(c.log) - 1))
	}
}

func (c *cluster) collect(out *Out) {
	c.lines = append(c.lines, out.Log...)
	for _, a := range out.Answers {
		if _, twice := c.answers[a.Token]; twice {
			c.t.Fatalf("request %d is answered twice", a.Token)
		}
		c.answers[a.Token] = a.Msg
	}
}

// lead makes a member the active controller, which holds all that is committed.
func (c *cluster) lead(member int) {
	c.t.Helper()
	c.leader = member
	c.active().HearsMajority(core.Never)
	c.run(func(ctl *Controller, out *Out) { ctl.Lead(c.now, out) })
}

// depose takes the leader away. Of what it proposed, the first keep records are committed by the next leader.
func (c *cluster) depose(next, keep int) {
	c.t.Helper()
	var out Out
	c.active().Lost(c.now, &out)
	c.collect(&out)
	c.truncate(c.done + keep)
	c.leader = next
	c.apply(len(c.log))
	c.tellCommitted()
	c.lead(next)
}

// truncate cuts the log, at the end of a batch.
func (c *cluster) truncate(end int) {
	c.log = c.log[:end]
	c.ends = slices.DeleteFunc(c.ends, func(e int) bool { return e > end })
}

// commit commits everything that is proposed.
func (c *cluster) commit() { c.commitTo(len(c.log)) }

// commitTo commits the log below an offset.
func (c *cluster) commitTo(end int) {
	c.t.Helper()
	c.apply(end)
	c.tellCommitted()
	c.run(func(ctl *Controller, out *Out) { ctl.Committed(c.now, int64(c.done), out) })
}

// tellCommitted tells the members that do not lead, as a broker does whether its controller is active or not.
func (c *cluster) tellCommitted() {
	for i, m := range c.members {
		if i != c.leader {
			var out Out
			m.Committed(c.now, int64(c.done), &out)
			require.Empty(c.t, out.Records)
			c.collect(&out)
		}
	}
}

func (c *cluster) apply(end int) {
	for ; c.done < end; c.done++ {
		for i, im := range c.images {
			d, err := im.Apply(int64(c.done), c.log[c.done])
			require.NoError(c.t, err)
			if i == c.leader && c.onApply != nil {
				c.onApply(d)
			}
		}
	}
}

// send hands a request to the leader and returns its token.
func (c *cluster) send(req kmsg.Request) Token {
	c.t.Helper()
	c.token++
	token := c.token
	c.run(func(ctl *Controller, out *Out) { ctl.Handle(c.now, req, token, out) })
	return token
}

// ask sends a request, commits what it led to, and returns the answer.
func (c *cluster) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	token := c.send(req)
	c.commit()
	resp := c.answers[token]
	if resp == nil {
		c.t.Fatalf("%T was not answered", req)
	}
	return resp
}

// tick lets time pass, in steps small enough that nothing seems paused.
func (c *cluster) tick(d time.Duration) {
	c.t.Helper()
	end := c.now.Add(d)
	for c.now < end {
		c.now = core.Earlier(end, core.Earlier(max(c.active().Deadline(), c.now+ms), c.now.Add(50*time.Millisecond)))
		c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
		c.commit()
	}
}

func registrationOf(id int32, life byte) *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.Version, r.BrokerID, r.PreviousBrokerEpoch = 4, id, -1
	r.IncarnationID = [16]byte{byte(id), life, 1}
	r.LogDirs = [][16]byte{{byte(id), 0, 1}}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", fmt.Sprintf("host-%d", id), 9092
	r.Listeners = append(r.Listeners, l)
	return r
}

func (c *cluster) register(req *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	c.t.Helper()
	resp := c.ask(req).(*kmsg.BrokerRegistrationResponse)
	if resp.ErrorCode == 0 {
		c.epochs[req.BrokerID] = resp.BrokerEpoch
	}
	return resp
}

func (c *cluster) beat(id int32) *kmsg.BrokerHeartbeatRequest {
	r := kmsg.NewPtrBrokerHeartbeatRequest()
	r.Version, r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = 1, id, c.epochs[id], int64(c.done-1)
	return r
}

func (c *cluster) heartbeat(id int32) *kmsg.BrokerHeartbeatResponse {
	c.t.Helper()
	return c.ask(c.beat(id)).(*kmsg.BrokerHeartbeatResponse)
}

// start registers and unfences brokers.
func (c *cluster) start(ids ...int32) {
	c.t.Helper()
	for _, id := range ids {
		require.Zero(c.t, c.register(registrationOf(id, 1)).ErrorCode)
		require.False(c.t, c.heartbeat(id).IsFenced)
	}
}

// live lets time pass while these brokers send heartbeats.
func (c *cluster) live(d time.Duration, ids ...int32) {
	c.t.Helper()
	for end := c.now.Add(d); c.now < end; {
		for _, id := range ids {
			c.heartbeat(id)
		}
		c.tick(min(100*time.Millisecond, end.Sub(c.now)))
	}
}

type topicOption func(*kmsg.CreateTopicsRequestTopic)

func assigned(replicas ...[]int32) topicOption {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		for i, r := range replicas {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), r
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
	}
}

func configured(name, value string) topicOption {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		e.Name, e.Value = name, &value
		t.Configs = append(t.Configs, e)
	}
}

func createRequest(name string, options ...topicOption) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for _, o := range options {
		o(&t)
	}
	r.Topics = append(r.Topics, t)
	return r
}

// create creates a topic and returns its first partition.
func (c *cluster) create(name string, options ...topicOption) core.Partition {
	c.t.Helper()
	t := c.ask(createRequest(name, options...)).(*kmsg.CreateTopicsResponse).Topics[0]
	require.Zero(c.t, t.ErrorCode, "%v", t.ErrorMessage)
	return core.Partition{Topic: t.TopicID}
}

// proposal is a leader's AlterPartition for one partition as it is now, with the members' current epochs.
func (c *cluster) proposal(p core.Partition, isr ...int32) *kmsg.AlterPartitionRequest {
	st := c.image().Partition(p)
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version, r.BrokerID, r.BrokerEpoch = 3, st.Leader, c.epochs[st.Leader]
	t := kmsg.NewAlterPartitionRequestTopic()
	t.TopicID = p.Topic
	x := kmsg.NewAlterPartitionRequestTopicPartition()
	x.Partition, x.LeaderEpoch, x.PartitionEpoch = p.Index, st.LeaderEpoch, st.Epoch
	for _, id := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = id, c.epochs[id]
		x.NewEpochISR = append(x.NewEpochISR, m)
	}
	t.Partitions = append(t.Partitions, x)
	r.Topics = append(r.Topics, t)
	return r
}

// alter proposes an in-sync set and returns the outcome for the partition.
func (c *cluster) alter(r *kmsg.AlterPartitionRequest) kmsg.AlterPartitionResponseTopicPartition {
	c.t.Helper()
	resp := c.ask(r).(*kmsg.AlterPartitionResponse)
	require.Zero(c.t, resp.ErrorCode)
	return resp.Topics[0].Partitions[0]
}

// state describes a partition in one line.
func (c *cluster) state(p core.Partition) string {
	st := c.image().Partition(p)
	s := fmt.Sprintf("leader %d isr %v", st.Leader, st.ISR)
	if len(st.ELR) > 0 {
		s += fmt.Sprintf(" elr %v", st.ELR)
	}
	if len(st.LastELR) > 0 && !slices.Contains(st.ELR, st.LastELR[0]) { // of somebody eligible it does not matter
		s += fmt.Sprintf(" last %v", st.LastELR)
	}
	if st.Recovering {
		s += " recovering"
	}
	return s
}

// logged reports whether a line of at least this level has the words.
func (c *cluster) logged(level int, words string) bool {
	return slices.ContainsFunc(c.lines, func(l Line) bool { return l.Level >= level && l.Msg == words })
}

// partitionOf returns the first partition of a topic.
func (c *cluster) partitionOf(topic string) core.Partition {
	return core.Partition{Topic: c.image().Topic(topic).ID}
}
