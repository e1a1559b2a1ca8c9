package sim

import (
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCutTakesAway: of a world remains what is not cut.
func TestCutTakesAway(t *testing.T) {
	p := short.Plan(9)
	for s := uint64(1); len(p.Faults) < 4; s++ {
		p = short.Plan(s)
	}
	cut := Cut{Faults: []int{0}, Clients: []int{0}, Ops: 3, Duration: time.Second, Partitions: 1, NoDarkness: true}
	q := cut.Apply(p)
	require.Less(t, len(q.Faults), len(p.Faults))
	require.True(t, q.Clients[0].Off)
	require.Equal(t, len(p.Clients), len(q.Clients), "clients keep their numbers")
	require.Equal(t, time.Second, q.Duration)
	require.False(t, q.PowerLossAtEnd)
	for _, topic := range q.Topics {
		require.EqualValues(t, 1, topic.Partitions)
	}
	for _, f := range q.Faults {
		require.Less(t, f.At, q.Duration)
	}
	none := Shrink(1, "no such failure", 10)
	require.Zero(t, none.Runs, "a world that does not fail is not shrunk")
}

// drawCut draws a cut with parts of every kind.
func drawCut(t *rapid.T) Cut {
	numbers := func(name string) (l []FaultNumber) {
		for range rapid.IntRange(0, 3).Draw(t, name) {
			l = append(l, FaultNumber{rapid.IntRange(0, 30).Draw(t, "fault"), rapid.IntRange(0, 9000).Draw(t, "number")})
		}
		return l
	}
	c := Cut{
		Brokers:    rapid.IntRange(0, MaxBrokers).Draw(t, "brokers"),
		Drift:      rapid.Int64Range(0, 900_000).Draw(t, "drift"),
		Off:        rapid.SliceOfN(rapid.IntRange(0, 6), 0, 2).Draw(t, "off"),
		Faults:     rapid.SliceOfN(rapid.IntRange(0, 30), 0, 4).Draw(t, "faults"),
		Clients:    rapid.SliceOfN(rapid.IntRange(0, 30), 0, 4).Draw(t, "clients"),
		Counts:     numbers("counts"),
		Times:      numbers("times"),
		Ops:        rapid.IntRange(0, 100).Draw(t, "ops"),
		Duration:   time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond,
		Partitions: rapid.Int32Range(0, 9).Draw(t, "partitions"),
		Pace:       rapid.IntRange(0, 200).Draw(t, "pace"),
		Slow:       rapid.IntRange(0, 100).Draw(t, "slow"),
		Luck:       rapid.Uint64Range(0, 1<<40).Draw(t, "luck"),
		Whim:       rapid.Uint64Range(0, 1<<40).Draw(t, "whim"),
		Calm:       rapid.Bool().Draw(t, "n"),
		Plain:      rapid.Bool().Draw(t, "q"),
		NobodyLost: rapid.Bool().Draw(t, "g"),
		NoDarkness: rapid.Bool().Draw(t, "x"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "skips") {
		from := rapid.IntRange(1, 500).Draw(t, "from")
		c.Skips = append(c.Skips, Skip{rapid.IntRange(0, 30).Draw(t, "client"), Span{from, from + rapid.IntRange(0, 50).Draw(t, "more")}})
	}
	return c
}

// TestCutText: what a command says makes the same world as what was cut.
func TestCutText(t *testing.T) {
	letters := map[byte]bool{}
	for i := range cutParts {
		require.False(t, letters[cutParts[i].letter], "%c is there twice", cutParts[i].letter)
		letters[cutParts[i].letter] = true
	}
	rapid.Check(t, func(t *rapid.T) {
		c := drawCut(t)
		back, err := ParseCut(c.String())
		require.NoError(t, err)
		require.Equal(t, c.String(), back.String())
		seed := rapid.Uint64Range(1, 40).Draw(t, "seed")
		require.Equal(t, c.Plan(seed), back.Plan(seed), c.String())
		drawn := DrawFor(seed, c.Brokers)
		c.Apply(drawn)
		require.Equal(t, DrawFor(seed, c.Brokers), drawn, "the plan that is cut stays what it was")
	})
	for _, bad := range []string{"f", "q1", "f01", "f-1", "f1..c2", "y", "s1-2", "s1-2-3-4", "s1--3", "e1", "m1-", "x1", "n-", "b9", "z-1", "t1-"} {
		_, err := ParseCut(bad)
		require.Error(t, err, bad)
	}
}

// TestShrinkFar: a world with a planted failure, nine clients and hundreds of requests, becomes one that is read at a glance: a
// split, a write behind it, and a read that misses the write. It fails again from the text of what is cut alone.
func TestShrinkFar(t *testing.T) {
	plan := splitWorld(18, -850_000, 500_000)
	whole := RunPlan(plan, Options{})
	require.NotNil(t, whole.Failure)
	require.Equal(t, string(linearizability.StaleRead), whole.Failure.Kind)
	require.Greater(t, whole.Stats.Steps, int64(300))
	small := shrinkPlan(plan, Cut{}, whole.Failure.Kind, 150)
	t.Logf("%d of %d steps in %d runs: %s", small.Result.Stats.Steps, whole.Stats.Steps, small.Runs, small.Cut)
	require.LessOrEqual(t, small.Result.Stats.Steps, int64(10))
	require.LessOrEqual(t, small.Runs, 150)
	cut, err := ParseCut(small.Cut.String())
	require.NoError(t, err)
	again := RunPlan(cut.Apply(plan), Options{})
	require.Equal(t, whole.Failure.Kind, again.Failure.Kind)
	require.Equal(t, small.Result.Failure, again.Failure)
	require.Equal(t, small.Result.Hash, again.Hash)
	one, two := shrinkPlan(plan, Cut{}, whole.Failure.Kind, 20), shrinkPlan(plan, Cut{}, whole.Failure.Kind, 20)
	require.Equal(t, one.Cut.String(), two.Cut.String(), "what is shrunk twice becomes the same")
}

// TestSkipped: what a client passes over is not sent, and counts as begun, so that what comes after it keeps its number.
func TestSkipped(t *testing.T) {
	plan := splitWorld(1, 0, 0)
	plan.Faults = nil
	for i := range plan.Clients {
		plan.Clients[i].Off = i > 0
	}
	whole := RunPlan(plan, Options{})
	require.Nil(t, whole.Failure)
	cut := RunPlan(Cut{Skips: []Skip{{0, Span{2, 3}}, {0, Span{10, 10}}}}.Apply(plan), Options{})
	require.Nil(t, cut.Failure)
	require.EqualValues(t, whole.begun[0], whole.Stats.Steps, "every operation of a producer is one step, and nobody else is there")
	require.EqualValues(t, cut.begun[0]-3, cut.Stats.Steps)
}

func TestPass(t *testing.T) {
	one := func(client, from, to int) Skip { return Skip{client, Span{from, to}} }
	require.Equal(t, []Skip{one(0, 1, 4), one(0, 6, 6), one(2, 5, 5)}, pass([]Skip{one(0, 1, 2), one(2, 5, 5)}, []Skip{one(0, 6, 6), one(0, 3, 3), one(0, 4, 4)}))
	require.Equal(t, []Skip{one(1, 1, 9)}, pass([]Skip{one(1, 1, 9)}, []Skip{one(1, 4, 4)}))
}
