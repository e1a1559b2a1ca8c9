package quorum

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is a cluster of machines over a network and disks that do what the test says. Messages are encoded and
// decoded on the way, and logs are read back from their bytes.
type world struct {
	now     core.Time
	cfg     Config
	rng     *rand.Rand
	nodes   []*node
	net     []*packet // in flight, in the order sent
	cut     map[[2]int32]bool
	held    map[[2]int32]bool
	timers  []timer
	packets int
	say     func(format string, args ...any) // what happens, for transcripts
	check   checker
}

// timer is something that happens later.
type timer struct {
	at core.Time
	do func()
}

// packet is a request or a response on its way.
type packet struct {
	from, to int32
	life     int // of the node that asked
	token    uint64
	req      kmsg.Request
	resp     kmsg.Response // one of the two
}

// node is a machine with its disk.
type node struct {
	w      *world
	id     int32
	q      *Quorum // nil while it is down
	life   int
	disk   disk
	slow   bool // disk operations wait for the test
	asked  map[uint64]*packet
	tokens uint64
	image  []string // values by offset, applied from Commits
	next   int64    // first offset that the image has not seen
	mem    memory
}

// disk is what a node has stored, and what it has been told to.
type disk struct {
	hard     []byte
	start    int64
	batches  []record.Batch // in the file
	synced   int            // so many of them are durable
	snapshot *Snapshot
	saves    []saveOp
	ops      []LogOp
	snaps    []*Snapshot
	broken   bool // appends fail
	failed   bool // one has
}

type saveOp struct {
	token uint64
	state []byte
}

func newWorld(seed uint64, voters, observers int, say func(string, ...any)) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 1)), cut: map[[2]int32]bool{}, held: map[[2]int32]bool{},
		say: say, check: newChecker(),
	}
	w.cfg = Config{ClusterID: "test", SnapshotBytes: 4}
	for id := int32(1); id <= int32(voters); id++ {
		w.cfg.Voters = append(w.cfg.Voters, Voter{ID: id, Host: "localhost", Port: uint16(9000 + id)})
	}
	for id := int32(1); id <= int32(voters+observers); id++ {
		w.nodes = append(w.nodes, &node{w: w, id: id})
	}
	return w
}

func (w *world) node(id int32) *node { return w.nodes[id-1] }

// start gives a node a new life from what its disk holds.
func (n *node) start() {
	n.life++
	n.asked = map[uint64]*packet{}
	n.disk.saves, n.disk.ops, n.disk.snaps, n.disk.failed = nil, nil, nil, false
	hard, err := DecodeHardState(n.disk.hard)
	if err != nil {
		panic(err)
	}
	n.image, n.next = nil, 0
	if s := n.disk.snapshot; s != nil {
		n.restore(s)
	}
	cfg := n.w.cfg
	cfg.Self, cfg.Rand = n.id, n.w.rng
	n.disk.synced = len(n.disk.batches)
	n.mem = memory{start: n.disk.start, batches: slices.Clone(n.disk.batches)}
	n.q = New(cfg, hard, n.disk.snapshot, log.State{Start: n.disk.start, End: n.disk.end()})
	for {
		from, more := n.q.LoadFrom()
		if !more {
			break
		}
		if err := n.q.Load(n.disk.read(from, n.disk.end(), 100)); err != nil {
			panic(err)
		}
	}
	n.do(func(out *Out) { n.q.Start(n.w.now, out) })
}

// stop ends a node's life. With loss, a power cut takes what was not synced, but for a first part of it, keep batches long.
func (n *node) stop(loss bool, keep int) {
	n.q = nil
	if loss {
		n.disk.batches = n.disk.batches[:min(n.disk.synced+keep, len(n.disk.batches))]
	}
	n.disk.synced = min(n.disk.synced, len(n.disk.batches))
	w := n.w
	w.net = slices.DeleteFunc(w.net, func(p *packet) bool { return p.from == n.id && p.req != nil })
	for _, token := range slices.Sorted(maps.Keys(n.asked)) { // what it was asked gets no answer
		w.fail(n.asked[token], 0)
	}
	n.asked = nil
}

