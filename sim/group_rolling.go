package sim

import (
	"slices"
	"time"

	"lockstep/sim/seed"
)

// From eager to cooperative rebalancing by a rolling change (KIP-429): a member offers the assignor range, when it is started again
// that and cooperative-sticky, and the next time the latter alone. Only then does it keep what it has over a rebalance, for the group
// takes what all of its members offer. A step is taken when all others are at most one behind it.

const (
	eagerAssignor       = "range"
	cooperativeAssignor = "cooperative-sticky"
)

// drawRolling lets groups of some worlds change. It has a stream of its own.
func drawRolling(p *Plan, c seed.Stream) {
	for _, name := range groupNames(p) {
		x := mixture{p: p, c: &c, name: name}
		list := x.members()
		if !c.Chance(250) || slices.ContainsFunc(list, func(i int) bool {
			m := p.Clients[i].Member
			return m.Modern || m.Cooperative || m.Twin || m.Long()
		}) {
			continue
		}
		for range 2 {
			for _, i := range list {
				p.Clients[i].Member.Rolls = true
				x.fault([]FaultKind{MemberLeave, MemberDeath}[c.Intn(2)], i)
				f := &p.Faults[len(p.Faults)-1]
				f.For = min(f.For, time.Second)
			}
		}
	}
}

// groupNames are the groups of a plan, in the order in which their members come.
func groupNames(p *Plan) (names []string) {
	for i := range p.Clients {
		if m := p.Clients[i].Member; m != nil && !slices.Contains(names, m.Group) {
			names = append(names, m.Group)
		}
	}
	return names
}

// roll takes the next step as the process begins, if the others are far enough.
func (m *member) roll() {
	if !m.mp.Rolls {
		return
	}
	least := m.step
	for _, x := range m.g.members {
		if x != m {
			least = min(least, x.step)
		}
	}
	if m.life > 1 && m.step < 2 && m.step == least {
		m.step++
		m.w.event(m.lane, "member", "offers "+itoa(m.step)+" steps toward cooperative rebalancing")
	}
}

// assignors are what the member offers, the first the one that it likes best.
func (m *member) assignors() []string {
	switch {
	case m.mp.Cooperative || m.mp.Rolls && m.step == 2:
		return []string{cooperativeAssignor}
	case m.mp.Rolls && m.step == 1:
		return []string{cooperativeAssignor, eagerAssignor}
	}
	return []string{eagerAssignor}
}

// cooperates says that the member keeps what it has over a rebalance.
func (m *member) cooperates() bool { return m.mp.Cooperative || m.mp.Rolls && m.step == 2 }
