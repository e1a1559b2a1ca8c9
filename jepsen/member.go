package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// Kinds of groups: two of the classic protocol, one whose members give everything up for a rebalance and one whose members give
// up what moves, and that of KIP-848.
const (
	eager       = "eager"
	cooperative = "cooperative"
	consumer    = "consumer"
)

// memberOptions is what a member's process is told.
type memberOptions struct {
	Seeds    []string
	Group    string
	Kind     string
	Instance string // of a static member, else empty
	TopicID  [16]byte
}

// memberVariable is the environment variable that makes a process of this binary a group's member.
const memberVariable = "LOCKSTEP_JEPSEN_MEMBER"

// beMember runs a member if the process is one, and says whether it was.
func beMember() bool {
	text, ok := os.LookupEnv(memberVariable)
	if !ok {
		return false
	}
	var o memberOptions
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = (&member{o: o, out: json.NewEncoder(os.Stdout)}).run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jepsen: member:", err)
		os.Exit(1)
	}
	return true
}

// event is a line of what a member tells. It is told before what follows from it can happen: that a partition was given up
// before the coordinator knows, that records came before they are committed, that a commit begins before it is sent. So a
// member that is killed owes nothing that another could see.
type event struct {
	At         int64           `json:"at"` // on the machine's monotonic clock, which all processes share, in ns
	Kind       string          `json:"kind"`
	Partitions []int32         `json:"partitions,omitempty"` // of assigned, revoked, lost
	Member     string          `json:"member,omitempty"`     // of assigned: the id that the coordinator knows
	Generation int32           `json:"generation,omitempty"` // of assigned: the generation, or the member's epoch
	Partition  int32           `json:"partition,omitempty"`  // of polled
	Offset     int64           `json:"offset,omitempty"`     // of polled: of the first record
	Offsets    []int64         `json:"offsets,omitempty"`    // of polled, if there are gaps
	Values     []int64         `json:"values,omitempty"`     // of polled
	Commit     int64           `json:"commit,omitempty"`     // numbers a member's commits
	Commits    map[int32]int64 `json:"commits,omitempty"`    // of committing
	Error      string          `json:"error,omitempty"`      // of committed: none is a commit that was acknowledged
}

// Kinds of events.
const (
	assigned   = "assigned"
	revoked    = "revoked" // the member gives partitions up, and the coordinator waits for it
	lost       = "lost"    // the member learned that it is none any more
	polled     = "polled"
	committing = "committing"
	committed  = "committed"
)

// monotonic is the machine's clock that nobody sets.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// member is a group's member in a process of its own.
type member struct {
	o      memberOptions
	client *kgo.Client

	mu         sync.Mutex
	out        *json.Encoder
	commits    int64
	id         string                // as which it was assigned what it has, if its group is of the classic protocol
	generation int32                 // and in which generation
	owed       map[int32]*kgo.Record // by partition: the last record that came, until its commit was acknowledged
	gone       atomic.Bool           // nobody listens
}

func (m *member) tell(e event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.At = monotonic()
	if m.out.Encode(e) != nil {
		m.gone.Store(true)
	}
}

// Times of the groups. A session is the shortest that a broker allows by default, so that rounds are short, and longer than what a
// frozen broker holds up; a rebalance waits longer for a member than any commit takes.
const (
	groupSession   = 6 * time.Second
	groupHeartbeat = 300 * time.Millisecond
	groupRebalance = 30 * time.Second
	commitPatience = 10 * time.Second
)

func (m *member) options() []kgo.Opt {
	partitions := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, cl *kgo.Client, of map[string][]int32) {
			e := event{Kind: kind, Partitions: of[topic]}
			if kind == assigned {
				e.Member, e.Generation = cl.GroupMetadata()
				m.mu.Lock()
				m.id, m.generation = e.Member, e.Generation
				m.mu.Unlock()
			} else {
				m.forget(of[topic])
			}
			if len(of[topic]) > 0 {
				m.tell(e)
			}
		}
	}
	opts := append(clientOptions(m.o.Seeds), kgo.ConsumerGroup(m.o.Group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(partitions(assigned)),
		kgo.OnPartitionsRevoked(partitions(revoked)), kgo.OnPartitionsLost(partitions(lost)), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.SessionTimeout(groupSession), kgo.HeartbeatInterval(groupHeartbeat), kgo.RebalanceTimeout(groupRebalance))
	switch m.o.Kind {
	case eager:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case cooperative:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case consumer:
		opts = append(opts, kgo.ServerSideBalancer())
	}
	if m.o.Instance != "" {
		opts = append(opts, kgo.InstanceID(m.o.Instance))
	}
	return opts
}

