// Command worker runs worlds of the swarm until one fails, and prints what
// killed it as JSON. The museum builds it once with each bug in the product, and once without.
package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockstep/sim"
	"lockstep/sim/museum/internal/hints"
)

// Verdict is what is printed.
type Verdict struct {
	Seeds         int
	Seconds       float64 // of processor time
	Events        int64
	Killed        bool
	Seed          uint64
	Oracle        string
	Reason        string
	Plan          int // steps of the failing world: what clients asked for, and faults that struck
	Shrunk        int // and of the smallest one that fails by the same oracle
	Runs          int // of worlds, to find that one
	ShrinkSeconds float64
	Repeat        string
}

// hang is how long a world may take before it counts as stuck in real time: one takes milliseconds.
const hang = 300 * time.Second

func main() {
	wanted := flag.String("hints", "", "what plans must have, separated by commas")
	first := flag.Uint64("first", 1, "the first seed")
	count := flag.Int("count", 0, "seeds at most; 0 is without bound")
	limit := flag.Duration("for", time.Minute, "processor time at most")
	shrink := flag.Int("shrink", 0, "runs at most to shrink a failure")
	flag.Parse()
	w := worker{next: *first, count: *count, limit: *limit}
	if *wanted != "" {
		w.hints = strings.Split(*wanted, ",")
	}
	w.run()
	if w.verdict.Killed && *shrink > 0 && w.verdict.Oracle != "hang" {
		w.shrink(*shrink)
	}
	w.print()
}

type worker struct {
	hints []string
	limit time.Duration // of processor time: so much is done however busy the machine is

	mu      sync.Mutex
	next    uint64
	count   int
	begun   int
	verdict Verdict
}

// run runs worlds on all processors until one fails, time is up, or enough were run.
func (w *worker) run() {
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed, ok := w.take()
				if !ok {
					return
				}
				watchdog := time.AfterFunc(hang, func() { w.hung(seed) })
				r := sim.Run(seed, sim.Options{})
				watchdog.Stop()
				w.done(&r)
			}
		})
	}
	wg.Wait()
	if !w.verdict.Killed {
		w.verdict.Seconds = used().Seconds()
	}
}

// used is the processor time that this program has had.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// take returns the next seed whose plan has what the hints want.
func (w *worker) take() (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verdict.Killed || used() > w.limit || w.count > 0 && w.begun >= w.count {
		return 0, false
	}
	seed, ok := hints.Next(w.next, w.hints)
	if ok {
		w.next = seed + 1
		w.begun++
	}
	return seed, ok
}

func (w *worker) done(r *sim.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdict.Seeds++
	w.verdict.Events += r.Stats.Events
	if r.Failure == nil || w.verdict.Killed && r.Seed > w.verdict.Seed {
		return
	}
	v := &w.verdict
	if !v.Killed {
		v.Seconds = used().Seconds()
	}
	v.Killed, v.Seed, v.Oracle, v.Reason = true, r.Seed, r.Failure.Kind, r.Failure.Line
	v.Plan = int(r.Stats.Steps)
	v.Shrunk = v.Plan
}

// hung ends the program, whose world does not end.
func (w *worker) hung(seed uint64) {
	w.mu.Lock()
	w.verdict.Killed, w.verdict.Seed, w.verdict.Oracle, w.verdict.Reason = true, seed, "hang", "the world does not come to an end"
	w.verdict.Seeds++
	w.verdict.Seconds = used().Seconds()
	w.print()
	os.Exit(0)
}

// shrink makes the failing world small.
func (w *worker) shrink(budget int) {
	v, before := &w.verdict, used()
	small := sim.Shrink(v.Seed, v.Oracle, budget)
	if small.Result.Failure == nil {
		return // it does not fail twice in the same way
	}
	v.Shrunk = int(small.Result.Stats.Steps)
	v.Runs, v.ShrinkSeconds = small.Runs, (used() - before).Seconds()
	v.Reason, v.Repeat = small.Result.Failure.Line, small.Cut.String()
}

func (w *worker) print() {
	if err := json.NewEncoder(os.Stdout).Encode(&w.verdict); err != nil {
		os.Exit(1)
	}
}
