package sim

import (
	"cmp"
	"slices"
	"time"
)

// Shrunk is the smallest world that still fails in the same way.
type Shrunk struct {
	Cut    Cut
	Result Result
	Runs   int
}

// shrinkEvents bounds what shrinking costs: so many events, which take some twenty seconds of processor time. It counts
// events, not seconds, so that the same failure is always shrunk to the same world.
const shrinkEvents = 4_000_000

// Shrink takes away from a seed's world what the failure does not need, as long as a failure of the same kind remains and
// the budget of runs lasts. What counts is steps (Stats.Steps): a world with more of them is never taken for a smaller one.
//
// What is smaller is often otherwise as well, and fails only with some luck. So, once nothing else can be taken away, each change
// is tried with other luck too: a small world that fails explains the failure as well as the one in which it was found.
func Shrink(s uint64, kind string, budget int) Shrunk { return ShrinkFrom(s, Cut{}, kind, budget) }

// ShrinkFrom is Shrink for a world of which something is cut already.
func ShrinkFrom(s uint64, base Cut, kind string, budget int) Shrunk {
	return shrinkPlan(DrawFor(s, base.Brokers), base, kind, budget)
}

func shrinkPlan(p *Plan, base Cut, kind string, budget int) Shrunk {
	x := &shrinker{plan: p, kind: kind, budget: budget, events: shrinkEvents}
	x.best.Cut = base
	x.best.Result = RunPlan(base.Apply(x.plan), Options{})
	if f := x.best.Result.Failure; f == nil || f.Kind != kind {
		return x.best
	}
	x.lastLuck = max(base.Luck, base.Whim)
	x.options.workOnly = x.early()
	if !x.options.workOnly {
		x.options.hurry = 5
	}
	x.leap()
	idle := 0
	for _, x.lucks = range []int{1, 3, 8, 20, 50, 120, 300} {
		before := x.best.Result.Stats.Steps
		if x.round(); x.best.Result.Stats.Steps == before {
			idle++
		}
		if x.spent() || idle >= 2 {
			break
		}
	}
	x.tidy()
	return x.best
}

type shrinker struct {
	plan     *Plan
	kind     string
	budget   int   // of runs
	events   int64 // that are left of the budget
	options  Options
	lucks    int // with which a change is tried
	lastLuck uint64
	best     Shrunk
}

func (x *shrinker) spent() bool { return x.best.Runs >= x.budget || x.events <= 0 }

// early says that the failure came while clients worked, so that no world needs to be judged.
func (x *shrinker) early() bool {
	r := &x.best.Result
	return r.worked > 0 && r.Failure.At <= r.worked+int64(r.Plan.Duration)
}

// leap looks for a failure in worlds in which far less happens: they are cheap, so there is much luck to try.
func (x *shrinker) leap() {
	x.time()
	events, runs := x.events*2/3, x.best.Runs+x.budget/3
	for x.events > events && x.best.Runs < runs {
		x.lastLuck++
		for _, pace := range []int{10, 30, 100} {
			for _, slow := range []int{100, 30, 10, 3} {
				c := x.best.Cut.clone()
				c.Slow, c.Plain, c.Partitions = slow, true, 1
				c.Luck, c.Whim = x.lastLuck, x.lastLuck/2
				if x.lastLuck%3 > 0 {
					c.Clients = x.clientsBut(Producer)
				}
				if pace < 100 {
					c.Pace, c.Duration = pace, c.Duration*time.Duration(pace)/100
				}
				if x.fails(c, x.best.Result.Stats.Steps) {
					return
				}
			}
		}
	}
}

