package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/disk/file"

	"github.com/stretchr/testify/require"
)

func realFS(t testing.TB) *file.FS {
	fs, err := file.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { fs.Close() })
	return fs
}

func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// abandon lets go of a Store as a kill does, but for the lock that the process keeps.
func abandon(t testing.TB, s *Store) {
	require.NoError(t, s.unlock())
	s.files.closeAll()
	s.journal.close()
}

func TestThousandLogs(t *testing.T) {
	manyLogs(t, newDisk().Mount(), 1000, nil)
}

func TestHundredRealLogs(t *testing.T) {
	manyLogs(t, realFS(t), 100, inParallel)
}

func manyLogs(t *testing.T, fs disk.FS, logs int, forEach func(int, func(int))) {
	opts := Options{MaxOpenFiles: logs / 10, ForEach: forEach}
	s, err := Open(fs, opts)
	require.NoError(t, err)
	for i := range logs {
		l, _ := openLog(t, s, i, smallLog)
		fill(t, l, 3, 20)
	}
	r := s.BeginSync()
	require.True(t, r.all, "not thousands of syncs")
	require.NoError(t, r.Run())
	require.Len(t, r.Finish(), logs)
	require.LessOrEqual(t, s.files.open, logs/10)
	for i := range logs {
		fill(t, s.Log(part(i)), 1, 20)
	}
	abandon(t, s)

	s, err = Open(fs, opts)
	require.NoError(t, err)
	require.Len(t, s.Found(), logs)
	for i := range logs {
		_, st := openLog(t, s, i, smallLog)
		require.EqualValues(t, 4, st.End)
	}
	require.NoError(t, s.Close())
	s, err = Open(fs, opts)
	require.NoError(t, err)
	require.True(t, s.Clean())
	var ids []core.Partition
	for i := range logs {
		ids = append(ids, part(i))
	}
	require.NoError(t, s.DeleteLogs(ids...))
	require.NoError(t, s.Close())
	names, err := fs.List(".")
	require.NoError(t, err)
	require.Len(t, names, 3, "%v", names)
}

// TestConcurrent: reads and rounds of sync beside everything that changes a log. It is for the race detector, and
// checks that nobody ever reads anything but what was appended.
func TestConcurrent(t *testing.T) {
	fs := realFS(t)
	s, err := Open(fs, Options{MaxOpenFiles: 8})
	require.NoError(t, err)
	cfg := smallLog
	cfg.SegmentBytes = 20_000
	var stop atomic.Bool
	var wg sync.WaitGroup
	var syncing sync.Mutex
	reads := atomic.Int64{}
	for n := range 4 {
		l, _ := openLog(t, s, n, cfg)
		wg.Go(func() { changes(t, s, l, n, &stop) })
		for range 2 {
			wg.Go(func() { readers(t, l, &stop, &reads) })
		}
	}
	wg.Go(func() {
		for !stop.Load() {
			syncing.Lock()
			r := s.BeginSync()
			require.NoError(t, r.Run())
			for _, e := range r.Finish() {
				require.GreaterOrEqual(t, e.End, int64(0))
			}
			syncing.Unlock()
		}
	})
	time.Sleep(300 * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	require.Positive(t, reads.Load())
	for n := range 4 {
		if l := s.Log(part(n)); l != nil {
			require.NoError(t, l.Verify())
		}
	}
	require.NoError(t, s.Close())
}

// changes does to a log what a broker may.
func changes(t *testing.T, s *Store, l *Log, n int, stop *atomic.Bool) {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for i := 0; !stop.Load(); i++ {
		start, end := l.Bounds()
		var err error
		switch k := rnd.IntN(60); {
		case k == 0:
			_, err = l.Truncate(start + rnd.Int64N(end-start+1))
		case k == 1:
			_, err = l.SetStart(start+(end-start)/3, nil)
		case k == 2:
			_, err = l.Retain(end, core.WallMillis(end))
		case k == 3:
			err = l.SaveEpochs([]log.EpochStart{{Epoch: 0, Start: 0}})
		case k == 4:
			err = l.SaveProducers(end, log.NewProducers(0).Snapshot())
		case k == 5:
			err = s.Checkpoint([]HighWatermark{{l.Partition(), end}})
		case k == 6 && n == 3:
			require.NoError(t, s.DeleteLogs(l.Partition()))
			return
		default:
			_, err = l.Append([]record.Batch{build(spec{base: end, size: 400, time: end}), build(spec{base: end + 1, size: 300, time: end + 1})})
		}
		require.NoError(t, err)
	}
}

func readers(t *testing.T, l *Log, stop *atomic.Bool, reads *atomic.Int64) {
	for !stop.Load() {
		start, end := l.Bounds()
		from := start + rand.Int64N(end-start+1)
		for from < end && !stop.Load() {
			batches, err := l.ReadBatches(from, end, 3000)
			if errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrNoLog) {
				break
			}
			require.NoError(t, err)
			if len(batches) == 0 {
				break // it was truncated to here
			}
			for _, b := range batches {
				require.LessOrEqual(t, b.BaseOffset(), from)
				require.Equal(t, b.BaseOffset(), b.MaxTimestamp())
				from = b.NextOffset()
				reads.Add(1)
			}
		}
		if _, err := l.LookupTime(from, end); !errors.Is(err, ErrNoLog) {
			require.NoError(t, err)
		}
	}
}

