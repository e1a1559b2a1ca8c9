package sim

import (
	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/replica"
	"lockstep/sim/seed"
)

// Faults that need several brokers.

// whom finds the broker that a fault strikes.
func (m *misfortune) whom() *host {
	w, f := m.w, m.f
	chance := seed.New(f.Seed, seed.Label("whom"))
	switch f.Broker {
	case AFollower:
		if list := w.followers(m.of); len(list) > 0 {
			return list[chance.Intn(len(list))]
		}
	case TheLeader:
		if m.of != nil {
			if h := w.leaderOf(m.of); h != nil {
				return h
			}
		}
		if led := w.leaders(); len(led) > 0 {
			return led[chance.Intn(len(led))]
		}
	case TheController:
		if h := w.controller(); h != nil {
			return h
		}
	default:
		return w.hosts[f.Broker%len(w.hosts)]
	}
	return w.hosts[chance.Intn(len(w.hosts))]
}

// leaders returns the leader of each partition that has one that is up.
func (w *world) leaders() (led []*host) {
	for _, of := range w.oracle.agreements {
		if of.id == core.MetadataPartition {
			continue
		}
		if h := w.leaderOf(of); h != nil {
			led = append(led, h)
		}
	}
	return led
}

// leaderOf returns who leads a partition, nil if nobody that is up does. While one who was deposed does not know it, it is the newest.
func (w *world) leaderOf(of *agreed) (leader *host) {
	epoch := int32(-1)
	for _, h := range w.hosts {
		if h.core == nil {
			continue
		}
		if r := h.core.Replica(of.id); r != nil && r.Role() == replica.Leader && r.LeaderEpoch() > epoch {
			leader, epoch = h, r.LeaderEpoch()
		}
	}
	return leader
}

// followers returns who is in sync and does not lead a partition, which nil leaves open.
func (w *world) followers(of *agreed) (list []*host) {
	for _, x := range w.oracle.agreements {
		if of != nil && x != of || x.id == core.MetadataPartition {
			continue
		}
		leader := w.leaderOf(x)
		for _, id := range x.isr {
			if h := w.hosts[id-1]; h != leader {
				list = append(list, h)
			}
		}
	}
	return list
}

// atMoment strikes with what has waited for this.
func (w *world) atMoment(what Moment, of *agreed) {
	if len(w.waiting) == 0 {
		return
	}
	kept := w.waiting[:0]
	for _, m := range w.waiting {
		if m.f.When != what || m.skip > 0 {
			if m.f.When == what {
				m.skip--
			}
			kept = append(kept, m)
			continue
		}
		m.of = of
		chance := seed.New(m.f.Seed, seed.Label("moment"))
		w.after(chance.Between(0, 1)*chance.Skewed(10*microsecond, 20*millisecond), m, evStrike)
	}
	w.waiting = kept
}

// strikeCluster does what needs several brokers; false says that there was nothing to strike.
func (m *misfortune) strikeCluster(h *host, chance *seed.Stream) bool {
	w, f := m.w, m.f
	if len(w.hosts) == 1 {
		return false
	}
	until := w.now + int64(f.For)
	switch f.Kind {
	case Blackout:
		for _, x := range w.hosts {
			before := x.disk.Stats()
			x.kill(true, int64(f.For)+chance.Between(0, 500*millisecond))
			m.count.Mattered += b2i(lostAnything(before, x.disk.Stats()))
		}
	case RollingRestart:
		m.more = len(w.hosts)
		m.rollOn()
	case BackToBack:
		m.more = 2 + chance.Intn(4)
		m.again()
	case Deaf:
		h.deaf = max(h.deaf, until)
	case SeeSaw:
		return m.seeSaw(chance)
	case Hold:
		return m.hold(h, chance, until)
	case PeerReset:
		return m.resetPeers(h, chance)
	default:
		m.wallUp(h, chance, until)
	}
	return true
}

// wallUp cuts machines off from one another until an instant.
func (m *misfortune) wallUp(h *host, chance *seed.Stream, until Time) {
	w := m.w
	n, brokers := len(w.net.walls)-1, len(w.hosts) // the last machine is the verifier's
	both := func(a, b int) {
		w.net.wall(a, b, until, m.count)
		w.net.wall(b, a, until, m.count)
	}
	switch m.f.Kind {
	case Split: // clients fall to either side too
		var sides []bool
		for i := range n {
			sides = append(sides, i == h.index || i != h.index && chance.Chance(400))
		}
		for a := range n {
			for b := range a {
				if sides[a] != sides[b] {
					both(a, b)
				}
			}
		}
	case OneWay:
		out := chance.Chance(500)
		for i := range brokers {
			switch {
			case i == h.index || chance.Chance(300):
			case out:
				w.net.wall(h.index, i, until, m.count)
			default:
				w.net.wall(i, h.index, until, m.count)
			}
		}
	case Link:
		if other := chance.Intn(brokers); other != h.index {
			both(h.index, other)
		}
	case Swizzle:
		for i := range brokers {
			if chance.Chance(400) {
				continue
			}
			end := w.now + chance.Between(1, int64(m.f.For)+1)
			for j := range n {
				w.net.wall(i, j, end, m.count)
				w.net.wall(j, i, end, m.count)
			}
		}
	}
}

// hold lets one connection between brokers stand still, in one direction: a message on it arrives long after others
// that were sent later.
func (m *misfortune) hold(h *host, chance *seed.Stream, until Time) bool {
	var of []*conn
	for _, c := range m.w.net.conns {
		if c.by != nil && (c.by == h || c.host == h) {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return false
	}
	c := of[chance.Intn(len(of))]
	side := chance.Intn(2)
	c.arrival[side] = max(c.arrival[side], until)
	c.held = until
	return true
}

// deafness is until when nothing of the metadata log arrives at a side of a connection, 0 if nothing hinders it.
func (c *conn) deafness(side int) Time {
	if x, ok := c.ends[dialer].(*peerWire); ok && side == dialer && x.lane == broker.MetadataLane {
		return c.by.deaf
	}
	return 0
}

// resetPeers breaks some connections between a broker and others.
func (m *misfortune) resetPeers(h *host, chance *seed.Stream) bool {
	return m.breakConns(func(c *conn) bool { return c.by != nil && (c.by == h || c.host == h) && !chance.Chance(500) })
}

// rollOn stops the next broker cleanly once the one before is ready again.
func (m *misfortune) rollOn() {
	w := m.w
	if m.more == 0 {
		return
	}
	for _, h := range w.hosts {
		if !h.ready && !h.lost && h.plan.DiskBytes == 0 && h.up && m.more < len(w.hosts) {
			w.after(200*millisecond, m, evHeal) // it is coming up
			return
		}
	}
	h := w.hosts[m.more-1]
	m.more--
	if h.ready && w.now >= h.paused {
		m.count.Mattered += b2i(h.busy())
		h.step(broker.StopRequested{})
	}
	w.after(int64(m.f.For)/4+300*millisecond, m, evHeal)
}

// again kills whoever leads now.
func (m *misfortune) again() {
	w := m.w
	if m.more == 0 {
		return
	}
	m.more--
	h := m.whom()
	busy := h.busy()
	h.kill(false, int64(m.f.For)/2)
	m.count.Mattered += b2i(busy)
	w.after(900*millisecond, m, evHeal)
}
