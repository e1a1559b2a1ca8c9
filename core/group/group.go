package group

import (
	"slices"

	"lockstep/core"
)

// group is one group: committed offsets, and members by one of the protocols, or none.
type group struct {
	id   string
	part *partition
	wake core.Time // when its timer fires

	offsets  map[string]map[int32]*offset // by topic, partition
	inflight int                          // writes of offsets under way

	classic  classic   // nothing in it where consumer is not nil
	consumer *consumer // nil but under KIP-848

	busy  *write // the change of its membership that is under way
	shown view   // while busy: how it was before
	queue []task // what waits, in order
	late  bool   // has missed a tick while busy
}

// task is something that a request, or the coordinator itself, wants of a group.
type task struct {
	token Token
	// alone says that no write of offsets may be under way either.
	alone bool
	run   func(g *group)   // the group has no change under way
	fail  func(code int16) // instead, where this broker no longer leads the group
}

// group returns the group of a name, as an empty one if there is none: settle takes that away again.
func (c *Coordinator) group(p *partition, id string) *group {
	g := p.groups[id]
	if g == nil {
		g = &group{id: id, part: p, wake: core.Never, offsets: make(map[string]map[int32]*offset)}
		g.classic.init()
		p.groups[id] = g
	}
	return g
}

// exists says whether there is a group, in the eyes of clients.
func (g *group) exists() bool {
	return g.consumer != nil || g.classic.recorded || len(g.classic.members) > 0 || len(g.classic.pending) > 0 || len(g.offsets) > 0
}

// settle forgets a group of which nothing is left.
func (c *Coordinator) settle(g *group) {
	if g.exists() || g.busy != nil || g.inflight > 0 || len(g.queue) > 0 || g.part.groups[g.id] != g {
		return
	}
	c.timers.Delete(timer{g.wake, g.part.index, g.id})
	g.wake = core.Never
	delete(g.part.groups, g.id)
}

// find returns the partition that a group belongs to, if it serves, or the code that says why it does not.
func (c *Coordinator) find(id string) (*partition, int16) {
	n := c.cfg.Partitions
	if _, made, ok := c.topics.Topic(OffsetsTopic); ok {
		n = made // whatever the setting says since
	}
	p := c.parts[PartitionFor(id, n)]
	switch {
	case p == nil, c.mute:
		return nil, errNotCoordinator
	case p.loading:
		return nil, errCoordinatorLoading
	}
	return p, errNone
}

// do runs a task of a group, now or when its turn comes.
func (c *Coordinator) do(p *partition, id string, t task) {
	g := c.group(p, id)
	if g.ready(t) {
		t.run(g)
		c.settle(g)
		return
	}
	if t.token != 0 {
		c.where[t.token] = g
	}
	g.queue = append(g.queue, t)
}

// leads says whether this broker still leads the group.
func (c *Coordinator) leads(g *group) bool { return c.parts[g.part.index] == g.part }

func (g *group) ready(t task) bool {
	return g.busy == nil && len(g.queue) == 0 && !(t.alone && g.inflight > 0)
}

// drain runs what waits for a group, as far as it may.
func (c *Coordinator) drain(g *group) {
	if !c.leads(g) {
		for _, t := range g.queue {
			t.fail(errNotCoordinator)
		}
		g.queue = nil
		return
	}
	for len(g.queue) > 0 && g.busy == nil && !(g.queue[0].alone && g.inflight > 0) {
		t := g.queue[0]
		g.queue = slices.Delete(g.queue, 0, 1)
		delete(c.where, t.token)
		t.run(g)
	}
	if g.late && g.busy == nil && len(g.queue) == 0 {
		c.tick(g)
	}
	c.settle(g)
}

// view is what ListGroups shows of a group.
type view struct {
	exists       bool
	state, kind  string
	protocolType string // empty for a group that only keeps offsets
}

// view is how the group is, with what is applied of a change that is under way.
func (g *group) view() view {
	if g.consumer != nil {
		return view{true, g.consumer.state(), "consumer", protocolConsumer}
	}
	return view{g.exists(), g.classic.state.String(), "classic", g.classic.protocolType}
}

// protocolConsumer is the protocol type of consumers.
const protocolConsumer = "consumer"
