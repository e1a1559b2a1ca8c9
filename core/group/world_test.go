package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is a coordinator with its log of one partition, and what it answered.
type world struct {
	t       require.TestingT
	c       *Coordinator
	out     Out
	now     core.Time
	cfg     Config
	topics  *fakeTopics
	rand    core.Rand
	log     []Record // committed, or about to be
	times   []int64  // of the first records of log: their timestamps
	pending []Write  // not answered yet
	hold    bool     // writes stay pending
	token   Token
	asked   map[Token]kmsg.Request
	answers map[Token]kmsg.Response
	lines   []string
	made    int
}

const wallStart = 1_700_000_000_000

func (w *world) wall() core.WallMillis {
	return wallStart + core.WallMillis(time.Duration(w.now).Milliseconds())
}

// fakeTopics are the topics of the cluster.
type fakeTopics struct {
	names []string // sorted
	ids   map[string]core.TopicID
	parts map[string]int32
	made  byte
}

func (f *fakeTopics) create(name string, n int32) core.TopicID {
	f.made++
	f.drop(name)
	f.names = append(f.names, name)
	slices.Sort(f.names)
	f.ids[name], f.parts[name] = core.TopicID{0: f.made}, n
	return f.ids[name]
}

func (f *fakeTopics) drop(name string) {
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
	delete(f.ids, name)
	delete(f.parts, name)
}

func (f *fakeTopics) Topic(name string) (core.TopicID, int32, bool) {
	id, ok := f.ids[name]
	return id, f.parts[name], ok
}

func (f *fakeTopics) TopicByID(id core.TopicID) (string, int32, bool) {
	for _, n := range f.names {
		if f.ids[n] == id {
			return n, f.parts[n], true
		}
	}
	return "", 0, false
}

func (f *fakeTopics) TopicNames(yield func(string) bool) {
	for _, n := range f.names {
		if !yield(n) {
			return
		}
	}
}

func (f *fakeTopics) Rack(core.TopicID, int32) []string { return nil }

func newWorld(t require.TestingT, configure ...func(*Config)) *world {
	w := &world{
		t: t, now: core.Time(time.Hour), rand: rand.NewPCG(1, 2),
		topics: &fakeTopics{ids: map[string]core.TopicID{}, parts: map[string]int32{}},
		asked:  map[Token]kmsg.Request{}, answers: map[Token]kmsg.Response{},
		cfg: Config{Partitions: 1},
	}
	for _, f := range configure {
		f(&w.cfg)
	}
	w.topics.create("t", 4)
	w.topics.create("u", 3)
	w.start()
	return w
}

// start begins a coordinator that loads what is committed.
func (w *world) start() {
	w.c = New(w.cfg, w.topics, w.rand)
	w.c.Lead(0, 1)
	for i, r := range w.log {
		at := int64(0)
		if i < len(w.times) {
			at = w.times[i]
		}
		w.c.Load(0, slices.Clone(r.Key), slices.Clone(r.Value), at)
	}
	w.c.Loaded(w.now, w.wall(), 0, &w.out)
	w.collect()
}

// failover lets another broker lead. Of the writes that are pending the first n made it into the log.
func (w *world) failover(n int) {
	pending := w.pending
	w.pending = nil
	for _, p := range pending[:n] {
		w.store(p)
	}
	w.c.Resign(w.now, 0, &w.out)
	w.collect()
	require.Empty(w.t, w.pending, "written after giving up the partition")
	require.Empty(w.t, w.c.timers.Len())
	require.Empty(w.t, w.c.where)
	require.Empty(w.t, w.c.writes)
	w.start()
}

// store puts what is written into the log.
func (w *world) store(p Write) {
	for range p.Records {
		w.times = append(w.times, int64(w.wall()))
	}
	w.log = append(w.log, p.Records...)
}

// collect takes what a call wants done. What is written is committed at once unless hold is set.
func (w *world) collect() {
	for {
		writes, answers := slices.Clone(w.out.Writes), slices.Clone(w.out.Answers)
		for _, l := range w.out.Lines {
			require.True(w.t, l.Level < levelError || strings.Contains(l.Msg, "too large"), "%v", l)
			w.lines = append(w.lines, l.Msg)
		}
		w.out.Reset()
		w.pending = append(w.pending, writes...)
		for _, a := range answers {
			req, asked := w.asked[a.Token]
			_, answered := w.answers[a.Token]
			require.True(w.t, asked && !answered, "nobody asked, or it is answered twice")
			w.answers[a.Token] = w.overWire(req, a.Msg)
		}
		if len(w.pending) == 0 || w.hold {
			return
		}
		p := w.pending[0]
		w.pending = w.pending[1:]
		w.store(p)
		w.c.Committed(w.now, p.Seq, &w.out)
	}
}

