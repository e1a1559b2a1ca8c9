package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// robot is a client in the random test: a member of one of the groups that does what a client does next whenever it is its
// turn, and may crash, sleep, lose an answer, or be slow to give up partitions.
type robot struct {
	*model
	classic *classicMember // one of the two
	consume *newMember

	wait    Token
	kind    kmsg.Key
	phase   string // classic: join, sync, stable
	value   int64  // what it commits in the request that waits
	part    int32
	owned   []core.Partition
	heard   core.Time // when the last request was sent that was answered without error
	sent    core.Time
	slowFor int
	deposed bool // when it sent the commit that waits, somebody else already had the partition
}

// commitment is one offset that somebody tried to commit.
type commitment struct {
	value  int64
	status string // unknown, acked, refused
}

type model struct {
	*world
	robots  []*robot
	next    int64
	tried   map[string][]*commitment // by group and partition, in the order they were sent
	byGen   map[string]string        // who was assigned a partition in a generation
	session time.Duration
}

func newModel(t *rapid.T) *model {
	m := &model{
		world: newWorld(t, func(c *Config) { c.ConsumerSession = 20 * time.Second }),
		tried: map[string][]*commitment{}, byGen: map[string]string{}, session: 20 * time.Second,
	}
	for i := range rapid.IntRange(2, 6).Draw(t, "robots") {
		r := &robot{model: m}
		var instance *string
		if rapid.Bool().Draw(t, "static") {
			instance = ptr(fmt.Sprint("i", i))
		}
		if rapid.Bool().Draw(t, "classic") {
			r.classic = m.member("c")
			r.classic.session, r.classic.rebalance, r.classic.instance = m.session, 40*time.Second, instance
			r.classic.version = int16(rapid.IntRange(3, 9).Draw(t, "version"))
			if r.classic.version < 5 {
				r.classic.instance = nil
			}
		} else {
			r.consume = m.consumer("k", "t")
			r.consume.timeout, r.consume.instance = 40*time.Second, instance
		}
		r.phase = "join"
		m.robots = append(m.robots, r)
	}
	return m
}

// crash lets a process die and start again, without anything it knew but its instance id.
func (r *robot) crash() {
	r.abandon()
	r.owned, r.phase = nil, "join"
	if r.classic != nil {
		r.classic.id, r.classic.generation = "", -1
		return
	}
	r.made++
	fresh := r.world.consumer("k", "t")
	fresh.timeout, fresh.instance = r.consume.timeout, r.consume.instance
	r.consume = fresh
}

// abandon closes the connection of a request that waits.
func (r *robot) abandon() {
	if r.wait != 0 {
		r.c.Cancel(r.now, r.wait)
		r.wait = 0
		if r.consume != nil { // it does not know what of it was heard
			r.consume.full = true
		}
	}
}

func (r *robot) ask(req kmsg.Request) {
	r.sent, r.kind = r.now, kmsg.Key(req.Key())
	r.wait = r.send(req)
}

// step does what a client does next.
func (r *robot) step(commit bool) {
	if r.wait != 0 {
		a, ok := r.answers[r.wait]
		if !ok {
			return
		}
		r.wait = 0
		r.take(a)
		return
	}
	switch {
	case commit && len(r.owned) > 0:
		r.commit()
	case r.consume != nil:
		r.consume.owned = r.owned
		r.ask(r.consume.request())
	case r.phase == "join":
		r.ask(r.classic.joinRequest())
	case r.phase == "sync":
		r.ask(r.syncRequest())
	default:
		h := kmsg.NewPtrHeartbeatRequest()
		h.Version, h.Group, h.MemberID, h.InstanceID, h.Generation = 4, "c", r.classic.id, r.classic.instance, r.classic.generation
		r.ask(h)
	}
}

func (r *robot) commit() {
	r.next++
	r.value, r.part = r.next, r.owned[0].Index
	r.deposed = r.isDeposed(r.owned[0])
	group, id, epoch, instance := "k", "", int32(0), (*string)(nil)
	if r.classic != nil {
		group, id, epoch, instance = "c", r.classic.id, r.classic.generation, r.classic.instance
	} else {
		id, epoch = r.consume.id, r.consume.epoch
	}
	req := commitRequest(group, id, epoch, map[string]int64{"t": r.value})
	req.InstanceID = instance
	req.Topics[0].Partitions[0].Partition = r.part
	key := fmt.Sprint(group, r.part)
	c := &commitment{r.value, "unknown"}
	r.tried[key] = append(r.tried[key], c)
	r.ask(req)
}

