package sim

import (
	"lockstep/core/broker"
	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// misfortune is a fault on its way.
type misfortune struct {
	w      *world
	f      *Fault
	count  *FaultCount
	victim *host
	more   int     // strikes that are still to come
	of     *agreed // the partition whose moment it waited for
	skip   int
}

// Kinds of events for faults.
const (
	evStrike uint8 = iota + 96
	evHeal
)

// plot schedules the faults of the plan.
func (w *world) plot() {
	for i := range w.plan.Faults {
		f := &w.plan.Faults[i]
		m := &misfortune{w: w, f: f, count: w.stats.fault(f.Name())}
		m.count.Planned++
		w.after(int64(f.At), m, evStrike)
	}
}

func (m *misfortune) fire(e *event) {
	if m.w.phase != working {
		return
	}
	if e.kind == evHeal {
		m.heal(m.victim)
		return
	}
	if m.f.ofMember() {
		m.strikeMember()
		return
	}
	if m.f.When != AtOnce && m.of == nil {
		m.skip = m.f.Skip
		m.w.waiting = append(m.w.waiting, m)
		return
	}
	h := m.whom()
	m.victim = h
	if m.w.trace != nil {
		m.w.trace.add(Entry{At: m.w.now, Lane: h.lane, Kind: "fault", Text: m.f.String()})
	}
	if m.strike(h) {
		m.count.Happened++
		m.w.stats.Steps++
	}
}

// strike does it; false says that there was nothing to strike.
func (m *misfortune) strike(h *host) bool {
	w, f := m.w, m.f
	chance := seed.New(f.Seed, seed.Label("strike"))
	switch f.Kind {
	case Kill, PowerLoss:
		return m.kill(h)
	case CleanStop:
		if !h.ready || w.now < h.paused {
			return false
		}
		m.count.Mattered += b2i(h.busy())
		h.step(broker.StopRequested{})
	case Pause:
		if !h.up || w.now < h.paused {
			return false // what waits for the end of a pause must keep its order, so the end stays where it is
		}
		h.paused = w.now + int64(f.For)
	case DiskRule:
		h.disk.AddRule(f.Rule) // whether it happens is counted in the end
		w.stats.Steps++
		return false
	case DiskFull:
		h.disk.SetCapacity(h.disk.Used() + chance.Skewed(1000, 200_000))
		w.after(int64(f.For), m, evHeal)
	case BitRot:
		return h.disk.Rot([]string{"*", "*.log", "*.index", "*-?/*"}[chance.Intn(4)], &chance)
	case Reset:
		return m.reset(&chance)
	case Clog:
		i := len(w.net.clogs) - 1
		if f.Client >= 0 {
			i = f.Client % i
		}
		w.net.clogs[i] = w.now + int64(f.For)
	case SlowNet:
		w.net.slow = chance.Skewed(millisecond, 500*millisecond)
		m.count.Mattered++
		w.after(int64(f.For), m, evHeal)
	case WallJump:
		h.wallOff += f.For.Milliseconds()
		m.count.Mattered += b2i(h.up)
	default:
		return m.strikeCluster(h, &chance)
	}
	return true
}

func (m *misfortune) heal(h *host) {
	switch m.f.Kind {
	case RollingRestart:
		m.rollOn()
	case BackToBack:
		m.again()
	case DiskFull:
		m.count.Mattered += b2i(h.disk.Stats().Refused > 0)
		h.disk.SetCapacity(h.plan.DiskBytes)
	case SlowNet:
		m.w.net.slow = 0
	}
}

func (m *misfortune) kill(h *host) bool {
	busy, before := h.busy(), h.disk.Stats()
	if !h.kill(m.f.Kind == PowerLoss, int64(m.f.For)) && m.f.Kind == Kill {
		return false
	}
	if m.f.Kind == PowerLoss {
		m.count.Mattered += b2i(lostAnything(before, h.disk.Stats()))
	} else {
		m.count.Mattered += b2i(busy)
	}
	return true
}

func lostAnything(before, after simdisk.Stats) bool {
	return after.LostSectors > before.LostSectors || after.LostNames > before.LostNames || after.LostSizes > before.LostSizes
}

// busy says that a death would interrupt something.
func (h *host) busy() bool {
	if !h.up {
		return false
	}
	if h.sync.running {
		return true
	}
	for _, hc := range h.accepted {
		if len(hc.answers) > 0 {
			return true
		}
	}
	return false
}

// reset breaks the connections of one client, or some of all.
func (m *misfortune) reset(chance *seed.Stream) bool {
	return m.breakConns(func(c *conn) bool {
		if m.f.Client >= 0 {
			return c.client == m.f.Client
		}
		return !chance.Chance(500)
	})
}

// breakConns breaks the connections that which says, inside what is on its way on them; false says that there are none.
func (m *misfortune) breakConns(which func(*conn) bool) bool {
	any := false
	for _, c := range append([]*conn(nil), m.w.net.conns...) {
		if !which(c) {
			continue
		}
		any = true
		m.count.Mattered += b2i(c.flying[dialer]+c.flying[acceptor] > 0)
		c.tear()
		c.reset()
	}
	return any
}

// healAll ends everything that is wrong, for good.
func (w *world) healAll() {
	w.net.slow = 0
	clear(w.net.clogs)
	w.net.clearWalls()
	for len(w.sways) > 0 {
		w.sways[0].end()
	}
	for _, h := range w.hosts {
		h.disk.ClearRules()
		h.disk.SetCapacity(0)
		h.wallOff, h.deaf = 0, 0
		if !h.up && h.restart == nil && !h.lost {
			h.restart = w.after(millisecond, h, evStart)
		}
	}
}

// countDiskFaults counts what rules did.
func (w *world) countDiskFaults() {
	if rot := w.stats.fault("bit-rot"); rot.Happened > 0 {
		rot.Mattered += b2i(w.stats.SetAside+w.stats.DamageSeen+w.stats.ErrorStops > 0)
	}
	for _, h := range w.hosts {
		s := h.disk.Stats()
		w.stats.DiskCalls += s.Total
		for e := 1; e < simdisk.NumEffects; e++ {
			c := w.stats.fault("disk " + simdisk.Effect(e).String())
			c.Happened += s.Fired[e]
			c.Mattered += s.Fired[e] // the call it struck did not do what it was asked
		}
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
