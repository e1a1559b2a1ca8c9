package quorum

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of TestRandom")
	seeds     = flag.Uint64("seeds", 200, "number of seeds of TestRandom")
	verbose   = flag.Bool("story", false, "print what happens in TestRandom")
)

// TestRandom lets clusters of one to five voters and up to two observers live through lost, doubled, delayed and
// overtaking messages, crashes, power cuts with the loss of what was not synced, full disks, cut links, clean handovers
// and snapshots, each seed with its own mixture, and checks every step. At the end all is healed, and the
// cluster has to go on and agree.
func TestRandom(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		story := runSeed(seed)
		if len(story.w.check.failures) > 0 {
			if *verbose {
				fmt.Println(strings.Join(story.lines, "\n"))
			}
			require.Empty(t, story.w.check.failures, "go test ./core/quorum -run TestRandom -seeds 1 -story -seed %d", seed)
		}
	}
}

// story is one seed's run.
type story struct {
	w       *world
	lines   []string
	weights []int
	values  int
}

func (s *story) say(format string, args ...any) {
	if *verbose {
		s.lines = append(s.lines, fmt.Sprintf("%6d ", time.Duration(s.w.now).Milliseconds())+fmt.Sprintf(format, args...))
	}
}

func runSeed(seed uint64) *story {
	s := &story{}
	s.w = newWorld(seed, 1, 0, s.say)
	voters, observers := []int{1, 2, 3, 3, 3, 4, 5, 5}[s.w.rng.IntN(8)], s.w.rng.IntN(3)
	s.w = newWorld(seed, voters, observers, s.say)
	s.w.cfg.SnapshotBytes = 100
	for _, n := range s.w.nodes {
		n.slow = true
		if s.w.rng.IntN(4) > 0 {
			n.start() // the others come later
		}
	}
	for i, a := range actions {
		weight := 3 * a.weight
		if i >= mandatory {
			weight = s.w.rng.IntN(4) * a.weight
		}
		s.weights = append(s.weights, weight)
	}
	for i := range 1500 {
		s.step()
		if i%25 == 0 {
			s.w.check.logMatching(s.w)
		}
		if len(s.w.check.failures) > 0 {
			return s
		}
	}
	s.heal()
	return s
}

func (s *story) step() {
	total := 0
	for _, w := range s.weights {
		total += w
	}
	pick := s.w.rng.IntN(total)
	for i, w := range s.weights {
		if pick -= w; pick < 0 {
			actions[i].do(s, s.w.nodes[s.w.rng.IntN(len(s.w.nodes))])
			return
		}
	}
}

// mandatory is how many of the actions every seed has; of the others each seed has more or less.
const mandatory = 6

var actions = []struct {
	weight int
	do     func(*story, *node)
}{
	{300, func(s *story, _ *node) {
		for range 1 + s.w.rng.IntN(6) {
			s.message(0, s.w.deliver)
		}
	}},
	{250, func(s *story, n *node) {
		for range 1 + s.w.rng.IntN(6) {
			n.diskStep(1 + s.w.rng.IntN(4))
		}
	}},
	{20, func(s *story, n *node) { n.diskStep(1) }},
	{150, func(s *story, _ *node) { s.w.advance(s.w.now.Add(time.Duration(s.w.rng.IntN(30)) * time.Millisecond)) }},
	{40, (*story).propose},
	{8, func(_ *story, n *node) {
		if n.q == nil {
			if n.id > int32(len(n.w.cfg.Voters)) && n.w.rng.IntN(2) == 0 {
				n.disk = disk{} // an observer has promised nothing, and may come back with an empty disk
			}
			n.start()
		}
	}},
	{3, (*story).crash},
	{6, (*story).turmoil},
	{60, func(s *story, _ *node) { s.message(s.w.rng.IntN(max(len(s.w.net), 1)), s.w.deliver) }},
	{20, func(s *story, _ *node) { s.message(s.w.rng.IntN(max(len(s.w.net), 1)), s.drop) }},
	{20, func(s *story, _ *node) {
		s.message(s.w.rng.IntN(max(len(s.w.net), 1)), func(p *packet) {
			again := *p
			s.w.net = append(s.w.net, &again)
		})
	}},
	{3, func(s *story, _ *node) { s.cutLinks() }},
	{4, func(s *story, _ *node) { clear(s.w.cut) }},
	{3, func(s *story, n *node) { s.w.closed(n.id) }},
	{3, func(_ *story, n *node) { n.disk.broken = !n.disk.broken }},
	{2, func(s *story, n *node) { n.do(func(out *Out) { n.q.Resign(s.w.now, out) }) }},
	{15, func(s *story, n *node) {
		if n.q != nil && n.q.Tip().Offset > n.q.LatestSnapshot().Offset && n.q.saving == nil {
			if err := n.takeSnapshot(); err != nil {
				s.w.check.fail("node %d: %v", n.id, err)
			}
		}
	}},
	{2, func(s *story, n *node) { // a long silence
		s.w.now = s.w.now.Add(time.Duration(s.w.rng.IntN(1500)) * time.Millisecond)
	}},
}

