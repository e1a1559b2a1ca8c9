package controller

import (
	"cmp"
	"slices"
	"time"

	"lockstep/core"
)

// life is what the controller knows of a registered broker's health. It is not
// part of the image: every controller finds out for itself.
//
// A broker holds a lease for broker.lease.ms from when it sent a heartbeat that
// was answered "not fenced". The controller counts from when it received that
// heartbeat, which is later, and waits a tenth longer, which is by how much the
// clocks' rates may differ. So nobody is fenced, and no leader replaced by
// force, while it may still believe in its lease (section 5 of the design).
type life struct {
	id     int32
	heard  core.Time // when the last heartbeat that counts was received
	closed bool      // its connection closed after that
	offset int64     // metadata offset that it reported last
	// A broker must reach goal, which was committed at goalSince, within a session, or its heartbeats do not count:
	// one that is deaf to the metadata log would believe for ever that it leads what was taken from it.
	goal      int64
	goalSince core.Time
	// reach is the offset that it must have reached, once fenced, before it may have a lease again; -1 before that is known.
	reach int64
	// stop is, while it is stopping, the offset that it and the others must have reached before it may go; -1 before that is known.
	stop      int64
	stopSince core.Time
}

// closure is a connection to a broker that closed, remembered for the moment when this broker becomes controller.
type closure struct {
	broker int32
	at     core.Time
}

// leaseOut is how long after hearing from a broker its lease has surely run out.
func (c *Controller) leaseOut() time.Duration { return c.broker.Lease + c.broker.Lease/10 }

// beginLives takes every registered broker for heard just now. The controller before granted no lease that is longer than a full
// one from when it last heard its majority, which was before this one was elected (see grantLease): so when a full lease
// from now has passed, whatever it granted is over.
func (c *Controller) beginLives(now core.Time) {
	c.lives = nil
	for b := range c.spec.Brokers() {
		l := c.newLife(b, now)
		l.closed = slices.ContainsFunc(c.closed, func(x closure) bool {
			return x.broker == b.ID && now.Sub(x.at) < c.broker.SessionTimeout
		})
		c.lives = append(c.lives, l)
	}
	c.closed = nil
}

func (c *Controller) newLife(b *Broker, now core.Time) life {
	return life{id: b.ID, heard: now, offset: -1, goal: c.committed.next - 1, goalSince: now, reach: -1, stop: -1}
}

// life returns the life of a broker, or nil.
func (c *Controller) life(id int32) *life {
	i, ok := slices.BinarySearchFunc(c.lives, id, func(l life, id int32) int { return cmp.Compare(l.id, id) })
	if !ok {
		return nil
	}
	return &c.lives[i]
}

// lifeOf returns the life of a registered broker, which begins now if it was not known.
func (c *Controller) lifeOf(b *Broker) *life {
	if c.life(b.ID) == nil {
		c.setLife(c.newLife(b, c.call.now))
	}
	return c.life(b.ID)
}

func (c *Controller) setLife(l life) {
	i, ok := slices.BinarySearchFunc(c.lives, l.id, func(l life, id int32) int { return cmp.Compare(l.id, id) })
	if ok {
		c.lives[i] = l
	} else {
		c.lives = slices.Insert(c.lives, i, l)
	}
}

func (c *Controller) dropLife(id int32) {
	c.lives = slices.DeleteFunc(c.lives, func(l life) bool { return l.id == id })
}

// hear counts a heartbeat, unless its sender is deaf to the metadata log, and reports whether it counted.
func (c *Controller) hear(l *life, offset int64) bool {
	l.offset = offset
	if offset >= l.goal {
		l.goal, l.goalSince = c.committed.next-1, c.call.now
	} else if c.call.now.Sub(l.goalSince) > c.broker.SessionTimeout {
		return false
	}
	l.heard, l.closed = c.call.now, false
	return true
}

// knowsLoss reports whether a fenced broker has learned of all that was taken from it when it was fenced. Until then a
// lease would let it serve as the leader that it was: one that froze for a while sends its first heartbeat before it has
// read the metadata that it missed.
func (c *Controller) knowsLoss(l *life) bool {
	if x := c.committed.Broker(l.id); l.reach < 0 && x != nil && x.Fenced {
		l.reach = c.committed.next - 1
	}
	return l.reach >= 0 && l.offset >= l.reach
}

// fenceAt says when a broker is to be fenced if nothing more is heard of it.
func (c *Controller) fenceAt(l *life) core.Time {
	b := c.spec.Broker(l.id)
	if b == nil || b.Fenced {
		return core.Never
	}
	after := max(c.broker.SessionTimeout, c.leaseOut())
	if l.closed {
		after = c.leaseOut()
	}
	return max(l.heard.Add(after), c.grace)
}

func (c *Controller) nextFencing() core.Time {
	d := core.Never
	for i := range c.lives {
		d = core.Earlier(d, c.fenceAt(&c.lives[i]))
	}
	return d
}

// fenceSilent fences the brokers whose time has come. A controller that does not hear its own majority leaves
// it be: it may be the one who is cut off.
func (c *Controller) fenceSilent() {
	if c.call.now > c.authority() {
		c.grace = max(c.grace, c.call.now.Add(c.broker.HeartbeatInterval)) // look again then
		return
	}
	var due []*Broker
	for i := range c.lives {
		l := &c.lives[i]
		if c.fenceAt(l) > c.call.now {
			continue
		}
		why := "silent for a session"
		if l.closed {
			why = "connection closed or leadership lost, and lease run out"
		}
		b := c.spec.Broker(l.id)
		c.log(levelWarn, "broker fenced", "broker", b.ID, "epoch", b.Epoch, "why", why, "silent for", c.call.now.Sub(l.heard))
		due = append(due, b)
	}
	c.fence(due...)
}

// noticePause gives everybody a little time after this broker itself did not run when it should have fenced
// somebody: the heartbeats that came in meanwhile are yet to be read.
func (c *Controller) noticePause(now core.Time) {
	if due := c.nextFencing(); due < now && now.Sub(due) > c.broker.HeartbeatInterval {
		c.grace = now.Add(2 * c.broker.HeartbeatInterval)
	}
}

// PeerClosed says that the connection to a broker broke, as a dying process's does, or that it led and is silent. It may be called
// whether active or not.
func (c *Controller) PeerClosed(now core.Time, broker int32, out *Out) {
	c.begin(now, out)
	if !c.active {
		c.closed = slices.DeleteFunc(c.closed, func(x closure) bool { return x.broker == broker })
		c.closed = append(c.closed, closure{broker, now})
		return
	}
	if l := c.life(broker); l != nil && broker != c.settings.NodeID {
		l.closed = true
		c.fenceSilent()
	}
	c.propose(nil)
}
