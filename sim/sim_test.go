package sim

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/sim/seed"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSwarm runs a modest number of short worlds, each twice. A failure prints how to repeat it.
func TestSwarm(t *testing.T) {
	var out strings.Builder
	err := SwarmCommand(&out, SwarmCommandOptions{SwarmOptions: SwarmOptions{From: 1, To: 60, Cut: short}})
	t.Log("\n" + out.String())
	require.NoError(t, err)
}

// short makes worlds cheap enough for go test.
var short = Cut{Duration: 3 * time.Second, Partitions: 3}

// TestDeterminism: the hash does not depend on the number of processors, on what
// ran before, or on whether somebody watches.
func TestDeterminism(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for s := uint64(1000); s < 1010; s++ {
		p := short.Plan(s)
		runtime.GOMAXPROCS(1)
		one := RunPlan(p, Options{})
		runtime.GOMAXPROCS(2)
		two := RunPlan(p, Options{Trace: true})
		require.Equal(t, one.Hash, two.Hash, "seed %d", s)
		require.Equal(t, one.Stats.Events, two.Stats.Events)
		require.NotEmpty(t, two.Trace.Entries)
	}
	require.NotEqual(t, RunPlan(short.Plan(1), Options{}).Hash, RunPlan(short.Plan(2), Options{}).Hash)
}

// TestEveryFaultHappens: each kind of fault comes to pass and changes something in some of a few worlds that know
// no other; one that never does is a defect of the simulator.
func TestEveryFaultHappens(t *testing.T) {
	for i, maker := range faultMakers {
		c := seed.New(uint64(i), seed.Label("test"))
		var f FaultCount
		for s := uint64(1); s < 40 && f.Mattered == 0; s++ {
			p := short.Plan(s)
			p.Faults, p.PowerLossAtEnd, p.Brokers[0].DiskBytes = nil, false, 0
			for range 6 {
				p.Faults = append(p.Faults, maker.draw(p, &c))
			}
			r := RunPlan(p, Options{})
			require.Nil(t, r.Failure, "seed %d with %s alone", s, p.Faults[0].Name())
			f = *r.Stats.fault(p.Faults[0].Name())
		}
		require.Positive(t, f.Planned, f.Name)
		require.Positive(t, f.Happened, "%s never happens", f.Name)
		require.Positive(t, f.Mattered, "%s never matters", f.Name)
	}
}

// TestSeeSaw: in some of the worlds that know the fault a follower is two elections behind, and hears of one.
func TestSeeSaw(t *testing.T) {
	apart := int64(0)
	for s := uint64(1); apart == 0; s++ {
		p := Draw(s)
		if !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == SeeSaw }) {
			continue
		}
		r := RunPlan(p, Options{})
		require.Nil(t, r.Failure, "seed %d", s)
		apart = r.Stats.fault(SeeSaw.String()).Mattered
		require.Less(t, s, uint64(2000))
	}
}

// TestFaultStreams: removing a fault changes neither the topics and clients that are drawn nor the other faults.
func TestFaultStreams(t *testing.T) {
	p := Draw(77)
	q := Cut{Faults: []int{0}}.Apply(p)
	require.Equal(t, p.Clients, q.Clients)
	if len(p.Faults) > 1 {
		require.Equal(t, p.Faults[1:], q.Faults)
	}
}

func TestTraceReads(t *testing.T) {
	var out, trace, page bytes.Buffer
	require.NoError(t, RunCommand(&out, RunOptions{Seed: 3, Duration: time.Second, Trace: &trace, HTML: &page, Plan: true}))
	require.Contains(t, out.String(), "seed 3  hash ")
	for _, want := range []string{"producer-0", " ready ", " send ", " receive ", " append: "} {
		require.True(t, strings.Contains(trace.String(), want), "the trace lacks %q", want)
	}
	require.True(t, strings.HasSuffix(strings.TrimSpace(page.String()), "</html>"))
	require.Error(t, RunCommand(&out, RunOptions{Seed: 3, Cut: "nonsense"}))
}

// TestQueueOrder: by time, then in the order of being added; cancelled events do not come.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		var live []*event
		n := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				e := q.add(Time(rapid.IntRange(0, 20).Draw(t, "at")), nil, 1)
				n++
				e.n = n
				live = append(live, e)
			},
			"cancel": func(t *rapid.T) {
				if len(live) > 0 {
					i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
					q.cancel(live[i])
					live = append(live[:i], live[i+1:]...)
				}
			},
			"next": func(t *rapid.T) {
				e := q.next()
				if len(live) == 0 {
					require.Nil(t, e)
					return
				}
				best := 0
				for i := range live {
					if earlier(live[i], live[best]) {
						best = i
					}
				}
				require.Same(t, live[best], e)
				live = append(live[:best], live[best+1:]...)
				q.free(e)
			},
		})
	})
}

func TestValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(1, 1<<40).Draw(t, "v")
		p := appendValue(nil, v, rapid.IntRange(8, 300).Draw(t, "size"))
		got, ok := readValue(p)
		require.True(t, ok)
		require.Equal(t, v, got)
		i := rapid.IntRange(0, len(p)-1).Draw(t, "i")
		p[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		got, ok = readValue(p)
		require.False(t, ok && got == v)
	})
	c := seed.New(1)
	for range 1000 {
		v := c.Skewed(5, 50)
		require.True(t, v >= 5 && v <= 50)
	}
}
