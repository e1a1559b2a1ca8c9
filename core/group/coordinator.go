package group

import (
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/google/btree"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Coordinator holds the groups of those partitions of the offsets topic that this broker leads.
type Coordinator struct {
	cfg      Config
	topics   Topics
	rand     core.Rand
	parts    map[int32]*partition
	seq      uint64               // of the last write
	writes   map[uint64]*write    // those under way
	where    map[Token]*group     // for requests to one group that are not answered yet: that group
	timers   *btree.BTreeG[timer] // when groups want to be looked at
	sweeps   core.Time            // when offsets are next looked at for those whose time is over
	sweeping bool                 // one such sweep is under way
	mute     bool                 // requests are refused

	// of the call that is being served
	now  core.Time
	wall core.WallMillis
	out  *Out
}

// Mute says whether requests are refused, as they are while the broker cannot know that it still leads what it coordinates:
// another may have taken the groups, and what is known here of members and offsets be old.
func (c *Coordinator) Mute(on bool) { c.mute = on }

// partition is one partition of the offsets topic that this broker leads.
type partition struct {
	index   int32
	epoch   int32 // leader epoch
	loading bool
	// alone says that no other broker can still be coordinating these groups, and be hearing their members; see alone.go.
	alone      bool
	confirming bool // a write is under way that will tell
	groups     map[string]*group
	expiry     []string // groups that the sweep under way has still to look at
	unread     []Line   // what could not be loaded
}

// timer orders groups by when they want to be looked at.
type timer struct {
	at        core.Time
	partition int32
	group     string
}

func (t timer) less(u timer) bool {
	if t.at != u.at {
		return t.at < u.at
	}
	if t.partition != u.partition {
		return t.partition < u.partition
	}
	return t.group < u.group
}

// New returns a coordinator that leads no partition yet.
func New(cfg Config, topics Topics, rand core.Rand) *Coordinator {
	return &Coordinator{
		cfg: cfg.whole(), topics: topics, rand: rand,
		parts: make(map[int32]*partition), writes: make(map[uint64]*write), where: make(map[Token]*group),
		timers: btree.NewG(16, timer.less), sweeps: core.Never,
	}
}

// Configure takes new settings.
func (c *Coordinator) Configure(cfg Config) { c.cfg = cfg.whole() }

// enter begins to serve a call.
func (c *Coordinator) enter(now core.Time, out *Out) { c.now, c.out = now, out }

// Lead begins to load a partition of the offsets topic: this broker leads it now, in the given epoch. Requests for its
// groups get COORDINATOR_LOAD_IN_PROGRESS until Loaded (rule 20).
func (c *Coordinator) Lead(partitionIndex, leaderEpoch int32) {
	if c.parts[partitionIndex] != nil {
		c.Resign(c.now, partitionIndex, new(Out))
	}
	c.parts[partitionIndex] = &partition{
		index: partitionIndex, epoch: leaderEpoch, loading: true, groups: make(map[string]*group),
	}
}

// Loaded says that all of the partition up to the start of this epoch is loaded and committed: its groups serve from now on.
func (c *Coordinator) Loaded(now core.Time, wall core.WallMillis, partitionIndex int32, out *Out) {
	c.enter(now, out)
	c.wall = wall
	p := c.parts[partitionIndex]
	if p == nil || !p.loading {
		return
	}
	p.loading = false
	out.Lines = append(out.Lines, p.unread...)
	p.unread = nil
	p.alone = true
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[id]
		c.revive(g)
		p.alone = p.alone && !g.populated()
	}
	c.dropTopics(p)
	if c.sweeps == core.Never {
		c.sweeps = now.Add(c.cfg.RetentionCheck)
	}
}

// Resign ends the leadership of a partition: everything that waits for its groups gets NOT_COORDINATOR.
func (c *Coordinator) Resign(now core.Time, partitionIndex int32, out *Out) {
	c.enter(now, out)
	p := c.parts[partitionIndex]
	if p == nil {
		return
	}
	delete(c.parts, partitionIndex) // first, so that nothing that follows is written any more
	for _, seq := range slices.Sorted(maps.Keys(c.writes)) {
		if w := c.writes[seq]; w.g.part == p {
			delete(c.writes, seq)
			w.failed(errNotCoordinator)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[id]
		c.abandon(g, errNotCoordinator)
		c.drain(g)
		c.timers.Delete(timer{g.wake, p.index, g.id})
	}
}

// Cancel forgets a request that waits: its connection is gone.
func (c *Coordinator) Cancel(now core.Time, token Token) {
	c.now = now // where all members wait in JoinGroup, the last call is long ago
	g := c.where[token]
	if g == nil {
		return
	}
	delete(c.where, token)
	g.queue = slices.DeleteFunc(g.queue, func(t task) bool { return t.token == token })
	c.cancel(g, token)
}

// TopicsChanged says that topics were created, grew or were deleted.
func (c *Coordinator) TopicsChanged(now core.Time, wall core.WallMillis, out *Out) {
	c.enter(now, out)
	c.wall = wall
	for _, i := range slices.Sorted(maps.Keys(c.parts)) {
		if p := c.parts[i]; !p.loading {
			c.dropTopics(p)
			c.refreshSubscriptions(p)
		}
	}
}

// Tick is time passing.
func (c *Coordinator) Tick(now core.Time, wall core.WallMillis, out *Out) {
	c.enter(now, out)
	c.wall = wall
	for _, t := range c.due(now) {
		c.tick(c.parts[t.partition].groups[t.group])
	}
	if c.sweeps <= now {
		c.sweep()
	}
}

// due takes out the groups whose time has come. One whose time has not moved on when it has been looked at is looked at again
// by the next Tick, not by this one, so that a group can never hold up all others.
func (c *Coordinator) due(now core.Time) (due []timer) {
	for {
		t, ok := c.timers.Min()
		if !ok || t.at > now {
			return due
		}
		c.timers.DeleteMin()
		c.parts[t.partition].groups[t.group].wake = core.Never
		due = append(due, t)
	}
}

// Deadline says when Tick is wanted next.
func (c *Coordinator) Deadline() core.Time {
	if t, ok := c.timers.Min(); ok {
		return core.Earlier(t.at, c.sweeps)
	}
	return c.sweeps
}

// wakeAt makes sure that a group is looked at no later than at.
func (c *Coordinator) wakeAt(g *group, at core.Time) {
	if at >= g.wake || !c.leads(g) {
		return
	}
	c.timers.Delete(timer{g.wake, g.part.index, g.id})
	g.wake = at
	c.timers.ReplaceOrInsert(timer{at, g.part.index, g.id})
}

// tick looks at a group whose time has come. One with a change under way is looked at again after it.
func (c *Coordinator) tick(g *group) {
	if g.busy != nil || len(g.queue) > 0 {
		g.late = true
		return
	}
	g.late = false
	if !c.mayJudge(g) {
		return
	}
	c.tickClassic(g)
	if g.busy == nil {
		c.tickConsumer(g)
	}
	if g.busy != nil {
		g.late = true // there may be more
		return
	}
	c.wakeAt(g, core.Earlier(g.classic.deadline(), g.consumer.deadline()))
	c.settle(g)
}

// answer answers a request.
func (c *Coordinator) answer(token Token, msg kmsg.Response) {
	delete(c.where, token)
	c.out.Answers = append(c.out.Answers, Answer{token, msg})
}

func (c *Coordinator) log(level int, msg string, attrs ...any) {
	c.out.Lines = append(c.out.Lines, Line{level, msg, attrs})
}

// Levels of log lines, those of log/slog.
const (
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }
