package quorum

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt with what happens now")

// TestTranscripts plays every file in testdata. Lines that begin with ">" are commands, those with "<" are what
// the cluster did on them, everything else is prose. See testdata/README for the commands.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			p := &player{}
			got := p.play(string(want))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			} else {
				require.Equal(t, string(want), got)
			}
			p.endWorld()
			require.Empty(t, p.failures)
		})
	}
}

// player plays one transcript.
type player struct {
	w        *world
	lines    []string // what the current command has made happen
	quiet    bool     // but for messages, saves and appends
	silent   bool     // and but for what is applied
	failures []string // of the checker
}

func (p *player) endWorld() {
	if p.w != nil {
		p.w.check.logMatching(p.w)
		p.failures = append(p.failures, p.w.check.failures...)
	}
}

func (p *player) play(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "<") {
			continue
		}
		out = append(out, line)
		if command, ok := strings.CutPrefix(line, "> "); ok {
			p.lines = nil
			p.command(command)
			for _, l := range p.lines {
				out = append(out, "< "+l)
			}
		}
	}
	return strings.Join(out, "\n") + "\n"
}

func (p *player) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.quiet && (strings.Contains(strings.Fields(line)[0], ">") || strings.Contains(line, " saves ") || strings.Contains(line, " appends ")) {
		return
	}
	if p.silent && strings.Contains(line, " applies ") {
		return
	}
	p.lines = append(p.lines, line)
}

// command carries out one command. A last word "quietly" leaves out messages, saves and appends, "silently" also what is applied.
func (p *player) command(line string) {
	words := strings.Fields(line)
	last := words[len(words)-1]
	p.silent = last == "silently"
	if p.quiet = last == "quietly" || p.silent; p.quiet {
		words = words[:len(words)-1]
	}
	name, args := words[0], words[1:]
	if name == "cluster" {
		p.begin(args)
		return
	}
	do, ok := commands[name]
	if !ok {
		p.say("unknown command %q", name)
		return
	}
	do(p, args)
}

// begin makes a cluster: "cluster 3", "cluster 3 observers 1"; with "down" at the end its nodes wait for "restart".
func (p *player) begin(args []string) {
	last := len(args) - 1
	down := args[last] == "down"
	if down {
		args = args[:last]
	}
	observers := 0
	if len(args) == 3 {
		observers = number(args[2])
	}
	p.endWorld()
	p.w = newWorld(7, number(args[0]), observers, p.say)
	for _, n := range p.w.nodes {
		if !down {
			n.start()
		}
	}
}