// closed tells the others that a node's connections broke.
func (w *world) closed(id int32) {
	for _, n := range w.nodes {
		if n.id != id {
			n.do(func(out *Out) { n.q.PeerClosed(w.now, id, out) })
		}
	}
}

// do lets the machine take a step and carries out what it wants.
func (n *node) do(step func(*Out)) {
	if n.q == nil {
		return
	}
	var out Out
	step(&out)
	n.carry(out)
	for !n.slow && n.diskStep(0) {
	}
}

func (n *node) carry(out Out) {
	w := n.w
	if out.Fatal != nil {
		w.say("%d cannot go on: %v", n.id, out.Fatal)
		w.check.fail("node %d: fatal: %v", n.id, out.Fatal)
	}
	if out.Save != nil {
		h, _ := DecodeHardState(out.Save)
		w.say("%d saves term %d, vote %s", n.id, h.Term, who(h.Vote))
		n.disk.saves = append(n.disk.saves, saveOp{out.SaveToken, slices.Clone(out.Save)})
	}
	for _, op := range out.Log {
		w.say("%d %s", n.id, describeOp(op))
		n.mem.apply(op)
		n.disk.ops = append(n.disk.ops, op)
	}
	if s := out.SaveSnapshot; s != nil {
		w.say("%d stores the snapshot %s", n.id, s.SnapshotID.text())
		n.disk.snaps = append(n.disk.snaps, s)
	}
	if out.Restore != nil {
		w.say("%d restores its image from the snapshot %s", n.id, out.Restore.text())
		n.restore(out.Restore)
	}
	for _, c := range out.Commits {
		n.apply(c)
	}
	n.sayRoles(out)
	for _, c := range out.Calls {
		w.post(&packet{from: n.id, to: c.Peer, life: n.life, token: c.Token, req: recode(c.Msg)})
	}
	for _, r := range out.Responds {
		n.answer(r)
	}
	w.check.step(w, n, &out)
}

func (n *node) sayRoles(out Out) {
	w := n.w
	_, term := n.q.Leader()
	if out.Elected {
		w.say("%d is leader of term %d", n.id, term)
	}
	if out.Active {
		w.say("%d is active", n.id)
	}
	if out.LostLeadership {
		w.say("%d leads no more", n.id)
	}
	if out.ProposalsDropped {
		w.say("%d takes its proposals from %d on back", n.id, out.DroppedFrom)
	}
}

func (n *node) apply(c Commit) {
	texts := make([]string, len(c.Values))
	for i, v := range c.Values {
		texts[i] = string(v)
		n.applyValue(c.Offset+int64(i), string(v))
	}
	n.w.say("%d applies %d: %s", n.id, c.Offset, strings.Join(texts, " "))
}

func (n *node) applyValue(offset int64, v string) {
	if offset < n.next {
		n.w.check.fail("node %d: offset %d delivered after %d", n.id, offset, n.next-1)
		return
	}
	for int64(len(n.image)) < offset {
		n.image = append(n.image, "") // control records
	}
	n.image, n.next = append(n.image, v), offset+1
}

// restore makes the image that of a snapshot, which is the list of its values.
func (n *node) restore(s *Snapshot) {
	n.mem.checked = 0
	n.image, n.next = strings.Split(string(s.Bytes), ","), s.Offset
}

func (n *node) takeSnapshot() error {
	id := n.q.Tip()
	image := slices.Clone(n.image)
	for int64(len(image)) < id.Offset {
		image = append(image, "")
	}
	var err error
	n.do(func(out *Out) { err = n.q.Snapshot(n.w.now, id, []byte(strings.Join(image, ",")), out) })
	return err
}