// overWire returns an answer as a client of its version sees it.
func (w *world) overWire(req kmsg.Request, resp kmsg.Response) kmsg.Response {
	require.Equal(w.t, req.Key(), resp.Key())
	require.Equal(w.t, req.GetVersion(), resp.GetVersion(), "%T", resp)
	out := req.ResponseKind()
	require.NoError(w.t, out.ReadFrom(resp.AppendTo(nil)))
	return out
}

// commitOne lets the oldest pending write be committed.
func (w *world) commitOne() {
	p := w.pending[0]
	w.pending = w.pending[1:]
	w.store(p)
	w.c.Committed(w.now, p.Seq, &w.out)
	w.collect()
}

// failOne lets the oldest pending write be refused.
func (w *world) failOne(code int16) {
	p := w.pending[0]
	w.pending = w.pending[1:]
	w.c.WriteFailed(w.now, p.Seq, code, false, &w.out)
	w.collect()
}

// release commits all that is held.
func (w *world) release() {
	w.hold = false
	w.collect()
}

// sleep lets time pass, tick by tick.
func (w *world) sleep(d time.Duration) {
	for end, steps := w.now.Add(d), 0; ; steps++ {
		require.Less(w.t, steps, 100_000, "ticks without end")
		at := w.c.Deadline()
		if at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.c.Tick(w.now, w.wall(), &w.out)
		w.collect()
	}
}

// send sends a request over the wire.
func (w *world) send(req kmsg.Request) Token { return w.sendAs("client", req) }

func (w *world) sendAs(client string, req kmsg.Request) Token {
	in := kmsg.RequestForKey(req.Key())
	in.SetVersion(req.GetVersion())
	require.NoError(w.t, in.ReadFrom(req.AppendTo(nil)))
	w.token++
	w.asked[w.token] = in
	w.c.Handle(w.now, w.wall(), w.token, Client{client, "/127.0.0.1"}, in, &w.out)
	w.collect()
	return w.token
}

// answerTo returns what a request was answered with; nil if it waits, or was a request of another kind.
func answerTo[T kmsg.Response](w *world, token Token) T {
	a, _ := w.answers[token].(T)
	return a
}

// ask sends a request that is answered at once.
func ask[T kmsg.Response](w *world, req kmsg.Request) T {
	token := w.send(req)
	require.NotNil(w.t, w.answers[token], "%T is not answered", req)
	return answerTo[T](w, token)
}

func subscription(topics ...string) []byte {
	s := kmsg.NewConsumerMemberMetadata()
	s.Topics = topics
	return s.AppendTo(nil)
}

// classicMember is a client's side of a member of the classic protocol.
type classicMember struct {
	w          *world
	group      string
	id         string
	instance   *string
	generation int32
	leader     bool
	protocols  []string
	metadata   []byte
	version    int16
	session    time.Duration
	rebalance  time.Duration
	token      Token
	assignment []byte
	others     []kmsg.JoinGroupResponseMember
	skip       bool
}

func (w *world) member(group string) *classicMember {
	return &classicMember{
		w: w, group: group, generation: -1, protocols: []string{"range"}, metadata: subscription("t"), version: 9,
		session: 10 * time.Second, rebalance: 60 * time.Second,
	}
}

func (m *classicMember) joinRequest() *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID = m.version, m.group, m.id, m.instance
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = int32(m.session.Milliseconds()), int32(m.rebalance.Milliseconds())
	r.ProtocolType = "consumer"
	for _, name := range m.protocols {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, m.metadata
		r.Protocols = append(r.Protocols, p)
	}
	return r
}

// join sends JoinGroup, again with the id if one is handed out, and leaves the last request in token.
func (m *classicMember) join() *classicMember {
	m.token = m.w.send(m.joinRequest())
	if a := answerTo[*kmsg.JoinGroupResponse](m.w, m.token); a != nil && a.ErrorCode == errMemberIDRequired {
		m.id = a.MemberID
		m.token = m.w.send(m.joinRequest())
	}
	return m
}

