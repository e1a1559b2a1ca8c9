package sim

import (
	"fmt"
	"sort"

	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/group"
	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupTruth is what must hold of one group. Its order of events is that of generations, or of member epochs: a coordinator
// takes a commit of an epoch only while its sender is in that epoch, and gives a partition to another member only in an epoch
// that the one who had it has never been in.
type groupTruth struct {
	w        *world
	name     string
	long     bool
	classic  bool // all members speak the classic protocol
	upgrades bool // members of the other protocol may join a group of the classic one
	bridged  bool // members of the classic protocol were told that the group is one of KIP-848
	topics   []int
	members  []*member // in the order in which they began
	parts    map[partOf]*groupPart
	newest   int32 // generation of which an assignment was seen
	nudged   bool
	checked  bool // of what is delivered, in the end
}

// groupPart is one partition as the group has it.
type groupPart struct {
	holders []holder          // who believes to have it
	owner   map[int32]*member // client by generation or member epoch
	newest  int32             // epoch of the latest assignment that was seen
	ops     []*commitOp       // in the order in which they were sent
	byName  map[string]int    // place in ops
	last    *commitOp         // acknowledged, and the last in the order of epochs
	read    spans             // offsets that members got
}

type holder struct {
	m *member
	h *holding
}

// commitOp is a commit of one partition's offset.
type commitOp struct {
	h          *holding
	offset     int64
	epoch      int32
	seen       int32 // the newest epoch of which an assignment was seen when this was sent
	name       string
	begun, end Time
	outcome    commitOutcome
	code       int16
}

type commitOutcome uint8

const (
	commitUnknown commitOutcome = iota
	commitDone
	commitRefused
)

func (w *world) group(p *MemberPlan) *groupTruth {
	for _, g := range w.groups {
		if g.name == p.Group {
			return g
		}
	}
	policy := w.plan.Brokers[0].setting(migrationPolicy)
	g := &groupTruth{w: w, name: p.Group, classic: true, long: p.Long(), parts: map[partOf]*groupPart{},
		upgrades: policy == "" || policy == group.MigrateUp || policy == group.MigrateBothWays}
	for i := range w.plan.Clients {
		if c := &w.plan.Clients[i]; c.Member != nil && c.Member.Group == p.Group {
			g.topics = c.Topics
			g.classic = g.classic && !c.Member.Modern
		}
	}
	w.groups = append(w.groups, g)
	return g
}

func (g *groupTruth) part(topic int, partition int32) *groupPart {
	k := partOf{topic, partition}
	p := g.parts[k]
	if p == nil {
		p = &groupPart{owner: map[int32]*member{}, byName: map[string]int{}, newest: -1}
		g.parts[k] = p
	}
	return p
}

func (g *groupTruth) label(topic int, partition int32) string {
	return fmt.Sprintf("%s of %s", g.w.plan.Topics[topic].Name+"-"+itoa(int(partition)), g.name)
}

// began notes that an assignment of a generation was seen: its predecessors are over.
func (g *groupTruth) began(generation int32) {
	if g.classic { // member epochs differ
		g.newest = max(g.newest, generation)
	}
}

// joined notes what a member of the classic protocol was told: whether the group is one of KIP-848.
func (g *groupTruth) joined(bridged bool) {
	switch {
	case bridged && !g.bridged:
		g.w.stats.Upgrades++
	case !bridged && g.bridged:
		g.w.stats.Downgrades++
	}
	g.bridged = bridged
}

// home is the group's partition of the offsets topic, nil if there is none yet.
func (g *groupTruth) home() *agreed {
	im := g.w.oracle.image
	if im == nil {
		return nil
	}
	t := im.Topic(group.OffsetsTopic)
	if t == nil {
		return nil
	}
	return g.w.oracle.partitions[core.Partition{Topic: t.ID, Index: group.PartitionFor(g.name, t.Partitions)}]
}

// lenient says that what the group has committed may be lost: files of the offsets topic are damaged.
func (g *groupTruth) lenient() bool {
	of := g.home()
	return g.w.drifts || of != nil && g.w.harmed(of.label)
}

// leaderEpoch is that of the group's partition.
func (g *groupTruth) leaderEpoch() int32 {
	of := g.home()
	if of == nil {
		return 1
	}
	if p := g.w.oracle.image.Partition(of.id); p != nil {
		return p.LeaderEpoch + 1
	}
	return 1
}

func (g *groupTruth) othersUp(m *member) bool {
	for _, x := range g.members {
		if x != m && x.up {
			return true
		}
	}
	return false
}

// surely is until when the coordinator cannot have given up a member, by what the member has been told.
func (m *member) surely() Time {
	if m.usurped {
		return 0
	}
	session, rebalance := int64(m.mp.Session), int64(m.mp.Rebalance)
	if !m.mp.Modern && m.maxes[kmsg.JoinGroup.Int16()] == 0 {
		rebalance = session // the oldest JoinGroup tells of no other
	}
	return min(m.heard+session-session/10, m.clear+rebalance*9/10)
}

// acquired: nobody else has a partition whom the coordinator has not given up.
func (g *groupTruth) acquired(m *member, h *holding) {
	p, w := g.part(h.topic, h.partition), g.w
	g.has(m, h)
	for _, x := range p.holders {
		if x.m != m && w.now < x.m.surely() && w.now < m.surely() && !g.lenient() {
			w.fail("two owners", "%s is given to %s in epoch %d while %s has it (since epoch %d)", g.label(h.topic, h.partition), m.name, h.epoch,
				x.m.name, x.h.epoch)
		}
	}
	p.holders = append(p.holders, holder{m, h})
	if w.trace != nil {
		w.event(m.lane, "member", fmt.Sprintf("has %s in epoch %d", g.label(h.topic, h.partition), h.epoch))
	}
}

// has: a member has a partition in its epoch, and nobody else has it in that, but for a process in its place.
func (g *groupTruth) has(m *member, h *holding) {
	p, w := g.part(h.topic, h.partition), g.w
	if was := p.owner[m.epoch]; was != nil && was != m && !g.lenient() {
		if was.mp.Instance == "" || was.mp.Instance != m.mp.Instance {
			w.fail("two owners", "%s is assigned to %s and to %s in epoch %d", g.label(h.topic, h.partition), was.name, m.name, m.epoch)
		}
	}
	p.owner[m.epoch] = m
	p.newest = max(p.newest, m.epoch)
}

func (g *groupTruth) released(m *member, h *holding) {
	p := g.part(h.topic, h.partition)
	for i, x := range p.holders {
		if x.h == h {
			p.holders = append(p.holders[:i], p.holders[i+1:]...)
			break
		}
	}
	if g.w.trace != nil {
		g.w.event(m.lane, "member", "gives up "+g.label(h.topic, h.partition))
	}
}

func (g *groupTruth) committing(h *holding, op *commitOp) {
	p := g.part(h.topic, h.partition)
	op.seen = max(p.newest, g.newest)
	p.byName[op.name] = len(p.ops)
	p.ops = append(p.ops, op)
}

// committed takes the answer to a commit: one of an epoch that is over must be refused (rule 20).
func (g *groupTruth) committed(m *member, op *commitOp, code int16) {
	p := g.part(op.h.topic, op.h.partition)
	op.end, op.code = g.w.now, code
	switch code {
	case 0:
		op.outcome = commitDone
		op.h.committed = op.offset
		g.w.stats.Commits++
		if by := op.seen; by > op.epoch && !g.lenient() {
			g.w.fail("stale commit", "%s: %s commits offset %d in epoch %d, and epoch %d had begun when it was sent", g.label(op.h.topic, op.h.partition),
				m.name, op.offset, op.epoch, by)
		}
		if m.fencedAt > 0 && op.begun > m.fencedAt && !g.lenient() {
			g.w.fail("stale commit", "%s: %s commits offset %d, and another process had its place since %.6f s", g.label(op.h.topic, op.h.partition),
				m.name, op.offset, float64(m.fencedAt)/1e9)
		}
		if p.last == nil || op.epoch >= p.last.epoch {
			p.last = op
		}
	case kerr.IllegalGeneration.Code, kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.RebalanceInProgress.Code, kerr.StaleMemberEpoch.Code,
		kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.CoordinatorLoadInProgress.Code:
		op.outcome = commitRefused
	}
}

// fetched takes the answer to an OffsetFetch that was sent at an instant: what was acknowledged comes back.
func (g *groupTruth) fetched(who string, topic int, partition int32, f foundOffset, sent Time) {
	if g.lenient() {
		return
	}
	p, label := g.part(topic, partition), g.label(topic, partition)
	var got *commitOp
	if f.offset >= 0 {
		i, ok := p.byName[f.metadata]
		if !ok || p.ops[i].offset != f.offset {
			g.w.fail("commit from nowhere", "%s: %s is told offset %d (%q), which nobody has committed", label, who, f.offset, f.metadata)
			return
		}
		if got = p.ops[i]; got.outcome == commitRefused {
			g.w.fail("refused commit", "%s: %s is told offset %d, whose commit was refused: %v", label, who, f.offset, kerr.ErrorForCode(got.code))
			return
		}
	}
	for _, op := range p.ops {
		if op.outcome == commitDone && op.end < sent && op.after(got) {
			was := "nothing"
			if got != nil {
				was = fmt.Sprintf("offset %d of epoch %d, sent at %.6f s", got.offset, got.epoch, float64(got.begun)/1e9)
			}
			g.w.fail("committed offset lost", "%s: offset %d was committed in epoch %d at %.6f s, and %s is told %s", label, op.offset, op.epoch,
				float64(op.end)/1e9, who, was)
			return
		}
	}
}

// after says that a commit took effect after another for certain.
func (o *commitOp) after(x *commitOp) bool {
	switch {
	case x == nil:
		return true
	case o.epoch != x.epoch:
		return o.epoch > x.epoch
	}
	return x.outcome == commitDone && x.end < o.begun
}

// delivered takes what a member got of a partition.
func (g *groupTruth) delivered(m *member, h *holding, records []linearizability.Record, next int64) {
	p, at := g.part(h.topic, h.partition), h.next
	of := g.w.oracle.find(g.w.plan.Topics[h.topic].Name, h.partition)
	for _, r := range records {
		if r.Offset > at && !g.gapAllowed(of, r.Offset) {
			g.w.fail("skipped", "%s: %s gets offset %d after %d", g.label(h.topic, h.partition), m.name, r.Offset, at-1)
			return
		}
		at = r.Offset + 1
	}
	if at < next && !g.gapAllowed(of, next) {
		g.w.fail("skipped", "%s: %s goes on at %d after %d", g.label(h.topic, h.partition), m.name, next, at-1)
	}
	p.read.add(h.next, next)
}

// gapAllowed says that records below an offset may be missing: they were deleted, or forgiven. What was compacted away is put in: see fill.
func (g *groupTruth) gapAllowed(of *agreed, below int64) bool {
	return of == nil || of.lenient(g.w) || below <= of.start
}

// settled says that the group is at rest: everybody is in, each partition has one owner, which has read and committed all.
func (g *groupTruth) settled() bool {
	for _, c := range g.w.clients {
		if c.base().plan.Kind != Member && !c.idle() {
			return false
		}
	}
	return g.unsettled() == ""
}

// unsettled says what keeps the group from being at rest.
func (g *groupTruth) unsettled() string {
	if g.excused() {
		return ""
	}
	g.nudge()
	g.cover()
	for _, m := range g.members {
		if m.up && !m.shutOut() && (m.phase != inside || m.w.now < m.paused) {
			return m.name + " is not in the group"
		}
	}
	for _, t := range g.topics {
		for i := range g.w.partitions(t) {
			if why := g.lag(t, i); why != "" {
				return g.label(t, i) + " " + why
			}
		}
	}
	return ""
}

func (g *groupTruth) lag(topic int, partition int32) string {
	name := g.w.plan.Topics[topic].Name
	of := g.w.oracle.find(name, partition)
	if of == nil || g.w.excused(topic, partition) {
		return ""
	}
	p := g.part(topic, partition)
	if len(p.holders) != 1 {
		return fmt.Sprintf("has %d owners", len(p.holders))
	}
	h := p.holders[0].h
	switch {
	case h.going:
		return "is about to change its owner"
	case of.lenient(g.w):
		return ""
	case h.next < of.hw:
		return fmt.Sprintf("is read up to %d of %d", h.next, of.hw)
	case h.dirty():
		return fmt.Sprintf("is read up to %d and committed up to %d", h.next, h.committed)
	}
	return ""
}

// excused says that nobody need coordinate the group: its partition of the offsets topic is damaged, or not enough of it is left.
func (g *groupTruth) excused() bool {
	of := g.home()
	if of == nil {
		return len(g.members) == 0
	}
	return g.w.harmed(of.label) || g.w.unusable(of)
}

// unusable says that a partition that is not the plan's takes no writes, and rightly.
func (w *world) unusable(of *agreed) bool {
	if len(w.hosts) == 1 {
		t := w.oracle.log(w.hosts[0], of.id)
		return t != nil && t.aside
	}
	p := w.oracle.image.Partition(of.id)
	if p == nil {
		return false
	}
	least := 1
	if len(w.plan.Brokers) >= 3 && len(p.Replicas) >= 3 {
		least = 2
	}
	return w.lacks(p, of, least)
}

// nudge lets a member of a group that waits for no session begin anew, once, if another broker has become the coordinator:
// whom the last one was about to miss has got a new session from it, for which no world waits.
func (g *groupTruth) nudge() {
	if !g.long || g.nudged || g.w.now < g.w.drained+30*second || g.leaderEpoch() <= 1 {
		return
	}
	g.nudged = true
	for _, m := range g.members {
		if m.up && m.instance() == nil {
			m.die(0)
			return
		}
	}
}

// close ends the group's members, once it is settled, and sees to it that every record was delivered.
func (g *groupTruth) close() {
	excused := g.excused()
	for _, t := range g.topics {
		for i := range g.w.partitions(t) {
			of := g.w.oracle.find(g.w.plan.Topics[t].Name, i)
			if excused || of == nil || of.lenient(g.w) || g.w.excused(t, i) || g.w.harmedAtAll() {
				continue
			}
			p := g.part(t, i)
			if at := p.read.missing(of.start, of.hw); at >= 0 && !g.gapAllowed(of, at) {
				g.w.fail("not delivered", "%s: offset %d was never delivered to any member; the log begins at %d and is committed up to %d", g.label(t, i), at,
					of.start, of.hw)
				return
			}
		}
	}
	for _, m := range g.members {
		if m.up {
			m.die(-1)
		}
	}
}

// moveOn makes the group rebalance without a member that does not notice, if that one does not lead it.
func (g *groupTruth) moveOn(without *member) {
	for _, m := range g.members {
		if m != without && m.up && !m.mp.Modern && g.w.now >= m.paused {
			m.rejoin()
			m.work()
		}
	}
}

// lacks says that nobody who may lead a partition is left, or not enough replicas for a write.
func (w *world) lacks(p *controller.Partition, of *agreed, least int) bool {
	usable := func(id int32) bool {
		h, t := w.hosts[id-1], w.oracle.logs[replicaKey{int(id) - 1, of.id}]
		return !h.lost && (t == nil || !t.aside)
	}
	left, may := 0, false
	for _, id := range p.Replicas {
		left += int(b2i(usable(id)))
	}
	for _, list := range [][]int32{p.ISR, p.ELR} {
		for _, id := range list {
			may = may || usable(id)
		}
	}
	return left < least || !may
}

// spans is a set of offsets.
type spans []span

type span struct{ from, to int64 }

func (s *spans) add(from, to int64) {
	if from >= to {
		return
	}
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].to >= from })
	j := i
	for ; j < len(*s) && (*s)[j].from <= to; j++ {
		from, to = min(from, (*s)[j].from), max(to, (*s)[j].to)
	}
	*s = append((*s)[:i:i], append([]span{{from, to}}, (*s)[j:]...)...)
}

// missing is the first offset from one on that is not in the set and below another; -1 if there is none.
func (s spans) missing(from, to int64) int64 {
	for _, x := range s {
		if x.from > from {
			break
		}
		from = max(from, x.to)
	}
	if from < to {
		return from
	}
	return -1
}
