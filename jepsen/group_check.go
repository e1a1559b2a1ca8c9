package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// groupHistory is what a group's members and who looked at it saw, and what the topic holds.
type groupHistory struct {
	group string
	lives []*life
	looks []look
	truth [][]int64 // by partition and offset: the value
}

// hold is a time in which a member had a partition, by what it was told.
type hold struct {
	l        *life
	from, to int64
	end      string // revoked, lost, or what ended the member's process
	first    int64  // the first offset that came, -1 if none did
	firstAt  int64
	next     int64
}

// ended is how a hold ends whose member's process did.
const ended = "its process ended"

// commit is one commit of a member. It took effect between from and to, if it did.
type commit struct {
	l        *life
	from, to int64
	ok       bool // it was acknowledged
	offsets  map[int32]int64
}

// groupVerdict is what a check found.
type groupVerdict struct {
	delivered, again int // records that came, and those of them that had come before
	commits, refused int
	owners           int // holds of partitions
	twice, awake     int // those that began while another that was removed did not know it, and of these others those not frozen
	lost             int // holds that ended as lost: by removal, or because the member reached no coordinator
	looks, lives     int
	wrong            []string
}

func (v *groupVerdict) err() error {
	if len(v.wrong) == 0 {
		return nil
	}
	const most = 20
	shown := v.wrong
	if len(shown) > most {
		shown = append(slices.Clone(shown[:most]), fmt.Sprintf("and %d more", len(shown)-most))
	}
	return errors.New(strings.Join(shown, "\n"))
}