func (s *story) message(i int, do func(*packet)) {
	if i < len(s.w.net) {
		do(s.w.net[i])
	}
}

func (s *story) drop(p *packet) {
	at := slices.Index(s.w.net, p)
	s.w.net = slices.Delete(s.w.net, at, at+1)
	s.w.fail(p, time.Duration(s.w.rng.IntN(300))*time.Millisecond)
}

func (s *story) propose(_ *node) {
	for _, n := range s.w.nodes {
		if n.q == nil || n.q.role != leader {
			continue
		}
		var values [][]byte
		for range 1 + s.w.rng.IntN(3) {
			s.values++
			values = append(values, fmt.Appendf(nil, "v%d", s.values))
		}
		n.do(func(out *Out) { n.q.Propose(s.w.now, 0, values, out) })
	}
}

func (s *story) crash(n *node) {
	if n.q == nil {
		return
	}
	switch s.w.rng.IntN(3) {
	case 0:
		s.say("%d crashes", n.id)
		n.stop(false, 0)
		s.w.closed(n.id)
	case 1:
		s.say("%d loses power", n.id)
		n.stop(true, s.w.rng.IntN(3))
	default:
		s.say("all lose power")
		for _, n := range s.w.nodes {
			if n.q != nil {
				n.stop(true, s.w.rng.IntN(3))
			}
		}
	}
}

// turmoil makes some nodes impatient, and most forget that they have just heard a leader. Some stand for election
// without asking for pre-votes first: safety must not rest on those.
func (s *story) turmoil(_ *node) {
	direct := s.w.rng.IntN(2) == 0
	for _, n := range s.w.nodes {
		if n.q == nil {
			continue
		}
		if s.w.rng.IntN(4) > 0 && n.q.role != leader {
			n.q.heardAt = neverHeard
		}
		if s.w.rng.IntN(2) == 0 && n.q.role != leader && n.q.voter {
			n.q.electionAt = s.w.now
			n.do(func(out *Out) {
				if direct {
					n.q.campaign(s.w.now, out)
				} else {
					n.q.Tick(s.w.now, out)
				}
			})
		}
	}
}

func (s *story) cutLinks() {
	for _, a := range s.w.nodes {
		for _, b := range s.w.nodes {
			s.w.cut[[2]int32{a.id, b.id}] = s.w.rng.IntN(4) == 0
		}
	}
}

// heal ends all trouble; then the cluster has to have one leader, accept a record, and agree.
func (s *story) heal() {
	w := s.w
	s.say("all is healed")
	clear(w.cut)
	for _, n := range w.nodes {
		n.slow, n.disk.broken = false, false
		if n.q == nil {
			n.start()
		}
		n.do(func(*Out) {})
	}
	w.run(10 * time.Second)
	s.propose(nil)
	w.run(time.Second)
	w.check.logMatching(w)
	active := 0
	for _, n := range w.nodes {
		if _, ok := n.q.Leading(); ok {
			active++
		}
		if n.q.HighWatermark() != w.check.end() || n.q.log.end != w.check.end() {
			w.check.fail("node %d ends at %d with high watermark %d, committed is %d", n.id, n.q.log.end, n.q.hw, w.check.end())
		}
		if n.mem.checked != w.check.end() {
			w.check.fail("node %d: image only up to %d", n.id, n.mem.checked)
		}
	}
	last := fmt.Sprintf("v%d", s.values)
	if active != 1 || w.check.values[w.check.end()-1] != last {
		w.check.fail("%d active leaders, last value %q, proposed %q", active, w.check.values[w.check.end()-1], last)
	}
}
