package segment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCompactModel compacts a log under everything that a broker, a disk and a power plant may do to it, and compares what is
// left with a plain list: the last record of each key, all that no compaction could reach, tombstones until their time has come.
func TestCompactModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newKeyedWorld(t, simdisk.New(rapid.Uint64().Draw(t, "disk"), simdisk.Options{}))
		w.boot(w.d.Mount())
		appending := func(t *rapid.T) { w.append(drawPuts(t)...) }
		t.Repeat(actions{
			"append": appending, "more": appending, "and more": appending,
			"commit":  func(t *rapid.T) { w.commit() },
			"compact": func(t *rapid.T) { w.compact(w.durable, 0) },
			"compact little": func(t *rapid.T) {
				w.compact(rapid.Int64Range(0, w.durable).Draw(t, "limit"), slotBytes*rapid.Int64Range(1, 12).Draw(t, "slots"))
			},
			"time":      func(t *rapid.T) { w.wall += rapid.SampledFrom([]int64{1, 5000, 20000}).Draw(t, "ms") },
			"truncate":  func(t *rapid.T) { w.truncate(rapid.Int64Range(w.start, w.end).Draw(t, "to")) },
			"set start": func(t *rapid.T) { w.setStart(rapid.Int64Range(w.start, w.end).Draw(t, "start")) },
			"epoch":     func(t *rapid.T) { w.epoch++ },
			"look up":   func(t *rapid.T) { w.lookup(rapid.SampledFrom([]int64{MaxTimestamp, 0, 500, 1500}).Draw(t, "time")) },
			"read":      func(t *rapid.T) { w.do(func() error { w.compare(); return nil }) },
			"stop":      func(t *rapid.T) { w.stop() },
			"kill":      func(t *rapid.T) { w.crash(false, dying(t, 0)) },
			"power":     func(t *rapid.T) { w.crash(true, dying(t, 0)) },
			"die later": func(t *rapid.T) { w.d.AddRule(dying(t, 1)) },
			"misread": func(t *rapid.T) {
				w.misread = true
				for n := range rapid.IntRange(1, 3).Draw(t, "times") {
					w.d.AddRule(simdisk.Rule{Op: simdisk.OpRead, Path: "*.log", Nth: rapid.IntRange(1, 20).Draw(t, "calls"), Seed: uint64(n), Effect: simdisk.RotRead})
				}
				w.compact(w.durable, 0)
			},
			"fail a write": func(t *rapid.T) {
				w.d.AddRule(failing(t, simdisk.OpWrite, "*", simdisk.NoSpace, simdisk.Short))
			},
			"": func(t *rapid.T) {
				start, end := w.l.Bounds()
				require.Equal(t, []int64{w.start, w.end}, []int64{start, end})
			},
		})
	})
}

func drawPuts(t *rapid.T) []put {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) put {
		return put{
			producer: rapid.SampledFrom([]int64{0, 0, 1, 2}).Draw(t, "producer"),
			codec:    rapid.SampledFrom([]record.Codec{record.Uncompressed, record.Uncompressed, record.LZ4}).Draw(t, "codec"),
			records: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) keyed {
				r := keyed{key: rapid.SampledFrom([]string{"", "a", "b", "c", "d", "a key that is longer than fifteen bytes", "another key that is longer"}).Draw(t, "key"),
					time: rapid.Int64Range(0, 2000).Draw(t, "time")}
				if r.noKey = rapid.IntRange(0, 30).Draw(t, "no key") == 0; r.noKey {
					r.key = ""
				}
				if rapid.IntRange(0, 3).Draw(t, "tombstone") > 0 {
					r.value = []byte(strings.Repeat("v", rapid.SampledFrom([]int{0, 10, 300, 700}).Draw(t, "size")))
				}
				return r
			}), 1, 4).Draw(t, "records"),
		}
	}), 1, 3).Draw(t, "batches")
}

// value is a record for tests.
func value(key, v string) keyed { return keyed{key: key, value: []byte(v)} }

func tombstone(key string) keyed { return keyed{key: key} }

func padded(key, v string) keyed { return value(key, v+strings.Repeat(".", 400)) }

// one appends batches of one record each.
func (w *keyedWorld) one(records ...keyed) {
	for _, r := range records {
		w.append(put{records: []keyed{r}})
	}
}

// roll begins a new segment, by filling the last one with keys of its own.
func (w *keyedWorld) roll() {
	n := len(w.l.segs)
	for i := 0; len(w.l.segs) == n || i == 0; i++ {
		w.one(padded(fmt.Sprintf("fill %d", w.end), ""))
	}
}

