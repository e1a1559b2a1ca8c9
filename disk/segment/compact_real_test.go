package segment

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/compress"
	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// keyedBatch is a batch of records whose values are their own offsets.
func keyedBatch(base int64, keys ...string) record.Batch {
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch = base, 0
	for i, key := range keys {
		b.Add(record.Record{Timestamp: base, Key: []byte(key), Value: fmt.Appendf(nil, "%d %0200d", base+int64(i), 0)})
	}
	batch, err := b.Build()
	if err != nil {
		panic(err)
	}
	return batch
}

// TestCompactConcurrently: appends, reads, syncs, lookups, retention and a deletion beside compaction. It is for the race detector,
// and checks that a reader never misses the last value of a key, nor reads anything twice or backwards.
func TestCompactConcurrently(t *testing.T) {
	fs := realFS(t)
	s, err := Open(fs, Options{MaxOpenFiles: 4})
	require.NoError(t, err)
	cfg := log.Config{SegmentBytes: 4000, IndexIntervalBytes: 200, FlushMessages: 1, RetentionBytes: -1, RetentionMillis: -1, Compact: true, MaxCompactionLag: -1}
	var stop atomic.Bool
	var wg sync.WaitGroup
	var runs, reads atomic.Int64
	for n := range 2 {
		l, _ := openLog(t, s, n, cfg)
		var durable atomic.Int64
		wg.Go(func() { // writer
			rnd := rand.New(rand.NewPCG(1, uint64(n)))
			for i := 0; !stop.Load(); i++ {
				_, end := l.Bounds()
				_, err := l.Append([]record.Batch{keyedBatch(end, fmt.Sprint(rnd.IntN(20)), fmt.Sprint(rnd.IntN(20)))})
				if errors.Is(err, ErrNoLog) {
					return
				}
				require.NoError(t, err)
				if i%3 == 0 {
					time.Sleep(50 * time.Microsecond)
				}
			}
		})
		wg.Go(func() { // compaction
			for !stop.Load() {
				stats, err := l.BeginCompact(CompactOptions{Limit: durable.Load(), Covered: math.MaxInt64, Wall: 1}).Run()
				require.NoError(t, err)
				if stats.BytesBefore > 0 {
					runs.Add(1)
				}
			}
		})
		wg.Go(func() {
			for !stop.Load() {
				time.Sleep(time.Millisecond)
				durable.Store(max(durable.Load(), l.durableEnd()))
			}
		})
		for range 2 {
			wg.Go(func() {
				for !stop.Load() {
					if reads.Add(readKeyed(t, l)); l.isDeleted() {
						return
					}
				}
			})
		}
		if n == 1 {
			wg.Go(func() {
				time.Sleep(400 * time.Millisecond)
				require.NoError(t, s.DeleteLogs(l.Partition()))
			})
		}
	}
	wg.Go(func() {
		for !stop.Load() {
			r := s.BeginSync()
			require.NoError(t, r.Run())
			r.Finish()
		}
	})
	for began := time.Now(); time.Since(began) < 700*time.Millisecond || (runs.Load() == 0 || reads.Load() == 0) && time.Since(began) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	require.Positive(t, runs.Load())
	require.Positive(t, reads.Load())
	require.NoError(t, s.Log(part(0)).Verify())
	require.NoError(t, s.Close())
}

// durableEnd is the recovery point.
func (l *Log) durableEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noted.off
}