// BenchmarkAppendSync is a write and its sync, as acks=all waits for.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			s, err := Open(realFS(b), Options{})
			require.NoError(b, err)
			l, _ := openLog(b, s, 0, log.Config{FlushMessages: 1})
			batch := build(spec{size: size - 100})
			b.SetBytes(int64(batch.Size()))
			for b.Loop() {
				_, end := l.Bounds()
				batch.Assign(end, 0)
				if _, err := l.Append([]record.Batch{batch}); err != nil {
					b.Fatal(err)
				}
				r := s.BeginSync(l)
				if err := r.Run(); err != nil {
					b.Fatal(err)
				}
				r.Finish()
			}
			require.NoError(b, s.Close())
		})
	}
}

// BenchmarkPlainSync is the limit for it: a loop of write and fdatasync.
func BenchmarkPlainSync(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			fs := realFS(b)
			f, err := fs.Open("f", 1)
			require.NoError(b, err)
			buf := build(spec{size: size - 100}).Bytes()
			b.SetBytes(int64(len(buf)))
			off := int64(0)
			for b.Loop() {
				if _, err := f.WriteAt(buf, off); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
				off += int64(len(buf))
			}
		})
	}
}

// BenchmarkAppend and BenchmarkRead are what they cost without a sync.
func BenchmarkAppend(b *testing.B) {
	s, err := Open(realFS(b), Options{})
	require.NoError(b, err)
	l, _ := openLog(b, s, 0, log.Config{SegmentBytes: 64 << 20})
	batch := build(spec{size: 16 << 10})
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for b.Loop() {
		start, end := l.Bounds()
		batch.Assign(end, 0)
		if _, err := l.Append([]record.Batch{batch}); err != nil {
			b.Fatal(err)
		}
		if end-start > 16_000 {
			l.SetStart(end-8000, nil)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s, err := Open(realFS(b), Options{})
	require.NoError(b, err)
	l, _ := openLog(b, s, 0, log.Config{})
	fill(b, l, 10_000, 16<<10)
	_, end := l.Bounds()
	b.ReportAllocs()
	for _, how := range []string{"sequential", "random"} {
		b.Run(how, func(b *testing.B) {
			from := int64(0)
			for b.Loop() {
				span, err := l.Read(from, end, 1<<20, true)
				if err != nil {
					b.Fatal(err)
				}
				from = span.Next
				span.Release()
				if how == "random" {
					from = rand.Int64N(end)
				} else if from == end {
					from = 0
				}
			}
		})
	}
}

// TestManyLogs measures; it runs if LOGS says how many.
func TestManyLogs(t *testing.T) {
	m := measure{T: t, fs: realFS(t), lap: time.Now()}
	if _, err := fmt.Sscan(os.Getenv("LOGS"), &m.logs); err != nil {
		t.Skip("a measurement: LOGS=10000")
	}
	before := m.heap()
	m.start()
	commit(t, m.s)
	m.done("sync")
	t.Logf("bytes a log: %d", (m.heap()-before)/m.logs)
	m.saveEpochs(0)
	for range 3 {
		inParallel(m.logs, func(i int) { fill(t, m.log(i), 1, 1000) })
		m.done("append 1 KB to each")
		commit(t, m.s)
		m.done("sync")
	}
	t.Logf("bytes a log that was written: %d", (m.heap()-before)/m.logs)
	abandon(t, m.s)
	m.s, m.lap = nil, time.Now()
	before = m.heap()
	m.start()
	t.Logf("bytes a log after a restart: %d", (m.heap()-before)/m.logs)
	m.saveEpochs(1)
	inParallel(m.logs, func(i int) { require.Len(t, readAll(t, m.log(i)), 3) })
	m.done("read all")
	require.NoError(t, m.s.Close())
	m.done("close")
	m.start()
	var ids []core.Partition
	for i := range m.logs {
		ids = append(ids, m.id(i))
	}
	require.NoError(t, m.s.DeleteLogs(ids...))
	m.done("delete all")
	require.NoError(t, m.s.Close())
}

type measure struct {
	*testing.T
	fs   disk.FS
	s    *Store
	logs int
	lap  time.Time
}

func (m *measure) id(i int) core.Partition {
	return core.Partition{Topic: core.TopicID{5}, Index: int32(i)}
}

func (m *measure) log(i int) *Log { return m.s.Log(m.id(i)) }

func (m *measure) done(what string) {
	m.Logf("%-30s %v", what, time.Since(m.lap).Round(time.Millisecond))
	m.lap = time.Now()
}

func (m *measure) heap() int {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapInuse)
}

func (m *measure) start() {
	var err error
	m.s, err = Open(m.fs, Options{ForEach: inParallel})
	require.NoError(m, err)
	m.done("open")
	inParallel(m.logs, func(i int) {
		_, _, err := m.s.OpenLog(m.id(i), "many", log.Config{FlushMessages: 1})
		require.NoError(m, err)
	})
	m.done("open logs")
}

func (m *measure) saveEpochs(epoch int32) {
	for i := range m.logs {
		require.NoError(m, m.log(i).SaveEpochs([]log.EpochStart{{Epoch: epoch, Start: 0}}))
	}
	commit(m, m.s)
	m.done("save epochs, sync")
}
