package segment

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

func TestAppendReadRoll(t *testing.T) {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, st := openLog(t, s, 0, smallLog)
	require.Zero(t, st.End)
	rolls := 0
	var want []record.Batch
	for i := range 60 {
		b := build(spec{base: int64(i), size: 100 + i, time: int64(i)})
		rolled, err := l.Append([]record.Batch{b})
		require.NoError(t, err)
		if rolled {
			rolls++
		}
		want = append(want, b)
	}
	require.Equal(t, len(segments(l))-1, rolls)
	require.Greater(t, rolls, 3)
	require.Equal(t, want, readAll(t, l))
	ends := commit(t, s)
	require.Equal(t, []DurableEnd{{part(0), 60}}, ends)
	require.NoError(t, l.Verify())

	s = restart(t, d, s)
	require.True(t, s.Clean())
	require.Equal(t, []Found{{part(0), "t", nil}}, s.Found())
	l, st = openLog(t, s, 0, smallLog)
	require.True(t, st.Clean)
	require.EqualValues(t, 60, st.End)
	require.Equal(t, want, readAll(t, l))
	require.NoError(t, l.Verify())
}

func TestReadFindsEveryOffset(t *testing.T) {
	s := openStore(t, newDisk().Mount())
	l, _ := openLog(t, s, 0, smallLog)
	end := int64(0)
	for i := range 80 {
		b := build(spec{base: end, records: 1 + i%5, size: 30})
		_, err := l.Append([]record.Batch{b})
		require.NoError(t, err)
		end = b.NextOffset()
	}
	for from := int64(0); from < end; from++ {
		l.forgetPlaces()
		for _, limit := range []int64{end, from + 7, from + 1} {
			got, err := l.ReadBatches(from, limit, 1)
			require.NoError(t, err)
			whole := len(got) == 1 && got[0].BaseOffset() <= from && from < got[0].NextOffset() && got[0].NextOffset() <= limit
			none := len(got) == 0 && limit < end
			require.True(t, whole || none, "from %d limit %d: %d batches", from, limit, len(got))
		}
	}
	_, err := l.Read(end+1, end+2, 100, true)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	span, err := l.Read(end, end+2, 100, true)
	require.NoError(t, err)
	require.Zero(t, span.Len)
}

func TestReadBounds(t *testing.T) {
	s := openStore(t, newDisk().Mount())
	cfg := smallLog
	cfg.SegmentBytes = 1 << 20
	l, _ := openLog(t, s, 0, cfg)
	fill(t, l, 100, 100)
	size := int64(l.Size() / 100)
	for n := int64(1); n < 40; n += 3 {
		span, err := l.Read(20, 90, int32(n*size+2*n), false)
		require.NoError(t, err)
		require.LessOrEqual(t, int64(span.Len), n*size+2*n)
		require.InDelta(t, 20+n, span.Next, 1)
		var buf bytes.Buffer
		_, err = span.WriteTo(&buf)
		require.NoError(t, err)
		batches, used, err := record.ParseAll(buf.Bytes())
		require.NoError(t, err)
		require.Equal(t, span.Len, used)
		require.Equal(t, span.Next, batches[len(batches)-1].NextOffset())
		span.Release()
	}
	span, err := l.Read(5, 100, 1, false)
	require.NoError(t, err)
	require.Zero(t, span.Len)
}

func TestReadMany(t *testing.T) {
	s := openStore(t, newDisk().Mount())
	var reqs []ReadRequest
	for i := range 3 {
		l, _ := openLog(t, s, i, smallLog)
		if i > 0 {
			fill(t, l, 10, 100)
		}
		reqs = append(reqs, ReadRequest{Log: l, From: 0, Limit: 10, MaxBytes: 400})
	}
	reqs = append(reqs, ReadRequest{}, ReadRequest{Log: s.Log(part(1)), From: 99, Limit: 100, MaxBytes: 10})
	one := build(spec{base: 0, size: 100}).Size()
	lens := func(maxBytes int32) (list []int) {
		for _, r := range ReadMany(reqs, maxBytes, nil) {
			list = append(list, r.Span.Len/one)
			r.Span.Release()
		}
		return list
	}
	require.Equal(t, []int{0, 1, 0, 0, 0}, lens(1), "the first batch of the first that has one comes whole")
	require.Equal(t, []int{0, 2, 0, 0, 0}, lens(int32(2*one+one/2)))
	require.Equal(t, []int{0, 2, 1, 0, 0}, lens(int32(3*one)))
	require.Equal(t, []int{0, 2, 2, 0, 0}, lens(5000))
	results := ReadMany(reqs, 5000, nil)
	require.ErrorIs(t, results[3].Err, ErrNoLog)
	require.ErrorIs(t, results[4].Err, ErrOffsetOutOfRange)
}

