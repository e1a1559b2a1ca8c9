package main

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// told makes a member of what it told.
func told(name string, ended int64, events ...event) *life {
	return &life{name: name, ended: ended, events: events}
}

func has(at int64) event    { return event{At: at, Kind: assigned, Partitions: []int32{0}} }
func gives(at int64) event  { return event{At: at, Kind: revoked, Partitions: []int32{0}} }
func losing(at int64) event { return event{At: at, Kind: lost, Partitions: []int32{0}} }

// gets is records from an offset on; the value at offset n is 100 + n.
func gets(at, offset int64, n int) event {
	e := event{At: at, Kind: polled, Offset: offset}
	for i := range n {
		e.Values = append(e.Values, 100+offset+int64(i))
	}
	return e
}

func commits(at, number, offset int64) event {
	return event{At: at, Kind: committing, Commit: number, Commits: map[int32]int64{0: offset}}
}
func acks(at, number int64) event { return event{At: at, Kind: committed, Commit: number} }
func refuses(at, number int64) event {
	return event{At: at, Kind: committed, Commit: number, Error: "ILLEGAL_GENERATION"}
}

func sees(from, to, offset int64) look { return look{from, to, map[int32]int64{0: offset}} }

func TestCheckGroup(t *testing.T) {
	frozen := func(l *life, from, to int64) *life {
		l.pauses = append(l.pauses, span{from, to})
		return l
	}
	gap := gets(20, 0, 3)
	gap.Offsets, gap.Values = []int64{0, 2, 3}, []int64{100, 102, 103}
	odd := gets(20, 0, 4)
	odd.Values[2] = 7
	whole := told("whole", 0, has(10), gets(20, 0, 4))
	first := told("a", 0, has(10), gets(20, 0, 2), commits(30, 1, 2), acks(40, 1), gives(50))
	for name, c := range map[string]struct {
		lives []*life
		looks []look
		wrong string
	}{
		"handed over":             {[]*life{first, told("b", 0, has(60), gets(70, 2, 2))}, []look{sees(5, 6, 0), sees(32, 35, 0), sees(41, 42, 2)}, ""},
		"killed before it commit": {[]*life{told("a", 30, has(10), gets(20, 0, 3)), told("b", 0, has(60), gets(70, 0, 4))}, nil, ""},
		"killed in its commit, which did": {[]*life{told("a", 35, has(10), gets(20, 0, 2), commits(30, 1, 2)), told("b", 0, has(60), gets(70, 2, 2))},
			[]look{sees(61, 62, 2)}, ""},
		"frozen and replaced":       {[]*life{frozen(told("a", 0, has(10), gets(20, 0, 1), gives(90)), 30, 80), told("b", 0, has(60), gets(70, 0, 4))}, nil, ""},
		"removed and told":          {[]*life{told("a", 0, has(10), gets(20, 0, 1), losing(90)), told("b", 0, has(60), gets(70, 0, 4))}, nil, ""},
		"a record is missing":       {[]*life{told("a", 0, has(10), gets(20, 0, 3))}, nil, "1 records of partition 0 came to no member, the first at offset 3"},
		"nothing came":              {nil, nil, "4 records of partition 0 came to no member"},
		"a gap within an answer":    {[]*life{told("a", 0, has(10), gap), whole}, nil, "got offset 2 of partition 0 where 1 is next"},
		"a gap between answers":     {[]*life{told("a", 0, has(10), gets(20, 0, 1), gets(30, 2, 2)), whole}, nil, "got offset 2 of partition 0 where 1 is next"},
		"twice in one assignment":   {[]*life{told("a", 0, has(10), gets(20, 0, 3), gets(30, 2, 2))}, nil, "got offset 2 of partition 0 where 3 is next"},
		"another value":             {[]*life{told("a", 0, has(10), odd), whole}, nil, "got value 7 at offset 2"},
		"beyond the end":            {[]*life{told("a", 0, has(10), gets(20, 0, 5))}, nil, "got value 104 at offset 4"},
		"not its own":               {[]*life{told("a", 0, has(10), gets(20, 0, 4), gives(30), gets(40, 3, 1))}, nil, "which it has not"},
		"assigned what it has":      {[]*life{told("a", 0, has(10), has(12), gets(20, 0, 4))}, nil, "which has it"},
		"begins too low":            {[]*life{first, told("b", 0, has(60), gets(70, 0, 4))}, nil, "began partition 0 at offset 0, and 2 was committed"},
		"begins too high":           {[]*life{first, told("b", 0, has(60), gets(70, 3, 1)), whole}, nil, "began partition 0 at offset 3, which nobody had committed"},
		"begins where nobody ended": {[]*life{first, told("b", 0, has(60), gets(70, 1, 3))}, nil, "began partition 0 at offset 1, which nobody had committed"},
		"owned twice":               {[]*life{told("a", 0, has(10), gets(20, 0, 1), gives(90)), told("b", 0, has(60), gets(70, 0, 4))}, nil, "was assigned to b while a had it"},
		"frozen only later":         {[]*life{frozen(told("a", 0, has(10), gives(90)), 65, 80), told("b", 0, has(60), gets(70, 0, 4))}, nil, "was assigned to b while a had it"},
		"frozen only before":        {[]*life{frozen(told("a", 0, has(10), gives(90)), 5, 8), told("b", 0, has(60), gets(70, 0, 4))}, nil, "was assigned to b while a had it"},
		"killed only later":         {[]*life{told("a", 90, has(10)), told("b", 0, has(60), gets(70, 0, 4))}, nil, "was assigned to b while a had it"},
		"a zombie commits": {[]*life{frozen(told("a", 0, has(10), gets(20, 0, 1), commits(75, 1, 1), acks(78, 1), losing(90)), 30, 74), told("b", 0, has(60), gets(70, 0, 4))},
			nil, "a committed 1 for partition 0 after b was assigned it"},
		"a zombie is refused": {[]*life{frozen(told("a", 0, has(10), gets(20, 0, 1), commits(75, 1, 1), refuses(78, 1), losing(90)), 30, 74), told("b", 0, has(60), gets(70, 0, 4))},
			nil, ""},
		"a commit without a partition": {[]*life{whole, told("b", 0, commits(75, 1, 1), acks(78, 1))}, nil, "b committed 1 for partition 0, which it had not"},
		"a commit is lost":             {[]*life{first, told("b", 0, has(60), gets(70, 2, 2))}, []look{sees(45, 46, 0)}, "was committed up to 2, and then the coordinator has 0"},
		"a commit falls back":          {[]*life{first, told("b", 0, has(60), gets(70, 2, 2))}, []look{sees(32, 33, 2), sees(34, 35, 0)}, "was committed up to 2, and then up to 0"},
		"a commit of nobody":           {[]*life{first, told("b", 0, has(60), gets(70, 2, 2))}, []look{sees(5, 6, 2)}, "is committed up to 2, and nobody committed more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			v := checkGroup(&groupHistory{group: "g", lives: c.lives, looks: c.looks, truth: [][]int64{{100, 101, 102, 103}}})
			if c.wrong == "" {
				require.NoError(t, v.err())
				return
			}
			require.ErrorContains(t, v.err(), c.wrong)
		})
	}
}