func quietWorld(t *testing.T) *keyedWorld {
	w := newKeyedWorld(t, newDisk())
	w.boot(w.d.Mount())
	return w
}

func (w *keyedWorld) restart() { w.stop() }

// keys returns key=value of all records that are left, but for those that roll writes.
func (w *keyedWorld) keys() (list []string) {
	for _, r := range w.read() {
		if !strings.HasPrefix(r.key, "fill") {
			text := fmt.Sprintf("%d:%s", r.offset, r.key)
			if r.value == nil {
				text += "!"
			}
			list = append(list, text)
		}
	}
	return list
}

// TestDieInEveryCallOfACompaction dies at every disk call, of one that merges segments, in each way.
func TestDieInEveryCallOfACompaction(t *testing.T) {
	for round, how := range []simdisk.Effect{simdisk.Crash, simdisk.PowerCut, simdisk.PowerCut} {
		calls := 0
		for fired := true; fired; calls++ {
			d := simdisk.New(uint64(5*calls+round), simdisk.Options{})
			w := newKeyedWorld(named{t, fmt.Sprintf("%v in call %d, round %d", how, calls+1, round)}, d)
			w.boot(d.Mount())
			for i := range 6 {
				w.append(put{producer: int64(1 + i%2), records: []keyed{padded(fmt.Sprintf("k%d", i%5), ""), padded(fmt.Sprintf("k%d", i%3), ""), tombstone("gone")}})
			}
			w.commit()
			w.compact(w.durable, 0) // now there are small segments, which the next one joins
			w.append(put{records: []keyed{padded("k1", ""), padded("k4", "")}}, put{records: []keyed{padded("k1", ""), padded("k4", "")}})
			w.commit()
			w.wall += 100_000
			d.AddRule(simdisk.Rule{Op: simdisk.OpAll, Nth: calls + 1, Effect: how, Seed: uint64(5*calls + round)})
			w.compact(w.durable, 0)
			fired = d.Stats().Fired[how] > 0
			w.crash(round%2 == 1, simdisk.Rule{})
			w.compact(w.durable, 0)
			w.restart()
		}
		if calls < 60 {
			t.Errorf("the scenario takes only %d calls", calls)
		}
	}
}

// TestPowerCutsAtEachStepOfASwap loses each time another part of what the directory was told.
func TestPowerCutsAtEachStepOfASwap(t *testing.T) {
	fired := 0
	for step := 1; step <= 12; step++ {
		for seed := range uint64(16) {
			d := simdisk.New(seed, simdisk.Options{})
			w := newKeyedWorld(named{t, fmt.Sprintf("sync %d of the directory, seed %d", step, seed)}, d)
			w.boot(d.Mount())
			for i := range 5 {
				w.append(put{records: []keyed{padded(fmt.Sprintf("k%d", i%4), ""), padded(fmt.Sprintf("k%d", i%3), "")}})
			}
			w.commit()
			w.compact(w.durable, 0)
			w.append(put{records: []keyed{padded("k0", ""), padded("k1", "")}}, put{records: []keyed{padded("k2", "")}})
			w.commit()
			d.AddRule(simdisk.Rule{Op: simdisk.OpSyncDir, Nth: step, Effect: simdisk.PowerCut, Seed: seed})
			w.compact(w.durable, 0)
			fired += int(d.Stats().Fired[simdisk.PowerCut])
			w.restart()
		}
	}
	require.Greater(t, fired, 40)
}

func TestCompactKeepsTheLastOfEachKey(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "1"), value("b", "1"), value("a", "2"), tombstone("c"), value("c", "1"))
	w.roll()
	w.one(value("a", "3")) // in the active segment
	w.commit()
	w.compact(w.end, 0)
	require.Equal(t, []string{"1:b", "2:a", "4:c", fmt.Sprintf("%d:a", w.end-1)}, w.keys())
	w.restart()
	require.Equal(t, []string{"1:b", "2:a", "4:c", fmt.Sprintf("%d:a", w.end-1)}, w.keys())
}

func TestCompactStopsAtTheLimit(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "1"), value("a", "2"))
	w.roll()
	first := w.l.segs[1].base
	w.one(value("a", "3"))
	w.roll()
	w.commit()
	w.compact(w.end-1, 0)
	w2 := len(w.keys())
	require.Equal(t, 1, w2)
	w = quietWorld(t)
	w.one(value("a", "1"), value("a", "2"))
	w.roll()
	require.Equal(t, first, w.l.segs[1].base)
	w.one(value("a", "3"))
	w.roll()
	w.commit()
	w.compact(first, 0) // rule 19
	require.Len(t, w.keys(), 2)
	w.compact(first-1, 0)
	require.Len(t, w.keys(), 2)
}