func TestAppendRefusesWhatDoesNotFollow(t *testing.T) {
	s := openStore(t, newDisk().Mount())
	l, _ := openLog(t, s, 0, smallLog)
	fill(t, l, 3, 10)
	_, err := l.Append([]record.Batch{build(spec{base: 2})})
	require.ErrorIs(t, err, ErrOffsetOrder)
	_, err = l.Append([]record.Batch{build(spec{base: 4})})
	require.ErrorIs(t, err, ErrOffsetOrder)
	_, err = l.Append([]record.Batch{build(spec{base: 3, epoch: 5}), build(spec{base: 4, epoch: 4})})
	require.ErrorIs(t, err, ErrOffsetOrder)
	compacted := smallLog
	compacted.Compact = true
	l.Configure(compacted)
	_, err = l.Append([]record.Batch{build(spec{base: 5, epoch: 5})})
	require.NoError(t, err, "compaction leaves gaps, and followers copy them")
	got, err := l.ReadBatches(3, 6, 100)
	require.NoError(t, err)
	require.EqualValues(t, 5, got[0].BaseOffset())
}

func TestRollByTimeAndIndex(t *testing.T) {
	s := openStore(t, newDisk().Mount())
	cfg := log.Config{SegmentMillis: 10 * time.Second}
	l, _ := openLog(t, s, 0, cfg)
	for i, at := range []int64{1000, 5000, 11_000, 11_001, 12_000, 21_002} {
		_, err := l.Append([]record.Batch{build(spec{base: int64(i), time: at})})
		require.NoError(t, err)
	}
	require.Equal(t, []int64{0, 3, 5}, segments(l))
	cfg = log.Config{IndexIntervalBytes: 1, IndexBytes: 5 * entrySize}
	l, _ = openLog(t, s, 1, cfg)
	fill(t, l, 20, 10)
	require.Equal(t, []int64{0, 6, 12, 18}, segments(l))
}

func TestTruncate(t *testing.T) {
	for to := int64(0); to <= 30; to++ {
		d := newDisk()
		s := openStore(t, d.Mount())
		l, _ := openLog(t, s, 0, smallLog)
		fill(t, l, 30, 100)
		if to%2 == 0 {
			commit(t, s)
		}
		require.NoError(t, l.SaveEpochs([]log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 12}, {Epoch: 7, Start: 25}}))
		require.NoError(t, l.SaveProducers(10, log.NewProducers(0).Snapshot()))
		require.NoError(t, l.SaveProducers(20, log.NewProducers(0).Snapshot()))
		span, err := l.Read(28, 30, 1000, true)
		require.NoError(t, err)
		end, err := l.Truncate(to)
		require.NoError(t, err)
		require.Equal(t, to, end)
		for i := to; i < to+9; i++ {
			_, err := l.Append([]record.Batch{build(spec{base: i, size: 77, epoch: 9, time: 50})})
			require.NoError(t, err)
		}
		if buf := make([]byte, span.Len); span.ReadInto(buf) == nil { // what is there is still the old
			b, _, err := record.Parse(buf)
			require.NoError(t, err)
			require.EqualValues(t, 0, b.LeaderEpoch())
		}
		span.Release()
		require.NoError(t, l.Verify())
		require.Len(t, readAll(t, l), int(to)+9)
		_, err = l.Truncate(to)
		require.NoError(t, err)
		d.PowerLoss()
		s = openStore(t, d.Mount())
		l, st := openLog(t, s, 0, smallLog)
		require.Equal(t, to, st.End)
		for _, e := range st.Epochs {
			require.Less(t, e.Start, max(to, 1))
		}
		require.NotContains(t, l.snapshots, int64(20+10*btoi(to >= 20)))
		require.NoError(t, l.Verify())
		require.Len(t, readAll(t, l), int(to))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSetStart(t *testing.T) {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, smallLog)
	fill(t, l, 40, 100)
	commit(t, s)
	start, err := l.SetStart(17, nil)
	require.NoError(t, err)
	require.EqualValues(t, 17, start)
	require.LessOrEqual(t, segments(l)[0], int64(17))
	require.Greater(t, segments(l)[1], int64(17))
	_, err = l.Read(16, 40, 100, true)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	start, err = l.SetStart(3, nil)
	require.NoError(t, err)
	require.EqualValues(t, 17, start)
	d.PowerLoss()
	s = openStore(t, d.Mount())
	l, st := openLog(t, s, 0, smallLog)
	require.EqualValues(t, 17, st.Start)
	require.EqualValues(t, 40, st.End)

	start, err = l.SetStart(100, nil)
	require.NoError(t, err)
	require.EqualValues(t, 100, start)
	d.PowerLoss()
	s = openStore(t, d.Mount())
	l, st = openLog(t, s, 0, smallLog)
	require.EqualValues(t, 100, st.Start)
	require.EqualValues(t, 100, st.End)
	fill(t, l, 3, 10)
	s = restart(t, d, s)
	l, st = openLog(t, s, 0, smallLog)
	require.EqualValues(t, 100, st.Start)
	require.EqualValues(t, 103, st.End)
	require.NoError(t, l.Verify())
}