// round tries everything once.
func (x *shrinker) round() {
	was := x.best
	x.time()
	x.clientKinds()
	x.remove(len(x.plan.Clients), func(c *Cut) *[]int { return &c.Clients })
	x.kinds()
	x.remove(len(x.plan.Faults), func(c *Cut) *[]int { return &c.Faults })
	x.try(func(c *Cut) { c.Partitions = 1 })
	x.operations()
	x.brokers()
	x.try(func(c *Cut) { c.NoDarkness = true })
	x.try(func(c *Cut) { c.NobodyLost = true })
	x.try(func(c *Cut) { c.Calm = true })
	x.try(func(c *Cut) { c.Plain = true })
	x.counts()
	x.pace()
	x.luck()
	if !x.options.workOnly { // what failed in a hurry must fail with all the time that there is
		r := RunPlan(x.best.Cut.Apply(x.plan), Options{})
		x.events -= r.Stats.Events
		if r.Failure != nil && r.Failure.Kind == x.kind {
			x.best.Result = r
			return
		}
		was.Runs = x.best.Runs
		x.best, x.options.hurry = was, 1
	}
}

// try changes the best cut so far and keeps the change if the failure remains and the world became no larger.
func (x *shrinker) try(change func(*Cut)) bool {
	c := x.best.Cut.clone()
	change(&c)
	if c.String() == x.best.Cut.String() {
		return false
	}
	if x.fails(c, x.best.Result.Stats.Steps) {
		return true
	}
	for range x.lucks {
		x.redraw(&c)
		if x.fails(c, x.best.Result.Stats.Steps) {
			return true
		}
	}
	return false
}

// redraw gives a cut luck that no other had, and every fourth time whims.
func (x *shrinker) redraw(c *Cut) {
	x.lastLuck++
	c.Luck = x.lastLuck
	if x.lastLuck%4 == 0 {
		c.Whim = x.lastLuck
	}
}

// fails takes a cut for the best one if the failure remains within so many steps.
func (x *shrinker) fails(c Cut, steps int64) bool {
	if x.spent() {
		return false
	}
	o := x.options
	o.maxEvents = 2*x.best.Result.Stats.Events + 10_000
	r := RunPlan(c.Apply(x.plan), o)
	x.best.Runs++
	x.events -= r.Stats.Events
	if r.Failure == nil || r.Failure.Kind != x.kind || r.Stats.Steps > steps {
		return false
	}
	x.best.Cut, x.best.Result = c, r
	return true
}

// time ends the work as early as it can.
func (x *shrinker) time() {
	if r := &x.best.Result; x.options.workOnly { // with some room, for with other luck it may come later
		if d := time.Duration(r.Failure.At - r.worked); r.Plan.Duration > d+d/2 {
			x.fails(x.lasting(d+d/4), r.Stats.Steps)
		}
		return
	}
	for _, part := range []time.Duration{8, 4, 2} {
		for has := x.best.Result.Plan.Duration; has > 2*time.Millisecond && x.fails(x.lasting(has/part), x.best.Result.Stats.Steps); {
			has = x.best.Result.Plan.Duration
		}
	}
}

// lasting is the best cut with so much work.
func (x *shrinker) lasting(d time.Duration) Cut {
	c := x.best.Cut.clone()
	c.Duration = max(time.Millisecond, d.Truncate(time.Millisecond)+time.Millisecond)
	return c
}

// tidy takes away what comes after the failure.
func (x *shrinker) tidy() {
	r := &x.best.Result
	x.events, x.budget = max(x.events, 1), max(x.budget, x.best.Runs+1)
	if d := time.Duration(r.Failure.At - r.worked); x.options.workOnly && d < r.Plan.Duration {
		x.fails(x.lasting(d), r.Stats.Steps)
	}
}

