package node

import (
	"log/slog"
	"sync"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/disk/segment"
	"lockstep/node/cleaner"
)

// compactor runs compactions beside everything else that is done to the logs, a few at once, in the order in which they
// were asked for. Their threads have a low priority (inBackground). What others may wait for meanwhile, the locks of a log, they
// hold for moments only, but those of deleting and renaming files.
type compactor struct {
	in      *inbox
	metrics *metrics
	log     *slog.Logger
	pacer   pacer
	quit    chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond
	waiting []compaction
	over    bool
}

// compaction is a run that waits. It was begun when its turn came among the effects on its log, so that its limit is true.
type compaction struct {
	id     core.Partition
	run    *segment.Compaction
	perSec float64
}

func newCompactor(threads int, in *inbox, m *metrics, log *slog.Logger) *compactor {
	c := &compactor{in: in, metrics: m, log: log, quit: make(chan struct{}), pacer: pacer{began: time.Now()}}
	c.wake.L = &c.mu
	for range threads {
		c.done.Go(func() { inBackground(c.work) })
	}
	return c
}

// add takes over an effect on an open log.
func (c *compactor) add(l *segment.Log, e broker.Compact) {
	run := l.BeginCompact(cleaner.Options(&e, c.pace))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, compaction{e.Log, run, e.BytesPerSecond})
	c.wake.Signal()
}

// next waits for a run; false at the end.
func (c *compactor) next() (compaction, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) == 0 && !c.over {
		c.wake.Wait()
	}
	if c.over {
		return compaction{}, false
	}
	x := c.waiting[0]
	c.waiting[0] = compaction{}
	c.waiting = c.waiting[1:]
	return x, true
}

func (c *compactor) work(err error) {
	if err != nil {
		c.log.Warn("compaction has the priority of everything else", "error", err)
	}
	for {
		x, ok := c.next()
		if !ok {
			return
		}
		mark("compact")
		c.pacer.limit(x.perSec)
		began := time.Now()
		stats, err := x.run.Run()
		answers := cleaner.Answers(x.id, &stats, err)
		if answers == nil {
			return
		}
		c.metrics.compacted(&stats, time.Since(began), err)
		for _, in := range answers {
			c.in.put(in)
		}
	}
}

// stop ends the runs, wherever they are: what they have done so far stays.
func (c *compactor) stop() {
	close(c.quit)
	c.mu.Lock()
	c.over = true
	c.wake.Broadcast()
	c.mu.Unlock()
	c.done.Wait()
}

// pace waits as log.cleaner.io.max.bytes.per.second says.
func (c *compactor) pace(bytes int) error {
	wait := c.pacer.take(bytes)
	if wait <= 0 {
		select {
		case <-c.quit:
			return cleaner.ErrStopping
		default:
			return nil
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-c.quit:
		return cleaner.ErrStopping
	case <-t.C:
		return nil
	}
}

// pacer is a cleaner.Pacer of several threads.
type pacer struct {
	mu sync.Mutex
	cleaner.Pacer
	began time.Time
}

func (p *pacer) limit(perSec float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Limit(perSec)
}

func (p *pacer) take(bytes int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Take(time.Since(p.began), bytes)
}

func (m *metrics) compacted(stats *segment.CompactStats, took time.Duration, err error) {
	if err != nil {
		m.compactionFailures.Inc()
	}
	if stats.Due {
		m.compactions.Inc()
		m.compactionSeconds.Add(took.Seconds())
	}
	m.compactionBytes.Add(float64(stats.BytesRead + stats.BytesAfter))
	m.compactionFreed.Add(float64(max(0, stats.BytesBefore-stats.BytesAfter)))
}