func (n *node) answer(r Respond) {
	p := n.asked[r.Token]
	delete(n.asked, r.Token)
	if p == nil {
		return
	}
	if f, ok := r.Msg.(*kmsg.FetchResponse); ok && r.Read != nil {
		if r.Read.Limit > n.disk.end() {
			n.w.check.fail("node %d: serves up to %d, its file ends at %d", n.id, r.Read.Limit, n.disk.end())
		}
		for _, b := range n.disk.read(r.Read.From, r.Read.Limit, int(r.Read.MaxBytes)) {
			f.Topics[0].Partitions[0].RecordBatches = append(f.Topics[0].Partitions[0].RecordBatches, b.Bytes()...)
		}
	}
	n.w.post(&packet{from: n.id, to: p.from, life: p.life, token: p.token, resp: recodeResponse(r.Msg)})
}

func (w *world) post(p *packet) {
	w.say("%s", describe(p))
	w.net = append(w.net, p)
}

// deliver hands over one packet that has arrived, or lets it fail if it cannot.
func (w *world) deliver(p *packet) {
	if at := slices.Index(w.net, p); at >= 0 {
		w.net = slices.Delete(w.net, at, at+1)
	}
	n := w.node(p.to)
	switch {
	case w.cut[[2]int32{p.from, p.to}]:
		w.fail(p, 150*time.Millisecond)
	case n.q == nil:
		w.fail(p, time.Millisecond)
	case p.req != nil:
		n.tokens++
		n.asked[n.tokens] = p
		n.do(func(out *Out) { n.q.Handle(w.now, n.tokens, recode(p.req), out) })
	case p.life == n.life:
		var batches []record.Batch
		if f, ok := p.resp.(*kmsg.FetchResponse); ok {
			var err error
			if batches, _, err = record.ParseAll(slices.Clone(f.Topics[0].Partitions[0].RecordBatches)); err != nil {
				panic(err)
			}
		}
		n.do(func(out *Out) { n.q.Answer(w.now, p.token, p.resp, batches, nil, out) })
	}
}

var errLost = errors.New("no answer")

// fail tells the one who asked, after a while, that no answer will come.
func (w *world) fail(p *packet, after time.Duration) {
	asker := w.node(p.from)
	if p.resp != nil {
		asker = w.node(p.to)
	}
	w.timers = append(w.timers, timer{w.now.Add(after), func() {
		if asker.life == p.life {
			asker.do(func(out *Out) { asker.q.Answer(w.now, p.token, nil, nil, errLost, out) })
		}
	}})
}

// advance lets time pass to the next thing that happens, at most to limit, and says whether something happened.
func (w *world) advance(limit core.Time) bool {
	next := limit
	for _, t := range w.timers {
		next = core.Earlier(next, t.at)
	}
	for _, n := range w.nodes {
		if n.q != nil {
			next = core.Earlier(next, n.q.Deadline())
		}
	}
	w.now = max(w.now, next)
	happened := false
	for i := 0; i < len(w.timers); {
		if t := w.timers[i]; t.at <= w.now {
			w.timers = slices.Delete(w.timers, i, i+1)
			t.do()
			happened = true
			continue
		}
		i++
	}
	for _, n := range w.nodes {
		if n.q != nil && n.q.Deadline() <= w.now {
			n.do(func(out *Out) { n.q.Tick(w.now, out) })
			happened = true
		}
	}
	return happened
}

// settle delivers what is in flight on links that are not held, and what comes of it, until nothing is.
func (w *world) settle() {
	for range 100_000 {
		at := slices.IndexFunc(w.net, func(p *packet) bool { return !w.held[[2]int32{p.from, p.to}] })
		if at < 0 {
			return
		}
		w.deliver(w.net[at])
	}
	w.check.fail("messages without end: %s", describe(w.net[0]))
}

// run lets time pass for d, with messages taking no time, one event after another.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for w.settle(); w.now < end; w.settle() {
		if !w.advance(end) && w.now >= end {
			return
		}
	}
}

func (d *disk) end() int64 {
	if len(d.batches) == 0 {
		return d.start
	}
	return d.batches[len(d.batches)-1].NextOffset()
}