// kinds takes away all faults of a kind, for each kind.
func (x *shrinker) kinds() {
	var names []string
	for i := range x.plan.Faults {
		if n := x.plan.Faults[i].Name(); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range names {
		x.try(func(c *Cut) {
			for i := range x.plan.Faults {
				if x.plan.Faults[i].Name() == n && !slices.Contains(c.Faults, i) {
					c.Faults = append(c.Faults, i)
				}
			}
			slices.Sort(c.Faults)
		})
	}
}

// clientsBut is all clients that are not of a kind.
func (x *shrinker) clientsBut(kind ClientKind) (others []int) {
	for i := range x.plan.Clients {
		if x.plan.Clients[i].Kind != kind {
			others = append(others, i)
		}
	}
	return others
}

// clientKinds takes away all clients of a kind, for each kind.
func (x *shrinker) clientKinds() {
	for _, kind := range []ClientKind{Member, Noise, Admin, Consumer, Reader} {
		x.try(func(c *Cut) {
			for i := range x.plan.Clients {
				if x.plan.Clients[i].Kind == kind && !slices.Contains(c.Clients, i) {
					c.Clients = append(c.Clients, i)
				}
			}
			slices.Sort(c.Clients)
		})
	}
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
				c.Off = append(c.Off, i)
				slices.Sort(c.Off)
			})
		}
	}
}

// remove takes members of a list away, in groups first.
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

// operations takes away single operations of clients, in groups first.
func (x *shrinker) operations() {
	for group := len(x.operationsLeft()) / 2; group >= 1; group /= 2 {
		for from := 0; !x.spent(); {
			left := x.operationsLeft()
			if from >= len(left) {
				break
			}
			if !x.try(func(c *Cut) { c.Skips = pass(c.Skips, left[from:min(len(left), from+group)]) }) {
				from += group
			}
		}
	}
}

// operationsLeft is the operations that clients began, each a span of one.
func (x *shrinker) operationsLeft() (left []Skip) {
	p := x.best.Result.Plan
	for i := range p.Clients {
		if c := &p.Clients[i]; !c.Off {
			for n := 1; n <= x.best.Result.begun[i]; n++ {
				if !c.skips(n) {
					left = append(left, Skip{i, Span{n, n}})
				}
			}
		}
	}
	return left
}

// pass adds to what clients pass over, and joins what touches.
func pass(skips, more []Skip) []Skip {
	all := slices.Concat(skips, more)
	slices.SortFunc(all, func(a, b Skip) int { return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.From, b.From)) })
	joined := all[:0]
	for _, s := range all {
		if n := len(joined); n > 0 && joined[n-1].Client == s.Client && s.From <= joined[n-1].To+1 {
			joined[n-1].To = max(joined[n-1].To, s.To)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// counts lets faults strike at an earlier call of the disk, or after fewer moments.
func (x *shrinker) counts() {
	for i := range x.plan.Faults {
		n := x.plan.Faults[i].Skip
		if x.plan.Faults[i].Kind == DiskRule {
			n = x.plan.Faults[i].Rule.Nth
		}
		if slices.Contains(x.best.Cut.Faults, i) {
			continue
		}
		for _, now := range x.best.Cut.Counts {
			if now.Fault == i {
				n = now.N
			}
		}
		for _, less := range []int{0, n / 8, n / 4, n / 2} {
			if n > 1 && less < n && x.try(func(c *Cut) {
				c.Counts = slices.DeleteFunc(c.Counts, func(y FaultNumber) bool { return y.Fault == i })
				c.Counts = append(c.Counts, FaultNumber{i, less})
			}) {
				break
			}
		}
	}
}

// pace lets everything come earlier.
func (x *shrinker) pace() {
	for _, part := range []int{5, 2} {
		x.try(func(c *Cut) {
			if c.Pace == 0 {
				c.Pace = 100
			}
			if c.Pace >= 2*part {
				c.Pace /= part
				c.Duration /= time.Duration(part)
				for i := range c.Times {
					c.Times[i].N /= part
				}
			}
		})
	}
}

// luck looks for a world that fails after fewer steps by chance alone.
func (x *shrinker) luck() {
	for range x.lucks {
		c := x.best.Cut.clone()
		x.redraw(&c)
		x.fails(c, x.best.Result.Stats.Steps-1)
	}
}
