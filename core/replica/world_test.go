package replica

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
)

// world is a small cluster of one partition: three replicas with disks, an authority that elects from the in-sync set,
// producers that retry, and messages that are lost, doubled, delayed and reordered. One seed decides everything.
//
// It checks that nothing acknowledged at acks=all is ever missing or elsewhere, that logs agree up to the high
// watermark, that every in-sync replica holds all that is committed, that a producer's batch is in the log once, and
// that everything converges in the end. It does not check what real clients, sockets and files would add: that is the
// simulator's.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	now   core.Time
	calm  bool // nothing goes wrong any more
	quiet bool // nobody writes any more
	nodes []*member
	auth  authority
	mail  []message

	producers []*producer
	waiters   map[Waiter]attempt
	next      Waiter

	epoch     int32
	before    int64    // committed when the present leader epoch began
	committed []string // value at each offset below the true high watermark
	deleted   int64    // records below are gone for good
	acked     map[string]int64
	fresh     []ack           // acknowledged in this step
	leaders   map[int32]int32 // of each epoch
	trace     []string
	kinds     map[string]int
}

// member is a node with what the world adds to it.
type member struct {
	*node
	up    bool
	epoch int64     // broker epoch of this life
	seen  int       // states of the authority that it has applied or skipped
	asked core.Time // when it last fetched and has no answer; 0 if it has one
}

// message is something that will arrive at some time, perhaps.
type message struct {
	name     string
	to       int32 // a member, or 0 for the authority and the producers
	life     int64 // of the member that it is for
	from     int32 // of a proposal and what answers it
	fromLife int64
	deliver  func()
	lost     func() // what its sender learns if it is lost; nil if nothing, ever
}

// producer is an idempotent producer with one batch in flight.
type producer struct {
	id      int64
	seq     int32 // of the next batch
	last    int64 // offset of the last one that it knows acknowledged
	attempt int
	waiting bool
	since   core.Time
}

// ack is a value acknowledged at acks=all at an offset.
type ack struct {
	value  string
	offset int64
}

type attempt struct {
	p       *producer
	number  int
	value   string
	seq     int32
	noDedup bool // acks=1, without a producer id
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: core.Time(time.Hour), waiters: map[Waiter]attempt{},
		acked: map[string]int64{}, leaders: map[int32]int32{}, kinds: map[string]int{},
	}
	w.auth = authority{epochs: map[int32]int64{}, alive: map[int32]bool{}}
	first := state(3, 1, 0, 0, 1, 2, 3)
	cfg := testConfig()
	cfg.MinInsync = 1 + w.rnd.IntN(2)
	cfg.LagMax = 300 * time.Millisecond
	cfg.Sync = w.rnd.IntN(3) > 0
	for id := int32(1); id <= 3; id++ {
		w.nodes = append(w.nodes, &member{node: newNode(w, id, cfg), up: true, epoch: int64(id)})
		w.auth.epochs[id], w.auth.alive[id] = int64(id), true
	}
	w.auth.states = []PartitionState{first}
	for i := range int64(3) {
		w.producers = append(w.producers, &producer{id: 100 + i})
	}
	return w
}

// Errorf and FailNow make the world a require.TestingT that tells its story when something fails.
func (w *world) Errorf(format string, args ...any) {
	w.t.Errorf("%s\n\nlast events:\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace[max(0, len(w.trace)-150):], "\n"))
}
func (w *world) FailNow() { w.t.FailNow() }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%6dms ", w.now.Sub(core.Time(time.Hour)).Milliseconds())+fmt.Sprintf(format, args...))
}

func (w *world) chance(percent int) bool { return !w.calm && w.rnd.IntN(100) < percent }

func (w *world) send(m message) {
	if m.to > 0 && m.life == 0 {
		m.life = w.nodes[m.to-1].epoch
	}
	w.mail = append(w.mail, m)
	if w.chance(5) {
		w.mail = append(w.mail, m)
	}
}

