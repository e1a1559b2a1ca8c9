package log

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func history(pairs ...int64) Epochs {
	var e Epochs
	for i := 0; i < len(pairs); i += 2 {
		e.Add(int32(pairs[i]), pairs[i+1])
	}
	return e
}

func TestEndOffsetForIsTheLargestEpochNotAbove(t *testing.T) {
	e := history(1, 0, 3, 40, 4, 70)
	for _, c := range []struct {
		asked, epoch int32
		end          int64
		ok           bool
	}{
		{0, 0, 0, true},   // below all: ended where the first began
		{1, 1, 40, true},  //
		{2, 1, 40, true},  // KIP-279: not there, so the one below it
		{3, 3, 70, true},  //
		{4, 4, 100, true}, // the latest ends at the log end
		{5, -1, -1, false},
		{-1, -1, -1, false},
	} {
		epoch, end, ok := e.EndOffsetFor(c.asked, 100)
		require.Equal(t, []any{c.epoch, c.end, c.ok}, []any{epoch, end, ok}, "asked for %d", c.asked)
	}
	_, _, ok := new(Epochs).EndOffsetFor(0, 0)
	require.False(t, ok)
}

func TestEpochZeroIsAnEpoch(t *testing.T) {
	var e Epochs
	require.Equal(t, NoEpoch, e.Latest())
	require.True(t, e.Add(0, 0))
	require.False(t, e.Add(0, 5), "an epoch begins once")
	epoch, end, ok := e.EndOffsetFor(0, 7)
	require.Equal(t, []any{int32(0), int64(7), true}, []any{epoch, end, ok})
}

// A19: every epoch leaves an entry, though it wrote nothing, and takes the place of one that wrote nothing before it.
func TestA19EmptyEpochsInARow(t *testing.T) {
	e := history(4, 0, 5, 100, 6, 100, 7, 100)
	require.Equal(t, []EpochStart{{4, 0}, {7, 100}}, e.List())
	epoch, end, _ := e.EndOffsetFor(5, 130)
	require.Equal(t, int32(4), epoch)
	require.Equal(t, int64(100), end, "what 5 wrote on another leader is not in this log")
}

// A20: truncation to the log end drops the entries that begin there.
func TestA20TruncationAtTheEndDropsEmptyEpochs(t *testing.T) {
	e := history(4, 0, 7, 100)
	require.True(t, e.TruncateTail(100))
	require.Equal(t, int32(4), e.Latest())
	require.False(t, e.TruncateTail(100))
}

func TestTruncateHeadKeepsTheEpochThatCoversTheStart(t *testing.T) {
	e := history(1, 0, 3, 40, 4, 70)
	require.True(t, e.TruncateHead(50))
	require.Equal(t, []EpochStart{{3, 40}, {4, 70}}, e.List())
	_, end, _ := e.EndOffsetFor(1, 100)
	require.Equal(t, int64(40), end, "below the start, as it was")
	require.False(t, e.TruncateHead(70), "where 3 ended is still to be told")
	require.True(t, e.TruncateHead(71))
	require.Equal(t, []EpochStart{{4, 70}}, e.List())
	require.False(t, e.TruncateHead(90), "the latest stays")
}

// The model keeps the epoch of every offset that was ever written, and of the empty tail.
func TestEpochsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Epochs
		var written []int32 // epoch of each offset
		start, tail := 0, NoEpoch
		epoch := int32(-1)
		t.Repeat(map[string]func(*rapid.T){
			"lead": func(t *rapid.T) {
				epoch += int32(rapid.IntRange(1, 3).Draw(t, "step"))
				e.Add(epoch, int64(len(written)))
				tail = epoch
			},
			"write": func(t *rapid.T) {
				if tail == NoEpoch {
					t.Skip()
				}
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					written = append(written, tail)
				}
			},
			"truncate": func(t *rapid.T) {
				end := rapid.IntRange(start, len(written)).Draw(t, "end")
				e.TruncateTail(int64(end))
				written = written[:end]
				tail = NoEpoch
				if end > 0 {
					tail = written[end-1]
				}
			},
			"delete": func(t *rapid.T) {
				if len(written) <= start {
					t.Skip()
				}
				start = rapid.IntRange(start, len(written)-1).Draw(t, "start")
				e.TruncateHead(int64(start))
			},
			"": func(t *rapid.T) {
				for asked := int32(0); asked <= epoch+1; asked++ {
					checkEndOffset(t, &e, written, start, tail, asked)
				}
				for i := start; i < len(written); i++ {
					require.Equal(t, written[i], e.At(int64(i)))
				}
				again := NewEpochs(e.List())
				require.Equal(t, e.List(), again.List())
			},
		})
	})
}

// checkEndOffset asks for one epoch and works the answer out from the epochs of all offsets.
func checkEndOffset(t *rapid.T, e *Epochs, written []int32, start int, tail, asked int32) {
	require.Equal(t, tail, e.Latest())
	found, end, ok := e.EndOffsetFor(asked, int64(len(written)))
	require.Equal(t, asked <= tail, ok)
	if !ok {
		return
	}
	want := 0 // the end of all that was ever written in epochs not above the asked one
	for i, epoch := range written {
		if epoch <= asked {
			want = i + 1
		}
	}
	if want < start { // deleted; what is told may be later, but is never something to go on from
		require.Less(t, end, int64(start), "asked for %d in %v", asked, e.List())
		return
	}
	require.Equal(t, int64(want), end, "asked for %d in %v", asked, e.List())
	switch {
	case asked == tail:
		require.Equal(t, tail, found)
	case want > 0:
		require.Equal(t, written[want-1], found)
	}
}
