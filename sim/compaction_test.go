package sim

import (
	"testing"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCompactionHappens: in worlds that know of compaction it comes to pass, again and again, in all its parts; a count that
// stays zero is a defect of the simulator.
func TestCompactionHappens(t *testing.T) {
	var sum Stats
	for s, worlds := uint64(1), 0; worlds < 30; s++ {
		p := short.Plan(s)
		if !p.compacts() {
			continue
		}
		worlds++
		r := RunPlan(p, Options{})
		require.Nil(t, r.Failure, "seed %d", s)
		sum.Add(&r.Stats)
	}
	t.Logf("%d runs, left %d times, %d cut, %d records taken away, %d tombstones, %d not seen", sum.Passes, sum.PassSteps, sum.PassesCut, sum.Compacted, sum.Buried, sum.Holes)
	require.Greater(t, sum.Passes, int64(100))
	require.Greater(t, sum.PassSteps, sum.Passes, "other things come in between")
	require.Greater(t, sum.Compacted, int64(1000))
	require.Greater(t, sum.Buried, int64(10))
	require.Greater(t, sum.Holes, int64(100))
	require.Positive(t, sum.PassesCut)
}

func (p *Plan) compacts() bool {
	for i := range p.Topics {
		if p.Topics[i].Keys > 0 {
			return true
		}
	}
	return false
}

// TestCompactionIsDrawnApart: a world without compaction is what it was before there was any, and in one with it what is drawn
// elsewhere is the same.
func TestCompactionIsDrawnApart(t *testing.T) {
	with := 0
	for s := uint64(1); s <= 200; s++ {
		p, q := drawPlain(s, 0), Draw(s)
		if q.compacts() || q.Cleaner.Offsets {
			with++
		} else {
			require.Equal(t, p, q)
		}
		require.Equal(t, p.Clients, q.Clients)
		for i := range p.Faults {
			require.Equal(t, p.Faults[i], q.Faults[i])
		}
	}
	require.InDelta(t, 100, with, 40)
}

// TestOutlived: a tombstone may go after its delete horizon by the earliest run that can have set that, and not before.
func TestOutlived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := compacted{retention: rapid.Int64Range(0, 20).Draw(t, "retention")}
		var runs []passAt
		for range rapid.IntRange(0, 12).Draw(t, "runs") {
			at := passAt{rapid.Int64Range(0, 20).Draw(t, "limit"), rapid.Int64Range(0, 50).Draw(t, "wall")}
			runs = append(runs, at)
			c.note(at)
		}
		for offset := range int64(22) {
			for wall := range int64(80) {
				want := false
				for _, at := range runs {
					want = want || at.limit > offset && wall > at.wall+c.retention
				}
				require.Equal(t, want, c.outlived(offset, wall), "offset %d at %d by %v", offset, wall, runs)
			}
		}
	})
}

// board makes a partition of which some records are committed, one a batch, and a world that has none.
func board(records ...keyed) (*oracle, *agreed, *truth) {
	w := newWorld(&Plan{Brokers: []BrokerPlan{{}}, Topics: []TopicPlan{{Name: "t", Keys: 1}}}, Options{})
	of := w.oracle.agreement(core.Partition{}, "t")
	of.retention = 100
	t := &truth{host: w.hosts[0], of: of, start: 0}
	for i, k := range records {
		s := stored{base: int64(i), next: int64(i) + 1, crc: uint32(i), sender: sender{id: -1}, content: &content{op: -1, values: []int64{int64(i) + 100}, keyed: []keyed{k}}}
		t.batches = append(t.batches, s)
	}
	w.oracle.take(of, t, int64(len(records)))
	return &w.oracle, of, t
}

// TestWhatCompactionMayDo: the oracle takes what it may and refuses what it may not.
func TestWhatCompactionMayDo(t *testing.T) {
	a1, b1, a2, aGone := keyed{key: 1, sum: 1}, keyed{key: 2, sum: 2}, keyed{key: 1, sum: 3}, keyed{key: 1, sum: 4, tombstone: true}
	for _, x := range []struct {
		name    string
		records []keyed
		left    []int
		run     *broker.Compact
		want    string
	}{
		{"nothing changes", []keyed{a1, b1}, []int{0, 1}, nil, ""},
		{"superseded", []keyed{a1, b1, a2}, []int{1, 2}, &broker.Compact{Limit: 3}, ""},
		{"superseded, and no run", []keyed{a1, b1, a2}, []int{1, 2}, nil, "compacted wrongly"},
		{"superseded, beyond the limit", []keyed{a1, a2, b1}, []int{1, 2}, &broker.Compact{Limit: 0}, "compacted too early"},
		{"the last of its key", []keyed{a1, b1, a2}, []int{0, 2}, &broker.Compact{Limit: 3}, "compacted too early"},
		{"a tombstone too early", []keyed{a1, aGone, b1}, []int{2}, &broker.Compact{Limit: 3, Wall: 110}, "compacted too early"},
		{"a tombstone in time", []keyed{a1, aGone, b1}, []int{2}, &broker.Compact{Limit: 3, Wall: 111}, ""},
		{"a tombstone before what it supersedes", []keyed{a1, aGone, b1}, []int{0, 2}, &broker.Compact{Limit: 3, Wall: 111}, "deleted key back"},
	} {
		o, of, log := board(x.records...)
		of.note(passAt{3, 10})
		log.pass = x.run
		var found []stored
		for _, i := range x.left {
			found = append(found, log.batches[i])
		}
		o.compare(log, found)
		if x.want == "" {
			require.Nil(t, o.w.failure, x.name)
		} else {
			require.NotNil(t, o.w.failure, x.name)
			require.Equal(t, x.want, o.w.failure.Kind, x.name)
		}
	}
}

// TestReadersMissNothing: what a reader did not get is put in where it may be missing, and is a failure where not.
func TestReadersMissNothing(t *testing.T) {
	a1, b1, a2 := keyed{key: 1, sum: 1}, keyed{key: 2, sum: 2}, keyed{key: 1, sum: 3}
	full := []linearizability.Record{{Offset: 0, Value: 100}, {Offset: 1, Value: 101}, {Offset: 2, Value: 102}}
	o, _, _ := board(a1, b1, a2)
	o.ids["t"] = core.TopicID{}
	require.Equal(t, full, o.fill("c", "t", 0, 0, 3, full[1:]))
	require.Nil(t, o.w.failure)
	o.fill("c", "t", 0, 0, 3, full[2:])
	require.NotNil(t, o.w.failure)
	require.Equal(t, "newest skipped", o.w.failure.Kind)
}

// TestSequenceIsCommittedOnce: one sequence of an idempotent producer has one place in a partition.
func TestSequenceIsCommittedOnce(t *testing.T) {
	o, of, log := board()
	for i := range int64(3) {
		log.batches = append(log.batches, stored{base: i, next: i + 1, sender: sender{7, 0, int32(i % 2)}, content: &content{keyed: []keyed{{}}}})
		o.take(of, log, i+1)
		require.Equal(t, i == 2, o.w.failure != nil)
	}
	require.Equal(t, "duplicate", o.w.failure.Kind)
}
