// Package hints says which worlds of the swarm are worth running for a planted
// bug: those whose plan has what the bug needs. Worlds are still drawn by
// their seeds alone, so that `lockstep sim run --seed N` repeats a kill.
package hints

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/core/config"
	"lockstep/sim"
	"lockstep/sim/simdisk"
)

// darkness is the power loss of all machines before the world is judged.
const darkness = "power-loss-at-end"

// Prefixes of hints.
const (
	brokersPrefix = "brokers-" // at least so many
	shortPrefix   = "short-"   // work takes at most so many seconds
	topicPrefix   = "topic-"   // a topic has this setting
	brokerPrefix  = "broker-"  // a broker has this setting
)

// noAdmin is a world in which nobody makes topics.
const noAdmin = "no-admin"

// bothProtocols is a world with a group whose members speak both protocols.
const bothProtocols = "both-protocols"

// Known says whether a hint means anything. A hint is the name of a fault, as
// fault tables have it but with dashes for spaces; power-loss-at-end; brokers-N;
// topic-SETTING; broker-SETTING; short-N, work of at most N seconds; no-admin; after-ack and its like, of faults that wait for a moment;
// group, group-classic, group-consumer (KIP-848), group-cooperative (KIP-429), group-rolling (a change to that), group-topics (a member that changes what it reads) or
// both-protocols (in one group); member-lost-long, one whose session
// outlives the world, member-pause-static, over a rebalance; or several of these with | between, one of which is
// wanted. A>B is a fault A that ends before B comes, both as before.
func Known(hint string) bool {
	if before, after, ok := strings.Cut(hint, ">"); ok {
		return Known(before) && Known(after)
	}
	for _, name := range strings.Split(hint, "|") {
		if n, ok := strings.CutPrefix(name, brokersPrefix); ok {
			if _, err := strconv.Atoi(n); err == nil {
				continue
			}
		}
		if n, ok := strings.CutPrefix(name, shortPrefix); ok {
			if _, err := strconv.Atoi(n); err == nil {
				continue
			}
		}
		if setting, ok := strings.CutPrefix(name, topicPrefix); ok {
			if config.TopicDef(setting) != nil {
				continue
			}
		}
		if setting, ok := strings.CutPrefix(name, brokerPrefix); ok && config.BrokerDef(setting) != nil {
			continue
		}
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// groups says what hints want of a member of a consumer group.
var groups = map[string]func(*sim.MemberPlan) bool{
	"group":             func(*sim.MemberPlan) bool { return true },
	"group-classic":     func(m *sim.MemberPlan) bool { return !m.Modern },
	"group-consumer":    func(m *sim.MemberPlan) bool { return m.Modern },
	"group-cooperative": func(m *sim.MemberPlan) bool { return m.Cooperative },
	"group-rolling":     func(m *sim.MemberPlan) bool { return m.Rolls },
	"group-topics":      func(m *sim.MemberPlan) bool { return len(m.Subs) > 1 },
}

// mishaps says what hints want of a member that a fault strikes, and of that fault.
var mishaps = map[string]func(*sim.Fault, *sim.MemberPlan) bool{
	"member-lost-long": func(f *sim.Fault, m *sim.MemberPlan) bool {
		return f.Kind == sim.MemberLost && m.Long() && m.Instance == ""
	},
	"member-pause-static": func(f *sim.Fault, m *sim.MemberPlan) bool {
		return f.Kind == sim.MemberPause && !m.Modern && m.Instance != "" && m.Session > f.For && f.For > m.Rebalance
	},
}

var names = func() []string {
	list := append([]string{darkness, noAdmin, bothProtocols}, moments[1:]...)
	for name := range groups {
		list = append(list, name)
	}
	for name := range mishaps {
		list = append(list, name)
	}
	for kind := sim.Kill; kind <= sim.MemberTwin; kind++ {
		list = append(list, dashed(kind.String()))
	}
	for e := 1; e < simdisk.NumEffects; e++ {
		list = append(list, dashed("disk "+simdisk.Effect(e).String()))
	}
	return list
}()

// moments are what faults may wait for, by sim.Moment.
var moments = []string{"", "after-ack", "after-election", "after-change", "after-append"}

func dashed(s string) string { return strings.ReplaceAll(s, " ", "-") }

// Match says whether a plan has what all hints want.
func Match(p *sim.Plan, hints []string) bool {
	for _, hint := range hints {
		if before, after, ok := strings.Cut(hint, ">"); ok {
			if !inOrder(p, strings.Split(before, "|"), strings.Split(after, "|")) {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(strings.Split(hint, "|"), func(name string) bool { return has(p, name) }) {
			return false
		}
	}
	return true
}

// Barren is how many seeds in a row without what hints want say that no world has it.
const Barren = 20_000

// Next returns the first seed from a number on whose plan has what all hints want; false if no world has it.
func Next(from uint64, hints []string) (seed uint64, ok bool) {
	for seed := from; seed < from+Barren; seed++ {
		if Match(sim.Draw(seed), hints) {
			return seed, true
		}
	}
	return 0, false
}

// inOrder says whether one of the faults before ends before one of the faults after comes.
func inOrder(p *sim.Plan, before, after []string) bool {
	for i := range p.Faults {
		f := &p.Faults[i]
		if !slices.Contains(before, dashed(f.Name())) {
			continue
		}
		if p.PowerLossAtEnd && slices.Contains(after, darkness) {
			return true
		}
		if slices.ContainsFunc(p.Faults, func(g sim.Fault) bool {
			return g.At > f.At+f.For && slices.Contains(after, dashed(g.Name()))
		}) {
			return true
		}
	}
	return false
}

func has(p *sim.Plan, name string) bool {
	if name == noAdmin {
		return !slices.ContainsFunc(p.Clients, func(c sim.ClientPlan) bool { return c.Kind == sim.Admin })
	}
	if name == bothProtocols {
		return slices.ContainsFunc(p.Clients, func(c sim.ClientPlan) bool {
			return c.Member != nil && c.Member.Modern && slices.ContainsFunc(p.Clients, func(d sim.ClientPlan) bool {
				return d.Member != nil && !d.Member.Modern && d.Member.Group == c.Member.Group
			})
		})
	}
	if want := groups[name]; want != nil {
		return slices.ContainsFunc(p.Clients, func(c sim.ClientPlan) bool { return c.Member != nil && want(c.Member) })
	}
	if want := mishaps[name]; want != nil {
		return slices.ContainsFunc(p.Faults, func(f sim.Fault) bool {
			m := p.Clients[max(0, min(f.Client, len(p.Clients)-1))].Member
			return m != nil && want(&f, m)
		})
	}
	if name == darkness {
		return p.PowerLossAtEnd
	}
	if n, ok := strings.CutPrefix(name, brokersPrefix); ok {
		least, err := strconv.Atoi(n)
		return err == nil && len(p.Brokers) >= least
	}
	if n, ok := strings.CutPrefix(name, shortPrefix); ok {
		most, err := strconv.Atoi(n)
		return err == nil && p.Duration <= time.Duration(most)*time.Second
	}
	if setting, ok := strings.CutPrefix(name, topicPrefix); ok {
		return slices.ContainsFunc(p.Topics, func(t sim.TopicPlan) bool {
			return slices.ContainsFunc(t.Settings, func(s sim.Setting) bool { return s.Name == setting })
		})
	}
	if setting, ok := strings.CutPrefix(name, brokerPrefix); ok {
		return slices.ContainsFunc(p.Brokers, func(b sim.BrokerPlan) bool {
			return slices.ContainsFunc(b.Settings, func(s sim.Setting) bool { return s.Name == setting })
		})
	}
	return slices.ContainsFunc(p.Faults, func(f sim.Fault) bool { return dashed(f.Name()) == name || moments[f.When] == name })
}
