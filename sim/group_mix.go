package sim

import (
	"slices"
	"strconv"
	"time"

	"lockstep/core/group"
	"lockstep/sim/seed"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups of a rarer kind: members of both protocols in one group, which is upgraded and downgraded as they come and go
// (KIP-848); cooperative rebalancing (KIP-429); members that read different topics, and change what they read; and two processes
// with one instance id.

// drawMixtures makes such groups of some that there are. It has a stream of its own, so that worlds without them stay as they are.
func drawMixtures(p *Plan, c seed.Stream) {
	mixed := false
	for _, name := range groupNames(p) {
		if c.Chance(500) {
			x := mixture{p: p, c: &c, name: name}
			x.draw()
			mixed = mixed || x.both
		}
	}
	if mixed && c.Chance(200) {
		policy := []string{group.MigrateUp, group.MigrateDown, group.MigrateNever}[c.Intn(3)]
		for i := range p.Brokers {
			p.Brokers[i].Settings = append(p.Brokers[i].Settings, Setting{migrationPolicy, policy})
		}
	}
}

const migrationPolicy = "group.consumer.migration.policy"

// mixture is one group while it is drawn.
type mixture struct {
	p    *Plan
	c    *seed.Stream
	name string
	both bool // protocols
}

func (x *mixture) members() (list []int) {
	for i := range x.p.Clients {
		if m := x.p.Clients[i].Member; m != nil && m.Group == x.name {
			list = append(list, i)
		}
	}
	return list
}

func (x *mixture) draw() {
	c := x.c
	both, cooperative, differ, twins := c.Chance(600), c.Chance(450), c.Chance(500), c.Chance(350)
	if x.both = both || !cooperative && !differ && !twins; x.both {
		x.mixProtocols()
	}
	for _, i := range x.members() {
		x.p.Clients[i].Member.Cooperative = cooperative && !x.p.Clients[i].Member.Modern
	}
	if differ {
		x.mixTopics()
	}
	if twins {
		x.addTwin()
	}
	list := x.members()
	kinds := []FaultKind{MemberDeath, MemberPause, MemberLeave}
	if differ {
		kinds = append(kinds, MemberSubscribe, MemberSubscribe)
	}
	for range c.Skewed(0, 10) {
		x.fault(kinds[c.Intn(len(kinds))], list[c.Intn(len(list))])
	}
}

func (x *mixture) fault(kind FaultKind, client int) {
	f := Fault{Kind: kind, Seed: x.c.Uint64(), Client: client}
	f.At = time.Duration(x.c.Below(uint64(x.p.Duration)))
	m := x.p.Clients[client].Member
	f.For = time.Duration(x.c.Skewed(int64(50*time.Millisecond), 2*int64(min(m.Session, 5*time.Second)+m.Rebalance)))
	if kind == MemberSubscribe || kind == MemberTwin {
		f.For = 0
	}
	x.p.Faults = append(x.p.Faults, f)
}

// mixProtocols makes some members speak one protocol and some the other. None has a session that the world does not wait for.
func (x *mixture) mixProtocols() {
	c := x.c
	list := x.members()
	for range max(0, 2+c.Intn(3)-len(list)) { // enough for both
		first := &x.p.Clients[list[0]]
		m := *first.Member
		if m.Instance != "" {
			m.Instance = x.name + "-" + itoa(len(x.members()))
		}
		x.p.Clients = append(x.p.Clients, drawMember(x.p, c, m, first.Topics))
	}
	modern := x.modernSession()
	classic := time.Duration(c.Skewed(int64(300*time.Millisecond), int64(8*time.Second)))
	for _, i := range x.members() {
		x.speak(x.p.Clients[i].Member, c.Chance(500), modern, classic)
	}
}

func (x *mixture) speak(m *MemberPlan, isModern bool, modern, classic time.Duration) {
	if m.Modern, m.Session = isModern, classic; isModern {
		m.Session = modern
	}
	m.Heartbeat = min(m.Session, 6*time.Second, m.Rebalance) / time.Duration(3+x.c.Intn(4))
}

// modernSession is the session timeout that the brokers are set to.
func (x *mixture) modernSession() time.Duration {
	ms, _ := strconv.Atoi(x.p.Brokers[0].setting("group.consumer.session.timeout.ms"))
	return time.Duration(ms) * time.Millisecond
}

// mixTopics lets members read different topics out of all that the group reads.
func (x *mixture) mixTopics() {
	c := x.c
	list := x.members()
	all := slices.Clone(x.p.Clients[list[0]].Topics)
	for t := range x.p.Topics {
		if !slices.Contains(all, t) && c.Chance(800) {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	for _, i := range list {
		m := x.p.Clients[i].Member
		x.p.Clients[i].Topics = all
		for range 1 + c.Intn(3) {
			var some []int
			for _, t := range all {
				if c.Chance(500) {
					some = append(some, t)
				}
			}
			if len(some) == 0 {
				some = []int{all[c.Intn(len(all))]}
			}
			m.Subs = append(m.Subs, some)
		}
		m.Pattern = m.Modern && c.Chance(500)
	}
}

// addTwin adds a process with the instance id of another one, which is started while that one is alive.
func (x *mixture) addTwin() {
	c := x.c
	list := x.members()
	first := &x.p.Clients[list[c.Intn(len(list))]]
	first.Version = 0 // old versions know of no instance ids
	m := first.Member
	if m.Instance == "" {
		m.Instance = x.name + "-twin"
	}
	twin, y := *first, *m
	twin.Seed, twin.Member, y.Twin = c.Uint64(), &y, true
	if x.both && c.Chance(500) {
		x.speak(&y, !y.Modern, x.modernSession(), y.Session)
		y.Cooperative = false
		for _, i := range list {
			y.Cooperative = y.Cooperative || !y.Modern && x.p.Clients[i].Member.Cooperative
		}
	}
	x.p.Clients = append(x.p.Clients, twin)
	for range 1 + c.Intn(4) {
		x.fault(MemberTwin, len(x.p.Clients)-1)
	}
}

// setting returns what a broker sets a name to.
func (b *BrokerPlan) setting(name string) string {
	for _, s := range b.Settings {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// subscription is what the member wants to read.
func (m *member) subscription() []int {
	if len(m.mp.Subs) == 0 || m.all {
		return m.plan.Topics
	}
	return m.mp.Subs[m.subs%len(m.mp.Subs)]
}

// resubscribe changes what the member wants to read.
func (m *member) resubscribe() {
	m.subs++
	m.w.event(m.lane, "member", "wants to read something else")
	m.work()
}

// patterns divides what a member of KIP-848 wants to read: the first topics by their names, the others by a pattern.
func (m *member) patterns() (names []string, pattern *string) {
	all, re, knows := m.wanted(), "", m.maxes[kmsg.ConsumerGroupHeartbeat.Int16()] >= 1
	n := len(all)
	if m.mp.Pattern && knows {
		n /= 2
	}
	names = append([]string{}, all[:n]...)
	for _, t := range all[n:] {
		if re != "" {
			re += "|"
		}
		re += t
	}
	if knows && len(m.mp.Subs) > 0 { // an empty one takes the last one back
		pattern = &re
	}
	return names, pattern
}

// wanted is the names of the topics that the member wants to read.
func (m *member) wanted() (names []string) {
	for _, t := range m.subscription() {
		names = append(names, m.topicName(t))
	}
	return names
}

// cover lets somebody read each topic of the group once the world is healed, so that everything is read.
func (g *groupTruth) cover() {
	for _, t := range g.topics {
		var any *member
		for i := len(g.members) - 1; i >= 0; i-- {
			switch m := g.members[i]; {
			case !m.up || m.shutOut():
			case slices.Contains(m.subscription(), t):
				any = nil
				i = -1
			default:
				any = m
			}
		}
		if any != nil {
			any.all = true
			any.resubscribe()
		}
	}
}

// mates are the other processes with the member's instance id.
func (m *member) mates() (list []*member) {
	for _, x := range m.g.members {
		if x != m && m.mp.Instance != "" && x.mp.Instance == m.mp.Instance {
			list = append(list, x)
		}
	}
	return list
}

func (m *member) mateUp() bool {
	return slices.ContainsFunc(m.mates(), func(x *member) bool { return x.up })
}

// usurps: this process asks for the place of a static member, and gets it at some time from now on without that one's knowledge. Only
// between two of KIP-848 it does not.
func (m *member) usurps() {
	m.begins()
	m.usurping = false
	for _, x := range m.mates() {
		if !m.mp.Modern || !x.mp.Modern {
			m.usurping, x.usurped = true, true
		}
	}
}

// begins: the process asks for a membership of its own; what was with its last one counts no more.
func (m *member) begins() {
	m.fencedAt = 0
	m.usurped = slices.ContainsFunc(m.mates(), func(x *member) bool { return x.up && x.usurping })
}

// shutOut says that the member may not be in the group, as long as others are as they are.
func (m *member) shutOut() bool {
	return m.barred || m.mp.Modern && m.phase == outside && slices.ContainsFunc(m.mates(), func(x *member) bool { return x.up && x.phase == inside })
}

// replaces: this process has got the place, by a record that is committed; what another one says in it from now on is refused.
func (m *member) replaces() {
	for _, x := range m.mates() {
		if !m.usurped && x.up && x.fencedAt == 0 && x.usurped {
			x.fencedAt = m.w.now
		}
	}
}

// banished is the news that another process has the member's instance id: the process ends. Most are started again, for nobody
// knows better; then that other one is told the same.
func (m *member) banished() {
	m.w.event(m.lane, "member", "is fenced: another process has its instance id")
	if m.stopped || m.chance.Chance(400) {
		m.die(-1)
		return
	}
	m.die(m.chance.Between(500*millisecond, 6*second))
}