func TestRetain(t *testing.T) {
	d := newDisk()
	s := openStore(t, d.Mount())
	cfg := smallLog
	cfg.RetentionMillis = time.Second
	l, _ := openLog(t, s, 0, cfg)
	fill(t, l, 40, 100) // at 1000 ms and on
	bases := segments(l)
	commit(t, s)
	start, err := l.Retain(40, 2000+3)
	require.NoError(t, err)
	require.EqualValues(t, 0, start)
	start, err = l.Retain(bases[1]-1, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 0, start, "rule 19: the first segment reaches the limit")
	start, err = l.Retain(40, core.WallMillis(2000+bases[2]))
	require.NoError(t, err)
	require.EqualValues(t, bases[2], start)
	start, err = l.Retain(40, 100_000)
	require.NoError(t, err)
	require.EqualValues(t, 40, start)
	require.Empty(t, segments(l))
	d.PowerLoss()
	s = openStore(t, d.Mount())
	l, st := openLog(t, s, 0, cfg)
	require.EqualValues(t, 40, st.Start)
	require.EqualValues(t, 40, st.End)

	cfg.RetentionMillis, cfg.RetentionBytes = -1, 3000
	l.Configure(cfg)
	fill(t, l, 40, 100)
	before := l.Size()
	start, err = l.Retain(80, 0)
	require.NoError(t, err)
	require.Greater(t, start, int64(40))
	require.GreaterOrEqual(t, l.Size(), int64(3000))
	require.Less(t, l.Size(), before)
	require.Less(t, l.Size(), int64(5000))
}

func TestFailedAppendIsCutOff(t *testing.T) {
	for _, effect := range []simdisk.Effect{simdisk.NoSpace, simdisk.IOError, simdisk.Short} {
		t.Run(effect.String(), func(t *testing.T) {
			d := newDisk()
			s := openStore(t, d.Mount())
			l, _ := openLog(t, s, 0, smallLog)
			for i := range 40 {
				fill(t, l, 1, 100)
				d.AddRule(simdisk.Rule{Op: simdisk.OpWrite, Path: "t-0/*.log", Nth: 1, Effect: effect, Seed: uint64(i)})
				_, end := l.Bounds()
				_, err := l.Append([]record.Batch{build(spec{base: end, size: 100}), build(spec{base: end + 1, size: 100})})
				require.Error(t, err)
				if effect == simdisk.NoSpace {
					require.ErrorIs(t, err, disk.ErrNoSpace)
				}
				_, now := l.Bounds()
				require.Equal(t, end, now)
			}
			d.ClearRules()
			require.Len(t, readAll(t, l), 40)
			require.NoError(t, l.Verify())
			d.Kill()
			l, st := openLog(t, openStore(t, d.Mount()), 0, smallLog)
			require.EqualValues(t, 40, st.End)
			require.NoError(t, l.Verify())
		})
	}
}

func TestAppendThatCannotBeCutOff(t *testing.T) {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, smallLog)
	fill(t, l, 5, 100)
	d.AddRule(simdisk.Rule{Op: simdisk.OpWrite, Path: "*.log", Nth: 1, Effect: simdisk.Short})
	d.AddRule(simdisk.Rule{Op: simdisk.OpTruncate, Path: "*.log", Nth: 1, Effect: simdisk.IOError})
	_, err := l.Append([]record.Batch{build(spec{base: 5, size: 100})})
	require.ErrorIs(t, err, ErrLogFailed)
	_, err = l.Append([]record.Batch{build(spec{base: 5, size: 100})})
	require.ErrorIs(t, err, ErrLogFailed)
	require.Len(t, readAll(t, l), 5)
	end, err := l.Truncate(5) // which is what the core asks for after a failed append
	require.NoError(t, err)
	require.EqualValues(t, 5, end)
	fill(t, l, 5, 90)
	require.NoError(t, l.Verify())
}

