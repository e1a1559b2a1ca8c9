package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/sim/seed"
)

// Cut is what is taken away from the plan that a seed draws, and what is made simpler. Its text form goes into the command that
// repeats a failure: parts joined by dots, each a letter and its numbers, which are joined by dashes (cutParts has all of them).
type Cut struct {
	Brokers         int   // 0: as the seed draws
	Drift           int64 // 0: as the seed draws; clocks run too fast and too slow by so many parts of a million, in turn
	Off             []int
	Faults, Clients []int
	Skips           []Skip
	Counts, Times   []FaultNumber
	Ops             int // 0: as drawn
	Duration        time.Duration
	Partitions      int32
	Pace            int    // in hundredths: when faults come, and clients begin and go on; 0 is 100
	Slow            int    // clients think so many times as long; 0 is 1
	Luck, Whim      uint64 // 0: as drawn
	Calm            bool
	Plain           bool
	NobodyLost      bool
	NoDarkness      bool
}

// Skip is operations of a client, counted from 1, that it passes over.
type Skip struct {
	Client int
	Span
}

// FaultNumber is a number of a fault that is not as drawn.
type FaultNumber struct{ Fault, N int }

// cutParts is every kind of part, in the order of the text form.
var cutParts = []struct {
	letter byte
	args   int
	what   string
	set    func(c *Cut, n []int)
	get    func(c *Cut) [][]int // the arguments of each such part
}{
	{'b', 1, "the seed is to draw N brokers, and must stay when anything else is taken away",
		func(c *Cut, n []int) { c.Brokers = n[0] }, func(c *Cut) [][]int { return number(c.Brokers) }},
	{'r', 1, "monotonic clocks run away by N parts of a million",
		func(c *Cut, n []int) { c.Drift = int64(n[0]) }, func(c *Cut) [][]int { return number(int(c.Drift)) }},
	{'h', 1, "without broker N, from 0",
		func(c *Cut, n []int) { c.Off = append(c.Off, n[0]) }, func(c *Cut) [][]int { return list(c.Off) }},
	{'f', 1, "without fault N",
		func(c *Cut, n []int) { c.Faults = append(c.Faults, n[0]) }, func(c *Cut) [][]int { return list(c.Faults) }},
	{'c', 1, "without client N",
		func(c *Cut, n []int) { c.Clients = append(c.Clients, n[0]) }, func(c *Cut) [][]int { return list(c.Clients) }},
	{'s', 3, "client N passes over its operations A to B, counted from 1",
		func(c *Cut, n []int) { c.Skips = append(c.Skips, Skip{n[0], Span{n[1], n[2]}}) }, (*Cut).skipArgs},
	{'e', 2, "fault N strikes at the disk call M from its time on, or lets M moments pass",
		func(c *Cut, n []int) { c.Counts = append(c.Counts, FaultNumber{n[0], n[1]}) }, func(c *Cut) [][]int { return faultArgs(c.Counts) }},
	{'m', 2, "fault N comes at M milliseconds",
		func(c *Cut, n []int) { c.Times = append(c.Times, FaultNumber{n[0], n[1]}) }, func(c *Cut) [][]int { return faultArgs(c.Times) }},
	{'o', 1, "at most N operations for each client",
		func(c *Cut, n []int) { c.Ops = n[0] }, func(c *Cut) [][]int { return number(c.Ops) }},
	{'d', 1, "only N milliseconds of work",
		func(c *Cut, n []int) { c.Duration = time.Duration(n[0]) * time.Millisecond },
		func(c *Cut) [][]int { return number(int(c.Duration.Milliseconds())) }},
	{'p', 1, "at most N partitions a topic",
		func(c *Cut, n []int) { c.Partitions = int32(n[0]) }, func(c *Cut) [][]int { return number(int(c.Partitions)) }},
	{'t', 1, "faults come, and clients begin and go on, after N hundredths of the time",
		func(c *Cut, n []int) { c.Pace = n[0] }, func(c *Cut) [][]int { return number(c.Pace) }},
	{'w', 1, "clients think N times as long between operations",
		func(c *Cut, n []int) { c.Slow = n[0] }, func(c *Cut) [][]int { return number(c.Slow) }},
	{'z', 1, "other luck: what network, disks and brokers do by chance is drawn anew, for the Nth time",
		func(c *Cut, n []int) { c.Luck = uint64(n[0]) }, func(c *Cut) [][]int { return number(int(c.Luck)) }},
	{'y', 1, "other whims: what clients and faults choose is drawn anew, for the Nth time",
		func(c *Cut, n []int) { c.Whim = uint64(n[0]) }, func(c *Cut) [][]int { return number(int(c.Whim)) }},
	{'n', 0, "a calm network: every message takes equally long, and is in one piece",
		func(c *Cut, n []int) { c.Calm = true }, func(c *Cut) [][]int { return flag(c.Calm) }},
	{'q', 0, "plain clients: one small record in a batch, one batch in a request, one request at a time, the newest versions",
		func(c *Cut, n []int) { c.Plain = true }, func(c *Cut) [][]int { return flag(c.Plain) }},
	{'g', 0, "no broker is lost for good at the end",
		func(c *Cut, n []int) { c.NobodyLost = true }, func(c *Cut) [][]int { return flag(c.NobodyLost) }},
	{'x', 0, "no power loss at the end",
		func(c *Cut, n []int) { c.NoDarkness = true }, func(c *Cut) [][]int { return flag(c.NoDarkness) }},
}

