package record_test

import (
	"hash/crc32"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"
)

// megabyte returns a batch of 1 MB of 1 KB records, which compress to about a half.
func megabyte(b *testing.B, codec record.Codec) []byte {
	records := make([]record.Record, 1000)
	x := uint32(1)
	for i := range records {
		value := make([]byte, 1000)
		for j := range value {
			if x = x*1664525 + 1013904223; j%2 == 0 {
				value[j] = byte(x >> 24)
			}
		}
		records[i] = record.Record{Timestamp: int64(i), Key: []byte("key"), Value: value}
	}
	return build(b, codec, records...).Bytes()
}

// BenchmarkCRC is what checking cannot be faster than.
func BenchmarkCRC(b *testing.B) {
	raw := megabyte(b, record.Uncompressed)
	table := crc32.MakeTable(crc32.Castagnoli)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		crc32.Checksum(raw[21:], table)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			raw := megabyte(b, codec)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if got := record.Check(raw, compress.Codecs{}, record.Limits{}); got.Err != nil {
					b.Fatal(got.Err)
				}
			}
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	batch, _, _ := record.Parse(megabyte(b, record.Uncompressed))
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range batch.Records(nil, record.Limits{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkSetAppendTime(b *testing.B) {
	batch, _, _ := record.Parse(megabyte(b, record.Uncompressed))
	for b.Loop() {
		batch.SetAppendTime(1)
	}
}

func BenchmarkBuild(b *testing.B) {
	r := record.Record{Timestamp: 5, Key: []byte("key"), Value: make([]byte, 1000)}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		builder := record.NewBuilder()
		builder.Grow(1100 * 1000)
		for range 1000 {
			builder.Add(r)
		}
		if _, err := builder.Build(); err != nil {
			b.Fatal(err)
		}
	}
}
