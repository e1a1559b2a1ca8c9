package sim

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/controller"
	"lockstep/sim/seed"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// seeSaw lets the leadership of a partition go to another broker and back while a follower hears nothing of it, and
// then lets the follower hear of the first election alone, whose leader has not heard of the second: so far apart can
// three replicas be that are all alive (rule 4, museum A03 and A24). The follower is an observer of the metadata quorum, for a
// voter would ask for votes.
type seeSaw struct {
	m        *misfortune
	of       *agreed
	first    *host // leads, and leads again in the end
	second   *host // leads between
	follower *host
	epoch    int32 // in which first led
	before   int64 // end of the metadata log before the first election
	stage    stage
	until    Time  // gives up
	mark     int64 // what was committed when the first led again
	walls    FaultCount
}

// stage is how far the leadership has gone.
type stage uint8

const (
	falling stage = iota // the first leader is cut off from the controller
	inTurn               // the second leads, and the first comes back
	rising               // the second is cut off
	back                 // the first leads again
	apart                // the follower knows of the first election
	overAndDone
)

const (
	seeSawStep = 20 * millisecond
	seeSawCut  = 3200 * millisecond // longer than a session
	seeSawTime = 12 * second
)

// seeSaw begins; false says that no partition of the world is led, and followed, by who it takes.
func (m *misfortune) seeSaw(chance *seed.Stream) bool {
	var list []*seeSaw
	for _, of := range m.w.oracle.agreements {
		if s := m.onto(of); s != nil {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return false
	}
	s := list[chance.Intn(len(list))]
	s.until, s.before = m.w.now+seeSawTime, m.w.oracle.image.Next()
	s.follower.sways = s
	m.w.sways = append(m.w.sways, s)
	s.cutOff(s.first, seeSawCut)
	m.w.after(seeSawStep, s, evHeal)
	return true
}

// onto returns how a partition could sway, nil if it cannot.
func (m *misfortune) onto(of *agreed) *seeSaw {
	w := m.w
	s := &seeSaw{m: m, of: of, first: w.leaderOf(of)}
	if of.id == core.MetadataPartition || s.first == nil || s.first == w.controller() {
		return nil
	}
	p := w.oracle.image.Partition(of.id)
	if p == nil || p.Leader != s.first.nodeID() || len(p.ISR) < 3 {
		return nil
	}
	// Who comes first among the replicas is elected, so the last of them stays a follower.
	last := p.Replicas[len(p.Replicas)-1]
	s.follower, s.epoch = w.hosts[last-1], p.LeaderEpoch
	if !slices.Contains(p.ISR, last) || s.follower == s.first || s.follower.index < w.numVoters() || s.follower.sways != nil {
		return nil
	}
	return s
}

// controller is the broker that leads the metadata quorum, nil if none does.
func (w *world) controller() *host {
	for _, h := range w.hosts {
		if h.core != nil {
			if q, ok := h.core.Quorum(); ok && q.Leads {
				return h
			}
		}
	}
	return nil
}

// cutOff lets nothing pass between a broker and the controller for a while; false says that they are one.
func (s *seeSaw) cutOff(h *host, d Time) bool {
	w := s.m.w
	c := w.controller()
	if c == nil || c == h {
		return false
	}
	w.net.wall(h.index, c.index, w.now+d, &s.walls)
	w.net.wall(c.index, h.index, w.now+d, &s.walls)
	return true
}

// changed notes, before anybody hears of it, what the metadata log has committed.
func (s *seeSaw) changed(im *controller.Image) {
	if p := im.Partition(s.of.id); p != nil && p.LeaderEpoch <= s.epoch {
		s.before = im.Next()
	}
}

// keeps says that the follower is not to have an answer, which would let it know of an election too early: of the first before the
// leadership is back, and of the second at all.
func (s *seeSaw) keeps(x *peerWire, a broker.Answer) bool {
	fetch, ok := a.Msg.(*kmsg.FetchResponse)
	if !ok || x.lane != broker.MetadataLane || len(fetch.Topics) == 0 || len(fetch.Topics[0].Partitions) == 0 {
		return false
	}
	if s.stage < apart {
		return fetch.Topics[0].Partitions[0].HighWatermark > s.before
	}
	p := x.h.core.Image().Partition(s.of.id)
	return p == nil || p.LeaderEpoch > s.epoch
}

// end lets everybody hear everything again.
func (s *seeSaw) end() {
	s.stage = overAndDone
	s.follower.sways = nil
	s.m.w.sways = slices.DeleteFunc(s.m.w.sways, func(x *seeSaw) bool { return x == s })
}

func (s *seeSaw) fire(*event) {
	w := s.m.w
	if s.stage == overAndDone {
		return
	}
	p := w.oracle.image.Partition(s.of.id)
	if w.now > s.until || p == nil || !s.sway(p) {
		s.end()
		return
	}
	w.after(seeSawStep, s, evHeal)
}

// sway goes on as soon as the metadata log is where it should be; false says that something else has come in between.
func (s *seeSaw) sway(p *controller.Partition) bool {
	w := s.m.w
	elected := p.LeaderEpoch - s.epoch
	leads := func(h *host) bool { return h != nil && h.nodeID() == p.Leader }
	switch s.stage {
	case falling:
		if elected == 0 {
			return true
		}
		if s.second = w.leaderOf(s.of); elected > 1 || s.second == s.follower {
			return false
		}
		if leads(s.second) {
			s.stage = inTurn
		}
	case inTurn:
		if elected != 1 || !slices.Contains(p.ISR, s.follower.nodeID()) {
			return false
		}
		if slices.Contains(p.ISR, s.first.nodeID()) {
			s.stage = rising
			return s.cutOff(s.second, 2*seeSawCut)
		}
	case rising:
		if elected > 1 {
			s.stage, s.mark = back, s.of.hw
			return elected == 2 && leads(s.first)
		}
	case back: // until something is committed without the second, or as long as there is time
		if elected != 2 {
			return false
		}
		if s.of.hw > s.mark+1 || w.now > s.until-3*second {
			s.stage, s.until = apart, min(s.until, w.now+2*second)
			s.m.count.Mattered++
		}
	}
	return true
}

// drawSeeSaws lets leadership go to and fro in worlds that are large enough.
func drawSeeSaws(p *Plan, c seed.Stream) {
	if p.Voters == 0 || p.Voters >= len(p.Brokers) || !c.Chance(400) {
		return
	}
	p.Duration = max(p.Duration, 15*time.Second)
	for i := range p.Brokers { // each batch of the metadata log comes by itself
		b := &p.Brokers[i]
		b.Settings = append(b.Settings, Setting{"controller.quorum.fetch.max.bytes", itoa(1 + c.Intn(200))},
			Setting{"controller.quorum.fetch.snapshot.max.bytes", itoa(int(c.Skewed(10, 5000)))})
	}
	for range 1 + c.Intn(3) {
		f := Fault{Kind: SeeSaw, Seed: c.Uint64(), Client: -1}
		f.At = time.Duration(c.Below(uint64(p.Duration - 10*time.Second)))
		p.Faults = append(p.Faults, f)
	}
}
