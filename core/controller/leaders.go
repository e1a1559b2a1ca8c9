package controller

import (
	"slices"

	"lockstep/core"
	"lockstep/core/config"
)

// trust says what a broker that registers, or is fenced, can be believed to hold still.
type trust struct {
	clean bool // it stopped cleanly, or did not stop at all
	disk  bool // it has the disk that it had
}

// choice says why a partition is looked at.
type choice struct {
	isr       []int32 // the in-sync set that its leader asks for; nil: as it is
	without   int32   // a broker to take out of the in-sync set; 0 is a broker, see taking
	taking    bool    // without counts
	distrust  bool    // without may lack what it acknowledged: it is not eligible any more (rule 9)
	wiped     bool    // without lost its disk: it is not even the last known one
	preferred bool    // the preferred replica should lead, if it can
	unclean   bool    // any live replica will do
	recovered bool    // the leader has recovered from an unclean election
	newEpoch  bool    // a leader begins a new epoch, even if it stays the same
}

// partitionState is what a choice makes of a partition.
type partitionState struct {
	leader            int32
	recovering        bool
	isr, elr, lastELR []int32
	newEpoch          bool
}

// reconsider chooses the partition's leader, in-sync set and eligible leader
// replicas, emits the change, if there is one, and reports whether there was. It is the one place where leaders
// are chosen (rule 8). A leader comes from the in-sync set, or, if that is
// empty, from the eligible leader replicas (KIP-966), in the order of
// assignment, and must be neither fenced nor stopping.
func (c *Controller) reconsider(p *Partition, ch choice) bool {
	t := c.topicConfigOf(p)
	s := partitionState{leader: p.Leader, recovering: p.Recovering && !ch.recovered, isr: p.ISR, newEpoch: ch.newEpoch}
	if ch.isr != nil {
		s.isr = ch.isr
	}
	if ch.taking {
		s.isr = without(s.isr, ch.without)
	}
	unclean := c.chooseLeader(p, &s, ch, t)
	switch {
	case unclean:
		// Whatever the others hold, the new leader's log is now the partition's: nobody else is eligible.
	case len(s.isr) >= t.EffectiveMinISR(len(p.Replicas)):
		// The high watermark moves with the in-sync set alone, so whoever is outside falls behind.
	default:
		c.rememberEligible(p, &s, ch)
	}
	return c.emitChange(p, &s)
}

// chooseLeader sets the leader, and the in-sync set where the leader is from outside it. It reports whether the choice was unclean.
func (c *Controller) chooseLeader(p *Partition, s *partitionState, ch choice, t config.TopicConfig) (unclean bool) {
	can := func(n int32) bool { return c.spec.Broker(n).Active() }
	inSync := func(n int32) bool { return slices.Contains(s.isr, n) && can(n) }
	keeps := inSync(s.leader) && !(ch.preferred && s.leader != p.Preferred() && inSync(p.Preferred()))
	if s.leader != NoLeader && keeps {
		return false
	}
	s.leader = first(p.Replicas, inSync)
	if s.leader != NoLeader || len(s.isr) > 0 {
		// Those in sync who may not lead are stopping. They may hold a lease, so the partition is theirs until they are fenced.
		return false
	}
	eligible := func(n int32) bool { return slices.Contains(p.ELR, n) && can(n) } // who is being distrusted is fenced, or was in sync
	if s.leader = first(p.Replicas, eligible); s.leader != NoLeader {
		s.isr = []int32{s.leader}
		return false
	}
	// From here on acknowledged records may be lost.
	why := ""
	switch {
	case len(p.ELR) == 0 && len(p.LastELR) > 0 && can(p.LastELR[0]) && !ch.taking:
		s.leader, why = p.LastELR[0], "it led last, and all who were in sync stopped uncleanly without syncing what they acknowledged"
	case ch.unclean || t.UncleanElection:
		s.leader, why = first(p.Replicas, can), "unclean.leader.election.enable, or an operator's request, allows it"
	}
	if s.leader == NoLeader {
		return false
	}
	s.isr, s.recovering = []int32{s.leader}, true
	c.log(levelError, "UNCLEAN LEADER ELECTION: acknowledged records may be lost", "topic", c.spec.topicName(p.Topic),
		"partition", p.Index, "leader", s.leader, "in-sync before", p.ISR, "eligible before", p.ELR, "why", why)
	return true
}