// joined takes the answer to the join, which has to be there.
func (m *classicMember) joined() *kmsg.JoinGroupResponse {
	a := answerTo[*kmsg.JoinGroupResponse](m.w, m.token)
	require.NotNil(m.w.t, a, "the join still waits")
	if a.ErrorCode == errNone {
		m.id, m.generation, m.leader, m.others, m.skip = a.MemberID, a.Generation, a.LeaderID == a.MemberID, a.Members, a.SkipAssignment
	}
	return a
}

// sync sends SyncGroup; the leader gives every member its own id for an assignment.
func (m *classicMember) sync() *classicMember {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = min(m.version, 5), m.group, m.id, m.instance, m.generation
	if m.leader {
		for _, o := range m.others {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = o.MemberID, []byte(fmt.Sprint(o.MemberID, m.generation))
			r.GroupAssignment = append(r.GroupAssignment, a)
		}
	}
	m.token = m.w.send(r)
	return m
}

func (m *classicMember) synced() int16 {
	a := answerTo[*kmsg.SyncGroupResponse](m.w, m.token)
	require.NotNil(m.w.t, a, "the sync still waits")
	if a.ErrorCode == errNone {
		m.assignment = a.MemberAssignment
	}
	return a.ErrorCode
}

func (m *classicMember) heartbeat() int16 {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 4, m.group, m.id, m.instance, m.generation
	return ask[*kmsg.HeartbeatResponse](m.w, r).ErrorCode
}

func (m *classicMember) leave() int16 {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = 5, m.group
	x := kmsg.NewLeaveGroupRequestMember()
	x.MemberID, x.InstanceID = m.id, m.instance
	r.Members = append(r.Members, x)
	a := ask[*kmsg.LeaveGroupResponse](m.w, r)
	if a.ErrorCode != errNone {
		return a.ErrorCode
	}
	return a.Members[0].ErrorCode
}

func commitRequest(group, member string, generation int32, offsets map[string]int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 9, group, member, generation
	for _, topic := range []string{"gone", "t", "u"} {
		if o, ok := offsets[topic]; ok {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = topic
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Offset = o
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
		}
	}
	return r
}

// commit commits an offset of partition 0 of t.
func (m *classicMember) commit(offset int64) int16 {
	r := commitRequest(m.group, m.id, m.generation, map[string]int64{"t": offset})
	r.InstanceID = m.instance
	return ask[*kmsg.OffsetCommitResponse](m.w, r).Topics[0].Partitions[0].ErrorCode
}

// fetch returns the committed offset of partition 0 of a topic.
func (w *world) fetch(group, topic string) int64 {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	x := kmsg.NewOffsetFetchRequestGroupTopic()
	x.Topic, x.Partitions = topic, []int32{0}
	g.Topics = append(g.Topics, x)
	r.Groups = append(r.Groups, g)
	a := ask[*kmsg.OffsetFetchResponse](w, r)
	require.Zero(w.t, a.Groups[0].ErrorCode)
	return a.Groups[0].Topics[0].Partitions[0].Offset
}

// describe returns a classic group as DescribeGroups shows it.
func (w *world) describe(group string) kmsg.DescribeGroupsResponseGroup {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = 6, []string{group}
	return ask[*kmsg.DescribeGroupsResponse](w, r).Groups[0]
}

func (w *world) state(group string) string { return w.describe(group).State }

// stable makes a stable classic group of n members.
func (w *world) stable(group string, n int) (members []*classicMember) {
	for range n {
		members = append(members, w.member(group))
	}
	w.settleClassic(members)
	return members
}

// settleClassic lets members join until they are all in one generation and have an assignment.
func (w *world) settleClassic(members []*classicMember) {
	for _, m := range members {
		m.join()
	}
	for range 3 {
		for _, m := range members {
			if m.joined(); m.heartbeat() == errRebalanceInProgress {
				m.join()
			}
		}
	}
	for _, m := range members {
		m.joined()
		m.sync()
	}
	for _, m := range members {
		require.Zero(w.t, m.synced())
		require.Equal(w.t, fmt.Sprint(m.id, m.generation), string(m.assignment))
	}
}

var _ testing.TB
