package node

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// TestLargeBatchesAreCheckedOneByOne: a few bytes may decompress to very many, and many connections may send such.
func TestLargeBatchesAreCheckedOneByOne(t *testing.T) {
	var running, most, small atomic.Int64
	check := checker(func(records []byte, limit int) record.Checked {
		if limit < record.DefaultDecompressedBytes {
			small.Add(1)
			return record.Checked{Err: record.ErrTooLarge}
		}
		n := running.Add(1)
		most.Store(max(most.Load(), n))
		runtime.Gosched()
		running.Add(-1)
		return record.Checked{}
	})
	compressed := make([]byte, record.HeaderSize)
	compressed[22] = 1
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if c := check(compressed); c.Err != nil {
				panic(c.Err)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(200), small.Load())
	require.Equal(t, int64(1), most.Load())
}

// TestBatchesOfAllSizesAreChecked: one that decompresses to more than others beside it may is taken all the same, up to the limit.
func TestBatchesOfAllSizesAreChecked(t *testing.T) {
	check := checker(decompressing)
	for size, want := range map[int]error{100: nil, 1 << 20: nil, 40 << 20: nil, record.DefaultDecompressedBytes + 1: record.ErrTooLarge} {
		require.ErrorIs(t, check(gzipBatch(t, size)).Err, want, size)
	}
}

// gzipBatch is a compressed batch of one record with a value of size zeros.
func gzipBatch(t *testing.T, size int) []byte {
	body := append([]byte{0, 0, 0, 1}, binary.AppendVarint(nil, int64(size))...) // attributes, deltas, no key
	body = append(append(body, make([]byte, size)...), 0)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	for _, p := range [][]byte{binary.AppendVarint(nil, int64(len(body))), body} {
		_, err := w.Write(p)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	b := make([]byte, record.HeaderSize, record.HeaderSize+z.Len())
	b[16], b[22] = 2, 1 // magic, gzip
	binary.BigEndian.PutUint32(b[8:], uint32(record.HeaderSize-12+z.Len()))
	for i := 43; i < 57; i++ {
		b[i] = 0xff // no producer
	}
	b[60] = 1 // records
	b = append(b, z.Bytes()...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