func (v *groupVerdict) fault(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

// groupChecker goes through a history.
type groupChecker struct {
	*groupHistory
	v       groupVerdict
	seen    [][]int  // how often each record came
	holds   [][]hold // by partition
	commits []commit
	acked   []steps // by partition: the commits' offsets by when they were acknowledged
	tried   []steps // by when they began
	values  []map[int64]bool
}

// checkGroup says whether the history is one of a group. What it checks, for each partition:
//
//   - Every record that the topic holds was delivered, and what is delivered is what the topic holds.
//   - From its being assigned to its being given up, a member gets a partition's records in order and without gaps. It begins at an
//     offset that was committed (or at the start, if none was), and not below one whose commit was acknowledged before.
//   - A partition is assigned to a member only when no other has it: those that had it have given it up, have ended, or
//     were removed without their knowing. The last is allowed only if the member was frozen since it was assigned the partition, or
//     if the coordinator tells it (OnPartitionsLost) before it gives the partition up by itself.
//   - Whoever was removed so can do no harm: none of its commits of a partition is acknowledged that began after another
//     member was assigned it.
//   - What the group committed, as anybody reads it, never falls; it is at least what was acknowledged before it was asked, and at
//     most what some member had begun to commit.
//
// It does not check how soon anything happens, and it takes what a member tells for what it does.
func checkGroup(h *groupHistory) groupVerdict {
	n := len(h.truth)
	c := &groupChecker{groupHistory: h, seen: make([][]int, n), holds: make([][]hold, n), acked: make([]steps, n), tried: make([]steps, n),
		values: make([]map[int64]bool, n)}
	for p := range h.truth {
		c.seen[p], c.values[p] = make([]int, len(h.truth[p])), map[int64]bool{0: true}
	}
	for _, l := range h.lives {
		c.walk(l)
	}
	c.arrange()
	for p := range n {
		c.checkDelivered(p)
		c.checkStarts(p)
		c.checkOwners(p)
	}
	for i := range c.commits {
		c.checkCommit(&c.commits[i])
	}
	c.checkLooks()
	return c.v
}

// walk goes through what one member told.
func (c *groupChecker) walk(l *life) {
	open := map[int32]*hold{}
	under := map[int64]int{}
	shut := func(p int32, at int64, how string) {
		if h := open[p]; h != nil {
			h.to, h.end = at, how
			c.holds[p] = append(c.holds[p], *h)
			delete(open, p)
		}
	}
	for _, e := range l.events {
		switch e.Kind {
		case assigned:
			for _, p := range e.Partitions {
				if open[p] != nil {
					c.v.fault("%s: partition %d is assigned to %s, which has it", c.group, p, l.name)
				}
				open[p] = &hold{l: l, from: e.At, to: never, first: -1}
			}
		case revoked, lost:
			for _, p := range e.Partitions {
				shut(p, e.At, e.Kind)
			}
		case polled:
			c.deliver(l, open[e.Partition], e)
		case committing:
			under[e.Commit] = len(c.commits)
			c.commits = append(c.commits, commit{l: l, from: e.At, to: never, offsets: e.Commits})
		case committed:
			k := &c.commits[under[e.Commit]]
			k.to, k.ok = e.At, e.Error == ""
		}
	}
	for p := range int32(len(c.truth)) {
		shut(p, cmp.Or(l.ended, never), ended)
	}
}

// deliver checks records of one partition that came at once.
func (c *groupChecker) deliver(l *life, h *hold, e event) {
	p := e.Partition
	if h == nil {
		c.v.fault("%s: %s got records of partition %d, from offset %d, which it has not", c.group, l.name, p, e.Offset)
		return
	}
	for i, value := range e.Values {
		offset := e.Offset + int64(i)
		if e.Offsets != nil {
			offset = e.Offsets[i]
		}
		if h.first < 0 {
			h.first, h.firstAt = offset, e.At
		} else if offset != h.next {
			c.v.fault("%s: %s got offset %d of partition %d where %d is next", c.group, l.name, offset, p, h.next)
		}
		h.next = offset + 1
		if offset < 0 || offset >= int64(len(c.truth[p])) || c.truth[p][offset] != value {
			c.v.fault("%s: %s got value %d at offset %d of partition %d, which holds another or none", c.group, l.name, value, offset, p)
			continue
		}
		if c.v.delivered++; c.seen[p][offset] > 0 {
			c.v.again++
		}
		c.seen[p][offset]++
	}
}

// steps are offsets by instant; after sort each is the highest so far.
type steps []step

type step struct{ at, offset int64 }

func (s steps) sort() {
	slices.SortFunc(s, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(s); i++ {
		s[i].offset = max(s[i].offset, s[i-1].offset)
	}
}

// before is the highest offset of a step before an instant, 0 if there is none.
func (s steps) before(at int64) int64 {
	i, _ := slices.BinarySearchFunc(s, at, func(x step, at int64) int { return cmp.Compare(x.at, at) })
	if i == 0 {
		return 0
	}
	return s[i-1].offset
}

func (c *groupChecker) arrange() {
	for i := range c.commits {
		k := &c.commits[i]
		if k.ok {
			c.v.commits++
		} else if k.to != never {
			c.v.refused++
		}
		for p, offset := range k.offsets {
			c.values[p][offset] = true
			c.tried[p] = append(c.tried[p], step{k.from, offset})
			if k.ok {
				c.acked[p] = append(c.acked[p], step{k.to, offset})
			}
		}
	}
	for p := range c.truth {
		c.acked[p].sort()
		c.tried[p].sort()
		slices.SortFunc(c.holds[p], func(a, b hold) int { return cmp.Compare(a.from, b.from) })
		c.v.owners += len(c.holds[p])
	}
}

func (c *groupChecker) checkDelivered(p int) {
	missing, first := 0, 0
	for offset, n := range c.seen[p] {
		if n == 0 {
			if missing == 0 {
				first = offset
			}
			missing++
		}
	}
	if missing > 0 {
		c.v.fault("%s: %d records of partition %d came to no member, the first at offset %d", c.group, missing, p, first)
	}
}

// checkStarts checks where members began to read.
func (c *groupChecker) checkStarts(p int) {
	for i := range c.holds[p] {
		h := &c.holds[p][i]
		if h.first < 0 {
			continue
		}
		if least := c.acked[p].before(h.from); h.first < least {
			c.v.fault("%s: %s began partition %d at offset %d, and %d was committed before it was assigned it", c.group, h.l.name, p, h.first, least)
		}
		if most := c.tried[p].before(h.firstAt); h.first > most || !c.values[p][h.first] {
			c.v.fault("%s: %s began partition %d at offset %d, which nobody had committed", c.group, h.l.name, p, h.first)
		}
	}
}

// frozen says whether a member was frozen while it had a partition, before an instant.
func (h *hold) frozen(before int64) bool {
	return slices.ContainsFunc(h.l.pauses, func(s span) bool { return s.from < before && s.to > h.from })
}

// checkOwners looks for holds that overlap.
func (c *groupChecker) checkOwners(p int) {
	holds := c.holds[p]
	for i := range holds {
		a := &holds[i]
		if a.end == lost {
			c.v.lost++
		}
		for j := i + 1; j < len(holds) && holds[j].from < a.to; j++ {
			b := &holds[j]
			if b.l == a.l {
				continue
			}
			c.v.twice++
			if a.frozen(b.from) {
				continue
			}
			if c.v.awake++; a.end != lost {
				c.v.fault("%s: partition %d was assigned to %s while %s had it, for another %.3f s until: %s", c.group, p, b.l.name, a.l.name,
					float64(a.to-b.from)/1e9, a.end)
			}
		}
	}
}

// checkCommit checks that an acknowledged commit came from whoever had the partitions last.
func (c *groupChecker) checkCommit(k *commit) {
	if !k.ok {
		return
	}
	for p, offset := range k.offsets {
		holds := c.holds[p]
		own := slices.IndexFunc(holds, func(h hold) bool { return h.l == k.l && h.from <= k.from && k.from <= h.to })
		if own < 0 {
			c.v.fault("%s: %s committed %d for partition %d, which it had not", c.group, k.l.name, offset, p)
			continue
		}
		for j := own + 1; j < len(holds) && holds[j].from < k.from; j++ {
			if holds[j].l != k.l {
				c.v.fault("%s: %s committed %d for partition %d after %s was assigned it", c.group, k.l.name, offset, p, holds[j].l.name)
			}
		}
	}
}

// checkLooks checks what was read of the group's commits, by one reader after the other.
func (c *groupChecker) checkLooks() {
	c.v.looks, c.v.lives = len(c.looks), len(c.lives)
	high := make([]int64, len(c.truth))
	for _, o := range c.looks {
		for p := range c.truth {
			at := o.offsets[int32(p)] // 0 if nothing was committed
			if at < high[p] {
				c.v.fault("%s: partition %d was committed up to %d, and then up to %d", c.group, p, high[p], at)
			}
			if least := c.acked[p].before(o.from); at < least {
				c.v.fault("%s: partition %d was committed up to %d, and then the coordinator has %d", c.group, p, least, at)
			}
			if most := c.tried[p].before(o.to); at > most {
				c.v.fault("%s: partition %d is committed up to %d, and nobody committed more than %d", c.group, p, at, most)
			}
			high[p] = max(high[p], at)
		}
	}
}
