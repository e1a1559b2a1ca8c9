package record_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = []record.Codec{record.Uncompressed, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

var kgoCodecs = map[record.Codec]kgo.CompressionCodec{
	record.Uncompressed: kgo.NoCompression(), record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(),
	record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression(),
}

// sample is records with everything that a record can have.
func sample(n int) []record.Record {
	records := make([]record.Record, n)
	for i := range records {
		r := &records[i]
		r.Timestamp = 1_700_000_000_000 + int64(i*i%1000) - 300
		r.Key = fmt.Appendf(nil, "key-%d", i)
		r.Value = bytes.Repeat(fmt.Appendf(nil, "value %d ", i), i%40)
		switch i % 5 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Key, r.Value = []byte{}, []byte{}
		case 4:
			r.Headers = []record.RecordHeader{
				{Key: []byte("trace"), Value: []byte{0, 1, 2}}, {Key: []byte{}, Value: nil}, {Key: []byte("e"), Value: []byte{}},
			}
		}
	}
	return records
}

func toKgo(records []record.Record) []*kgo.Record {
	out := make([]*kgo.Record, len(records))
	for i, r := range records {
		out[i] = &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
	}
	return out
}

func fromKgo(records []*kgo.Record) []record.Record {
	out := make([]record.Record, len(records))
	for i, r := range records {
		out[i] = record.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, record.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
	}
	return out
}

// read returns the records of a batch, copied nowhere.
func read(t require.TestingT, b record.Batch) []record.Record {
	var out []record.Record
	for r, err := range b.Records(compress.Codecs{}, record.Limits{}) {
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// withOffsets returns the records at consecutive offsets.
func withOffsets(base int64, records []record.Record) []record.Record {
	out := append([]record.Record(nil), records...)
	for i := range out {
		out[i].Offset = base + int64(i)
	}
	return out
}

// What another implementation encodes passes Check and is read as it was meant.
func TestBatchesOfKgo(t *testing.T) {
	want := sample(100)
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			var read100 []record.Record
			used := make(map[record.Codec]bool)
			for _, raw := range produceWithKgo(t, toKgo(want), kgo.ProducerBatchCompression(kgoCodecs[codec])) {
				got := record.Check(raw, compress.Codecs{}, record.Limits{})
				require.NoError(t, got.Err)
				b, first := got.Batch, int32(len(read100))
				used[b.Codec()] = true
				require.EqualValues(t, 4711, b.ProducerID())
				require.EqualValues(t, 3, b.ProducerEpoch())
				require.Equal(t, first, b.BaseSequence())
				require.Equal(t, first+b.Count()-1, b.LastSequence())
				b.Assign(1000+int64(first), 7)
				read100 = append(read100, read(t, b)...)
			}
			require.Equal(t, withOffsets(1000, want), read100)
			require.True(t, used[codec])
			if delete(used, codec); len(used) > 0 { // a batch that would not get smaller is not compressed
				require.Equal(t, map[record.Codec]bool{record.Uncompressed: true}, used)
			}
		})
	}
}

func TestBatchesOfKgoWithoutProducerID(t *testing.T) {
	sent := produceWithKgo(t, toKgo(sample(1)), kgo.DisableIdempotentWrite())
	require.Equal(t, 1, len(sent))
	got := record.Check(sent[0], nil, record.Limits{})
	require.NoError(t, got.Err)
	require.Equal(t, record.NoProducerID, got.Batch.ProducerID())
	require.Equal(t, record.NoSequence, got.Batch.LastSequence())
	require.False(t, got.Batch.Transactional())
	require.False(t, got.Info.NullKeys)
}

// fetchWithKgo decodes the records of a Fetch response with franz-go.
func fetchWithKgo(t *testing.T, raw []byte, offset int64, keepControl bool) ([]record.Record, []*kgo.Record) {
	t.Helper()
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches = raw
	rp.HighWatermark, rp.LastStableOffset = 1<<40, 1<<40
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Topic: fakeTopic, Offset: offset, KeepControlRecords: keepControl,
	}, &rp, kgo.DefaultDecompressor(), nil)
	require.NoError(t, fp.Err)
	return fromKgo(fp.Records), fp.Records
}

// What Builder builds is read by another implementation as it was meant.
func TestBuilderForKgo(t *testing.T) {
	want := sample(100)
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(t, codec, want...)
			b.Assign(5000, 2)
			got, _ := fetchWithKgo(t, b.Bytes(), 5000, false)
			require.Equal(t, withOffsets(5000, want), got)
		})
	}
}

func TestAppendTimeForKgo(t *testing.T) {
	for _, codec := range codecs {
		b := build(t, codec, sample(10)...)
		b.SetAppendTime(1_800_000_000_123)
		_, got := fetchWithKgo(t, b.Bytes(), 0, false)
		require.Len(t, got, 10)
		for _, r := range got {
			require.EqualValues(t, 1_800_000_000_123, r.Timestamp.UnixMilli())
			require.EqualValues(t, 1, r.Attrs.TimestampType())
		}
	}
}

func TestControlBatchesForKgo(t *testing.T) {
	end := record.EndTxn{ProducerID: 9, ProducerEpoch: 2, Commit: true, CoordinatorEpoch: 5, Timestamp: 1_700_000_000_000}
	b := end.Batch(77, 4)
	_, got := fetchWithKgo(t, b.Bytes(), 77, true)
	require.Len(t, got, 1)
	require.True(t, got[0].Attrs.IsControl())
	require.True(t, got[0].Attrs.IsTransactional())
	require.EqualValues(t, 77, got[0].Offset)
	require.EqualValues(t, 9, got[0].ProducerID)
	var key kmsg.ControlRecordKey
	require.NoError(t, key.ReadFrom(got[0].Key))
	require.Equal(t, kmsg.ControlRecordKeyTypeCommit, key.Type)
	var value kmsg.EndTxnMarker
	require.NoError(t, value.ReadFrom(got[0].Value))
	require.EqualValues(t, 5, value.CoordinatorEpoch)
}
