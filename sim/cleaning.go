package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"lockstep/core/broker"
	"lockstep/disk/segment"
	"lockstep/node/cleaner"
	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// compactions are the runs of compaction of one process, the counterpart of node's compactor: beside everything else that is done to the
// logs, a few at once, in the order in which they were asked for. A run is plain blocking code; wherever it paces itself it is left,
// and gone on with at a later event, so that appends, reads, deletions and truncations come in between, and a crash finds it half done.
type compactions struct {
	chance  seed.Stream
	pacer   cleaner.Pacer
	waiting []*compaction
	running []*compaction
	most    int // at once
}

// compaction is one run.
type compaction struct {
	q      *logQueue
	effect broker.Compact
	run    *segment.Compaction
	resume func() (bytes int, more bool) // nil until it begins
	end    func()
	stats  segment.CompactStats
	err    error
}

func (p *compactions) init(h *host) {
	p.most = max(1, h.w.plan.Cleaner.Threads)
	p.chance = seed.New(h.w.plan.luck(), seed.Label("cleaner"), uint64(h.index), h.lives)
}

// compact begins a run on the log as it is now; its turn comes later.
func (q *logQueue) compact(h *host, e broker.Compact) {
	p := &compaction{q: q, effect: e}
	x := &h.passes
	var yield func(int) bool
	opts := cleaner.Options(&e, func(bytes int) error {
		if !yield(bytes) {
			return cleaner.ErrStopping
		}
		return nil
	})
	opts.PaceBytes = int(x.chance.Skewed(100, 50_000))
	if n := h.w.plan.Cleaner.Buffer; n > 0 {
		opts.Buffer = min(opts.Buffer, n)
	}
	p.run = q.log.BeginCompact(opts)
	p.resume, p.end = iter.Pull(func(y func(int) bool) {
		defer explainPanic()
		yield = y
		p.stats, p.err = p.run.Run()
	})
	h.w.oracle.compacting(h, q, &p.effect)
	x.waiting = append(x.waiting, p)
	h.later(x.chance.Skewed(microsecond, millisecond), evClean)
}

// explainPanic says where a panic came from, before that is forgotten.
func explainPanic() {
	switch v := recover(); {
	case v == nil:
	case simdisk.IsDeath(v):
		panic(v)
	default:
		panic(fmt.Sprintf("%v at %s", v, place(debug.Stack())))
	}
}

// nextPass begins the run that waits longest, if not too many are running.
func (h *host) nextPass() {
	x := &h.passes
	if len(x.waiting) == 0 || len(x.running) >= x.most {
		return
	}
	p := x.waiting[0]
	x.waiting = x.waiting[1:]
	x.running = append(x.running, p)
	x.pacer.Limit(p.effect.BytesPerSecond)
	h.goOn(p)
}

// goOn lets a run do what it does until it paces itself, or is over.
func (h *host) goOn(p *compaction) {
	x := &h.passes
	var bytes int
	var more bool
	if !h.do(func() { bytes, more = p.resume() }) {
		return
	}
	d := h.cost() + x.chance.Skewed(microsecond, 200*microsecond)
	if more {
		h.w.stats.PassSteps++
		h.later(d+int64(x.pacer.Take(time.Duration(h.clock()), bytes)), evCleanOn).more = p
		return
	}
	for i, r := range x.running {
		if r == p {
			x.running = append(x.running[:i], x.running[i+1:]...)
			break
		}
	}
	h.w.oracle.compacted(h, p)
	h.w.stats.Passes += b2i(p.stats.Due && p.err == nil)
	h.w.stats.PassesCut += b2i(p.err != nil)
	h.later(d, evCleaned).more = p
	h.later(d, evClean)
}

// cleaned tells the broker of a run that is over.
func (h *host) cleaned(p *compaction) {
	if p.err != nil {
		h.w.event(h.lane, "log", "compaction: "+p.err.Error())
	}
	life := h.life
	for _, in := range cleaner.Answers(p.q.id, &p.stats, p.err) {
		if _, failed := in.(broker.LogFailed); failed {
			h.w.oracle.setAside(h, p.q.id)
		}
		if h.step(in); h.life != life {
			return
		}
	}
}

// stopPasses ends all runs wherever they are, as a clean stop does: what they have done stays.
func (h *host) stopPasses() {
	h.w.stats.PassesCut += int64(len(h.passes.running))
	for _, p := range h.passes.running {
		p.end()
	}
	h.passes.running = nil
}

// abandonPasses forgets the runs of a process that has ended: the next call that one of them makes to its disk is none.
func (h *host) abandonPasses() {
	h.w.stats.PassesCut += int64(len(h.passes.running))
	for _, p := range h.passes.running {
		simdisk.Unwind(p.end)
	}
	for _, p := range h.passes.waiting {
		p.end()
	}
	h.passes = compactions{}
}
