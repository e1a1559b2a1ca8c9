package controller

import (
	"fmt"
	"slices"
)

// placer assigns replicas to the partitions of one topic, one after another. It
// goes round the brokers, so that leaderships are even, and shifts the
// followers a little further each round, so that the followers of one broker's
// partitions are spread over all the others. Brokers of different racks
// alternate in the ring, and a replica goes to a rack that has none yet while
// there is one. Brokers that are fenced or stopping are taken only where the others are too few.
type placer struct {
	live, rest []*Broker // rings
	next       int       // of the next partition's first replica in live
	shift      int
	count      int // partitions assigned
}

// newPlacer starts at a random broker, so that one-partition topics do not all begin at the same.
func (c *Controller) newPlacer() *placer {
	var live, rest []*Broker
	for b := range c.spec.Brokers() {
		if b.Active() {
			live = append(live, b)
		} else {
			rest = append(rest, b)
		}
	}
	p := &placer{live: ring(live), rest: ring(rest)}
	if n := uint64(len(live)); n > 0 {
		p.next = int(c.settings.Rand.Uint64() % n)
		p.shift = int(c.settings.Rand.Uint64() % n)
	}
	return p
}

// ring orders brokers so that neighbours are of different racks where possible: one of each rack in turn.
func ring(brokers []*Broker) []*Broker {
	var racks []string
	for _, b := range brokers {
		if !slices.Contains(racks, b.Rack) {
			racks = append(racks, b.Rack)
		}
	}
	slices.Sort(racks)
	var out []*Broker
	for round := 0; len(out) < len(brokers); round++ {
		for _, rack := range racks {
			n := 0
			for _, b := range brokers {
				if b.Rack != rack {
					continue
				}
				if n == round {
					out = append(out, b)
				}
				n++
			}
		}
	}
	return out
}

// check reports in words why a partition cannot have so many replicas, or "".
func (p *placer) check(replicas int) string {
	switch n := len(p.live) + len(p.rest); {
	case replicas < 1:
		return "Replication factor must be at least 1, or -1 for the default."
	case replicas > n:
		return fmt.Sprintf("Replication factor %d is more than the %d registered brokers.", replicas, n)
	case len(p.live) == 0:
		return "No broker is alive that could lead the partition."
	}
	return ""
}

// place returns the replicas of the next partition, the preferred leader first. check has passed.
func (p *placer) place(replicas int) []int32 {
	if p.count > 0 && p.count%len(p.live) == 0 {
		p.shift++
	}
	first := p.live[p.next%len(p.live)]
	chosen := []*Broker{first}
	others := rotate(p.live, p.next+1)[:len(p.live)-1]
	chosen = pick(chosen, rotate(others, p.shift), replicas)
	chosen = pick(chosen, rotate(p.rest, p.next+p.shift), replicas)
	p.next++
	p.count++
	ids := make([]int32, len(chosen))
	for i, b := range chosen {
		ids[i] = b.ID
	}
	return ids
}

// rotate returns the ring begun at position n.
func rotate(ring []*Broker, n int) []*Broker {
	if len(ring) == 0 {
		return nil
	}
	n %= len(ring)
	return slices.Concat(ring[n:], ring[:n])
}

// pick adds candidates in their order until there are enough: first those whose rack has no replica yet, then those
// whose rack has the fewest.
func pick(chosen, candidates []*Broker, want int) []*Broker {
	for len(chosen) < want {
		best, bestUsed := -1, 0
		for i, b := range candidates {
			if slices.Contains(chosen, b) {
				continue
			}
			used := 0
			for _, x := range chosen {
				if x.Rack == b.Rack {
					used++
				}
			}
			if best < 0 || used < bestUsed {
				best, bestUsed = i, used
			}
		}
		if best < 0 {
			break
		}
		chosen = append(chosen, candidates[best])
	}
	return chosen
}