// isDeposed says whether somebody else was given a partition since.
func (r *robot) isDeposed(p core.Partition) bool {
	if r.classic != nil {
		last := int32(0)
		for g := range int32(1000) {
			if r.byGen[fmt.Sprint(g, "/", p.Index)] != "" {
				last = g
			}
		}
		return r.classic.generation < last
	}
	return slices.ContainsFunc(r.robots, func(o *robot) bool {
		return o != r && o.consume != nil && o.now < o.heard.Add(o.session) && has(o.owned, p)
	})
}

// take takes the answer to its request.
func (r *robot) take(a kmsg.Response) {
	code := errNone
	switch a := a.(type) {
	case *kmsg.OffsetCommitResponse:
		r.committed(a.Topics[0].Partitions[0].ErrorCode)
		return
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.consume.slow = r.slowFor > 0
		r.slowFor--
		code = r.consume.take(a)
		r.owned = r.consume.owned
	case *kmsg.JoinGroupResponse:
		code = a.ErrorCode
		r.classic.id = a.MemberID
		if code == errNone {
			r.classic.generation, r.classic.leader, r.classic.others = a.Generation, a.LeaderID == a.MemberID && !a.SkipAssignment, a.Members
			r.phase = "sync"
		}
	case *kmsg.SyncGroupResponse:
		if code = a.ErrorCode; code == errNone {
			r.assigned(a.MemberAssignment)
		}
	case *kmsg.HeartbeatResponse:
		code = a.ErrorCode
	}
	if code == errNone {
		r.heard = r.sent
	}
	if r.classic != nil {
		r.classicError(code)
	}
}

func (r *robot) classicError(code int16) {
	switch code {
	case errNone:
		return
	case errUnknownMemberID, errFencedInstanceID:
		r.classic.id = ""
	case errMemberIDRequired, errRebalanceInProgress, errIllegalGeneration:
	case errNotCoordinator, errCoordinatorNotAvailable, errCoordinatorLoading: // the same again
		return
	case errServer:
	default:
		require.Fail(r.t, "unexpected error", "%d", code)
	}
	r.owned, r.phase = nil, "join"
}

// assigned takes an assignment: in one generation nobody else has any of it.
func (r *robot) assigned(b []byte) {
	r.owned, r.phase = r.c.readAssignment(b), "stable"
	me := r.classic.id
	if r.classic.instance != nil {
		me = *r.classic.instance // may return within a generation
	}
	for _, p := range r.owned {
		key := fmt.Sprint(r.classic.generation, "/", p.Index)
		require.Contains(r.t, []string{"", me}, r.byGen[key], "partition %d has two owners in generation %d", p.Index, r.classic.generation)
		r.byGen[key] = me
	}
}

func (r *robot) syncRequest() *kmsg.SyncGroupRequest {
	e := eager{classicMember: r.classic}
	return e.request()
}

func (r *robot) committed(code int16) {
	key := "k"
	if r.classic != nil {
		key = "c"
	}
	for _, c := range r.tried[fmt.Sprint(key, r.part)] {
		if c.value != r.value {
			continue
		}
		switch code {
		case errNone:
			require.False(r.t, r.deposed, "it had lost the partition when it sent this")
			c.status = "acked"
		case errNotCoordinator: // may be in the log
		default:
			c.status = "refused"
		}
	}
	switch code {
	case errNone, errNotCoordinator, errCoordinatorNotAvailable, errCoordinatorLoading, errInvalidCommitOffsetSize:
	case errStaleMemberEpoch: // learns the new one by its next heartbeat
	case errRebalanceInProgress, errIllegalGeneration, errUnknownMemberID, errFencedInstanceID:
		if r.classic != nil {
			r.classicError(code)
		} else {
			r.consume.take(&kmsg.ConsumerGroupHeartbeatResponse{ErrorCode: code})
			r.owned = nil
		}
	default:
		require.Fail(r.t, "unexpected error", "%d", code)
	}
}

