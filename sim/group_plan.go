package sim

import (
	"time"

	"lockstep/sim/seed"
)

// MemberPlan is what a member of a consumer group has besides what every client has.
type MemberPlan struct {
	Group     string
	Modern    bool          // speaks the protocol of KIP-848, else the classic one
	Instance  string        // of a static member (KIP-345)
	Session   time.Duration // classic: its session timeout; else what the brokers are set to
	Rebalance time.Duration // how long it may take to give up partitions and join again
	Heartbeat time.Duration // classic: between heartbeats
	Commit    time.Duration // between commits
	Revoke    time.Duration // how long it needs before it gives up partitions
	Gone      bool          // if it is down when the world heals, it stays down, unless it is the group's first

	Cooperative bool    // classic: keeps what it has over a rebalance (KIP-429)
	Rolls       bool    // classic: changes from one to the other as it is started again, see drawRolling
	Subs        [][]int // what it wants to read, of the topics of its plan: the first, and after each change the next; nil: all
	Pattern     bool    // KIP-848: it wants some of these by a pattern
	Twin        bool    // has the instance id of another one, and begins when a fault says so
}

// longSession is a session timeout that no group may wait for: whoever dies while a group rebalances must be missed earlier.
const longSession = 10 * time.Minute

// Long says that the member's silence alone is noticed too late for the world.
func (m *MemberPlan) Long() bool { return m.Session >= longSession }

// drawGroups adds consumer groups to some worlds, and what goes wrong with their members. It has a stream of its own and adds
// at the ends, so that the rest of a world is what it is without groups.
func drawGroups(p *Plan, c seed.Stream) {
	if !c.Chance(400) {
		return
	}
	session := time.Duration(c.Skewed(int64(300*time.Millisecond), int64(6*time.Second)))
	for i := range p.Brokers {
		b := &p.Brokers[i]
		set := func(name string, v int64) { b.Settings = append(b.Settings, Setting{name, itoa(int(v))}) }
		set("group.min.session.timeout.ms", 10)
		b.Settings = append(b.Settings, Setting{"log.cleaner.enable", "false"}) // unless drawCompaction says otherwise
		set("group.consumer.session.timeout.ms", session.Milliseconds())
		set("group.consumer.heartbeat.interval.ms", session.Milliseconds()/4)
	}
	partitions, delay := 1+c.Intn(3), int64(0)
	if c.Chance(300) {
		delay = c.Skewed(1, 1000)
	}
	for i := range p.Brokers {
		p.Brokers[i].Settings = append(p.Brokers[i].Settings, Setting{"offsets.topic.num.partitions", itoa(partitions)},
			Setting{"group.initial.rebalance.delay.ms", itoa(int(delay))})
	}
	for i := range 1 + c.Intn(2) {
		drawGroup(p, &c, "group-"+itoa(i), session)
	}
}

func drawGroup(p *Plan, c *seed.Stream, name string, session time.Duration) {
	m := MemberPlan{Group: name, Modern: c.Chance(500), Session: session}
	m.Rebalance = time.Duration(c.Skewed(int64(500*time.Millisecond), int64(6*time.Second)))
	m.Commit = time.Duration(c.Skewed(int64(10*time.Millisecond), int64(2*time.Second)))
	if !m.Modern {
		m.Session = time.Duration(c.Skewed(int64(300*time.Millisecond), int64(8*time.Second)))
		if c.Chance(250) {
			m.Session = longSession
		}
	}
	m.Heartbeat = min(m.Session, 6*time.Second, m.Rebalance) / time.Duration(3+c.Intn(4)) // it must hear of a rebalance in time for it
	static := c.Chance(350)
	var topics []int
	for i := range p.Topics {
		if c.Chance(600) {
			topics = append(topics, i)
		}
	}
	if len(topics) == 0 {
		topics = []int{c.Intn(len(p.Topics))}
	}
	first := len(p.Clients)
	for i := range 1 + int(c.Skewed(0, 4)) {
		x := m
		if static {
			x.Instance = name + "-" + itoa(i)
		}
		p.Clients = append(p.Clients, drawMember(p, c, x, topics))
	}
	drawMishaps(p, c, &m, first)
}