func TestTombstonesStayUntilTheirHorizon(t *testing.T) {
	w := quietWorld(t) // museum F02: it counts from the first compaction, not from when the tombstone was written
	w.one(value("a", "1"), tombstone("a"))
	w.roll()
	w.commit()
	w.wall += 1_000_000
	w.compact(w.end, 0)
	require.Equal(t, []string{"1:a!"}, w.keys())
	horizon := w.wall + w.cfg.DeleteRetention.Milliseconds()
	for _, at := range []int64{w.wall + 1, horizon} {
		w.wall = at
		w.roll()
		w.commit()
		w.compact(w.end, 0)
		require.Equal(t, []string{"1:a!"}, w.keys(), "still within delete.retention.ms")
	}
	w.restart()
	w.wall = horizon + 1
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Empty(t, w.keys())
	w.restart()
}

func TestTombstonesGoFromAnIdleLog(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "1"), tombstone("a"), value("b", "1"))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Equal(t, []string{"1:a!", "2:b"}, w.keys())
	w.wall += w.cfg.DeleteRetention.Milliseconds()
	w.compact(w.end, 0)
	require.Equal(t, []string{"1:a!", "2:b"}, w.keys())
	w.wall++
	w.compact(w.end, 0)
	require.Equal(t, []string{"2:b"}, w.keys())
	stats, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: math.MaxInt64, Wall: core.WallMillis(w.wall + 1_000_000)}).Run()
	require.NoError(t, err)
	require.False(t, stats.Due, "nothing is left to wait for")
	w.restart()
}

// Tombstones that some replica may not have yet stay, whatever the time; and the log is not looked through for them again and again.
func TestTombstonesWaitForEveryReplica(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "1"), tombstone("a"), value("b", "1"))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	run := func(covered int64) CompactStats {
		stats, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: covered, Wall: core.WallMillis(w.wall)}).Run()
		require.NoError(t, err)
		return stats
	}
	w.wall += w.cfg.DeleteRetention.Milliseconds() + 1
	require.False(t, run(0).Due)
	require.Equal(t, []string{"1:a!", "2:b"}, w.keys())
	w.cfg.MinCleanableRatio = 0
	w.l.Configure(w.cfg)
	w.one(value("c", "1"))
	w.roll()
	w.commit()
	require.True(t, run(1).Due)
	require.Equal(t, []string{"1:a!", "2:b", "6:c"}, w.keys(), "every replica has what is below it, and perhaps not it")
	require.False(t, run(0).Due)
	require.True(t, run(2).Due)
	require.Equal(t, []string{"2:b", "6:c"}, w.keys())
	require.False(t, run(2).Due)
}

// Under compact,delete both apply; and segments that compaction has left without records are no end to deletion by time.
func TestRetentionOfACompactedLog(t *testing.T) {
	w := quietWorld(t)
	w.cfg.Delete, w.cfg.RetentionMillis = true, time.Second
	w.l.Configure(w.cfg)
	for range 12 {
		w.append(put{producer: 1, records: []keyed{{key: "a", time: 1000, value: make([]byte, 500)}}})
	}
	w.append(put{records: []keyed{{key: "b", time: 1000, value: make([]byte, 700)}}, producer: 0})
	w.append(put{records: []keyed{{key: "a", time: 9000, value: make([]byte, 700)}}}, put{records: []keyed{{key: "c", time: 9000, value: make([]byte, 700)}}})
	w.append(put{records: []keyed{{key: "d", time: 9000, value: make([]byte, 700)}}})
	w.commit()
	w.compact(w.end, 0)
	start, err := w.l.Retain(w.end, 9500)
	require.NoError(t, err)
	require.EqualValues(t, 13, start, "what is left below is too old, or nothing")
	w.start, w.exact = start, false
	w.compare()
	w.restart()
	start, err = w.l.Retain(w.end, 20_000)
	require.NoError(t, err)
	require.Equal(t, w.end, start)
}