// commitAgain is how long a member whose commit failed waits for records before it commits again.
const commitAgain = 100 * time.Millisecond

// run polls and commits until the process is told to end, by SIGTERM or by its parent's being gone.
func (m *member) run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m.owed = map[int32]*kgo.Record{}
	if m.client, err = kgo.NewClient(m.options()...); err != nil {
		return err
	}
	defer m.client.CloseAllowingRebalance()
	for ctx.Err() == nil && !m.gone.Load() {
		m.deliver(m.poll(ctx))
		m.commit()
		m.client.AllowRebalance()
	}
	return nil
}

// poll waits for records; if a commit is owed, not for long.
func (m *member) poll(ctx context.Context) kgo.Fetches {
	if len(m.debts()) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, commitAgain)
		defer cancel()
	}
	return m.client.PollRecords(ctx, 500)
}

// debts are the last records that came of partitions that the member has, and whose commit was not acknowledged.
func (m *member) debts() map[int32]*kgo.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.owed)
}

// forget owes nothing any more of partitions that are another's.
func (m *member) forget(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		delete(m.owed, p)
	}
}

// deliver tells what came, and owes its commit.
func (m *member) deliver(fetches kgo.Fetches) {
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		if len(t.Records) == 0 {
			return
		}
		e := event{Kind: polled, Partition: t.Partition, Offset: t.Records[0].Offset}
		gaps := false
		for i, r := range t.Records {
			e.Values, e.Offsets = append(e.Values, number(r.Value)), append(e.Offsets, r.Offset)
			gaps = gaps || r.Offset != e.Offset+int64(i)
		}
		if !gaps {
			e.Offsets = nil
		}
		m.tell(e)
		m.mu.Lock()
		m.owed[t.Partition] = t.Records[len(t.Records)-1]
		m.mu.Unlock()
	})
}

// commit commits what is owed. If it fails, as it does while the group rebalances, it is owed still: until it is committed,
// or until the partition is another's, who reads it again. Without that nobody might commit the last records of all.
func (m *member) commit() {
	owed := m.debts()
	if len(owed) == 0 {
		return
	}
	m.commits++
	e := event{Kind: committing, Commit: m.commits, Commits: map[int32]int64{}}
	for p, r := range owed {
		e.Commits[p] = r.Offset + 1
	}
	m.tell(e)
	ctx, cancel := context.WithTimeout(context.Background(), commitPatience)
	defer cancel()
	done := event{Kind: committed, Commit: m.commits}
	var err error
	if m.o.Kind == consumer {
		err = m.client.CommitRecords(ctx, slices.Collect(maps.Values(owed))...)
	} else {
		err = m.commitAs(ctx, e.Commits)
	}
	if err != nil {
		done.Error = err.Error()
	} else {
		m.forget(slices.Collect(maps.Keys(owed)))
	}
	m.tell(done)
}

// commitAs commits as who was assigned the partitions. franz-go's own commit waits for a join that is under way and then
// commits as whoever that made of it: a cooperative member that was removed, and joined as another before it noticed, would so
// commit for partitions that by then are another's, which a coordinator of the classic protocol cannot know.
func (m *member) commitAs(ctx context.Context, offsets map[int32]int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = m.o.Group
	m.mu.Lock()
	req.MemberID, req.Generation = m.id, m.generation
	m.mu.Unlock()
	if m.o.Instance != "" {
		req.InstanceID = &m.o.Instance
	}
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, m.o.TopicID
	for p, offset := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, offset
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, m.client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}
