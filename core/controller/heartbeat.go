package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat answers a broker's heartbeat: it renews the broker's lease, and
// moves the broker between fenced, unfenced and stopping. The steady state
// writes nothing, and is answered at once.
func (c *Controller) heartbeat(req *kmsg.BrokerHeartbeatRequest, w waiting) {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	w.resp = resp
	b := c.spec.Broker(req.BrokerID)
	switch {
	case b == nil:
		resp.ErrorCode = codeBrokerIDNotRegistered
	case b.Epoch != req.BrokerEpoch:
		resp.ErrorCode = codeStaleBrokerEpoch
	default:
		c.beat(req, b, resp)
		// What this answer rests on is committed already, so it need not wait for what others proposed.
		if len(c.call.records) == 0 && c.call.err == nil && c.committedBroker(c.spec.Broker(req.BrokerID)) {
			c.answer(w)
			return
		}
	}
	c.propose(&w)
}

// committedBroker reports whether a broker's state in the speculative image is the committed one.
func (c *Controller) committedBroker(b *Broker) bool {
	x := c.committed.Broker(b.ID)
	return x != nil && x.Epoch == b.Epoch && x.Fenced == b.Fenced && x.Stopping == b.Stopping
}

func (c *Controller) beat(req *kmsg.BrokerHeartbeatRequest, b *Broker, resp *kmsg.BrokerHeartbeatResponse) {
	l := c.lifeOf(b)
	counts := c.hear(l, req.CurrentMetadataOffset)
	diskFailed := slices.ContainsFunc(req.OfflineLogDirs, func(d [16]byte) bool { return slices.Contains(b.LogDirs, d) })
	resp.IsCaughtUp = c.caughtUp(b, req.CurrentMetadataOffset)
	switch {
	case b.Fenced && req.WantShutdown:
		resp.ShouldShutdown = true
	case b.Fenced:
		if !req.WantFence && !diskFailed && resp.IsCaughtUp && counts && c.knowsLoss(l) {
			c.unfence(b)
		}
	case req.WantFence || diskFailed:
		if diskFailed {
			c.log(levelError, "broker fenced: its disk failed", "broker", b.ID)
		}
		c.fence(b)
	case req.WantShutdown || b.Stopping:
		resp.ShouldShutdown = c.advanceStop(b, l)
	}
	// "Fenced" is also how a broker learns that this heartbeat renewed no lease.
	if resp.IsFenced = c.spec.Broker(b.ID).Fenced || !counts; !resp.IsFenced {
		c.grantLease(resp)
	}
}

// caughtUp reports whether a broker that has reached offset knows at least of its own registration.
func (c *Controller) caughtUp(b *Broker, offset int64) bool {
	x := c.committed.Broker(b.ID)
	return x != nil && x.Epoch == b.Epoch && x.Offset >= 0 && offset >= x.Offset
}

// unfence lets a broker lead and join in-sync sets, and gives leaders to partitions that waited for it.
func (c *Controller) unfence(b *Broker) {
	c.emit(&BrokerChangeRecord{ID: b.ID, Epoch: b.Epoch})
	c.log(levelInfo, "broker unfenced", "broker", b.ID, "epoch", b.Epoch)
	c.electLeaderless(func(p *Partition) bool { return slices.Contains(p.Replicas, b.ID) })
}

// fence takes brokers out of every leadership and in-sync set, in one batch with the records that say so (rule 7).
func (c *Controller) fence(all ...*Broker) {
	for _, b := range all {
		c.emit(&BrokerChangeRecord{ID: b.ID, Epoch: b.Epoch, Fenced: true, Stopping: b.Stopping})
		if l := c.life(b.ID); l != nil {
			l.reach = -1
		}
	}
	for _, b := range all {
		c.takeFromPartitions(b.ID, trust{clean: true, disk: true})
	}
}

// advanceStop takes a stopping broker a step further and reports whether it
// may go. First its leaderships move, while it stays in the in-sync sets:
// before it has learned of a new leader and fetched from it, nothing new can be
// committed, so its last reads are not stale. When it and the others have
// learned that, it is fenced.
func (c *Controller) advanceStop(b *Broker, l *life) bool {
	if !b.Stopping {
		c.emit(&BrokerChangeRecord{ID: b.ID, Epoch: b.Epoch, Stopping: true})
		c.log(levelInfo, "broker stopping: moving its leaderships", "broker", b.ID)
		c.reconsiderAll(func(p *Partition) bool { return p.Leader == b.ID }, choice{})
		return false
	}
	if x := c.committed.Broker(b.ID); x == nil || !x.Stopping || x.Epoch != b.Epoch {
		return false
	}
	if l.stop < 0 {
		l.stop, l.stopSince = c.committed.next-1, c.call.now
	}
	if l.offset < l.stop {
		return false
	}
	for i := range c.lives {
		o := &c.lives[i]
		waits := c.call.now.Sub(l.stopSince) < c.broker.SessionTimeout
		if x := c.spec.Broker(o.id); waits && x.Active() && o.offset < l.stop {
			return false
		}
	}
	c.log(levelInfo, "broker fenced: it stopped", "broker", b.ID)
	c.fence(b)
	return true
}
