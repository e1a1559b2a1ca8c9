package record_test

import (
	"math"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What stays is what was there, at its offset, with its timestamp, whatever is taken out and whatever the base timestamp becomes.
func TestThin(t *testing.T) {
	thinner := record.Thinner{Decompressor: compress.Codecs{}, Compressor: compress.Codecs{}}
	rapid.Check(t, func(t *rapid.T) {
		b := record.NewBuilder()
		b.BaseOffset, b.LeaderEpoch = rapid.Int64Range(0, 1<<40).Draw(t, "base"), 3
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = 7, 2, math.MaxInt32-1
		b.Codec, b.Compressor = rapid.SampledFrom(codecs).Draw(t, "codec"), compress.Codecs{}
		for range rapid.IntRange(1, 6).Draw(t, "records") {
			r := drawRecord(t)
			r.Timestamp = rapid.Int64Range(-1, 1<<45).Draw(t, "timestamp")
			b.Add(r)
		}
		batch, err := b.Build()
		require.NoError(t, err)
		before := read(t, batch)
		horizon := rapid.SampledFrom([]int64{0, 1, 1 << 41}).Draw(t, "horizon")
		var want []record.Record
		latest, tombstone := record.NoTimestamp, false
		kept := rapid.SliceOfN(rapid.Bool(), len(before), len(before)).Draw(t, "kept")
		i := 0
		thinned, err := thinner.Thin(batch, horizon, func(r record.Brief) bool {
			require.Equal(t, before[i].Offset, r.Offset)
			require.Equal(t, before[i].Key, r.Key)
			require.Equal(t, before[i].Value == nil, r.Tombstone)
			if kept[i] {
				want = append(want, before[i])
				latest, tombstone = max(latest, before[i].Timestamp), tombstone || r.Tombstone
			}
			i++
			return kept[i-1]
		})
		require.NoError(t, err)
		require.Equal(t, len(want), thinned.Kept)
		require.Equal(t, tombstone, thinned.Tombstones)
		require.Equal(t, len(before)-len(want), thinned.Removed)
		if len(want) == 0 {
			require.True(t, thinned.Changed && thinned.Batch.IsZero())
			return
		}
		got, n, err := record.Parse(thinned.Batch.Bytes())
		require.NoError(t, err)
		require.Equal(t, n, thinned.Batch.Size())
		require.Equal(t, want, read(t, got))
		was, is := batch.Header(), got.Header()
		if !thinned.Changed {
			require.Equal(t, was, is)
			require.True(t, thinned.Removed == 0 && !(tombstone && horizon > 0))
			return
		}
		require.Equal(t, tombstone && horizon > 0, got.HasDeleteHorizon())
		if got.HasDeleteHorizon() {
			require.Equal(t, horizon, got.BaseTimestamp())
		}
		require.Equal(t, latest, is.MaxTimestamp)
		is.BaseTimestamp, is.MaxTimestamp, is.Attributes = was.BaseTimestamp, was.MaxTimestamp, was.Attributes
		is.Count, is.Length, is.CRC = was.Count, was.Length, was.CRC
		require.Equal(t, was, is, "offsets, epochs, producer and sequences stay")
	})
}

func TestThinKeepsAnEarlierHorizonAndTheAppendTime(t *testing.T) {
	thinner := record.Thinner{}
	b := build(t, record.Uncompressed, record.Record{Key: []byte("a"), Timestamp: 5}, record.Record{Key: []byte("b"), Timestamp: 6})
	b.SetAppendTime(1000)
	all := func(record.Brief) bool { return true }
	first, err := thinner.Thin(b, 500, all)
	require.NoError(t, err)
	require.True(t, first.Changed && first.Batch.HasDeleteHorizon() && first.Batch.LogAppendTime())
	require.EqualValues(t, 1000, first.Batch.MaxTimestamp())
	stays := record.Thinner{}
	again, err := stays.Thin(first.Batch, 900, all)
	require.NoError(t, err)
	require.False(t, again.Changed)
	require.EqualValues(t, 500, again.Batch.BaseTimestamp())
	last, err := stays.Thin(first.Batch, 900, func(r record.Brief) bool { return r.Offset == 1 })
	require.NoError(t, err)
	require.EqualValues(t, 500, last.Batch.BaseTimestamp())
	require.EqualValues(t, 1000, read(t, last.Batch)[0].Timestamp)
}

func TestHollow(t *testing.T) {
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch, b.ProducerID, b.ProducerEpoch, b.BaseSequence = 40, 9, 5, 1, 17
	b.Codec, b.Compressor = record.Zstd, compress.Codecs{}
	batch, err := b.Add(record.Record{Timestamp: 3}).Add(record.Record{Timestamp: 8}).Build()
	require.NoError(t, err)
	for _, keeps := range []bool{true, false} {
		h, n, err := record.Parse(batch.Header().Hollow(keeps).Bytes())
		require.NoError(t, err)
		require.Equal(t, record.HeaderSize, n)
		require.Empty(t, read(t, h))
		require.EqualValues(t, 40, h.BaseOffset())
		require.EqualValues(t, 42, h.NextOffset())
		require.EqualValues(t, 9, h.LeaderEpoch())
		require.EqualValues(t, 8, h.MaxTimestamp())
		if keeps {
			require.EqualValues(t, []int64{5, 1, 17, 18}, []int64{h.ProducerID(), int64(h.ProducerEpoch()), int64(h.BaseSequence()), int64(h.LastSequence())})
		} else {
			require.EqualValues(t, []int64{-1, -1, -1, -1}, []int64{h.ProducerID(), int64(h.ProducerEpoch()), int64(h.BaseSequence()), int64(h.LastSequence())})
		}
	}
}

func TestBriefsStopAndTellDamage(t *testing.T) {
	b := build(t, record.LZ4, record.Record{Key: []byte("a")}, record.Record{Value: []byte("x")}, record.Record{})
	var seen []record.Brief
	require.NoError(t, b.Briefs(compress.Codecs{}, record.Limits{}, func(r record.Brief) bool {
		seen = append(seen, r)
		return len(seen) < 2
	}))
	require.Equal(t, []record.Brief{{Offset: 0, Key: []byte("a"), Tombstone: true}, {Offset: 1}}, seen)
	require.ErrorIs(t, b.Briefs(nil, record.Limits{}, nil), record.ErrCodec)
	thinner := record.Thinner{Decompressor: compress.Codecs{}}
	_, err := thinner.Thin(b, 0, func(r record.Brief) bool { return r.Offset == 0 })
	require.ErrorIs(t, err, record.ErrCodec, "without a compressor")
}