func (d *disk) durableEnd() int64 {
	if d.synced == 0 {
		return d.start
	}
	return d.batches[d.synced-1].NextOffset()
}

func (d *disk) read(from, limit int64, maxBytes int) []record.Batch {
	var got []record.Batch
	for _, b := range d.batches {
		if b.NextOffset() <= from || b.NextOffset() > limit {
			continue
		}
		if maxBytes -= b.Size(); len(got) > 0 && maxBytes < 0 {
			break
		}
		got = append(got, b)
	}
	return got
}

// diskStep carries out the next thing that the disk was told, of those of one kind if kind is not 0, and says whether there was one.
func (n *node) diskStep(kind int) bool {
	d := &n.disk
	switch {
	case n.q == nil:
		return false
	case len(d.saves) > 0 && (kind == 0 || kind == 1):
		s := d.saves[0]
		d.saves = d.saves[1:]
		d.hard = s.state
		n.do(func(out *Out) { n.q.Saved(n.w.now, s.token, out) })
	case len(d.ops) > 0 && (kind == 0 || kind == 2):
		op := d.ops[0]
		d.ops = d.ops[1:]
		n.logStep(op)
	case d.synced < len(d.batches) && (kind == 0 || kind == 3):
		d.synced = len(d.batches)
		end := d.end()
		n.do(func(out *Out) { n.q.Durable(n.w.now, end, out) })
	case len(d.snaps) > 0 && (kind == 0 || kind == 4):
		s := d.snaps[0]
		d.snaps = d.snaps[1:]
		d.snapshot = s
		n.do(func(out *Out) { n.q.SnapshotSaved(n.w.now, s.SnapshotID, out) })
	default:
		return false
	}
	return true
}

func (n *node) logStep(op LogOp) {
	d := &n.disk
	switch op := op.(type) {
	case Append:
		if d.failed {
			return // a host drops what follows an append that failed, until a Truncate comes
		}
		if d.broken {
			end := d.end()
			d.failed = true
			n.do(func(out *Out) { n.q.AppendFailed(n.w.now, end, errors.New("no space"), out) })
			return
		}
		for _, b := range op.Batches {
			if b.BaseOffset() != d.end() {
				n.w.check.fail("node %d: appends %d to a log that ends at %d", n.id, b.BaseOffset(), d.end())
			}
			d.batches = append(slices.Clip(d.batches), b)
		}
		end := d.end()
		n.do(func(out *Out) { n.q.Written(n.w.now, end, out) })
	case Truncate:
		d.failed = false
		for len(d.batches) > 0 && d.end() > op.To {
			d.batches = d.batches[:len(d.batches)-1]
		}
		d.synced = len(d.batches)
		end := d.end()
		n.do(func(out *Out) { n.q.Truncated(n.w.now, end, out) })
	case Reset:
		d.start, d.batches, d.synced, d.failed = op.Start, nil, 0, false
		n.do(func(out *Out) { n.q.Truncated(n.w.now, op.Start, out) })
	case DropPrefix:
		for len(d.batches) > 0 && d.batches[0].NextOffset() <= op.Start {
			d.batches = d.batches[1:]
			d.synced = max(d.synced-1, 0)
		}
		d.start = op.Start
	}
}

func recode(m kmsg.Request) kmsg.Request {
	c := kmsg.RequestForKey(m.Key())
	c.SetVersion(m.GetVersion())
	if err := c.ReadFrom(m.AppendTo(nil)); err != nil {
		panic(fmt.Sprintf("%T: %v", m, err))
	}
	return c
}

func recodeResponse(m kmsg.Response) kmsg.Response {
	c := kmsg.ResponseForKey(m.Key())
	c.SetVersion(m.GetVersion())
	if err := c.ReadFrom(m.AppendTo(nil)); err != nil {
		panic(fmt.Sprintf("%T: %v", m, err))
	}
	return c
}
