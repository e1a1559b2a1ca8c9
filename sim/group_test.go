package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lockstep/sim/seed"
	"pgregory.net/rapid"
)

// TestGroups: in worlds with groups members get assignments, commit, and go on from what they committed; and everything that
// may happen to a member does.
func TestGroups(t *testing.T) {
	var sum Stats
	modern, classic := 0, 0
	for s := uint64(1); s < 40; s++ {
		p := short.Plan(s)
		if n := len(p.Clients); p.Clients[n-1].Kind != Member {
			continue
		} else if p.Clients[n-1].Member.Modern {
			modern++
		} else {
			classic++
		}
		r := RunPlan(p, Options{})
		require.Nil(t, r.Failure, "seed %d", s)
		sum.Add(&r.Stats)
	}
	require.Positive(t, modern)
	require.Positive(t, classic)
	require.Positive(t, sum.Assignments)
	require.Positive(t, sum.Commits)
	require.Positive(t, sum.Resumed)
	for kind := MemberDeath; kind <= MemberLeave; kind++ {
		require.Positive(t, sum.fault(kind.String()).Happened, kind.String())
		require.Positive(t, sum.fault(kind.String()).Mattered, kind.String())
	}
}

// TestMixedGroups: groups are upgraded and downgraded, and members change what they read and take each other's places.
func TestMixedGroups(t *testing.T) {
	var sum Stats
	for s := uint64(1); s < 250; s++ {
		p := short.Plan(s)
		rare, modern := false, map[string]bool{}
		for i := range p.Clients {
			if m := p.Clients[i].Member; m != nil {
				was, seen := modern[m.Group]
				rare = rare || m.Twin || len(m.Subs) > 1 || m.Cooperative || seen && was != m.Modern
				modern[m.Group] = m.Modern
			}
		}
		if rare {
			r := RunPlan(p, Options{})
			require.Nil(t, r.Failure, "seed %d", s)
			sum.Add(&r.Stats)
		}
	}
	require.Positive(t, sum.Upgrades)
	require.Positive(t, sum.Downgrades)
	for _, kind := range []FaultKind{MemberSubscribe, MemberTwin} {
		require.Positive(t, sum.fault(kind.String()).Mattered, kind.String())
	}
}

// TestRollingAssignors: groups change from eager to cooperative rebalancing while they work.
func TestRollingAssignors(t *testing.T) {
	var sum Stats
	groups := 0
	for s := uint64(1); sum.Rolled == 0 || groups < 5; s++ {
		require.Less(t, s, uint64(3000))
		p := Draw(s)
		if !slices.ContainsFunc(p.Clients, func(c ClientPlan) bool { return c.Member != nil && c.Member.Rolls }) {
			continue
		}
		groups++
		r := RunPlan(p, Options{})
		require.Nil(t, r.Failure, "seed %d", s)
		sum.Add(&r.Stats)
	}
}

// TestGroupStreams: groups change nothing of what a seed draws besides; they come last.
func TestGroupStreams(t *testing.T) {
	for s := uint64(1); s < 30; s++ {
		with, without := drawPlain(s, 0), drawOne(s)
		if size := seed.New(s, seed.Label("size")); drawSize(&size) > 1 {
			continue
		}
		require.Equal(t, without.Clients, with.Clients[:len(without.Clients)])
		for i := range without.Faults {
			require.Equal(t, without.Faults[i], with.Faults[i])
		}
		require.Equal(t, without.Topics, with.Topics)
		for _, c := range with.Clients[len(without.Clients):] {
			require.Equal(t, Member, c.Kind)
		}
	}
}

func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spans
		got := map[int64]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			from := rapid.Int64Range(0, 30).Draw(t, "from")
			to := from + rapid.Int64Range(0, 8).Draw(t, "size")
			s.add(from, to)
			for i := from; i < to; i++ {
				got[i] = true
			}
		}
		from, to := rapid.Int64Range(0, 40).Draw(t, "lo"), rapid.Int64Range(0, 40).Draw(t, "hi")
		want := int64(-1)
		for i := from; i < to && want < 0; i++ {
			if !got[i] {
				want = i
			}
		}
		require.Equal(t, want, s.missing(from, to))
	})
}

// TestCommitOracle: what OffsetFetch may answer after acknowledged, refused and unanswered commits.
func TestCommitOracle(t *testing.T) {
	w := newWorld(&Plan{Topics: []TopicPlan{{Name: "t0", Partitions: 1}}, Brokers: []BrokerPlan{{}}}, Options{})
	m := &member{clientBase: clientBase{w: w, name: "m"}}
	g := &groupTruth{w: w, name: "g", classic: true, parts: map[partOf]*groupPart{}}
	h := &holding{}
	send := func(name string, at Time, epoch int32, offset int64) *commitOp {
		w.now = at
		op := &commitOp{h: h, offset: offset, epoch: epoch, name: name, begun: at}
		g.committing(h, op)
		return op
	}
	says := func(offset int64, name string, sent Time) string {
		w.failure = nil
		g.fetched("m", 0, 0, foundOffset{offset: offset, metadata: name}, sent)
		if w.failure == nil {
			return ""
		}
		return w.failure.Kind
	}
	one := send("one", 10, 1, 5)
	require.Empty(t, says(-1, "", 11), "nobody knows whether it came")
	require.Empty(t, says(5, "one", 11))
	w.now = 20
	g.committed(m, one, 0)
	require.Equal(t, "committed offset lost", says(-1, "", 21))
	send("two", 30, 1, 9)
	require.Empty(t, says(5, "one", 31))
	require.Empty(t, says(9, "two", 31))
	require.Equal(t, "commit from nowhere", says(7, "two", 31))
	three := send("three", 40, 2, 12)
	w.now = 50
	g.committed(m, three, 0)
	require.Equal(t, "committed offset lost", says(9, "two", 51), "one of an epoch that was over then")
	four := send("four", 60, 2, 15)
	g.committed(m, four, 22)
	require.Equal(t, "refused commit", says(15, "four", 70))
	g.began(3)
	w.failure = nil
	g.committed(m, send("five", 80, 2, 16), 0)
	require.Equal(t, "stale commit", w.failure.Kind)
}

// TestOwnerOracle: a partition has no second owner while the first one cannot have been given up.
func TestOwnerOracle(t *testing.T) {
	w := newWorld(&Plan{Topics: []TopicPlan{{Name: "t0", Partitions: 1}}, Brokers: []BrokerPlan{{}}}, Options{})
	g := &groupTruth{w: w, name: "g", parts: map[partOf]*groupPart{}}
	plan := &MemberPlan{Session: time.Second, Rebalance: time.Second}
	a := &member{clientBase: clientBase{w: w, name: "a", index: 1}, epoch: 1, g: g, mp: plan}
	b := &member{clientBase: clientBase{w: w, name: "b", index: 2}, epoch: 2, g: g, mp: plan, heard: second, clear: second}
	g.acquired(a, &holding{epoch: 1})
	w.now = second
	g.acquired(b, &holding{epoch: 2})
	require.Nil(t, w.failure, "the session of a may have ended")
	a.heard, a.clear = second, second
	c := &member{clientBase: clientBase{w: w, name: "c", index: 3}, epoch: 3, g: g, mp: plan, heard: second, clear: second}
	g.acquired(c, &holding{epoch: 3})
	require.Equal(t, "two owners", w.failure.Kind)
}