// readKeyed reads a log to the end that it had, and checks what it finds.
func readKeyed(t *testing.T, l *Log) (read int64) {
	at, end := l.Bounds()
	last := int64(-1)
	for at < end {
		batches, err := l.ReadBatches(at, end, 3000)
		if errors.Is(err, ErrNoLog) {
			return read
		}
		require.NoError(t, err)
		if len(batches) == 0 { // what was left below the end that the log had is gone, and what follows begins above
			_, now := l.Bounds()
			batches, err = l.ReadBatches(at, now, 3000)
			if errors.Is(err, ErrNoLog) {
				return read
			}
			require.NoError(t, err)
			require.NotEmpty(t, batches)
			require.GreaterOrEqual(t, batches[0].BaseOffset(), end)
			return read
		}
		for _, b := range batches {
			for r, err := range b.Records(nil, record.Limits{}) {
				require.NoError(t, err)
				require.Greater(t, r.Offset, last)
				require.Equal(t, fmt.Sprintf("%d %0200d", r.Offset, 0), string(r.Value))
				last = r.Offset
				read++
			}
			at = b.NextOffset()
		}
	}
	_, err := l.LookupTime(at/2, end)
	if !errors.Is(err, ErrNoLog) {
		require.NoError(t, err)
	}
	return read
}

// TestCompactLarge measures compaction: COMPACT_MB megabytes of records of 100 bytes (or COMPACT_VALUE) with a million keys (or
// COMPACT_KEYS), on the disk of the temporary directory.
//
//	COMPACT_MB=1024 go test -run TestCompactLarge -v ./disk/segment
func TestCompactLarge(t *testing.T) {
	megabytes := envInt("COMPACT_MB", 2)
	keys, size := envInt("COMPACT_KEYS", 1_000_000), envInt("COMPACT_VALUE", 100)
	s, err := Open(realFS(t), Options{Decompressor: compress.Codecs{}, Compressor: compress.Codecs{}})
	require.NoError(t, err)
	cfg := log.Config{SegmentBytes: min(256<<20, int64(megabytes)<<17), Compact: true, MaxCompactionLag: -1, RetentionBytes: -1, RetentionMillis: -1}
	l, _ := openLog(t, s, 0, cfg)
	codec, _ := record.ParseCodec(os.Getenv("COMPACT_CODEC"))
	fillKeys(t, l, int64(megabytes)<<20, keys, size, codec)
	commit(t, s)
	_, end := l.Bounds()
	before := l.Size()
	var peak uint64
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	base := m.HeapAlloc
	ticks := 0
	began := time.Now()
	stats, err := l.BeginCompact(CompactOptions{Limit: end, Covered: math.MaxInt64, Wall: core.WallMillis(time.Now().UnixMilli()), Pace: func(int) error {
		if ticks++; ticks%64 == 0 {
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
		return nil
	}}).Run()
	took := time.Since(began)
	require.NoError(t, err)
	require.True(t, stats.Due)
	require.Less(t, l.Size(), before)
	if peak < base {
		peak = base
	}
	t.Logf("log %d MB, %d records; compacted in %v: %.0f MB/s of log, %d keys, map %d MB, heap at most %d MB above; replaced %d MB by %d MB",
		before>>20, end, took.Round(time.Millisecond), float64(before)/1e6/took.Seconds(), stats.Keys, stats.MapBytes>>20, (peak-base)>>20,
		stats.BytesBefore>>20, stats.BytesAfter>>20)
	if megabytes < 100 {
		require.NoError(t, l.Verify())
	}
	require.NoError(t, s.Close())
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// fillKeys appends batches of 16 KB until a log has some size.
func fillKeys(t *testing.T, l *Log, bytes int64, keys, size int, codec record.Codec) {
	rnd := rand.New(rand.NewPCG(7, 8))
	value := make([]byte, size)
	for l.Size() < bytes {
		_, end := l.Bounds()
		b := record.NewBuilder()
		b.BaseOffset, b.LeaderEpoch, b.Codec, b.Compressor = end, 0, codec, compress.Codecs{}
		for b.Size() < 16<<10 {
			for i := range value {
				value[i] = 'a' + byte(rnd.IntN(16))
			}
			b.Add(record.Record{Timestamp: end, Key: fmt.Appendf(nil, "key-%09d", rnd.IntN(keys)), Value: value})
		}
		batch, err := b.Build()
		require.NoError(t, err)
		_, err = l.Append([]record.Batch{batch})
		require.NoError(t, err)
	}
}
