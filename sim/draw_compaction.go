package sim

import (
	"slices"
	"strconv"
	"time"

	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// drawCompaction makes topics of some worlds compacted ones, and lets brokers compact often. It has a stream of its own and changes
// nothing in the other worlds, but that groups' offsets are compacted in most.
func drawCompaction(p *Plan, c seed.Stream) {
	groups := slices.ContainsFunc(p.Clients, func(c ClientPlan) bool { return c.Member != nil })
	topics := c.Chance(350)
	p.Cleaner.Offsets = groups && c.Chance(850)
	if !topics && !p.Cleaner.Offsets {
		return
	}
	drawCleaner(p, groups, &c)
	if topics {
		some := c.Intn(len(p.Topics)) // at least this one
		for i := range p.Topics {
			if compacted := c.Chance(600); compacted || i == some {
				drawCompacted(&p.Topics[i], &c)
			}
		}
	}
	drawCuts(p, &c)
}

// drawCuts draws faults of disks that strike runs of compaction: the files that they write, and the calls by which those take their
// place. They come after all others.
func drawCuts(p *Plan, c *seed.Stream) {
	if !c.Chance(400) {
		return
	}
	effects := []simdisk.Effect{simdisk.Crash, simdisk.PowerCut, simdisk.PowerCut, simdisk.IOError, simdisk.NoSpace, simdisk.Short, simdisk.Slow}
	for range c.Skewed(1, 6) {
		f := down(p, c, DiskRule)
		f.For = time.Duration(c.Skewed(int64(time.Millisecond), int64(2*time.Second)))
		f.Rule = simdisk.Rule{Op: simdisk.OpAll, Path: "*.swap*", Nth: int(c.Skewed(1, 200)), Effect: effects[c.Intn(len(effects))], Seed: c.Uint64()}
		switch {
		case f.Rule.Effect == simdisk.Slow:
			f.Rule.Times, f.Rule.Delay = int(c.Skewed(1, 100)), time.Duration(c.Skewed(int64(time.Millisecond), int64(time.Second)))
		case f.Rule.Effect <= simdisk.PowerCut && c.Chance(600):
			f.Rule.Op, f.Rule.Path = simdisk.OpRename|simdisk.OpRemove|simdisk.OpSyncDir, ""
		}
		p.Faults = append(p.Faults, f)
	}
}

// drawCleaner draws the settings of all brokers.
func drawCleaner(p *Plan, groups bool, c *seed.Stream) {
	all := func(name, value string) {
		for i := range p.Brokers {
			p.Brokers[i].Settings = append(p.Brokers[i].Settings, Setting{name, value})
		}
	}
	number := func(name string, n int64) { all(name, strconv.FormatInt(n, 10)) }
	all("log.cleaner.enable", strconv.FormatBool(!groups || p.Cleaner.Offsets))
	number("log.cleaner.backoff.ms", c.Skewed(20, 3000))
	p.Cleaner.Threads = 1 + c.Intn(3)
	number("log.cleaner.threads", int64(p.Cleaner.Threads))
	if c.Chance(250) {
		number("log.cleaner.io.max.bytes.per.second", c.Skewed(20_000, 2_000_000))
	}
	if c.Chance(250) {
		p.Cleaner.Buffer = c.Skewed(300, 6000)
	}
	all("log.cleaner.min.cleanable.ratio", drawRatio(c))
	number("log.cleaner.delete.retention.ms", c.Skewed(1, 8000))
	if c.Chance(300) {
		number("log.cleaner.max.compaction.lag.ms", c.Skewed(50, 5000))
	}
	number("offsets.topic.segment.bytes", c.Skewed(300, 10_000))
}

func drawRatio(c *seed.Stream) string {
	return []string{"0", "0.01", "0.1", "0.3", "0.5"}[c.Intn(5)]
}

// drawCompacted makes a topic a compacted one, of few keys and small segments.
func drawCompacted(t *TopicPlan, c *seed.Stream) {
	set := func(name string, n int64) { t.set(name, strconv.FormatInt(n, 10)) }
	t.Keys, t.Tombstones = int(c.Skewed(1, 60)), c.Intn(500)
	policy := "compact"
	if c.Chance(300) {
		policy = "compact,delete"
		if c.Chance(500) {
			set("retention.bytes", c.Skewed(1000, 100_000))
		}
	}
	t.set("cleanup.policy", policy)
	set("segment.bytes", c.Skewed(300, 20_000))
	t.set("min.cleanable.dirty.ratio", drawRatio(c))
	set("delete.retention.ms", c.Skewed(0, 8000))
	lag := int64(0)
	if c.Chance(200) {
		lag = c.Skewed(1, 3000)
		set("min.compaction.lag.ms", lag)
	}
	if lag > 0 || c.Chance(400) {
		set("max.compaction.lag.ms", lag+c.Skewed(50, 5000))
	}
}
