package sim

import (
	"fmt"
	"runtime"
	"runtime/debug"
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
}

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
				one := runTwice(o.Cut.Plan(s), o.Once)
				mu.Lock()
				r.take(&one, &o)
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

// kinds returns the kinds of failures in order.
func (r *SwarmResult) kinds() []string {
	var names []string
	for k := range r.Kinds {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}