func TestCheckGroupCounts(t *testing.T) {
	whole := told("whole", 0, has(100), gets(110, 0, 4))
	a := told("a", 0, has(10), gets(20, 0, 2), commits(30, 1, 0), refuses(40, 1), losing(120))
	b := told("b", 0, has(10), gets(20, 0, 2), gives(120))
	b.pauses = []span{{50, 115}}
	for _, c := range []struct {
		l    *life
		want groupVerdict
	}{
		{a, groupVerdict{delivered: 6, again: 2, refused: 1, owners: 2, twice: 1, awake: 1, lost: 1, lives: 2}},
		{b, groupVerdict{delivered: 6, again: 2, owners: 2, twice: 1, lives: 2}},
	} {
		v := checkGroup(&groupHistory{group: "g", lives: []*life{whole, c.l}, truth: [][]int64{{100, 101, 102, 103}}})
		require.Equal(t, c.want, v)
	}
}

func TestSteps(t *testing.T) {
	s := steps{{30, 2}, {10, 5}, {20, 3}, {40, 9}}
	s.sort()
	got := map[int64]int64{}
	for _, at := range []int64{5, 10, 11, 35, 40, 41} {
		got[at] = s.before(at)
	}
	require.True(t, maps.Equal(map[int64]int64{5: 0, 10: 0, 11: 5, 35: 5, 40: 5, 41: 9}, got), "%v", got)
}