func drawMember(p *Plan, c *seed.Stream, m MemberPlan, topics []int) ClientPlan {
	cl := ClientPlan{Kind: Member, Seed: c.Uint64(), Topics: topics}
	cl.Timeout = m.Rebalance + time.Duration(c.Skewed(int64(300*time.Millisecond), int64(5*time.Second)))
	lo, hi := between(c, int64(2*time.Millisecond), int64(500*time.Millisecond))
	cl.Think = [2]time.Duration{time.Duration(lo), time.Duration(hi)}
	cl.Start = time.Duration(c.Skewed(0, int64(p.Duration)/2))
	if c.Chance(500) {
		cl.Version = 1 + c.Intn(10)
	}
	// Who waits longer for records than for the answer gets none, for ever.
	cl.MaxWait = min(time.Duration(c.Skewed(int64(time.Millisecond), int64(time.Second))), cl.Timeout/2)
	cl.MinBytes = int32(c.Skewed(0, 2000))
	cl.MaxBytes = int32(c.Skewed(1000, 1<<20))
	cl.PartitionBytes = int32(c.Skewed(200, 1<<20))
	switch {
	case c.Chance(200): // too slow for the others
		m.Revoke = time.Duration(c.Skewed(int64(10*time.Millisecond), 2*int64(m.Rebalance)))
	case c.Chance(500):
		m.Revoke = time.Duration(c.Skewed(int64(time.Millisecond), int64(m.Rebalance)/2))
	}
	m.Gone = c.Chance(400)
	cl.Member = &m
	return cl
}

// drawMishaps draws what happens to members themselves.
func drawMishaps(p *Plan, c *seed.Stream, m *MemberPlan, first int) {
	kinds := []FaultKind{}
	for _, k := range []FaultKind{MemberDeath, MemberLost, MemberPause, MemberLeave} {
		if c.Chance(500) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return
	}
	for range c.Skewed(0, 8) {
		f := Fault{Kind: kinds[c.Intn(len(kinds))], Seed: c.Uint64(), Client: first + c.Intn(len(p.Clients)-first)}
		f.At = time.Duration(c.Below(uint64(p.Duration)))
		f.For = time.Duration(c.Skewed(int64(50*time.Millisecond), 2*int64(min(m.Session, 5*time.Second)+m.Rebalance)))
		p.Faults = append(p.Faults, f)
	}
}

// ofMember says that a fault strikes a member of a group.
func (f *Fault) ofMember() bool { return f.Kind >= MemberDeath && f.Kind <= MemberTwin }

func (m *misfortune) strikeMember() {
	c := m.w.clients[m.f.Client].(*member)
	m.w.event(c.lane, "fault", m.f.String())
	if m.f.Kind == MemberTwin {
		m.strikeTwin(c)
		return
	}
	if !c.up || m.w.now < c.paused {
		return
	}
	m.count.Happened++
	m.w.stats.Steps++
	busy := b2i(len(c.held) > 0)
	switch m.f.Kind {
	case MemberDeath:
		m.count.Mattered += busy
		c.die(int64(m.f.For))
	case MemberLost:
		if c.instance() == nil { // a new member makes the group rebalance
			c.die(-1)
			c.rise()
		}
		c.doom = m.count
	case MemberPause:
		c.paused = m.w.now + int64(m.f.For)
		c.commitAt, c.anew = c.paused, true // when it wakes up it commits before it hears of anything
		if seed.Mix(m.f.Seed)%4 > 0 {
			c.g.moveOn(c)
		}
	case MemberLeave:
		m.count.Mattered += busy
		c.leaveFor(int64(m.f.For))
	case MemberSubscribe:
		m.count.Mattered += b2i(len(c.mp.Subs) > 1)
		c.resubscribe()
	}
}

// strikeTwin starts that one of two processes of one instance id which is down.
func (m *misfortune) strikeTwin(c *member) {
	for _, x := range append([]*member{c}, c.mates()...) {
		if !x.up && c.plan != nil {
			m.count.Happened++
			m.count.Mattered += b2i(x.mateUp())
			x.rise()
			return
		}
	}
}