func TestDirtyRatioAndLags(t *testing.T) {
	run := func(change func(*log.Config), ago int64) bool {
		w := quietWorld(t)
		w.wall = 10_000_000
		change(&w.cfg)
		w.l.Configure(w.cfg)
		for i := range 6 {
			w.append(put{records: []keyed{{key: "a", time: w.wall - ago + int64(i), value: make([]byte, 400)}}})
		}
		w.commit()
		stats, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: math.MaxInt64, Wall: core.WallMillis(w.wall)}).Run()
		require.NoError(t, err)
		return stats.Due
	}
	require.True(t, run(func(c *log.Config) { c.MinCleanableRatio = 0.5 }, 0))
	require.False(t, run(func(c *log.Config) { c.MinCleanableRatio = 1 }, 50_000))
	require.True(t, run(func(c *log.Config) { c.MinCleanableRatio, c.MaxCompactionLag = 1, 40_000_000_000 }, 50_000))
	require.False(t, run(func(c *log.Config) { c.MinCleanableRatio, c.MaxCompactionLag = 1, 60_000_000_000 }, 50_000))
	require.False(t, run(func(c *log.Config) { c.MinCompactionLag = 60_000_000_000 }, 50_000))
	require.True(t, run(func(c *log.Config) { c.MinCompactionLag = 40_000_000_000 }, 50_000))
	require.False(t, run(func(c *log.Config) { c.Compact = false }, 50_000))
}

func TestDirtyRatioCountsWhatIsCompacted(t *testing.T) {
	w := quietWorld(t)
	w.cfg.MinCleanableRatio = 0.5
	w.l.Configure(w.cfg)
	for i := range 30 {
		w.one(padded(fmt.Sprint(i), ""))
	}
	w.commit()
	run := func() CompactStats {
		stats, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: math.MaxInt64, Wall: core.WallMillis(w.wall)}).Run()
		require.NoError(t, err)
		return stats
	}
	stats := run()
	require.True(t, stats.Due)
	require.Zero(t, stats.BytesBefore, "nothing to take out, and no two segments that make one")
	w.limit = w.end
	require.False(t, run().Due)
	w.one(padded("1", ""), padded("2", ""), padded("3", ""), padded("4", ""), padded("5", ""), padded("6", ""))
	w.commit()
	require.False(t, run().Due, "a fifth of it is not compacted")
	w.restart()
	require.False(t, run().Due, "after a clean stop, too")
	w.cfg.MinCleanableRatio = 0.1
	w.l.Configure(w.cfg)
	require.True(t, run().Due)
	w.compare()
}

func TestCompactAfterATruncationBelowWhatWasCompacted(t *testing.T) {
	w := quietWorld(t)
	w.one(padded("a", ""), padded("b", ""), padded("c", ""), padded("a", ""), padded("d", ""), padded("e", ""), padded("f", ""), padded("g", ""))
	w.commit()
	w.compact(w.end, 0)
	require.Positive(t, w.s.journal.get(part(0)).cleaned)
	w.truncate(3)
	require.LessOrEqual(t, w.s.journal.get(part(0)).cleaned, int64(3))
	w.one(padded("b", ""), padded("b", ""))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Equal(t, []string{"2:c", "4:b"}, w.keys(), "what came in the place of compacted records is compacted, too")
}

// A log that is cut while it is compacted keeps what is left of it then, for what was to replace it may be cut off, wherever in the
// run that happens (museum F10).
func TestACutEndsACompaction(t *testing.T) {
	for at, ended := 1, false; !ended; at++ {
		w := quietWorld(t)
		for range 2 {
			w.one(padded("a", ""), padded("b", ""), padded("c", ""), padded("d", ""))
			w.roll()
		}
		w.commit()
		calls, left := 0, []string(nil)
		_, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: math.MaxInt64, Wall: core.WallMillis(w.wall), PaceBytes: 1, Pace: func(int) error {
			if calls++; calls == at {
				_, err := w.l.Truncate(4)
				require.NoError(t, err)
				left = w.keys()
			}
			return nil
		}}).Run()
		require.NoError(t, err)
		if ended = calls < at; !ended {
			require.Equal(t, left, w.keys(), "cut at call %d", at)
		}
		require.NoError(t, w.l.Verify())
		require.False(t, ended && at < 10, "the run is too short")
	}
}

func TestAFullMapGoesOnAnotherTime(t *testing.T) {
	w := quietWorld(t)
	for i := range 40 {
		w.one(padded(fmt.Sprint(i%20), ""))
	}
	w.roll()
	w.commit()
	for runs := 1; ; runs++ {
		before := w.s.journal.get(part(0)).cleaned
		w.compact(w.end, 5*slotBytes)
		after := w.s.journal.get(part(0)).cleaned
		if after == before {
			require.Greater(t, runs, 5)
			break
		}
	}
	require.Len(t, w.keys(), 20)
}

