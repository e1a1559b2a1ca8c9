package record_test

import (
	"math"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// build returns a batch of a producer without id.
func build(t require.TestingT, codec record.Codec, records ...record.Record) record.Batch {
	b := record.NewBuilder()
	b.Codec, b.Compressor = codec, compress.Codecs{}
	for _, r := range records {
		b.Add(r)
	}
	batch, err := b.Build()
	require.NoError(t, err)
	return batch
}

// edges are numbers where varints change size or overflow.
var edges = rapid.SampledFrom([]int64{
	0, 1, -1, 63, 64, -64, -65, 8191, 8192, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1,
	1_700_000_000_000, math.MaxInt64 / 2, math.MinInt64/2 + 1,
})

// drawBytes draws null, nothing, a few bytes, or sizes around where a length takes one more byte.
func drawBytes(t *rapid.T, label string) []byte {
	switch rapid.IntRange(0, 4).Draw(t, label) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return make([]byte, rapid.SampledFrom([]int{63, 64, 65, 8191, 8192, 8193}).Draw(t, "size"))
	default:
		return rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")
	}
}

func drawRecord(t *rapid.T) record.Record {
	r := record.Record{Timestamp: edges.Draw(t, "timestamp"), Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		h := record.RecordHeader{Key: drawBytes(t, "header key"), Value: drawBytes(t, "header value")}
		if h.Key == nil {
			h.Key = []byte{}
		}
		r.Headers = append(r.Headers, h)
	}
	return r
}

// Whatever is built is checked, parsed and read back as it was, and rebuilt byte for byte.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 20).Draw(t, "records")
		b := record.NewBuilder()
		b.Codec, b.Compressor = rapid.SampledFrom(codecs).Draw(t, "codec"), compress.Codecs{}
		if rapid.Bool().Draw(t, "producer") {
			b.ProducerID, b.ProducerEpoch = int64(rapid.IntRange(0, 1<<40).Draw(t, "id")), rapid.Int16Min(0).Draw(t, "epoch")
			b.BaseSequence = rapid.Int32Min(0).Draw(t, "sequence")
			if rapid.Bool().Draw(t, "transactional") {
				b.Attributes = record.AttributeTransactional
			}
		}
		for _, r := range records {
			b.Add(r)
		}
		built, err := b.Build()
		require.NoError(t, err)

		raw := append([]byte(nil), built.Bytes()...)
		got := record.Check(raw, compress.Codecs{}, record.Limits{})
		require.NoError(t, got.Err)
		require.Equal(t, built.Bytes(), got.Batch.Bytes(), "Check changed a correct batch")
		requireInfo(t, records, got.Info)
		require.Equal(t, withOffsets(0, records), read(t, got.Batch))

		base, epoch := int64(rapid.IntRange(0, 1<<50).Draw(t, "base")), rapid.Int32().Draw(t, "leader epoch")
		got.Batch.Assign(base, epoch)
		parsed, n, err := record.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, len(raw), n)
		requireAccessors(t, parsed)
		require.Equal(t, base, parsed.BaseOffset())
		require.Equal(t, epoch, parsed.LeaderEpoch())
		require.Equal(t, withOffsets(base, records), read(t, parsed))
	})
}

func requireInfo(t *rapid.T, records []record.Record, info record.Info) {
	want := record.Info{MinTimestamp: record.NoTimestamp, MaxTimestamp: record.NoTimestamp}
	for i, r := range records {
		if r.Key == nil && !want.NullKeys {
			want.NullKeys, want.FirstNullKey = true, int32(i)
		}
		want.MaxTimestamp = max(want.MaxTimestamp, r.Timestamp)
		if r.Timestamp != record.NoTimestamp && (want.MinTimestamp == record.NoTimestamp || r.Timestamp < want.MinTimestamp) {
			want.MinTimestamp = r.Timestamp
		}
	}
	require.Equal(t, want, info)
}

// The accessors say what the header says.
func requireAccessors(t require.TestingT, b record.Batch) {
	h, err := record.ParseHeader(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, h, b.Header())
	require.Equal(t, record.Header{
		BaseOffset: b.BaseOffset(), Length: int32(b.Size() - 12), LeaderEpoch: b.LeaderEpoch(), Magic: 2, CRC: h.CRC,
		Attributes: b.Attributes(), LastOffsetDelta: int32(b.LastOffset() - b.BaseOffset()),
		BaseTimestamp: b.BaseTimestamp(), MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(),
		ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), Count: b.Count(),
	}, h)
	require.Equal(t, h.LastOffset(), b.LastOffset())
	require.Equal(t, h.NextOffset(), b.NextOffset())
	require.Equal(t, h.LastOffset()+1, b.NextOffset())
	require.Equal(t, h.LastSequence(), b.LastSequence())
	require.Equal(t, h.Size(), b.Size())
	require.Equal(t, h.Attributes.Codec(), b.Codec())
	require.Equal(t, h.Attributes&record.AttributeTransactional != 0, b.Transactional())
	require.Equal(t, h.Attributes&record.AttributeControl != 0, b.Control())
	require.Equal(t, h.Attributes&record.AttributeLogAppendTime != 0, b.LogAppendTime())
	require.Equal(t, h.Attributes&record.AttributeDeleteHorizon != 0, b.HasDeleteHorizon())
	require.False(t, b.IsZero())
}