// check checks what must hold at any time.
func (m *model) check() {
	owners := map[core.Partition]*robot{}
	for _, r := range m.robots {
		// a member that has not been heard for a session timeout knows that it may be none any more
		if r.consume == nil || m.now >= r.heard.Add(m.session) {
			continue
		}
		for _, p := range r.owned {
			require.Nil(m.t, owners[p], "%v has two owners", p)
			owners[p] = r
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.tried)) {
		m.checkOffset(key)
	}
}

// checkOffset checks that an offset is the last that was acknowledged, or one that was tried after it and not refused.
func (m *model) checkOffset(key string) {
	list := m.tried[key]
	got := int64(-1)
	if g := m.c.parts[0].groups[key[:1]]; g != nil {
		if o := g.findOffset("t", int32(key[1]-'0')); o != nil {
			got = o.offset
		}
	}
	possible := []int64{-1}
	for _, c := range list {
		switch c.status {
		case "acked":
			possible = []int64{c.value}
		case "unknown":
			possible = append(possible, c.value)
		}
	}
	require.Contains(m.t, possible, got, "offset of %s", key)
}

// TestRandomGroups drives members of both protocols through crashes, pauses, lost answers, failed writes and coordinators that
// change, and checks that nothing is owned twice and no committed offset lost, that a replay gives the same state, and that in
// the end all settles.
func TestRandomGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		who := func(t *rapid.T) *robot { return rapid.SampledFrom(m.robots).Draw(t, "who") }
		step := func(t *rapid.T) { who(t).step(false) }
		t.Repeat(map[string]func(*rapid.T){
			"step": step, "step2": step, "step3": step, "step4": step, "step5": step,
			"commit":  func(t *rapid.T) { who(t).step(true) },
			"crash":   func(t *rapid.T) { who(t).crash() },
			"lose":    func(t *rapid.T) { who(t).abandon() },
			"slow":    func(t *rapid.T) { who(t).slowFor = 4 },
			"sleep":   func(t *rapid.T) { m.sleep(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second) },
			"hold":    func(*rapid.T) { m.hold = true },
			"release": func(*rapid.T) { m.release() },
			"commitOne": func(*rapid.T) {
				if len(m.pending) > 0 {
					m.commitOne()
				}
			},
			"failOne": func(t *rapid.T) {
				if len(m.pending) > 0 {
					m.failOne(rapid.SampledFrom([]int16{19, 6, 10}).Draw(t, "code"))
				}
			},
			"failover": func(t *rapid.T) {
				calm, before := len(m.pending) == 0, kept(m.c)
				m.failover(rapid.IntRange(0, len(m.pending)).Draw(t, "survive"))
				if calm {
					require.Equal(t, before, kept(m.c), "a replay gives another state")
				}
			},
			"leave": func(t *rapid.T) {
				if r := who(t); r.consume != nil && r.wait == 0 && r.consume.epoch > 0 {
					req := r.consume.request()
					req.MemberEpoch = -1
					r.send(req)
					r.crash()
				}
			},
			"": func(*rapid.T) { m.check() },
		})
		m.settle()
	})
}

// settle lets all live in peace, and checks that in bounded time everything is owned and stays so.
func (m *model) settle() {
	m.release()
	for _, r := range m.robots {
		r.slowFor = 0
	}
	for range 60 {
		for range 3 {
			for _, r := range m.robots {
				r.step(false)
			}
		}
		m.check()
		m.sleep(2 * time.Second)
	}
	owned := map[string]int{}
	for _, r := range m.robots {
		kind := "k"
		if r.classic != nil {
			kind = "c"
			require.Equal(m.t, "stable", r.phase)
		}
		owned[kind] += len(r.owned)
	}
	for _, kind := range slices.Sorted(maps.Keys(owned)) {
		require.Equal(m.t, 4, owned[kind], "all of t is owned in %s", kind)
	}
	before := kept(m.c)
	m.failover(0)
	require.Equal(m.t, before, kept(m.c))
}