// rememberEligible keeps, while the in-sync set is below min.insync.replicas and the high watermark therefore stands still
// (rule 6), those who were in sync: they hold all that is committed (KIP-966).
func (c *Controller) rememberEligible(p *Partition, s *partitionState, ch choice) {
	out := func(n int32) bool { return slices.Contains(s.isr, n) }
	for _, n := range union(p.ELR, p.ISR) {
		if !out(n) && !(ch.distrust && n == ch.without) {
			s.elr = append(s.elr, n)
		}
	}
	last := p.LastELR
	if len(s.isr) == 0 && p.Leader != NoLeader {
		last = []int32{p.Leader} // as in Kafka, who led last may lead again when nobody is eligible any more
	}
	for _, n := range last {
		if !out(n) && !(ch.wiped && n == ch.without) {
			s.lastELR = append(s.lastELR, n)
		}
	}
}

// emitChange emits what differs, with the next epochs.
func (c *Controller) emitChange(p *Partition, s *partitionState) bool {
	r := &PartitionChangeRecord{Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, Epoch: p.Epoch + 1}
	if s.leader != p.Leader {
		r.Leader = &s.leader
		r.LeaderEpoch++
	} else if s.newEpoch && s.leader != NoLeader {
		r.LeaderEpoch++
	}
	if s.recovering != p.Recovering {
		r.Recovering = &s.recovering
	}
	for _, list := range []struct {
		to       **[]int32
		old, new []int32
	}{{&r.ISR, p.ISR, s.isr}, {&r.ELR, p.ELR, s.elr}, {&r.LastELR, p.LastELR, s.lastELR}} {
		if !slices.Equal(list.old, list.new) {
			*list.to = &list.new
		}
	}
	if r.LeaderEpoch == p.LeaderEpoch && r.Leader == nil && r.Recovering == nil && r.ISR == nil && r.ELR == nil && r.LastELR == nil {
		return false
	}
	c.emit(r)
	return true
}

// reconsiderAll reconsiders the partitions that match.
func (c *Controller) reconsiderAll(match func(*Partition) bool, ch choice) {
	for _, p := range c.spec.partitionsOf(match) {
		c.reconsider(p, ch)
	}
}

// electLeaderless gives leaders to those of the matching partitions that have none and can have one.
func (c *Controller) electLeaderless(match func(*Partition) bool) {
	c.reconsiderAll(func(p *Partition) bool { return p.Leader == NoLeader && match(p) }, choice{})
}

// takeFromPartitions takes a broker that is fenced out of leaderships and
// in-sync sets, and, where it may have lost what it acknowledged, out of those that are eligible (rule 9): a lost
// disk holds nothing, and an unclean stop loses what was not synced.
func (c *Controller) takeFromPartitions(id int32, t trust) {
	all := c.spec.partitionsOf(func(p *Partition) bool {
		return slices.Contains(p.ISR, id) || !(t.clean && t.disk) && (slices.Contains(p.ELR, id) || slices.Contains(p.LastELR, id))
	})
	for _, p := range all {
		ch := choice{without: id, taking: true, wiped: !t.disk, distrust: !t.disk}
		if !t.clean && !ch.distrust {
			tc := c.topicConfigOf(p)
			ch.distrust = !tc.SyncBeforeAck()
		}
		c.reconsider(p, ch)
	}
}

// rebalanceLeaders moves leadership back to preferred replicas from time to time, some partitions at a time.
func (c *Controller) rebalanceLeaders() {
	if !c.broker.AutoLeaderRebalance || c.call.now < c.rebalance {
		return
	}
	const atOnce = 1000
	moved := 0
	for _, p := range c.spec.partitionsOf(func(p *Partition) bool { return p.Leader != NoLeader && p.Leader != p.Preferred() }) {
		if moved < atOnce && c.reconsider(p, choice{preferred: true}) {
			moved++
		}
	}
	c.rebalance = c.call.now.Add(c.broker.LeaderRebalanceCheck)
	if moved > 0 {
		c.log(levelInfo, "leaders rebalanced", "partitions", moved)
	}
}

// topicConfigOf returns the effective configuration of a partition's topic.
func (c *Controller) topicConfigOf(p *Partition) config.TopicConfig {
	return c.defaults.With(c.spec.Config(TopicResource(c.spec.topicName(p.Topic))))
}

// checkELR forgets the eligible leader replicas of those partitions of a topic whose in-sync set is large enough for what
// min.insync.replicas now says: from then on the high watermark moves without them.
func (c *Controller) checkELR(topic core.TopicID) {
	for p := range slices.Values(slices.Collect(c.spec.Partitions(topic))) {
		if len(p.ELR) > 0 || len(p.LastELR) > 0 {
			c.reconsider(p, choice{})
		}
	}
}

func first(list []int32, ok func(int32) bool) int32 {
	for _, n := range list {
		if ok(n) {
			return n
		}
	}
	return NoLeader
}

func without(list []int32, n int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(x int32) bool { return x == n })
}

// union returns the members of a, then those of b that are not in a.
func union(a, b []int32) []int32 {
	out := slices.Clone(a)
	for _, n := range b {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
