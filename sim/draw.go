package sim

import (
	"strconv"
	"time"

	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// Draw draws a seed's world.
func Draw(s uint64) *Plan { return DrawFor(s, 0) }

// MaxBrokers is how many brokers a world has at most.
const MaxBrokers = 7

// DrawFor draws a seed's world with so many brokers, 1 to MaxBrokers; 0 leaves that to the seed.
func DrawFor(s uint64, brokers int) *Plan {
	p := drawPlain(s, brokers)
	drawCompaction(p, seed.New(s, seed.Label("compaction")))
	return p
}

// drawPlain draws a world in which nothing is compacted.
func drawPlain(s uint64, brokers int) *Plan {
	size := seed.New(s, seed.Label("size"))
	if drawn := drawSize(&size); brokers == 0 {
		brokers = drawn
	}
	p := drawOne(s)
	if brokers > 1 {
		drawCluster(p, brokers)
	}
	drawGroups(p, seed.New(s, seed.Label("groups"))) // last: what it adds has the highest numbers
	drawMixtures(p, seed.New(s, seed.Label("group mixtures")))
	drawRolling(p, seed.New(s, seed.Label("rolling assignors")))
	drawSeeSaws(p, seed.New(s, seed.Label("see-saws")))
	return p
}

// drawSize draws how many brokers there are: mostly three, as in most clusters.
func drawSize(c *seed.Stream) int {
	switch n := c.Intn(100); {
	case n < 35:
		return 1
	case n < 40:
		return 2
	case n < 80:
		return 3
	case n < 86:
		return 4
	case n < 96:
		return 5
	case n < 98:
		return 6
	}
	return 7
}

// drawOne draws a world of one broker, of which drawCluster makes one of several.
func drawOne(s uint64) *Plan {
	c := seed.New(s, seed.Label("plan"))
	p := &Plan{Seed: s}
	p.Duration = time.Duration(c.Skewed(int64(2*time.Second), int64(40*time.Second)))
	p.Net = NetPlan{Latency: c.Skewed(20*microsecond, millisecond), Jitter: c.Skewed(10*microsecond, 20*millisecond)}
	if c.Chance(300) {
		p.Net.Split = c.Intn(200)
	}
	p.Brokers = []BrokerPlan{drawBroker(&c)}
	drawTopics(p, seed.New(s, seed.Label("topics")))
	drawClients(p, seed.New(s, seed.Label("clients")))
	drawFaults(p, seed.New(s, seed.Label("faults")))
	return p
}

func drawBroker(c *seed.Stream) BrokerPlan {
	b := BrokerPlan{DiskSlowness: 1, SyncAllAbove: 1 + c.Intn(6), MaxOpenFiles: 8 << c.Intn(6)}
	if c.Chance(200) {
		b.DiskSlowness = c.Skewed(1, 100)
	}
	if c.Chance(300) {
		b.Settings = append(b.Settings, Setting{"max.incremental.fetch.session.cache.slots", itoa(c.Intn(3))})
	}
	b.Settings = append(b.Settings, Setting{"log.retention.check.interval.ms", itoa(int(c.Skewed(50, 5000)))})
	return b
}

func drawTopics(p *Plan, c seed.Stream) {
	n := 1 + int(c.Skewed(0, 3))
	for i := range n {
		t := TopicPlan{Name: "t" + itoa(i), Partitions: int32(1 + c.Skewed(0, 7)), Replicas: 1}
		set := func(name string, v int64) {
			t.Settings = append(t.Settings, Setting{name, strconv.FormatInt(v, 10)})
		}
		if c.Chance(850) {
			set("segment.bytes", c.Skewed(2000, 500_000))
		}
		if c.Chance(300) {
			set("segment.ms", c.Skewed(50, 10_000))
		}
		if c.Chance(300) {
			set("index.interval.bytes", c.Skewed(0, 4096))
		}
		if c.Chance(200) {
			set("segment.index.bytes", c.Skewed(16, 400))
		}
		if c.Chance(150) {
			set("flush.messages", c.Skewed(2, 100))
			if c.Chance(500) {
				set("flush.ms", c.Skewed(10, 5000))
			}
		}
		if c.Chance(200) {
			t.Settings = append(t.Settings, Setting{"preallocate", "true"})
		}
		if c.Chance(150) {
			t.Settings = append(t.Settings, Setting{"message.timestamp.type", "LogAppendTime"})
		}
		if c.Chance(100) {
			set("retention.bytes", c.Skewed(1000, 200_000))
		}
		if c.Chance(100) {
			set("retention.ms", c.Skewed(100, 20_000))
		}
		p.Topics = append(p.Topics, t)
	}
}

// between draws two bounds in ascending order.
func between(c *seed.Stream, lo, hi int64) (int64, int64) {
	a, b := c.Skewed(lo, hi), c.Skewed(lo, hi)
	return min(a, b), max(a, b)
}

func drawClients(p *Plan, c seed.Stream) {
	pace := time.Duration(c.Skewed(int64(50*time.Millisecond), int64(4*time.Second)))
	for kind, most := range []int64{4, 3, 2, 1, 1} {
		n := int(c.Skewed(0, most))
		if kind == int(Producer) {
			n = max(n, 1)
		}
		for range n {
			p.Clients = append(p.Clients, drawClient(p, ClientKind(kind), c.Uint64(), pace))
		}
	}
}

func drawClient(p *Plan, kind ClientKind, s uint64, pace time.Duration) ClientPlan {
	c := seed.New(s, seed.Label("draw"))
	cl := ClientPlan{Kind: kind, Seed: s, Timeout: time.Duration(c.Skewed(int64(200*time.Millisecond), int64(10*time.Second)))}
	lo, hi := between(&c, int64(5*time.Millisecond), int64(pace))
	cl.Think = [2]time.Duration{time.Duration(lo), time.Duration(hi)}
	cl.Start = time.Duration(c.Below(uint64(p.Duration) / 2))
	if c.Chance(500) {
		cl.Version = 1 + c.Intn(18)
	}
	for i := range p.Topics {
		if c.Chance(600) {
			cl.Topics = append(cl.Topics, i)
		}
	}
	if len(cl.Topics) == 0 {
		cl.Topics = []int{c.Intn(len(p.Topics))}
	}
	switch kind {
	case Producer:
		drawProducer(&cl, &c)
	case Consumer:
		cl.Session = c.Chance(700)
		cl.MaxWait = time.Duration(c.Skewed(int64(time.Millisecond), int64(2*time.Second)))
		cl.MinBytes = int32(c.Skewed(0, 5000))
		cl.MaxBytes = int32(c.Skewed(100, 1<<20))
		cl.PartitionBytes = int32(c.Skewed(100, 1<<20))
		if c.Chance(500) {
			cl.Seek = int(c.Skewed(0, 200))
		}
	case Reader, Admin, Noise:
		cl.Think[0], cl.Think[1] = cl.Think[0]+20*time.Millisecond, cl.Think[1]*3+20*time.Millisecond
	}
	return cl
}

func drawProducer(cl *ClientPlan, c *seed.Stream) {
	cl.Acks = -1
	switch {
	case c.Chance(500):
		cl.Idempotent = true
	case c.Chance(300):
		cl.Acks = 1
	case c.Chance(300):
		cl.Acks = 0
	}
	cl.InFlight = 1 + c.Intn(5)
	cl.Spread = 1 + c.Intn(3)
	lo, hi := between(c, 1, c.Skewed(1, 30))
	cl.Records = [2]int{int(lo), int(hi)}
	lo, hi = between(c, 8, c.Skewed(16, 2000))
	cl.Bytes = [2]int{int(lo), int(hi)}
	if c.Chance(80) {
		cl.Codec = int8(1 + c.Intn(4))
	}
	cl.Retries = c.Chance(600)
}

// drawFaults first draws which kinds of faults the world knows, and then those that come: worlds in which a few kinds
// meet often find more than worlds in which everything happens a little.
func drawFaults(p *Plan, c seed.Stream) {
	kinds := []func(*Plan, *seed.Stream) Fault{}
	for _, k := range faultMakers {
		if c.Chance(k.chance) {
			kinds = append(kinds, k.draw)
		}
	}
	if len(kinds) > 0 {
		for range c.Skewed(0, 14) {
			f := kinds[c.Intn(len(kinds))](p, &c)
			p.Faults = append(p.Faults, f)
		}
	}
	p.PowerLossAtEnd = c.Chance(400)
	if c.Chance(100) {
		p.Brokers[0].DiskBytes = c.Skewed(1<<20, 64<<20)
	}
}

var faultMakers = []struct {
	chance int // in a thousand, that a world knows the kind
	draw   func(*Plan, *seed.Stream) Fault
}{
	{350, func(p *Plan, c *seed.Stream) Fault { return down(p, c, Kill) }},
	{350, func(p *Plan, c *seed.Stream) Fault { return down(p, c, PowerLoss) }},
	{200, func(p *Plan, c *seed.Stream) Fault { return down(p, c, CleanStop) }},
	{200, func(p *Plan, c *seed.Stream) Fault { return down(p, c, Pause) }},
	{300, func(p *Plan, c *seed.Stream) Fault { return crashRule(p, c, simdisk.Crash) }},
	{300, func(p *Plan, c *seed.Stream) Fault { return crashRule(p, c, simdisk.PowerCut) }},
	{120, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpSyncs, simdisk.IOError) }},
	{60, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpSyncs, simdisk.IOErrorStale) }},
	{80, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpWrite, simdisk.IOError) }},
	{60, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpAll, simdisk.IOError) }},
	{100, func(p *Plan, c *seed.Stream) Fault {
		return errorRule(p, c, simdisk.OpWrite|simdisk.OpAllocate|simdisk.OpOpen, simdisk.NoSpace)
	}},
	{100, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpWrite, simdisk.Short) }},
	{150, func(p *Plan, c *seed.Stream) Fault { return slowRule(p, c) }},
	{100, func(p *Plan, c *seed.Stream) Fault { return down(p, c, DiskFull) }},
	{60, func(p *Plan, c *seed.Stream) Fault { return down(p, c, BitRot) }},
	{40, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpWrite, simdisk.Misdirect) }},
	{40, func(p *Plan, c *seed.Stream) Fault { return errorRule(p, c, simdisk.OpRead, simdisk.RotRead) }},
	{300, func(p *Plan, c *seed.Stream) Fault { return down(p, c, Reset) }},
	{250, func(p *Plan, c *seed.Stream) Fault { return down(p, c, Clog) }},
	{150, func(p *Plan, c *seed.Stream) Fault { return down(p, c, SlowNet) }},
	{150, func(p *Plan, c *seed.Stream) Fault { return down(p, c, WallJump) }},
}