func TestSmallSegmentsAreJoined(t *testing.T) {
	w := quietWorld(t)
	for i := range 60 {
		w.one(padded(fmt.Sprint(i%3), ""))
	}
	w.commit()
	before := len(w.l.segs)
	require.Greater(t, before, 15)
	w.compact(w.end, 0)
	w.compact(w.end, 0)
	for range 3 {
		w.one(padded("9", ""))
	}
	w.commit()
	w.compact(w.end, 0)
	require.Less(t, len(w.l.segs), before/2)
	for _, seg := range w.l.segs {
		require.LessOrEqual(t, seg.size, w.cfg.SegmentBytes)
	}
	w.restart()
}

func TestRecordsWithoutKeyStay(t *testing.T) {
	w := quietWorld(t)
	w.one(keyed{noKey: true, value: []byte("x")}, keyed{noKey: true}, value("a", ""), value("a", ""))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Equal(t, []string{"0:", "1:!", "3:a"}, w.keys())
}

func TestWhatTransactionsWroteStays(t *testing.T) {
	w := quietWorld(t)
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Attributes = 5, 0, 0, record.AttributeTransactional
	txn, err := b.Add(record.Record{Key: []byte("a"), Value: []byte("1")}).Build()
	require.NoError(t, err)
	marker := record.EndTxn{ProducerID: 5}.Batch(1, 0)
	txn.Assign(0, 0)
	_, err = w.l.Append([]record.Batch{txn, marker})
	require.NoError(t, err)
	w.end, w.written = 2, 2
	w.records = append(w.records, keyed{key: "a", value: []byte("1")}, keyed{offset: 1, key: string(firstKey(marker)), value: firstValue(marker)})
	w.batches = append(w.batches, txn, marker)
	w.one(value("a", "2"))
	w.roll()
	w.commit()
	stats, err := w.l.BeginCompact(CompactOptions{Limit: w.end, Covered: math.MaxInt64, Wall: 1}).Run()
	require.NoError(t, err)
	require.True(t, stats.Due)
	require.Len(t, w.keys(), 3)
}

func firstKey(b record.Batch) []byte {
	for r := range b.Records(nil, record.Limits{}) {
		return r.Key
	}
	return nil
}

func firstValue(b record.Batch) []byte {
	for r := range b.Records(nil, record.Limits{}) {
		return r.Value
	}
	return nil
}

// A producer that sends nothing any more keeps its last batches, without their records, as long as the table knows it.
func TestProducersOutliveTheirRecords(t *testing.T) {
	w := quietWorld(t)
	for range 8 {
		w.append(put{producer: 1, records: []keyed{padded("a", "")}})
	}
	w.append(put{producer: 2, records: []keyed{padded("a", "")}})
	w.one(padded("a", ""))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	count := func() (hollow int) {
		for _, b := range readAll(t, w.l) {
			if b.Count() == 0 && b.ProducerID() >= 0 {
				hollow++
			}
		}
		return hollow
	}
	require.Equal(t, 6, count(), "five of one, one of the other")
	w.restart() // compares the producer table
	delete(w.seqs, 1)
	w.exact = false
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Equal(t, 1, count(), "the table knows one no more")
}

func TestOffsetMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newOffsetMap(slotBytes*rapid.Int64Range(0, 40).Draw(t, "slots"), rapid.Int64Range(0, 60).Draw(t, "keys"))
		want := map[string]int64{}
		for off, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"", "\x00", "a", "a\x00", "b", "ccccccccccccccc", "cccccccccccccccc", "ccccccccccccccccc",
			"dddddddddddddddddddd", "e", "f", "g", "h", "i", "j"}), 0, 60).Draw(t, "puts") {
			_, known := want[key]
			ok := m.put([]byte(key), int64(off))
			require.Equal(t, known || len(want) < m.max, ok)
			if ok {
				want[key] = int64(off)
			}
		}
		require.Equal(t, len(want), m.used)
		for key, last := range want {
			require.False(t, m.superseded([]byte(key), last))
			require.True(t, m.superseded([]byte(key), last-1))
		}
		require.False(t, m.superseded([]byte("never"), 0))
	})
}

func TestSwapNames(t *testing.T) {
	r, ok := parseSwap(swapName(5, 70))
	require.True(t, ok)
	require.Equal(t, swapRange{5, 70}, r)
	for _, name := range []string{"", swapExt, swapName(7, 7), swapName(9, 1), swapName(1, 2) + ".tmp", "1-2.swap", offsetName(1) + swapExt} {
		_, ok := parseSwap(name)
		require.False(t, ok, name)
	}
}
