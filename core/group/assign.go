package group

import (
	"bytes"
	"cmp"
	"slices"

	"lockstep/core"
)

// assignInput is what a server-side assignor decides from.
type assignInput struct {
	topics  []assignTopic  // sorted by name
	members []assignMember // sorted by id
}

type assignTopic struct {
	id core.TopicID
	n  int32 // partitions
}

type assignMember struct {
	id       string
	instance *string
	topics   []int            // that it reads, ascending
	before   []core.Partition // its last target, sorted
}

// assignors are the server-side assignors by name. Each returns, for each member, a sorted set; every partition of a topic that
// somebody reads is in exactly one of them. They depend on their input alone.
var assignors = map[string]func(*assignInput) [][]core.Partition{
	assignorUniform: assignUniform,
	assignorRange:   assignRange,
}

// assignRange gives each member a range of each of its topics, the same range where topics are alike, so that partitions of
// one number come together. Static members come first, by their instance ids: they get the same again when they return.
func assignRange(in *assignInput) [][]core.Partition {
	out := make([][]core.Partition, len(in.members))
	order := make([]int, len(in.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := in.members[a].instance, in.members[b].instance
		switch {
		case x != nil && y != nil:
			return cmp.Compare(*x, *y)
		case x != nil:
			return -1
		case y != nil:
			return 1
		}
		return 0 // by id, as they come
	})
	for t, topic := range in.topics {
		var readers []int
		for _, m := range order {
			if _, ok := slices.BinarySearch(in.members[m].topics, t); ok {
				readers = append(readers, m)
			}
		}
		from := int32(0)
		for i, m := range readers {
			share := topic.n / int32(len(readers))
			if int32(i) < topic.n%int32(len(readers)) {
				share++
			}
			for p := from; p < from+share; p++ {
				out[m] = append(out[m], core.Partition{Topic: topic.id, Index: p})
			}
			from += share
		}
	}
	for i := range out {
		out[i] = union(out[i], nil)
	}
	return out
}

// assignUniform gives each member as many partitions as any other, as far as their subscriptions allow, and moves no more of
// them than it must.
func assignUniform(in *assignInput) [][]core.Partition {
	for i := range in.members {
		if !slices.Equal(in.members[i].topics, in.members[0].topics) {
			return assignUneven(in)
		}
	}
	return assignEven(in)
}

// assignEven is the uniform assignor where all members read the same topics.
func assignEven(in *assignInput) [][]core.Partition {
	n := len(in.members)
	out := make([][]core.Partition, n)
	if n == 0 {
		return out
	}
	all := in.partitions(in.members[0].topics)
	low, extra := len(all)/n, len(all)%n
	given := make([][]int, n) // indexes into all
	taken := make([]bool, len(all))
	for i, m := range in.members {
		kept := indexes(m.before, all)
		quota := low
		if len(kept) > low && extra > 0 { // who has more keeps more, as long as some must have more
			quota++
			extra--
		}
		for _, j := range kept[:min(len(kept), quota)] {
			if !taken[j] {
				taken[j] = true
				given[i] = append(given[i], j)
			}
		}
	}
	want := quotas(given, low, len(all)%n)
	i := 0
	for j := range all {
		if taken[j] {
			continue
		}
		for len(given[i]) >= want[i] { // in turn, so that the partitions of a topic are spread
			i = (i + 1) % n
		}
		given[i] = append(given[i], j)
		i = (i + 1) % n
	}
	for i := range given {
		slices.Sort(given[i])
		for _, j := range given[i] {
			out[i] = append(out[i], all[j])
		}
	}
	return out
}

// quotas is how much each is to have in all: low, and one more where extra says so, which those that have it keep.
func quotas(given [][]int, low, extra int) []int {
	want := make([]int, len(given))
	for i := range given {
		if len(given[i]) > low {
			extra--
		}
	}
	for i := range given {
		want[i] = max(low, len(given[i]))
		if len(given[i]) <= low && extra > 0 {
			want[i]++
			extra--
		}
	}
	return want
}

// indexes returns where the elements of a sorted set are in another; those that are not there are left out.
func indexes(set, in []core.Partition) (out []int) {
	for _, p := range set {
		if j, ok := slices.BinarySearchFunc(in, p, core.Partition.Compare); ok {
			out = append(out, j)
		}
	}
	return out
}

// partitions returns all partitions of topics, sorted.
func (in *assignInput) partitions(topics []int) (all []core.Partition) {
	topics = slices.Clone(topics)
	slices.SortFunc(topics, func(a, b int) int { return bytes.Compare(in.topics[a].id[:], in.topics[b].id[:]) })
	for _, t := range topics {
		for p := range in.topics[t].n {
			all = append(all, core.Partition{Topic: in.topics[t].id, Index: p})
		}
	}
	return all
}

// choice is a partition, who may have it, and who has it, by their numbers.
type choice struct {
	core.Partition
	readers []int
	owner   int
}

// assignUneven is the uniform assignor where members read different topics: what nobody has goes to the reader that has least,
// and then partitions move as long as a reader has at least two fewer than the owner.
func assignUneven(in *assignInput) [][]core.Partition {
	choices := in.choices()
	counts := make([]int, len(in.members))
	least := func(readers []int) int {
		return slices.MinFunc(readers, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
	}
	for i := range choices {
		if x := &choices[i]; x.owner >= 0 {
			counts[x.owner]++
		}
	}
	for i := range choices {
		if x := &choices[i]; x.owner < 0 {
			x.owner = least(x.readers)
			counts[x.owner]++
		}
	}
	for moved := true; moved; { // each move makes the sum of squares smaller, so this ends
		moved = false
		for i := range choices {
			x := &choices[i]
			if m := least(x.readers); counts[x.owner]-counts[m] >= 2 {
				counts[x.owner]--
				counts[m]++
				x.owner, moved = m, true
			}
		}
	}
	out := make([][]core.Partition, len(in.members))
	for _, x := range choices {
		out[x.owner] = append(out[x.owner], x.Partition)
	}
	for i := range out {
		slices.SortFunc(out[i], core.Partition.Compare)
	}
	return out
}

// choices lists the partitions that somebody reads, those that few read first; the owner is who had it before, or -1.
func (in *assignInput) choices() (out []choice) {
	for t, topic := range in.topics {
		var readers []int
		for m := range in.members {
			if _, ok := slices.BinarySearch(in.members[m].topics, t); ok {
				readers = append(readers, m)
			}
		}
		for p := range topic.n {
			x := choice{core.Partition{Topic: topic.id, Index: p}, readers, -1}
			x.owner = slices.IndexFunc(readers, func(m int) bool { return has(in.members[m].before, x.Partition) })
			if x.owner >= 0 {
				x.owner = readers[x.owner]
			}
			if len(readers) > 0 {
				out = append(out, x)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b choice) int {
		return cmp.Or(cmp.Compare(len(a.readers), len(b.readers)), a.Compare(b.Partition))
	})
	return out
}
