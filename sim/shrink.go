package sim

import (
	"slices"
	"time"
)

// Shrunk is the smallest world that still fails in the same way.
type Shrunk struct {
	Cut    Cut
	Result Result
	Runs   int
}

// Shrink takes away from a seed's world what the failure does not need: time, faults, clients, operations,
// partitions; as long as a failure of the same kind remains and the budget of runs lasts.
func Shrink(s uint64, kind string, budget int) Shrunk { return ShrinkFrom(s, Cut{}, kind, budget) }

// ShrinkFrom is Shrink for a world of which something is cut already.
func ShrinkFrom(s uint64, base Cut, kind string, budget int) Shrunk {
	x := &shrinker{plan: DrawFor(s, base.Brokers), kind: kind, budget: budget}
	x.best.Cut = base
	x.best.Result = RunPlan(base.Apply(x.plan), Options{})
	if f := x.best.Result.Failure; f == nil || f.Kind != kind {
		return x.best
	}
	for {
		before := x.best.Cut.String()
		x.time()
		x.faults()
		x.clients()
		x.brokers()
		x.try(func(c *Cut) { c.NoDarkness = true })
		x.try(func(c *Cut) { c.Partitions = 1 })
		x.operations()
		if x.best.Cut.String() == before || x.best.Runs >= budget {
			return x.best
		}
	}
}

type shrinker struct {
	plan   *Plan
	kind   string
	budget int
	best   Shrunk
}

// try changes the best cut so far and keeps the change if the failure remains and the world became no larger.
func (x *shrinker) try(change func(*Cut)) bool {
	if x.best.Runs >= x.budget {
		return false
	}
	c := x.best.Cut
	c.Faults, c.Clients = slices.Clone(c.Faults), slices.Clone(c.Clients)
	change(&c)
	if c.String() == x.best.Cut.String() {
		return false
	}
	x.best.Runs++
	r := RunPlan(c.Apply(x.plan), Options{})
	if r.Failure == nil || r.Failure.Kind != x.kind {
		return false
	}
	x.best.Cut, x.best.Result = c, r
	return true
}

// time ends the work as early as it can.
func (x *shrinker) time() {
	has := func() time.Duration {
		if d := x.best.Cut.Duration; d > 0 {
			return d
		}
		return x.plan.Duration
	}
	for _, part := range []time.Duration{8, 4, 2} {
		for has() > 2*time.Millisecond && x.try(func(c *Cut) { c.Duration = max(time.Millisecond, has()-has()*(part-1)/part) }) {
		}
	}
	for _, part := range []time.Duration{4, 10} {
		for has() > 20*time.Millisecond && x.try(func(c *Cut) { c.Duration = has() - has()/part }) {
		}
	}
}

// faults takes faults away, in groups first.
func (x *shrinker) faults() {
	x.remove(len(x.plan.Faults), func(c *Cut) *[]int { return &c.Faults })
}

func (x *shrinker) clients() {
	x.remove(len(x.plan.Clients), func(c *Cut) *[]int { return &c.Clients })
}

// brokers takes whole brokers away, but not so many that no majority is left.
func (x *shrinker) brokers() {
	n := len(x.plan.Brokers)
	if x.plan.Voters > 0 {
		n = x.plan.Voters
	}
	for i := range x.plan.Brokers {
		if len(x.best.Cut.Off) < (n-1)/2 && !slices.Contains(x.best.Cut.Off, i) {
			x.try(func(c *Cut) {
				c.Off = append(slices.Clone(c.Off), i)
				slices.Sort(c.Off)
			})
		}
	}
}

func (x *shrinker) remove(n int, list func(*Cut) *[]int) {
	for group := n; group >= 1; group /= 2 {
		for from := 0; from < n; from += group {
			x.try(func(c *Cut) {
				l := list(c)
				for i := from; i < min(n, from+group); i++ {
					if !slices.Contains(*l, i) {
						*l = append(*l, i)
					}
				}
				slices.Sort(*l)
			})
		}
	}
}

// operations bounds the operations of each client.
func (x *shrinker) operations() {
	lo, hi := 0, 1024 // hi works, or there is no bound; lo does not
	if x.best.Cut.Ops > 0 {
		hi = x.best.Cut.Ops
	} else if !x.try(func(c *Cut) { c.Ops = hi }) {
		return
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if x.try(func(c *Cut) { c.Ops = mid }) {
			hi = mid
		} else {
			lo = mid
		}
	}
}