func down(p *Plan, c *seed.Stream, kind FaultKind) Fault {
	f := Fault{Kind: kind, Seed: c.Uint64(), Broker: c.Intn(len(p.Brokers)), Client: -1}
	f.At = time.Duration(c.Below(uint64(p.Duration)))
	f.For = time.Duration(c.Skewed(int64(time.Millisecond), int64(5*time.Second)))
	switch kind {
	case Reset, Clog:
		if c.Chance(700) {
			f.Client = c.Intn(len(p.Clients))
		}
	case SlowNet:
		f.For = time.Duration(c.Skewed(int64(10*time.Millisecond), int64(3*time.Second)))
	case WallJump:
		f.For = time.Duration(c.Skewed(int64(time.Millisecond), int64(2*time.Hour)))
		if c.Chance(500) {
			f.For = -f.For
		}
	}
	return f
}

func crashRule(p *Plan, c *seed.Stream, effect simdisk.Effect) Fault {
	f := errorRule(p, c, simdisk.OpAll, effect)
	f.For = time.Duration(c.Skewed(int64(time.Millisecond), int64(2*time.Second)))
	switch c.Intn(4) {
	case 0:
		f.Rule.Op = simdisk.OpChanges
	case 1:
		f.Rule.Op = simdisk.OpSyncs
	case 2:
		f.Rule.Op = simdisk.OpRename | simdisk.OpRemove | simdisk.OpSyncDir | simdisk.OpOpen
	}
	if f.Rule.Times = 0; c.Chance(200) {
		f.Rule.Times = int(c.Skewed(1, 8)) // a crash loop: each life dies in its first such call
	}
	return f
}

func errorRule(p *Plan, c *seed.Stream, op simdisk.Op, effect simdisk.Effect) Fault {
	f := down(p, c, DiskRule)
	f.Rule = simdisk.Rule{Op: op, Nth: int(c.Skewed(1, 300)), Effect: effect, Seed: c.Uint64()}
	if c.Chance(200) {
		f.Rule.Times = int(c.Skewed(1, 20))
	}
	return f
}

func slowRule(p *Plan, c *seed.Stream) Fault {
	f := errorRule(p, c, simdisk.OpSyncs|simdisk.OpWrite, simdisk.Slow)
	f.Rule.Times = int(c.Skewed(1, 100))
	f.Rule.Delay = time.Duration(c.Skewed(int64(time.Millisecond), int64(3*time.Second)))
	return f
}