func TestFailedSyncIsTheEnd(t *testing.T) { // rule 13, museum C03
	for _, op := range []simdisk.Op{simdisk.OpSync, simdisk.OpSyncDir, simdisk.OpSyncAll} {
		d := newDisk()
		s := openStore(t, d.Mount())
		for i := range 6 {
			l, _ := openLog(t, s, i, smallLog)
			if op == simdisk.OpSyncAll || i == 0 {
				fill(t, l, 1, 10)
			}
		}
		if op != simdisk.OpSyncAll {
			s.opts.SyncAllAbove = 100
		}
		d.AddRule(simdisk.Rule{Op: op, Nth: 1, Effect: simdisk.IOErrorStale})
		require.ErrorIs(t, s.BeginSync().Run(), ErrDiskFailed)
		require.ErrorIs(t, s.BeginSync().Run(), ErrDiskFailed)
		l := s.Log(part(0))
		_, err := l.Append([]record.Batch{build(spec{base: 1})})
		require.ErrorIs(t, err, ErrDiskFailed)
		require.ErrorIs(t, s.SaveState(nil), ErrDiskFailed)
		require.ErrorIs(t, s.Checkpoint(nil), ErrDiskFailed)
		_, err = l.Truncate(0)
		require.ErrorIs(t, err, ErrDiskFailed)
		_, _, err = s.OpenLog(part(9), "t", smallLog)
		require.ErrorIs(t, err, ErrDiskFailed)
		require.Len(t, readAll(t, l), 1, "reads go on")
		require.ErrorIs(t, s.Close(), ErrDiskFailed)
		d.Unmount()
		s = openStore(t, d.Mount())
		require.False(t, s.Clean())
	}
}

// TestStalePages: after a failed sync Linux shows pages as clean that are not on disk. A recovery that trusts them,
// because its own sync succeeds, loses what it then says is durable.
func TestStalePages(t *testing.T) {
	for n := range uint64(30) {
		d := simdisk.New(n, simdisk.Options{})
		s := openStore(t, d.Mount())
		l, _ := openLog(t, s, 0, smallLog)
		fill(t, l, 3, 300)
		d.AddRule(simdisk.Rule{Op: simdisk.OpSync, Path: "*.log", Nth: 1, Effect: simdisk.IOErrorStale, Seed: n})
		require.ErrorIs(t, s.BeginSync().Run(), ErrDiskFailed)
		d.Kill()
		l, st := openLog(t, openStore(t, d.Mount()), 0, smallLog)
		require.EqualValues(t, 3, st.End)
		d.PowerLoss()
		l, st = openLog(t, openStore(t, d.Mount()), 0, smallLog)
		require.EqualValues(t, 3, st.End)
		require.NoError(t, l.Verify())
	}
}

// hookFS calls hook within the first sync of the journal that it sees.
type hookFS struct {
	disk.FS
	hook func()
}

type hookFile struct {
	disk.File
	fs *hookFS
}

func (fs *hookFS) Open(name string, flag disk.Flag) (disk.File, error) {
	f, err := fs.FS.Open(name, flag)
	if err == nil && strings.HasPrefix(name, journalName) {
		f = &hookFile{f, fs}
	}
	return f, err
}

func (f *hookFile) Sync() error {
	if hook := f.fs.hook; hook != nil {
		f.fs.hook = nil
		hook()
	}
	return f.File.Sync()
}

// TestRoundInTheMiddleOfACut: between the journal's word that a log is to be cut and the cut, a round must not note that
// the log is durable beyond.
func TestRoundInTheMiddleOfACut(t *testing.T) {
	for _, cut := range []func(l *Log) error{
		func(l *Log) error { _, err := l.Truncate(4); return err },
		func(l *Log) error { return l.Reset(4) },
	} {
		d := newDisk()
		fs := &hookFS{FS: d.Mount()}
		s := openStore(t, fs)
		l, _ := openLog(t, s, 0, smallLog)
		fill(t, l, 9, 100)
		commit(t, s)
		fill(t, l, 9, 100)
		called := false
		fs.hook = func() {
			called = true
			require.Empty(t, s.BeginSync(l).logs)
			require.Empty(t, s.BeginSync().logs)
		}
		require.NoError(t, cut(l))
		require.True(t, called)
		_, end := l.Bounds()
		require.EqualValues(t, 4, end)
		fill(t, l, 1, 100)
		require.Equal(t, []DurableEnd{{part(0), 5}}, commit(t, s), "it was not forgotten")
		d.PowerLoss()
		_, st := openLog(t, openStore(t, d.Mount()), 0, smallLog)
		require.EqualValues(t, 5, st.End)
	}
}
