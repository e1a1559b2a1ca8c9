package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cut is what is taken away from the plan that a seed draws. Its text form goes
// into the command that repeats a failure: parts joined by dots, fN without
// fault N, cN without client N, oN at most N operations for each client, dN only N milliseconds,
// pN at most N partitions a topic, x without the power loss at the end. Two are about brokers: bN says that the seed is to
// draw N of them, and must stay when anything else is taken away; hN is without broker N (from 0). rN makes monotonic clocks run away
// by N parts of a million.
type Cut struct {
	Brokers         int   // 0: as the seed draws
	Drift           int64 // 0: as the seed draws; clocks run too fast and too slow by so many parts of a million, in turn
	Off             []int
	Faults, Clients []int
	Ops             int // 0: as drawn
	Duration        time.Duration
	Partitions      int32
	NoDarkness      bool
}

// ParseCut reads the text form.
func ParseCut(s string) (Cut, error) {
	var c Cut
	if s == "" {
		return c, nil
	}
	for _, part := range strings.Split(s, ".") {
		if part == "x" {
			c.NoDarkness = true
			continue
		}
		n := -1
		if part != "" {
			n, _ = strconv.Atoi(part[1:])
		}
		if part == "" || n < 0 || part[1:] != strconv.Itoa(n) {
			return c, fmt.Errorf("cut: %q is not bN, rN, hN, fN, cN, oN, dN, pN or x", part)
		}
		switch part[0] {
		case 'f':
			c.Faults = append(c.Faults, n)
		case 'c':
			c.Clients = append(c.Clients, n)
		case 'b':
			if c.Brokers = n; n < 1 || n > MaxBrokers {
				return c, fmt.Errorf("cut: %q: a world has 1 to %d brokers", part, MaxBrokers)
			}
		case 'r':
			c.Drift = int64(n)
		case 'h':
			c.Off = append(c.Off, n)
		case 'o':
			c.Ops = n
		case 'd':
			c.Duration = time.Duration(n) * time.Millisecond
		case 'p':
			c.Partitions = int32(n)
		default:
			return c, fmt.Errorf("cut: %q is not bN, rN, hN, fN, cN, oN, dN, pN or x", part)
		}
	}
	return c, nil
}

// String is the text form.
func (c Cut) String() string {
	var s []string
	if c.Brokers > 0 {
		s = append(s, "b"+itoa(c.Brokers))
	}
	if c.Drift > 0 {
		s = append(s, "r"+itoa(int(c.Drift)))
	}
	for _, i := range c.Off {
		s = append(s, "h"+itoa(i))
	}
	for _, f := range c.Faults {
		s = append(s, "f"+itoa(f))
	}
	for _, i := range c.Clients {
		s = append(s, "c"+itoa(i))
	}
	if c.Ops > 0 {
		s = append(s, "o"+itoa(c.Ops))
	}
	if c.Duration > 0 {
		s = append(s, "d"+itoa(int(c.Duration.Milliseconds())))
	}
	if c.Partitions > 0 {
		s = append(s, "p"+itoa(int(c.Partitions)))
	}
	if c.NoDarkness {
		s = append(s, "x")
	}
	return strings.Join(s, ".")
}

// Plan returns what is left of a seed's world.
func (c Cut) Plan(seed uint64) *Plan { return c.Apply(DrawFor(seed, c.Brokers)) }

// Apply returns the plan without what is cut. The plan itself is not changed. Clients keep their numbers.
func (c Cut) Apply(p *Plan) *Plan {
	q := *p
	q.Faults = nil
	for i, f := range p.Faults {
		if !slices.Contains(c.Faults, i) {
			q.Faults = append(q.Faults, f)
		}
	}
	q.Clients = slices.Clone(p.Clients)
	for i := range q.Clients {
		if slices.Contains(c.Clients, i) {
			q.Clients[i].Off = true
		}
		if c.Ops > 0 && (q.Clients[i].Ops == 0 || q.Clients[i].Ops > c.Ops) {
			q.Clients[i].Ops = c.Ops
		}
	}
	if c.Duration > 0 {
		q.Duration = min(q.Duration, c.Duration)
		q.Faults = slices.DeleteFunc(q.Faults, func(f Fault) bool { return f.At >= q.Duration })
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
	return &q
}