func number(n int) [][]int {
	if n == 0 {
		return nil
	}
	return [][]int{{n}}
}

func flag(on bool) [][]int {
	if !on {
		return nil
	}
	return [][]int{{}}
}

func list(l []int) (parts [][]int) {
	for _, n := range l {
		parts = append(parts, []int{n})
	}
	return parts
}

func faultArgs(l []FaultNumber) (parts [][]int) {
	for _, x := range l {
		parts = append(parts, []int{x.Fault, x.N})
	}
	return parts
}

func (c *Cut) skipArgs() (parts [][]int) {
	for _, s := range c.Skips {
		parts = append(parts, []int{s.Client, s.From, s.To})
	}
	return parts
}

// ParseCut reads the text form.
func ParseCut(s string) (Cut, error) {
	var c Cut
	if s == "" {
		return c, nil
	}
	for _, part := range strings.Split(s, ".") {
		if err := c.parse(part); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *Cut) parse(part string) error {
	for i := range cutParts {
		p := &cutParts[i]
		if part == "" || part[0] != p.letter {
			continue
		}
		var args []int
		for _, text := range strings.Split(part[1:], "-") {
			if n, err := strconv.Atoi(text); err == nil && n >= 0 && text == itoa(n) {
				args = append(args, n)
			}
		}
		switch {
		case len(args) != p.args || p.args != 0 && strings.Count(part, "-") != p.args-1 || p.args == 0 && len(part) > 1:
			return fmt.Errorf("cut: %q: %c has %d numbers, joined by dashes", part, p.letter, p.args)
		case p.letter == 'b' && (args[0] < 1 || args[0] > MaxBrokers):
			return fmt.Errorf("cut: %q: a world has 1 to %d brokers", part, MaxBrokers)
		}
		p.set(c, args)
		return nil
	}
	letters := ""
	for i := range cutParts {
		letters += " " + string(cutParts[i].letter)
	}
	return fmt.Errorf("cut: %q begins with none of%s", part, letters)
}

// String is the text form.
func (c Cut) String() string {
	var s []string
	for i := range cutParts {
		for _, args := range cutParts[i].get(&c) {
			var numbers []string
			for _, n := range args {
				numbers = append(numbers, itoa(n))
			}
			s = append(s, string(cutParts[i].letter)+strings.Join(numbers, "-"))
		}
	}
	return strings.Join(s, ".")
}

// clone shares nothing with the cut.
func (c Cut) clone() Cut {
	c.Off, c.Faults, c.Clients = slices.Clone(c.Off), slices.Clone(c.Faults), slices.Clone(c.Clients)
	c.Skips, c.Counts, c.Times = slices.Clone(c.Skips), slices.Clone(c.Counts), slices.Clone(c.Times)
	return c
}

// Plan returns what is left of a seed's world.
func (c Cut) Plan(seed uint64) *Plan { return c.Apply(DrawFor(seed, c.Brokers)) }

// Apply returns the plan without what is cut. The plan itself is not changed. Clients keep their numbers.
func (c Cut) Apply(p *Plan) *Plan {
	q := *p
	q.Luck = c.Luck
	if c.Calm {
		q.Net.Jitter, q.Net.Split = 0, 0
	}
	q.Duration = c.paced(p.Duration)
	if c.Duration > 0 {
		q.Duration = min(q.Duration, c.Duration)
	}
	q.Faults = c.faults(p, q.Duration)
	q.Clients = slices.Clone(p.Clients)
	for i := range q.Clients {
		c.client(i, &q.Clients[i])
	}
	q.Brokers = slices.Clone(p.Brokers)
	for i := range q.Brokers {
		if c.Drift > 0 {
			q.Brokers[i].DriftPPM = c.Drift * int64(1-2*(i%2))
		}
	}
	for _, i := range c.Off {
		if i < len(q.Brokers) {
			q.Brokers[i].Off = true
		}
	}
	q.Topics = slices.Clone(p.Topics)
	for i := range q.Topics {
		if c.Partitions > 0 {
			q.Topics[i].Partitions = min(q.Topics[i].Partitions, c.Partitions)
		}
	}
	q.PowerLossAtEnd = p.PowerLossAtEnd && !c.NoDarkness
	if c.NobodyLost {
		q.LostAtEnd = nil
	}
	return &q
}

// paced is a time of the plan at the pace that is left.
func (c *Cut) paced(d time.Duration) time.Duration {
	if c.Pace == 0 {
		return d
	}
	return d * time.Duration(c.Pace) / 100
}

// faults returns what is left of the faults of a plan that come before an instant.
func (c *Cut) faults(p *Plan, end time.Duration) (left []Fault) {
	for i, f := range p.Faults {
		if slices.Contains(c.Faults, i) {
			continue
		}
		f.At = c.paced(f.At)
		if c.Whim > 0 {
			f.Seed, f.Rule.Seed = seed.Mix(f.Seed^c.Whim), seed.Mix(f.Rule.Seed^c.Whim)
		}
		for _, x := range c.Times {
			if x.Fault == i {
				f.At = time.Duration(x.N) * time.Millisecond
			}
		}
		for _, x := range c.Counts {
			switch {
			case x.Fault != i:
			case f.Kind == DiskRule:
				f.Rule.Nth = max(1, x.N)
			default:
				f.Skip = x.N
			}
		}
		if f.At < end || c.Duration == 0 {
			left = append(left, f)
		}
	}
	return left
}

// client takes away what is cut of a client.
func (c *Cut) client(i int, cl *ClientPlan) {
	cl.Off = cl.Off || slices.Contains(c.Clients, i)
	if c.Ops > 0 && (cl.Ops == 0 || cl.Ops > c.Ops) {
		cl.Ops = c.Ops
	}
	cl.Start, cl.Think[0], cl.Think[1] = c.paced(cl.Start), c.paced(cl.Think[0]), c.paced(cl.Think[1])
	if slow := time.Duration(c.Slow); slow > 1 {
		cl.Think[0], cl.Think[1] = cl.Think[0]*slow, cl.Think[1]*slow
	}
	if c.Whim > 0 {
		cl.Seed = seed.Mix(cl.Seed ^ seed.Mix(c.Whim))
	}
	for _, s := range c.Skips {
		if s.Client == i {
			cl.Skips = append(slices.Clone(cl.Skips), s.Span)
		}
	}
	if c.Plain {
		cl.InFlight, cl.Spread, cl.Records, cl.Bytes, cl.Codec = min(cl.InFlight, 1), min(cl.Spread, 1), [2]int{1, 1}, [2]int{8, 8}, 0
		cl.Version, cl.Session = 0, false
	}
}
