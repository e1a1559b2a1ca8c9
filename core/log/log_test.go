package log

import (
	"testing"

	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func batch(t require.TestingT, base int64, epoch int32, n int, size int) record.Batch {
	b := record.NewBuilder()
	for range n {
		b.Add(record.Record{Value: make([]byte, size)})
	}
	x, err := b.Build()
	require.NoError(t, err)
	x.Assign(base, epoch)
	return x
}

func TestLogEnds(t *testing.T) {
	l := New(State{Start: 5, End: 10, Epochs: []EpochStart{{1, 5}}})
	require.False(t, l.Append(batch(t, 10, 1, 3, 1), 0))
	require.True(t, l.Append(batch(t, 13, 2, 2, 1), 0), "a new epoch has to be stored")
	require.Equal(t, []int64{5, 10, 10, 15}, []int64{l.Start(), l.Durable(), l.Written(), l.End()})
	l.SetWritten(13)
	l.SetDurable(99)
	require.Equal(t, []int64{15, 15}, []int64{l.Durable(), l.Written()}, "what is durable is written, and nothing is beyond the end")
	exact, epochs := l.Truncate(13)
	require.True(t, exact)
	require.True(t, epochs)
	require.Equal(t, []int64{13, 13, 13}, []int64{l.Durable(), l.Written(), l.End()})
	require.False(t, l.SetStart(14))
	require.False(t, l.SetStart(12))
	require.Equal(t, []EpochStart{{1, 5}}, l.Epochs().List(), "an epoch keeps its start")
	require.Panics(t, func() { l.Append(batch(t, 12, 2, 1, 1), 0) }, "offsets are assigned once (rule 1)")
	l.Reset(40, nil)
	require.Equal(t, []int64{40, 40, 40, 40}, []int64{l.Start(), l.Durable(), l.Written(), l.End()})
	require.Equal(t, NoEpoch, l.Epochs().Latest())
}

func TestBytesBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opened := rapid.Int64Range(0, 50).Draw(t, "opened at")
		l := New(State{End: opened})
		type mark struct{ offset, bytes int64 }
		marks := []mark{{opened, 0}}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "batches") {
					b := batch(t, l.End(), 0, rapid.IntRange(1, 3).Draw(t, "records"), rapid.IntRange(0, 50).Draw(t, "size"))
					l.Append(b, 0)
					marks = append(marks, mark{l.End(), marks[len(marks)-1].bytes + int64(b.Size())})
				}
			},
			"truncate": func(t *rapid.T) {
				i := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
				l.Truncate(marks[i].offset)
				marks = marks[:i+1]
			},
			"": func(t *rapid.T) {
				if opened > 0 && l.End() > 0 {
					require.GreaterOrEqual(t, l.BytesBetween(opened-1, l.End()), plenty, "from before the log was opened")
				}
				last := marks[len(marks)-1]
				for _, m := range marks[:len(marks)-1] {
					got, want := l.BytesBetween(m.offset, last.offset), last.bytes-m.bytes
					require.LessOrEqual(t, got, want)
					require.GreaterOrEqual(t, got, int64(1))
				}
				require.Zero(t, l.BytesBetween(last.offset, last.offset+5))
			},
		})
	})
}

func TestBytesBetweenIsExactForTheLastAppendsAndNearForTheRest(t *testing.T) {
	l := New(State{})
	b := batch(t, 0, 0, 1, 100)
	const n = 10_000
	for i := range int64(n) {
		b.Assign(i, 0)
		l.Append(b, 0)
	}
	for i := int64(1); i <= n; i++ {
		got, want := l.BytesBetween(n-i, n), i*int64(b.Size())
		if i < exactSizeMarks {
			require.Equal(t, want, got)
		}
		require.GreaterOrEqual(t, got, want/2, "%d appends back", i)
	}
	require.LessOrEqual(t, len(l.sizes.marks), maxSizeMarks)
}

// Above a gap an epoch may have begun anywhere in it. Whoever departed there must be told so, or it keeps what nobody committed.
func TestAnEpochAboveAGapBeginsWithTheGap(t *testing.T) {
	l := New(State{})
	l.Append(batch(t, 0, 4, 1, 10), 0)
	require.True(t, l.Append(batch(t, 20, 5, 1, 10), 0))
	require.Equal(t, []EpochStart{{4, 0}, {5, 1}}, l.Epochs().List())
	_, end, ok := l.EndOffsetFor(4)
	require.True(t, ok)
	require.EqualValues(t, 1, end, "a replica that ends at 10 in epoch 4 departs from this log")
}