// deliver takes any message out of the mail.
func (w *world) deliver() {
	if len(w.mail) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.mail))
	if w.rnd.IntN(3) > 0 {
		i = 0
	}
	m := w.mail[i]
	w.mail = slices.Delete(w.mail, i, i+1)
	if w.chance(8) {
		w.note("lost: %s", m.name)
		if m.lost != nil {
			w.send(message{name: "timeout of " + m.name, to: m.from, life: m.fromLife, deliver: m.lost, lost: m.lost, from: m.from, fromLife: m.fromLife})
		}
		return
	}
	if m.to > 0 && (!w.nodes[m.to-1].up || w.nodes[m.to-1].epoch != m.life) {
		return
	}
	w.note("%s", m.name)
	m.deliver()
}

// step lets one thing happen.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rnd.IntN(5)) * time.Millisecond)
	n := w.nodes[w.rnd.IntN(len(w.nodes))]
	n.now = w.now
	k := w.rnd.IntN(100)
	switch {
	case k < 40:
		w.deliver()
	case k < 44:
		w.authority()
	case k < 46 && w.chance(40):
		w.crash(n)
	case !n.up:
		if k > 90 {
			w.restart(n)
		}
	case k < 60:
		w.disk(n)
	case k < 67:
		w.learn(n)
	case k < 83:
		w.fetch(n)
	case k < 89:
		n.tick()
	case k < 90 && w.chance(50):
		w.deleteRecords(n)
	case k < 91:
		n.checkpoint = n.r.HighWatermark()
	default:
		w.produce(w.producers[w.rnd.IntN(len(w.producers))])
	}
	if epoch := w.auth.now().LeaderEpoch; epoch != w.epoch {
		w.epoch, w.before = epoch, int64(len(w.committed))
	}
	w.collect()
	w.check()
}

func (w *world) disk(n *member) {
	switch {
	case len(n.queue) > 0 && w.rnd.IntN(3) > 0:
		fail := w.chance(3)
		if fail {
			w.note("%d: append fails", n.id)
		}
		n.write(fail)
	case n.wantSync:
		n.sync()
	}
}

// crash loses all that is on its way and any part of what is not synced; where nothing is synced before it counts,
// that is no power loss, and what is written stays.
func (w *world) crash(n *member) {
	if !n.up {
		return
	}
	ends := []int64{n.end()}
	for _, b := range n.batches {
		if n.cfg.Sync && b.BaseOffset() >= n.durable {
			ends = append(ends, b.BaseOffset())
		}
	}
	end := ends[w.rnd.IntN(len(ends))]
	w.note("%d: crash, log from %d to %d", n.id, n.end(), end)
	n.crash(end, w.rnd.IntN(2) == 0)
	n.up = false
}

// restart registers the broker again: a new life (rule 9).
func (w *world) restart(n *member) {
	n.up = true
	n.epoch = w.auth.register(n.id)
	n.seen = len(w.auth.states) - 1 // what it leads, it is told anew
	w.note("%d: restart as broker epoch %d", n.id, n.epoch)
}

// learn gives a member the next state, or a later one.
func (w *world) learn(n *member) {
	if n.seen >= len(w.auth.states) {
		return
	}
	if w.rnd.IntN(3) == 0 {
		n.seen += w.rnd.IntN(len(w.auth.states) - n.seen)
	}
	st := w.auth.states[n.seen]
	n.seen++
	w.note("%d: learns leader %d epoch %d.%d isr %v", n.id, st.Leader, st.LeaderEpoch, st.PartitionEpoch, st.ISR)
	n.apply(clone(st))
	if n.r.Role() == Leader {
		other, taken := w.leaders[st.LeaderEpoch]
		require.True(w, !taken || other == n.id, "two leaders of epoch %d", st.LeaderEpoch)
		w.leaders[st.LeaderEpoch] = n.id
	}
}

