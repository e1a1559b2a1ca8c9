package group

import (
	"fmt"
	"slices"
	"testing"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawInput(t *rapid.T) *assignInput {
	in := &assignInput{}
	for i := range rapid.IntRange(0, 5).Draw(t, "topics") {
		in.topics = append(in.topics, assignTopic{core.TopicID{15: byte(i + 1)}, rapid.Int32Range(0, 9).Draw(t, "partitions")})
	}
	uneven := rapid.Bool().Draw(t, "uneven")
	for i := range rapid.IntRange(1, 8).Draw(t, "members") {
		m := assignMember{id: fmt.Sprint("m", i)}
		if rapid.Bool().Draw(t, "static") {
			m.instance = ptr(fmt.Sprint("i", 9-i))
		}
		for j := range in.topics {
			if !uneven || rapid.Bool().Draw(t, "reads") {
				m.topics = append(m.topics, j)
			}
		}
		in.members = append(in.members, m)
	}
	return in
}

// complete checks that every partition that somebody reads is given to one who reads it, and nothing else.
func complete(t require.TestingT, in *assignInput, out [][]core.Partition) {
	given := map[core.Partition]int{}
	for i, set := range out {
		require.True(t, slices.IsSortedFunc(set, core.Partition.Compare))
		for _, p := range set {
			given[p]++
			require.True(t, slices.ContainsFunc(in.members[i].topics, func(j int) bool { return in.topics[j].id == p.Topic }))
		}
	}
	n := 0
	for j, topic := range in.topics {
		if slices.ContainsFunc(in.members, func(m assignMember) bool { return slices.Contains(m.topics, j) }) {
			for p := range topic.n {
				require.Equal(t, 1, given[core.Partition{Topic: topic.id, Index: p}])
				n++
			}
		}
	}
	require.Len(t, given, n)
}

// balanced checks that no partition could move to a reader that has at least two fewer.
func balanced(t require.TestingT, in *assignInput, out [][]core.Partition) {
	for i, set := range out {
		for _, p := range set {
			for k, m := range in.members {
				if slices.ContainsFunc(m.topics, func(j int) bool { return in.topics[j].id == p.Topic }) {
					require.Less(t, len(out[i])-len(out[k]), 2, "%v of %s could go to %s", p, in.members[i].id, m.id)
				}
			}
		}
	}
}

func TestUniformAssignor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		out := assignUniform(in)
		complete(t, in, out)
		balanced(t, in, out)
		require.Equal(t, out, assignUniform(in), "the same again")
		for i := range in.members {
			in.members[i].before = out[i]
		}
		require.Equal(t, out, assignUniform(in), "nothing moves without a reason")
		if len(in.members) < 2 {
			return
		}
		gone := rapid.IntRange(0, len(in.members)-1).Draw(t, "gone")
		in.members = slices.Delete(in.members, gone, gone+1)
		after := assignUniform(in)
		complete(t, in, after)
		balanced(t, in, after)
		even := !slices.ContainsFunc(in.members, func(m assignMember) bool { return !slices.Equal(m.topics, in.members[0].topics) })
		for i, m := range in.members {
			if _, lost := split(m.before, after[i]); even {
				require.Empty(t, lost, "who stays keeps what it has")
			}
		}
	})
}

func TestUniformAssignorMovesNoMoreThanItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "members")
		in := &assignInput{topics: []assignTopic{{core.TopicID{1}, rapid.Int32Range(0, 60).Draw(t, "partitions")}}}
		for i := range n {
			in.members = append(in.members, assignMember{id: fmt.Sprint(i), topics: []int{0}})
		}
		out := assignUniform(in)
		for i := range in.members {
			in.members[i].before = out[i]
		}
		in.members = append(in.members, assignMember{id: "new", topics: []int{0}})
		after := assignUniform(in)
		moved := 0
		for i, m := range in.members[:n] {
			_, lost := split(m.before, after[i])
			moved += len(lost)
		}
		require.Equal(t, len(after[n]), moved, "only what the new one gets")
	})
}

func TestRangeAssignor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		out := assignRange(in)
		complete(t, in, out)
		require.Equal(t, out, assignRange(in))
	})
	id := func(b byte, n ...int32) (set []core.Partition) {
		for _, i := range n {
			set = append(set, core.Partition{Topic: core.TopicID{b}, Index: i})
		}
		return set
	}
	in := &assignInput{
		topics: []assignTopic{{core.TopicID{1}, 5}, {core.TopicID{2}, 5}},
		members: []assignMember{{id: "a", topics: []int{0, 1}}, {id: "b", topics: []int{0, 1}},
			{id: "c", instance: ptr("s"), topics: []int{0, 1}}},
	}
	require.Equal(t, [][]core.Partition{
		slices.Concat(id(1, 2, 3), id(2, 2, 3)), slices.Concat(id(1, 4), id(2, 4)), slices.Concat(id(1, 0, 1), id(2, 0, 1)),
	}, assignRange(in), "equal numbers come together, static members first")
}

func BenchmarkUniform1000x100(b *testing.B) {
	in := &assignInput{topics: []assignTopic{{core.TopicID{1}, 1000}}}
	for i := range 100 {
		in.members = append(in.members, assignMember{id: fmt.Sprintf("%03d", i), topics: []int{0}})
	}
	out := assignUniform(in)
	for i := range in.members {
		in.members[i].before = out[i]
	}
	for b.Loop() {
		assignUniform(in)
	}
}
