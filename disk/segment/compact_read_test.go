package segment

// What readers see of a log that is compacted, and what a copy of one is.

import (
	"fmt"
	"testing"

	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// Who has looked a segment up before it was replaced does not read the new one, which has its name, in its place.
func TestReplacedSegmentIsNotFoundUnderItsName(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "1"), value("b", "1"), value("a", "2"))
	w.roll()
	w.commit()
	q, err := w.l.query(1, w.end)
	require.NoError(t, err)
	w.compact(w.end, 0)
	require.Equal(t, []string{"1:b", "2:a"}, w.keys())
	_, err = w.l.readSegment(q, 1<<20, true)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	require.True(t, q.seg.isCut(q.size), "so that Read looks again")
}

func TestReadsInAGap(t *testing.T) {
	w := quietWorld(t)
	for range 12 {
		w.one(padded("a", ""))
	}
	w.roll()
	w.commit()
	last := w.lastOf(w.l.segs[len(w.l.segs)-1].base)["a"]
	w.compact(w.end, 0)
	for from := int64(0); from <= last; from++ {
		batches, err := w.l.ReadBatches(from, w.end, 1)
		require.NoError(t, err)
		require.NotEmpty(t, batches)
		require.Greater(t, batches[0].NextOffset(), from)
	}
	found, err := w.l.LookupTime(0, w.end)
	require.NoError(t, err)
	require.Equal(t, last, found.Offset)
}

// Who reads records finds one at once, as long as there is any, and everybody else finds every batch.
func TestReadersPassOverWhatHasNoRecords(t *testing.T) {
	w := quietWorld(t)
	w.one(value("a", "0"))
	for range 12 {
		w.append(put{producer: 7, records: []keyed{padded("b", "")}})
	}
	w.one(padded("b", ""))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	read := func(from, limit int64, records bool) (first int64, count int32) {
		got := ReadMany([]ReadRequest{{Log: w.l, From: from, Limit: limit, MaxBytes: 1, Records: records}}, 1, nil)[0]
		require.NoError(t, got.Err)
		defer got.Span.Release()
		if got.Span.Len == 0 {
			return -1, 0
		}
		batches, err := got.Span.parse()
		require.NoError(t, err)
		return batches[0].BaseOffset(), batches[0].Count()
	}
	hollow := 0
	for from := int64(0); from <= 13; from++ {
		base, count := read(from, w.end, true)
		require.EqualValues(t, 1, count)
		require.Equal(t, map[bool]int64{true: 0, false: 13}[from == 0], base)
		if _, count := read(from, w.end, false); count == 0 {
			hollow++
		}
	}
	require.Greater(t, hollow, 5)
	base, count := read(9, 13, true)
	require.EqualValues(t, 9, base, "nothing else is left below the limit")
	require.Zero(t, count)
}

// An answer with records ends before the second of two batches in a row without any. Whoever reads on so comes to every record, and
// everybody else reads as far as there is room.
func TestAnAnswerEndsAtARunOfBatchesWithoutRecords(t *testing.T) {
	w := quietWorld(t)
	put := func(producer int64, r keyed) { w.append(put{producer: producer, records: []keyed{r}}) }
	put(7, value("a", "0"))
	put(7, value("b", "1")) // alone between others
	put(7, value("c", "2"))
	for range 3 { // a run
		put(8, value("b", "3"))
	}
	put(8, value("b", "6"))
	for range 2 { // the shortest
		put(9, value("d", "7"))
	}
	put(9, value("d", "9"))
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	require.Len(t, w.l.segs, 2)
	read := func(from int64, size int32) ReadResult {
		got := ReadMany([]ReadRequest{{Log: w.l, From: from, Limit: w.end, MaxBytes: size, Records: true}}, size, nil)[0]
		require.NoError(t, got.Err)
		return got
	}
	for size := range int32(1000) { // whatever the answers before ended with
		got := read(0, size)
		require.LessOrEqual(t, got.Span.Next, int64(4))
		got.Span.Release()
	}
	var answers []string
	for from := int64(0); from < w.end; {
		got := read(from, 1<<20)
		batches, err := got.Span.parse()
		require.NoError(t, err)
		answer := ""
		for _, b := range batches {
			answer += fmt.Sprintf(" %d:%d", b.BaseOffset(), b.Count())
		}
		answers = append(answers, answer)
		from = batches[len(batches)-1].NextOffset()
		require.Equal(t, from, got.Span.Next)
		got.Span.Release()
	}
	require.Equal(t, []string{" 0:1 1:0 2:1 3:0", " 6:1 7:0", " 9:1 10:1", " 11:1"}, answers)
	all, err := w.l.ReadBatches(0, w.end, 1<<20)
	require.NoError(t, err)
	require.Len(t, all, 11, "of the first segment")
}

// A follower copies the log as it is, gaps and all, though its topic's policy may be another by now.
func TestACopyTakesTheGaps(t *testing.T) {
	w := quietWorld(t)
	w.one(value("first", ""))
	for range 40 {
		w.one(value("a", "small"))
	}
	w.roll()
	w.commit()
	w.compact(w.end, 0)
	all := readAll(t, w.l)
	cfg := smallLog
	follower, _, err := w.s.OpenLog(part(1), "u", cfg)
	require.NoError(t, err)
	_, err = follower.Append(all)
	require.ErrorIs(t, err, ErrOffsetOrder)
	cfg.Gaps = true
	follower.Configure(cfg)
	for _, b := range all {
		_, err = follower.Append([]record.Batch{b})
		require.NoError(t, err)
	}
	commit(t, w.s)
	require.Equal(t, len(all), len(readAll(t, follower)))
	// Cut in a gap, it ends where the batch before did, and what comes then survives a power cut.
	to := all[0].NextOffset() + 1
	require.Less(t, to, all[1].BaseOffset())
	end, err := follower.Truncate(to)
	require.NoError(t, err)
	require.Equal(t, all[0].NextOffset(), end)
	_, err = follower.Append(all[1:])
	require.NoError(t, err)
	commit(t, w.s)
	w.d.PowerLoss()
	s := openStore(t, w.d.Mount())
	follower, st, err := s.OpenLog(part(1), "u", cfg)
	require.NoError(t, err)
	require.Equal(t, w.end, st.End)
	require.NoError(t, follower.Verify())
	require.Equal(t, len(all), len(readAll(t, follower)))
}