// fetch sends a follower's ask to its leader, and the answer back.
func (w *world) fetch(n *member) {
	ask, ok := n.r.WantFetch(n.now)
	if !ok || ask.Leader < 1 || n.asked != 0 && w.now.Sub(n.asked) < 200*time.Millisecond && !w.chance(10) {
		return
	}
	n.asked = w.now
	leader, epoch := w.nodes[ask.Leader-1], n.epoch
	w.send(message{name: fmt.Sprintf("%d fetches from %d at %d, epochs %d %d", n.id, leader.id, ask.Offset, ask.LeaderEpoch, ask.LastFetchedEpoch), to: leader.id, deliver: func() {
		leader.now = w.now
		d := leader.r.FollowerFetch(w.now, n.id, epoch, ask, &leader.out)
		leader.carryOut()
		ans := leader.answerFor(n.node, d, ask)
		w.kinds["fetch"]++
		w.send(message{name: fmt.Sprintf("%d answers %d at %d: code %d, %d batches, hw %d, diverging %v", leader.id, n.id, ask.Offset, ans.Code, len(ans.Batches), ans.HighWatermark, ans.Diverging), to: n.id, life: epoch, deliver: func() {
			if ans.Diverging != nil {
				w.kinds["diverging"]++
			}
			n.now, n.asked = w.now, 0
			n.fetched(ask, ans)
		}})
	}})
}

// collect takes what the members want of the world: proposals and answers to producers.
func (w *world) collect() {
	for _, n := range w.nodes {
		for _, p := range n.proposed {
			w.propose(n, p)
		}
		n.proposed = nil
		answers := make([]Produced, 0, len(n.produced))
		for _, p := range n.produced {
			answers = append(answers, p)
		}
		slices.SortFunc(answers, func(a, b Produced) int { return int(a.Waiter) - int(b.Waiter) })
		for _, p := range answers {
			w.answer(n, p)
		}
		n.produced = map[Waiter]Produced{}
		for _, d := range n.deleted {
			if d.Code == 0 {
				w.deleted = max(w.deleted, d.LowWatermark)
				w.kinds["deleted"]++
			}
		}
		n.deleted = map[Waiter]Deleted{}
	}
}

// propose carries a proposal to the authority, which may be lost, as its answer may.
func (w *world) propose(n *member, p *Proposal) {
	life := n.epoch
	verdict := func(code int16, epoch int32, isr []int32) {
		n.now = w.now
		n.r.Proposed(w.now, p, code, epoch, isr, &n.out)
		n.carryOut()
	}
	timeout := func() { verdict(codeRequestTimedOut, 0, nil) }
	w.send(message{name: fmt.Sprintf("%d proposes %v at %d.%d", n.id, p.ISR, p.LeaderEpoch, p.PartitionEpoch), from: n.id, fromLife: life, lost: timeout, deliver: func() {
		code, epoch, isr := w.auth.alter(n.id, p)
		w.kinds[fmt.Sprint("proposal ", code)]++
		w.send(message{name: fmt.Sprintf("verdict for %d: %d", n.id, code), to: n.id, life: life, from: n.id, fromLife: life, lost: timeout, deliver: func() {
			verdict(code, epoch, isr)
		}})
		if w.chance(20) {
			w.send(message{name: fmt.Sprintf("%d: the verdict comes too late", n.id), to: n.id, life: life, from: n.id, fromLife: life, deliver: timeout, lost: timeout})
		}
	}})
}

