package sim

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"lockstep/core/record"
	"lockstep/linearizability"
	"lockstep/sim/seed"
)

// Options of a run. The zero value runs the seed's world as it is drawn.
type Options struct {
	Trace bool // keep a Trace

	// What follows makes runs cheap whose failure is known to come early; nothing else may come of them.
	workOnly  bool  // end with the work, without judging the world
	maxEvents int64 // end after so many events; 0 is without bound
	hurry     Time  // bounds of what must come to an end are so many times shorter; 0 is 1
}

// Result is what came of a world.
type Result struct {
	Seed    uint64
	Hash    uint64 // of every event: same seed, same build, same hash
	Failure *Failure
	Trace   *Trace
	Stats   Stats
	Plan    *Plan
	History *linearizability.History
	Report  linearizability.Report

	worked Time  // when the work began; 0 if it never did
	begun  []int // operations, by client
}

// Run runs the world of a seed.
func Run(s uint64, o Options) Result { return RunPlan(Draw(s), o) }

// Bounds, in virtual time, on what must come to an end.
const (
	birthTime = 60 * second  // until the first broker serves and topics are made
	drainTime = 120 * second // from the end of all faults until every client has its answer
	judgeTime = 300 * second // until every partition was written to and read
)

// RunPlan runs the world of a plan. It goes through four parts: birth (brokers
// start, topics are made), work (clients and faults), draining (everything is
// healed; what was begun ends), judging (all partitions are written to and read, and the history is checked).
func RunPlan(p *Plan, o Options) (r Result) {
	w := newWorld(p, o)
	defer func() {
		if v := recover(); v != nil {
			w.fail("panic", "%v at %s", v, place(debug.Stack()))
		}
		w.countDiskFaults()
		w.stats.Virtual, w.stats.Ops = w.now, int64(len(w.history.Ops))
		w.mix(uint64(w.now))
		for _, h := range w.hosts {
			w.mix(h.disk.Hash())
		}
		for _, h := range w.hosts {
			h.disk.Kill()
			h.abandonPasses()
		}
		r.Seed, r.Hash, r.Failure, r.Trace, r.Stats, r.Plan = p.Seed, w.hash, w.failure, w.trace, w.stats, p
		if r.Failure != nil && r.Failure.Kind == undecidable {
			r.Failure, r.Stats.Undecidable = nil, 1
		}
		r.History = &w.history
		r.worked = w.worked
		for _, c := range w.clients {
			r.begun = append(r.begun, c.base().ops)
		}
	}()
	w.live()
	if w.failure == nil && !o.workOnly {
		r.Report = w.judge()
	}
	return
}

// undecidable ends a world of which nothing more can be said: a misdirected write has put a whole batch where a log begins or ends, or in the place of another one.
// Batches do not say which log they belong to, in no version of the format, so neither a broker nor an oracle can tell.
const undecidable = "undecidable"

// place is where in the product's code a panic came from.
func place(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "panic(") && i+2 < len(lines) {
			lines = lines[i+2:]
			break
		}
	}
	for i := 1; i < len(lines); i += 2 {
		if f := strings.TrimSpace(lines[i]); strings.Contains(lines[i-1], "lockstep/") {
			name, _, _ := strings.Cut(lines[i-1], "(0x")
			file, _, _ := strings.Cut(f[strings.LastIndex(f, "/")+1:], " ")
			return name + " (" + file + ")"
		}
	}
	return "an unknown place"
}

func newWorld(p *Plan, o Options) *world {
	w := &world{plan: p, options: o, queue: newQueue(), hash: p.Seed, builder: record.NewBuilder(), added: make([]int32, len(p.Topics)), came: map[uint64]bool{}}
	if o.Trace {
		w.trace = &Trace{}
	}
	w.stats.init()
	w.oracle.init(w)
	w.net = network{w: w, plan: p.Net, dials: make([]uint64, len(p.Clients)+2), clogs: make([]Time, len(p.Clients)+2), peers: make([]uint64, len(p.Brokers))}
	for range len(p.Brokers) + len(p.Clients) + 1 {
		w.net.walls = append(w.net.walls, make([]wall, len(p.Brokers)+len(p.Clients)+1))
	}
	w.losesUnsynced, w.rots = p.losesUnsynced(), p.rots()
	for i := range p.Brokers {
		w.drifts = w.drifts || max(p.Brokers[i].DriftPPM, -p.Brokers[i].DriftPPM) > MaxDriftPPM
	}
	for i := range p.Brokers {
		w.hosts = append(w.hosts, newHost(w, i, &p.Brokers[i]))
	}
	for i := range p.Clients {
		c := newClient(p.Clients[i].Kind)
		c.base().init(w, i, &p.Clients[i])
		w.clients = append(w.clients, c)
	}
	w.verifier = &verifier{}
	w.verifier.init(w, len(p.Clients), &ClientPlan{Kind: Reader, Seed: seed.Mix(p.Seed), Timeout: 10e9})
	w.verifier.index, w.verifier.clientBase.name = len(p.Clients), "verifier"
	return w
}

func newClient(k ClientKind) client {
	switch k {
	case Producer:
		return &producer{}
	case Consumer:
		return &consumer{}
	case Reader:
		return &reader{}
	case Admin:
		return &admin{}
	case Member:
		return &member{}
	}
	return &noise{}
}

