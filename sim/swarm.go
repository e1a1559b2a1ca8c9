package sim

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// SwarmOptions say which worlds to run.
type SwarmOptions struct {
	From, To uint64        // seeds, both included
	For      time.Duration // or: as many from From on as there is time for
	Workers  int           // 0: one for each processor
	Once     bool          // run each seed once, without comparing hashes
	Cut      Cut           // taken away from every world
	// Found is called, one call at a time, for each world that failed.
	Found func(r Result)
	// Late is called for a world that has run for lateWorld of real time, and again after as long: a step that never ends is seen
	// by no oracle within the world. Nil: nobody wants to know.
	Late func(seed uint64, real time.Duration)
	// Stop ends the swarm at so many failures; 0 is never.
	Stop int
}

// SwarmResult is what came of many worlds.
type SwarmResult struct {
	Stats     Stats
	Real      time.Duration
	Failed    int
	Kinds     map[string][]uint64 // seeds by the kind of failure
	Undecided int                 // histories whose check did not finish
	Slowest   []Slow              // the worlds that took the most real time, slowest first
}

// Slow says of a world how long it took, both runs together.
type Slow struct {
	Seed uint64
	Real time.Duration
}

// slowestShown is how many slow worlds a swarm names.
const slowestShown = 3

// Swarm runs worlds on all processors. Each is run twice, and must come to the same hash: that is the proof that
// a failure can be repeated.
func Swarm(o SwarmOptions) SwarmResult {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // worlds are small and short-lived
	r := SwarmResult{Kinds: map[string][]uint64{}}
	start := time.Now()
	var next atomic.Uint64
	next.Store(o.From)
	var stopped atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range o.Workers {
		wg.Go(func() {
			for !stopped.Load() && (o.For == 0 || time.Since(start) < o.For) {
				s := next.Add(1) - 1
				if o.For == 0 && s > o.To {
					return
				}
				one, took := o.timed(s)
				mu.Lock()
				r.take(&one, &o)
				r.slow(Slow{Seed: s, Real: took})
				if o.Stop > 0 && r.Failed >= o.Stop {
					stopped.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.Real = time.Since(start)
	return r
}

// lateWorld is how long a world may take without being named.
const lateWorld = time.Minute

// timed runs a world twice and says how long that took.
func (o *SwarmOptions) timed(seed uint64) (Result, time.Duration) {
	begun := time.Now()
	if o.Late != nil {
		ticker := time.NewTicker(lateWorld)
		over := make(chan struct{})
		defer func() { ticker.Stop(); close(over) }()
		go func() {
			for {
				select {
				case <-ticker.C:
					o.Late(seed, time.Since(begun))
				case <-over:
					return
				}
			}
		}()
	}
	r := runTwice(o.Cut.Plan(seed), o.Once)
	return r, time.Since(begun)
}

// runTwice runs a world, and runs it again.
func runTwice(p *Plan, once bool) Result {
	r := RunPlan(p, Options{})
	if once {
		return r
	}
	again := RunPlan(p, Options{})
	if again.Hash != r.Hash && (r.Failure == nil || r.Failure.Kind != "not deterministic") {
		r.Failure = &Failure{Kind: "not deterministic", Line: fmt.Sprintf("two runs of one seed have the hashes %016x and %016x", r.Hash, again.Hash)}
	}
	r.Stats.Events += again.Stats.Events
	r.Stats.Virtual += again.Stats.Virtual
	return r
}

func (r *SwarmResult) take(one *Result, o *SwarmOptions) {
	r.Stats.Add(&one.Stats)
	if one.Report.Ops > 0 && one.Failure == nil && !one.Report.Valid() {
		r.Undecided++
	}
	if one.Failure == nil {
		return
	}
	r.Failed++
	r.Kinds[one.Failure.Kind] = append(r.Kinds[one.Failure.Kind], one.Seed)
	if o.Found != nil {
		o.Found(*one)
	}
}

func (r *SwarmResult) slow(one Slow) {
	at := sort.Search(len(r.Slowest), func(i int) bool { return r.Slowest[i].Real < one.Real })
	r.Slowest = slices.Insert(r.Slowest, at, one)
	r.Slowest = r.Slowest[:min(len(r.Slowest), slowestShown)]
}

// kinds returns the kinds of failures in order.
func (r *SwarmResult) kinds() []string {
	var names []string
	for k := range r.Kinds {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}