// answer takes a leader's answer: it is what is promised, whether or not it arrives.
func (w *world) answer(n *member, p Produced) {
	a := w.waiters[p.Waiter]
	delete(w.waiters, p.Waiter)
	w.kinds[fmt.Sprint("produced ", p.Code)]++
	if a.noDedup {
		return
	}
	if p.Code == 0 {
		w.note("%d: acknowledges %s at %d", n.id, a.value, p.BaseOffset)
		if before, ok := w.acked[a.value]; ok {
			require.Equal(w, before, p.BaseOffset, "%s is acknowledged at two offsets", a.value)
		}
		w.acked[a.value] = p.BaseOffset
		w.fresh = append(w.fresh, ack{a.value, p.BaseOffset})
	}
	w.send(message{name: fmt.Sprintf("answer for %s: %d", a.value, p.Code), deliver: func() {
		if a.number != a.p.attempt || a.seq != a.p.seq || !a.p.waiting {
			return
		}
		a.p.waiting = false
		switch p.Code {
		case 0:
			a.p.seq++
			a.p.last = p.BaseOffset
		case 6, 7, 19, 20, 56: // retried
		default:
			require.Fail(w, "unexpected", "%s is answered with %d: %s", a.value, p.Code, p.Message)
		}
	}})
}

func (w *world) produce(p *producer) {
	if w.chance(15) {
		w.produceNoise()
	}
	if w.quiet || p.waiting && w.now.Sub(p.since) < 500*time.Millisecond {
		return
	}
	p.waiting, p.since = true, w.now
	p.attempt++
	to := w.auth.now().Leader
	if to < 1 || w.chance(10) {
		to = 1 + w.rnd.Int32N(3)
	}
	w.sendProduce(w.nodes[to-1], attempt{p: p, number: p.attempt, seq: p.seq, value: fmt.Sprintf("p%d/%d", p.id, p.seq)})
}

// produceNoise writes a record that is promised to nobody.
func (w *world) produceNoise() {
	w.sendProduce(w.nodes[w.rnd.IntN(3)], attempt{value: fmt.Sprint("noise", w.next), noDedup: true})
}

// deleteRecords moves the start, but leaves each producer's last batch: a replica that begins above it does not know
// the producer any more, and takes its retry for news, as Kafka's does.
func (w *world) deleteRecords(n *member) {
	limit := n.r.HighWatermark()
	for _, p := range w.producers {
		limit = min(limit, p.last)
	}
	if n.r.Role() == Leader && limit > n.r.LogStart() {
		offset := n.r.LogStart() + w.rnd.Int64N(limit-n.r.LogStart()+1)
		w.note("%d: records below %d are deleted", n.id, offset)
		if d, pending := n.r.DeleteRecords(w.now, offset, w.next, &n.out); !pending {
			n.deleted[w.next] = d
		}
		n.carryOut()
	}
}

func (w *world) sendProduce(n *member, a attempt) {
	w.send(message{name: fmt.Sprintf("%s to %d", a.value, n.id), to: n.id, deliver: func() {
		w.next++
		waiter := w.next
		w.waiters[waiter] = a
		n.now = w.now
		var res Produced
		var pending bool
		if a.noDedup {
			res, pending = n.produce(1, waiter, -1, -1, -1, a.value, a.value+" too", a.value+" as well")
		} else {
			res, pending = n.produce(-1, waiter, a.p.id, 0, a.seq, a.value)
		}
		if !pending {
			res.Waiter = waiter
			w.answer(n, res)
		}
	}})
}

func TestWorld(t *testing.T) {
	kinds := map[string]int{}
	seeds := uint64(120)
	if n, err := strconv.ParseUint(os.Getenv("REPLICA_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		w := newWorld(t, seed)
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w.t = t
			for range 2500 {
				w.step()
			}
			w.finish()
		})
		if !ok {
			t.FailNow()
		}
		for k, n := range w.kinds {
			kinds[k] += n
		}
		kinds["committed"] += len(w.committed)
		kinds["epochs"] += int(w.auth.now().LeaderEpoch)
	}
	t.Log(kinds)
	for _, k := range []string{"diverging", "proposal 0", "proposal 107", "proposal 95", "produced 0", "produced 6", "produced 56", "produced 19", "deleted"} {
		require.Positive(t, kinds[k], "never happened: %s", k)
	}
}