// live is everything but the judgement of the history.
func (w *world) live() {
	for _, h := range w.hosts {
		if h.lost = h.plan.Off; !h.lost {
			h.restart = w.after(0, h, evStart)
		}
	}
	w.verifier.again()
	w.runUntil(birthTime, func() bool { return w.verifier.ready })
	if !w.verifier.ready {
		w.fail("stuck", "no broker has made the topics within %d seconds of birth", birthTime/second)
		return
	}
	w.worked = w.now
	w.plot()
	for _, c := range w.clients {
		if !c.base().plan.Off {
			c.start()
		}
	}
	w.runUntil(w.now+int64(w.plan.Duration), nil)
	if w.options.workOnly {
		return
	}
	w.drain()
	for _, g := range w.groups {
		if w.failure == nil {
			g.close()
		}
	}
	if w.plan.PowerLossAtEnd && w.failure == nil {
		w.darkness()
	}
	if w.failure == nil {
		w.phase = judging
		w.inspect()
	}
	if w.failure == nil {
		w.audit()
	}
	if w.failure == nil {
		w.converge()
	}
	if w.failure == nil {
		for _, h := range w.hosts {
			w.oracle.checkFiles(h)
		}
	}
}

// bound is how long something may take, in the hurry that the world is in.
func (w *world) bound(d Time) Time { return d / max(1, w.options.hurry) }

// drain heals the world and lets what was begun come to its end.
func (w *world) drain() {
	if w.failure != nil {
		return
	}
	w.phase, w.drained = draining, w.now
	w.event(-1, "phase", "draining: everything is healed")
	w.healAll()
	w.loseSome()
	for _, c := range w.clients {
		c.stop()
	}
	idle := func() bool {
		for _, c := range w.clients {
			if !c.idle() {
				return false
			}
		}
		return true
	}
	w.runUntil(w.now+w.bound(drainTime), idle)
	if w.failure == nil && !idle() && !w.harmedAtAll() {
		for _, c := range w.clients {
			if !c.idle() {
				if m, ok := c.(*member); ok {
					w.fail("stuck", "%s has not settled %d seconds after the last fault: %s", m.mp.Group, drainTime/second, m.g.unsettled())
					return
				}
				w.fail("stuck", "%s has no answer %d seconds after the last fault", c.base().name, drainTime/second)
				return
			}
		}
	}
}

// darkness takes the power from every machine at once.
func (w *world) darkness() {
	count := w.stats.fault("power loss at the end")
	count.Planned++
	w.stats.Steps++
	for _, h := range w.hosts {
		if h.lost {
			continue
		}
		before := h.disk.Stats()
		h.kill(true, 100*millisecond)
		count.Happened++
		count.Mattered += b2i(lostAnything(before, h.disk.Stats()))
	}
}

func (w *world) inspect() {
	w.event(-1, "phase", "judging")
	v := w.verifier
	v.inspect()
	w.runUntil(w.now+w.bound(judgeTime), v.done)
	if w.failure == nil && !v.done() && !w.refused() {
		w.fail("stuck", "not written to and read within %d seconds: %s", judgeTime/second, v.stuck())
	}
}

// refused says that a broker rightly does not come up: its disk is damaged where there is no other copy.
func (w *world) refused() bool {
	for _, h := range w.hosts {
		if !h.ready && len(h.disk.Damages()) > 0 {
			return true
		}
	}
	return false
}

func (w *world) harmedAtAll() bool {
	for _, h := range w.hosts {
		if len(h.disk.Damages()) > 0 {
			return true
		}
	}
	return false
}

// judge checks what clients saw.
func (w *world) judge() linearizability.Report {
	opts := linearizability.Options{Sends: !w.reordered, PorcupineTimeout: 200 * time.Millisecond}
	for i := range w.plan.Clients {
		c := &w.plan.Clients[i]
		if c.Kind == Producer && !c.Idempotent && (c.InFlight > 1 || c.Retries || w.stats.Timeouts > 0) {
			opts.Sends = false // a request that its client gave up may arrive after the next one, on another connection
		}
	}
	for i := range w.plan.Topics {
		opts.Retention = opts.Retention || w.plan.Topics[i].retains()
	}
	w.resolve()
	h := &w.history
	if w.harmedAtAll() {
		h = w.sound()
	}
	if len(w.hosts) > 1 {
		h = w.loosen(h)
	}
	report := linearizability.Check(h, opts)
	if report.Verdict == linearizability.Violated {
		a := report.Anomalies[0]
		w.fail(string(a.Kind), "%s: %s", a.Key, a.Line)
	}
	return report
}

// loosen is a history without what clients saw of log starts that have moved: each replica deletes old records for itself, so
// with another leader a start may go back. Those that were acknowledged as deleted stay deleted, which is an oracle's to see.
func (w *world) loosen(h *linearizability.History) *linearizability.History {
	moved := func(topic string, partition int32) bool {
		of := w.oracle.find(topic, partition)
		return of != nil && of.start > 0
	}
	out := &linearizability.History{Truth: map[linearizability.Key]linearizability.Truth{}}
	for _, op := range h.Ops {
		if moved(op.Topic, op.Partition) {
			op.LogStart = -1
			if op.Kind == linearizability.Earliest || op.Kind == linearizability.Delete || op.Outcome == linearizability.OutOfRange {
				continue
			}
		}
		out.Ops = append(out.Ops, op)
	}
	for k, t := range h.Truth {
		if moved(k.Topic, k.Partition) {
			t.Start = 0
		}
		out.Truth[k] = t
	}
	return out
}

// sound is the history without the partitions whose files a rule has damaged: they are
// judged by the oracles alone, which know that nothing wrong was served.
func (w *world) sound() *linearizability.History {
	out := &linearizability.History{Truth: map[linearizability.Key]linearizability.Truth{}}
	for _, op := range w.history.Ops {
		if !w.harmed(fmt.Sprintf("%s-%d", op.Topic, op.Partition)) {
			out.Ops = append(out.Ops, op)
		}
	}
	for k, t := range w.history.Truth {
		if !w.harmed(k.String()) {
			out.Truth[k] = t
		}
	}
	return out
}
