package record_test

import (
	"errors"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// seed adds batches of all codecs and of other implementations, and what is not one.
func seed(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	for _, raw := range golden(f) {
		if len(raw) < 2000 {
			f.Add(raw)
		}
	}
	for _, codec := range codecs {
		f.Add(build(f, codec, sample(6)...).Bytes())
	}
	f.Add(record.EndTxn{ProducerID: 1, Commit: true}.Batch(3, 1).Bytes())
}

// fuzzLimit keeps bombs from slowing the fuzzer down.
var fuzzLimit = record.Limits{DecompressedBytes: 1 << 20}

func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, n, err := record.Parse(data)
		batches, used, allErr := record.ParseAll(data)
		require.LessOrEqual(t, used, len(data))
		if err != nil {
			require.True(t, b.IsZero())
			require.Empty(t, batches)
			require.Equal(t, errors.Is(err, record.ErrTruncated), allErr == nil)
			return
		}
		require.Equal(t, data[:n], b.Bytes())
		require.Equal(t, n, b.Size())
		require.NotEmpty(t, batches)
		requireAccessors(t, b)
	})
}

// FuzzCheck makes length, magic and CRC right, or nothing would get past them.
// What passes must be readable by us and by another implementation.
func FuzzCheck(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < record.HeaderSize {
			require.Error(t, check(data).Err)
			return
		}
		raw := forge(data, func(raw []byte) []byte { raw[16] = 2; return raw })
		got := record.Check(raw, compress.Codecs{}, fuzzLimit)
		if got.Err != nil {
			require.NotZero(t, record.Code(got.Err))
			return
		}
		records, err := readAll(got.Batch)
		require.NoError(t, err)
		require.Len(t, records, int(got.Batch.Count()))
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches = raw
		fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"}, &rp, kgo.DefaultDecompressor(), nil)
		require.NoError(t, fp.Err)
		require.Equal(t, len(records), len(fp.Records))
		for i, r := range fp.Records {
			require.Equal(t, records[i].Offset, r.Offset)
			if ms := records[i].Timestamp; ms > -9e12 && ms < 9e12 { // its times are 64 bits of nanoseconds
				require.Equal(t, ms, r.Timestamp.UnixMilli())
			}
			require.Equal(t, records[i].Key, r.Key)
			require.Equal(t, records[i].Value, r.Value)
			require.Len(t, r.Headers, len(records[i].Headers))
		}
	})
}

// FuzzRecords iterates over batches that were never checked.
func FuzzRecords(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < record.HeaderSize {
			return
		}
		raw := forge(data, func(raw []byte) []byte { raw[16] = 2; return raw })
		b, _, err := record.Parse(raw)
		if err != nil {
			return
		}
		last, count := b.BaseOffset()-1, int32(0)
		for r, err := range b.Records(compress.Codecs{}, fuzzLimit) {
			if err != nil {
				require.NotZero(t, record.Code(err))
				return
			}
			require.Greater(t, r.Offset, last)
			require.LessOrEqual(t, r.Offset, b.LastOffset())
			last = r.Offset
			count++
		}
		require.Equal(t, b.Count(), count)
		record.ParseEndTxn(b)
	})
}