// What compaction leaves has gaps; it parses and reads, but no producer may send it.
func TestGaps(t *testing.T) {
	for _, codec := range codecs {
		b := record.NewBuilder()
		b.BaseOffset, b.Codec, b.Compressor = 100, codec, compress.Codecs{}
		for _, offset := range []int64{103, 104, 109} {
			b.AddAt(record.Record{Offset: offset, Key: []byte("k"), Timestamp: 5})
		}
		batch, err := b.Build()
		require.NoError(t, err)
		require.EqualValues(t, 100, batch.BaseOffset())
		require.EqualValues(t, 109, batch.LastOffset())
		require.EqualValues(t, 3, batch.Count())
		var got []int64
		for _, r := range read(t, batch) {
			got = append(got, r.Offset)
		}
		require.Equal(t, []int64{103, 104, 109}, got)
		batch.Assign(0, 0)
		require.ErrorIs(t, record.Check(batch.Bytes(), compress.Codecs{}, record.Limits{}).Err, record.ErrOffsets)
	}
}

func TestBuilderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *record.Builder)
		want  error
	}{
		"no record":      {func(*record.Builder) {}, record.ErrCount},
		"below the base": {func(b *record.Builder) { b.BaseOffset = 5; b.AddAt(record.Record{Offset: 4}) }, record.ErrOffsets},
		"too far":        {func(b *record.Builder) { b.AddAt(record.Record{Offset: 1 << 31}) }, record.ErrOffsets},
		"not rising":     {func(b *record.Builder) { b.AddAt(record.Record{Offset: 3}).AddAt(record.Record{Offset: 3}) }, record.ErrOffsets},
		"negative base":  {func(b *record.Builder) { b.BaseOffset = -1; b.Add(record.Record{}) }, record.ErrHeader},
		"timestamp overflow": {func(b *record.Builder) {
			b.Add(record.Record{Timestamp: math.MaxInt64}).Add(record.Record{Timestamp: -2})
		}, record.ErrRecord},
		"no compressor": {func(b *record.Builder) { b.Codec = record.LZ4; b.Add(record.Record{}) }, record.ErrCodec},
		"unknown codec": {func(b *record.Builder) { b.Codec = 5; b.Compressor = compress.Codecs{}; b.Add(record.Record{}) }, record.ErrCodec},
	} {
		t.Run(name, func(t *testing.T) {
			b := record.NewBuilder()
			c.build(b)
			_, err := b.Build()
			require.ErrorIs(t, err, c.want)
		})
	}
}

// A Builder builds one batch after another, and what it built stays as it was.
func TestBuilderAgain(t *testing.T) {
	for _, codec := range codecs {
		b := record.NewBuilder()
		b.Codec, b.Compressor = codec, compress.Codecs{}
		require.Equal(t, record.HeaderSize, b.Size())
		first, err := b.Add(record.Record{Key: []byte("first"), Timestamp: 9}).Build()
		require.NoError(t, err)
		saved := append([]byte(nil), first.Bytes()...)
		_, err = b.AddAt(record.Record{Offset: -5}).Build()
		require.Error(t, err)
		b.Add(record.Record{Key: []byte("dropped")}).Reset()
		b.Grow(1000)
		b.BaseOffset = 1
		require.Zero(t, b.Count())
		b.Add(record.Record{Key: []byte("other"), Timestamp: 3})
		require.Equal(t, 1, b.Count())
		if codec == record.Uncompressed {
			require.Equal(t, first.Size(), b.Size())
		}
		second, err := b.Build()
		require.NoError(t, err)
		require.Equal(t, saved, first.Bytes())
		require.Equal(t, []record.Record{{Offset: 1, Timestamp: 3, Key: []byte("other")}}, read(t, second))
	}
}

func TestEndTxn(t *testing.T) {
	for _, want := range []record.EndTxn{
		{ProducerID: 1 << 40, ProducerEpoch: 7, Commit: true, CoordinatorEpoch: 12, Timestamp: 99},
		{ProducerID: 0, ProducerEpoch: 0, Commit: false, CoordinatorEpoch: 0, Timestamp: 0},
	} {
		b := want.Batch(10, 3)
		_, _, err := record.Parse(b.Bytes())
		require.NoError(t, err)
		require.EqualValues(t, 10, b.BaseOffset())
		require.EqualValues(t, 3, b.LeaderEpoch())
		require.Equal(t, record.NoSequence, b.LastSequence())
		got, ok := record.ParseEndTxn(b)
		require.True(t, ok)
		require.Equal(t, want, got)
		b.Assign(0, 0)
		require.ErrorIs(t, record.Check(b.Bytes(), nil, record.Limits{}).Err, record.ErrControl)
	}
	_, ok := record.ParseEndTxn(build(t, record.Uncompressed, sample(1)...))
	require.False(t, ok, "data is no marker")
}

func TestLeaderChange(t *testing.T) {
	m := kmsg.NewLeaderChangeMessage()
	m.LeaderID = 3
	m.Voters = []kmsg.LeaderChangeMessageVoter{{VoterID: 1}, {VoterID: 3}}
	b := record.LeaderChange(42, 8, 1234, m)
	require.True(t, b.Control())
	require.False(t, b.Transactional())
	require.EqualValues(t, 42, b.BaseOffset())
	records := read(t, b)
	require.Len(t, records, 1)
	typ, err := record.ParseControl(records[0])
	require.NoError(t, err)
	require.Equal(t, record.ControlLeaderChange, typ)
	var got kmsg.LeaderChangeMessage
	require.NoError(t, got.ReadFrom(records[0].Value))
	require.Equal(t, m, got)
	_, ok := record.ParseEndTxn(b)
	require.False(t, ok)
	_, err = record.ParseControl(record.Record{Key: []byte{0, 0, 0}})
	require.ErrorIs(t, err, record.ErrRecord)
}