// playPreset gives a node that is down a log of one-record batches, of which the epochs are named: "preset 3 1 1 2", and
// perhaps a later term: "preset 3 1 1 2 term=4".
func playPreset(p *player, a []string) {
	n := p.nodes(a[:1])[0]
	for i, word := range a[1:] {
		if term, ok := strings.CutPrefix(word, "term="); ok {
			n.disk.hard = HardState{Term: int32(number(term)), Vote: None}.Encode()
			continue
		}
		b := record.NewBuilder()
		b.BaseOffset, b.LeaderEpoch = int64(i), int32(number(word))
		batch, err := b.Add(record.Record{Value: fmt.Appendf(nil, "e%d.%d", b.LeaderEpoch, i)}).Build()
		if err != nil {
			panic(err)
		}
		n.disk.batches = append(n.disk.batches, batch)
		n.disk.hard = HardState{Term: b.LeaderEpoch, Vote: None}.Encode()
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// link parses "1>2".
func link(s string) [2]int32 {
	from, to, ok := strings.Cut(s, ">")
	if !ok {
		panic("not a link: " + s)
	}
	return [2]int32{int32(number(from)), int32(number(to))}
}

// links parses "1>2", and "1-2" as both ways.
func links(args []string) (all [][2]int32) {
	for _, s := range args {
		if a, b, both := strings.Cut(s, "-"); both {
			all = append(all, link(a+">"+b), link(b+">"+a))
		} else {
			all = append(all, link(s))
		}
	}
	return all
}

func (p *player) nodes(args []string) (all []*node) {
	for _, s := range args {
		all = append(all, p.w.node(int32(number(s))))
	}
	return all
}

// next takes the oldest message on a link off the network.
func (p *player) next(l [2]int32) *packet {
	for _, m := range p.w.net {
		if m.from == l[0] && m.to == l[1] {
			return m
		}
	}
	p.say("nothing is on its way from %d to %d", l[0], l[1])
	return nil
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

var commands map[string]func(p *player, args []string)

func init() {
	commands = map[string]func(p *player, args []string){
		"settle": func(p *player, _ []string) { p.w.settle() },
		"run":    func(p *player, a []string) { p.w.run(duration(a[0])) },
		"pass":   func(p *player, a []string) { p.w.now = p.w.now.Add(duration(a[0])) },
		"tick": func(p *player, a []string) {
			for _, n := range p.nodes(a) {
				n.do(func(out *Out) { n.q.Tick(p.w.now, out) })
			}
		},
		"timeout": func(p *player, a []string) {
			for _, n := range p.nodes(a) {
				n.q.electionAt = p.w.now
				n.do(func(out *Out) { n.q.Tick(p.w.now, out) })
			}
		},
		"deliver": func(p *player, a []string) {
			for _, l := range links(a) {
				if m := p.next(l); m != nil {
					p.w.deliver(m)
				}
			}
		},
		"duplicate": func(p *player, a []string) {
			for _, l := range links(a) {
				if m := p.next(l); m != nil {
					again := *m
					p.w.net = append(p.w.net, &again)
				}
			}
		},
		"drop": func(p *player, a []string) {
			for _, l := range links(a) {
				if m := p.next(l); m != nil {
					p.w.cut[l] = true
					p.w.deliver(m)
					delete(p.w.cut, l)
				}
			}
		},
		"cut":     func(p *player, a []string) { setLinks(p.w.cut, a, true) },
		"heal":    func(p *player, a []string) { setLinks(p.w.cut, a, false) },
		"hold":    func(p *player, a []string) { setLinks(p.w.held, a, true) },
		"release": func(p *player, a []string) { setLinks(p.w.held, a, false) },
		"slow":    func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.slow = true }) },
		"fast": func(p *player, a []string) {
			p.eachDisk(a, func(n *node) {
				n.slow = false
				n.do(func(*Out) {})
			})
		},
		"full": func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.disk.broken = true }) },
		"room": func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.disk.broken = false }) },
		"save": func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.diskStep(1) }) },
		"write": func(p *player, a []string) {
			p.eachDisk(a, func(n *node) {
				for n.diskStep(2) {
				}
			})
		},
		"sync":  func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.diskStep(3) }) },
		"store": func(p *player, a []string) { p.eachDisk(a, func(n *node) { n.diskStep(4) }) },
		"crash": func(p *player, a []string) {
			for _, n := range p.nodes(a) {
				n.stop(false, 0)
				p.w.closed(n.id)
			}
		},
		"powercut": func(p *player, a []string) {
			for _, n := range p.nodes(a) {
				n.stop(true, 0)
			}
		},
		"restart": func(p *player, a []string) {
			for _, n := range p.nodes(a) {
				n.start()
			}
		},
		"preset":  playPreset,
		"propose": playPropose,
		"resign": func(p *player, a []string) {
			p.eachDisk(a, func(n *node) { n.do(func(o *Out) { n.q.Resign(p.w.now, o) }) })
		},
		"snapshot": playSnapshot,
		"logs":     func(p *player, a []string) { p.eachDisk(a, p.showLog) },
		"images":   func(p *player, a []string) { p.eachDisk(a, p.showImage) },
		"status":   func(p *player, a []string) { p.eachDisk(a, p.showStatus) },
	}
}

func setLinks(m map[[2]int32]bool, args []string, v bool) {
	if len(args) == 0 {
		clear(m)
	}
	for _, l := range links(args) {
		m[l] = v
	}
}

// eachDisk does something with the nodes named, or all.
func (p *player) eachDisk(args []string, do func(*node)) {
	nodes := p.nodes(args)
	if len(args) == 0 {
		nodes = p.w.nodes
	}
	for _, n := range nodes {
		do(n)
	}
}

// playPropose proposes values as one batch: "propose 1 a b".
func playPropose(p *player, a []string) {
	n := p.nodes(a[:1])[0]
	var values [][]byte
	for _, v := range a[1:] {
		values = append(values, []byte(v))
	}
	var err error
	n.do(func(out *Out) { _, err = n.q.Propose(p.w.now, 0, values, out) })
	if err != nil {
		p.say("%d refuses: %v", n.id, err)
	}
}

func playSnapshot(p *player, a []string) {
	for _, n := range p.nodes(a) {
		if err := n.takeSnapshot(); err != nil {
			p.say("%d refuses: %v", n.id, err)
		}
	}
}

// showLog shows what is in a log's file; what lies after "|" is not durable.
func (p *player) showLog(n *node) {
	d := &n.disk
	text := fmt.Sprintf("%d: from %d: %s", n.id, d.start, describeBatches(d.batches[:d.synced]))
	if d.synced < len(d.batches) {
		text += " | " + describeBatches(d.batches[d.synced:])
	}
	p.lines = append(p.lines, strings.TrimRight(text, " "))
}

func (p *player) showImage(n *node) {
	p.lines = append(p.lines, fmt.Sprintf("%d: %s", n.id, strings.Join(strings.Fields(strings.Join(n.image, " ")), " ")))
}

func (p *player) showStatus(n *node) {
	if n.q == nil {
		p.lines = append(p.lines, fmt.Sprintf("%d: down", n.id))
		return
	}
	id, term := n.q.Leader()
	p.lines = append(p.lines, fmt.Sprintf("%d: %v, term %d, leader %s, end %d, high watermark %d",
		n.id, n.q.role, term, who(id), n.q.log.end, n.q.hw))
}
