package sim

import (
	"strconv"
	"time"

	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// MaxDriftPPM is how fast a monotonic clock may run away, in parts of a million, for reads to be linearizable: see
// docs/guarantees.md for where it comes from.
const MaxDriftPPM = 40_000

// drawCluster makes a world of several brokers of one of one: topics get replicas, and what goes wrong goes wrong
// everywhere, and between machines.
func drawCluster(p *Plan, n int) {
	for i := 1; i < n; i++ {
		c := seed.New(p.Seed, seed.Label("broker"), uint64(i))
		p.Brokers = append(p.Brokers, drawBroker(&c))
	}
	drawClocks(p, seed.New(p.Seed, seed.Label("clocks")))
	c := seed.New(p.Seed, seed.Label("replicas"))
	for i := range p.Topics {
		t := &p.Topics[i]
		if t.Replicas = int16(min(n, 3)); c.Chance(250) {
			t.Replicas = int16(c.Between(1, int64(min(n, 5))))
		}
		if c.Chance(500) {
			t.Settings = append(t.Settings, Setting{"min.insync.replicas", strconv.FormatInt(c.Between(1, int64(t.Replicas)), 10)})
		}
	}
	if c.Chance(300) {
		for i := range p.Brokers {
			p.Brokers[i].Settings = append(p.Brokers[i].Settings, Setting{"replica.lag.time.max.ms", itoa(int(c.Between(1000, 8000)))})
		}
	}
	drawClusterFaults(p, seed.New(p.Seed, seed.Label("cluster faults")))
	if v := seed.New(p.Seed, seed.Label("voters")); n > 3 && v.Chance(500) {
		p.Voters = 3
	}
	drawTuning(p, seed.New(p.Seed, seed.Label("tuning")))
	drawMoments(p, seed.New(p.Seed, seed.Label("moments")))
	if n > 2 && c.Chance(250) {
		p.LostAtEnd = drawMinority(&c, n)
	}
}

func drawMinority(c *seed.Stream, n int) []int {
	var lost []int
	for i := range n {
		if len(lost) < (n-1)/2 && c.Chance(500) {
			lost = append(lost, i)
		}
	}
	return lost
}

// drawClocks lets monotonic clocks go apart in some worlds.
func drawClocks(p *Plan, c seed.Stream) {
	if !c.Chance(300) {
		return
	}
	for i := range p.Brokers {
		p.Brokers[i].DriftPPM = c.Between(-MaxDriftPPM, MaxDriftPPM)
	}
}

// drawClusterFaults gives the faults of one broker to all of them, and adds those that need several.
func drawClusterFaults(p *Plan, c seed.Stream) {
	for i := range p.Faults {
		f := &p.Faults[i]
		f.Broker = c.Intn(len(p.Brokers))
		if f.Kind != DiskRule && c.Chance(300) {
			f.Broker = []int{TheLeader, TheController}[c.Intn(2)]
		}
	}
	kinds := []func(*Plan, *seed.Stream) Fault{}
	for _, k := range clusterFaultMakers {
		if c.Chance(k.chance) {
			kinds = append(kinds, k.draw)
		}
	}
	if len(kinds) == 0 {
		return
	}
	for range c.Skewed(0, 20) {
		p.Faults = append(p.Faults, kinds[c.Intn(len(kinds))](p, &c))
	}
}

var clusterFaultMakers = []struct {
	chance int // in a thousand, that a world knows the kind
	draw   func(*Plan, *seed.Stream) Fault
}{
	{350, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Kill) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, PowerLoss) }},
	{200, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Pause) }},
	{200, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, CleanStop) }},
	{100, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Blackout) }},
	{100, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, RollingRestart) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Split) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, OneWay) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Link) }},
	{200, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Swizzle) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, Hold) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, PeerReset) }},
	{150, func(p *Plan, c *seed.Stream) Fault { return strikeSomeone(p, c, BackToBack) }},
	{150, func(p *Plan, c *seed.Stream) Fault {
		f := slowRule(p, c)
		f.Broker = c.Intn(len(p.Brokers))
		return f
	}},
	{150, func(p *Plan, c *seed.Stream) Fault {
		f := crashRule(p, c, []simdisk.Effect{simdisk.Crash, simdisk.PowerCut}[c.Intn(2)])
		f.Broker = c.Intn(len(p.Brokers))
		return f
	}},
}

// strikeSomeone draws a fault whose victim is often one that matters: a leader, or the controller.
func strikeSomeone(p *Plan, c *seed.Stream, kind FaultKind) Fault {
	f := down(p, c, kind)
	if c.Chance(500) {
		f.Broker = []int{TheLeader, TheController}[c.Intn(2)]
	}
	if kind == Hold || kind == BackToBack {
		f.For = time.Duration(c.Skewed(int64(100*time.Millisecond), int64(8*time.Second)))
	}
	return f
}

// drawTuning gives brokers settings under which things come to pass soon that are rare otherwise: leaders that move though
// nobody died, followers that catch up in many steps, snapshots of the metadata.
func drawTuning(p *Plan, c seed.Stream) {
	all := func(name string, v int64) {
		for i := range p.Brokers {
			b := &p.Brokers[i]
			b.Settings = append(b.Settings, Setting{name, strconv.FormatInt(v, 10)})
		}
	}
	if c.Chance(200) {
		all("leader.imbalance.check.interval.seconds", c.Between(1, 5))
	}
	if c.Chance(250) {
		all("replica.fetch.max.bytes", c.Skewed(100, 20_000))
	}
	if c.Chance(250) {
		all("metadata.log.max.record.bytes.between.snapshots", c.Skewed(200, 20_000))
	}
	if c.Chance(150) {
		all("replica.fetch.wait.max.ms", c.Skewed(10, 500))
	}
}

// drawMoments lets faults of some worlds wait for the moment at which they do the most harm, and makes some brokers deaf.
func drawMoments(p *Plan, c seed.Stream) {
	if c.Chance(200) {
		for range c.Skewed(1, 5) {
			f := strikeSomeone(p, &c, Deaf)
			f.For = time.Duration(c.Skewed(int64(100*time.Millisecond), int64(5*time.Second)))
			p.Faults = append(p.Faults, f)
		}
	}
	for i := range p.Faults { // what ends within a session goes by unnoticed
		if k := p.Faults[i].Kind; (k == Pause || k == Split || k == OneWay || k == Link || k == Hold) && c.Chance(400) {
			p.Faults[i].For = time.Duration(c.Between(int64(time.Second), int64(10*time.Second)))
		}
	}
	if !c.Chance(400) {
		return
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Kind == DiskRule || f.Kind == BitRot || f.Kind == DiskFull || !c.Chance(600) {
			continue
		}
		f.When = AfterAck + Moment(c.Intn(int(numMoments)-1))
		f.Skip = int(c.Skewed(0, 20))
		if c.Chance(700) {
			f.Broker = []int{TheLeader, AFollower}[c.Intn(2)]
		}
	}
}
