package segment

import (
	"fmt"
	"math"
	"slices"

	"lockstep/compress"
	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

var compactLog = log.Config{SegmentBytes: 1500, IndexIntervalBytes: 200, FlushMessages: 1, RetentionBytes: -1, RetentionMillis: -1,
	Compact: true, MaxCompactionLag: -1, DeleteRetention: 10_000_000_000}

// keyed is a record as it was appended.
type keyed struct {
	offset, time int64
	key          string
	noKey        bool
	value        []byte // nil: a tombstone
}

// keyedWorld is a Store with one compacted log, and the plain list of what was appended to it.
type keyedWorld struct {
	t       require.TestingT
	d       *simdisk.Disk
	s       *Store
	l       *Log
	cfg     log.Config
	records []keyed        // all that was appended
	batches []record.Batch // and the batches they came in
	exact   bool           // the producer table is that of batches: nothing was cut below what is compacted
	start   int64
	end     int64
	written int64 // all below is in the file
	durable int64
	epochs  []log.EpochStart
	limit   int64 // the highest that a compaction had
	wall    int64
	cleaned map[int64]int64 // when a tombstone may have been compacted first, by offset
	lastRun int64           // when the last compaction began
	seqs    map[int64]int32
	epoch   int32
	failed  int64
	misread bool // reads of the next compaction return wrong bits
}

func newKeyedWorld(t require.TestingT, d *simdisk.Disk) *keyedWorld {
	return &keyedWorld{t: t, d: d, cfg: compactLog, exact: true, cleaned: map[int64]int64{}, seqs: map[int64]int32{}, wall: 1_000_000}
}

func (w *keyedWorld) boot(fs disk.FS) {
	s, err := Open(fs, Options{SyncAllAbove: 3, MaxOpenFiles: 4, Decompressor: compress.Codecs{}, Compressor: compress.Codecs{}})
	require.NoError(w.t, err)
	for _, f := range s.Found() {
		require.NoError(w.t, f.Err)
	}
	w.s = s
	var st log.State
	w.l, st, err = s.OpenLog(part(0), "t", w.cfg)
	require.NoError(w.t, err)
	w.recovered(st)
}

func (w *keyedWorld) ioErrors() int64 {
	fired := w.d.Stats().Fired
	return fired[simdisk.IOError] + fired[simdisk.IOErrorStale]
}

// recovered compares what recovery found with what must be there, and goes on from that.
func (w *keyedWorld) recovered(st log.State) {
	require.GreaterOrEqual(w.t, st.End, w.durable, "durable records are gone")
	require.LessOrEqual(w.t, st.End, max(w.end, w.start))
	require.GreaterOrEqual(w.t, st.Start, w.start)
	w.cut(st.End)
	w.start, w.end, w.written, w.durable = st.Start, st.End, st.End, st.End
	require.NoError(w.t, w.l.Verify())
	w.resync()
	w.compare()
	if w.exact {
		table := log.NewProducers(0)
		for _, b := range w.batches {
			table.Replay(b.Header())
		}
		table.Committed(st.End) // what it takes to undo batches is not compared
		st.Producers.Committed(st.End)
		require.Equal(w.t, table.Snapshot(), st.Producers.Snapshot(), "producers")
	}
	w.failed = w.ioErrors()
}

// cut forgets what was appended at or above end.
func (w *keyedWorld) cut(end int64) {
	w.records = slices.DeleteFunc(w.records, func(r keyed) bool { return r.offset >= end })
	w.batches = slices.DeleteFunc(w.batches, func(b record.Batch) bool { return b.BaseOffset() >= end })
	w.epochs = trimEpochs(w.epochs, end)
	w.end, w.written, w.durable = min(w.end, end), min(w.written, end), min(w.durable, end)
}

// read returns the records that the log holds.
func (w *keyedWorld) read() []keyed {
	return w.readBy(func(at, end int64) []record.Batch {
		batches, err := w.l.ReadBatches(at, end, 700)
		require.NoError(w.t, err)
		return batches
	})
}

// checkClients reads as clients do, who find every record, and after records no two batches in a row without any.
func (w *keyedWorld) checkClients() {
	for _, size := range []int32{700, 1 << 20} {
		got := w.readBy(func(at, end int64) []record.Batch {
			res := ReadMany([]ReadRequest{{Log: w.l, From: at, Limit: end, MaxBytes: size, Records: true}}, size, nil)[0]
			require.NoError(w.t, res.Err)
			defer res.Span.Release()
			batches, err := res.Span.parse()
			require.NoError(w.t, err)
			for i := range batches[:max(0, len(batches)-1)] {
				run := batches[0].Count() > 0 && batches[i].Count() == 0 && batches[i+1].Count() == 0
				require.False(w.t, run, "no records at %d and %d", batches[i].BaseOffset(), batches[i+1].BaseOffset())
			}
			return batches
		})
		require.Equal(w.t, w.read(), got)
	}
}

// readBy reads the log by what reads some batches of it.
func (w *keyedWorld) readBy(read func(at, end int64) []record.Batch) (got []keyed) {
	at, end := w.l.Bounds()
	for at < end {
		batches := read(at, end)
		require.NotEmpty(w.t, batches)
		for _, b := range batches {
			for r, err := range b.Records(compress.Codecs{}, record.Limits{}) {
				require.NoError(w.t, err)
				got = append(got, keyed{r.Offset, r.Timestamp, string(r.Key), r.Key == nil, r.Value})
			}
		}
		at = batches[len(batches)-1].NextOffset()
	}
	return slices.DeleteFunc(got, func(r keyed) bool { return r.offset < w.start })
}

// compare checks what must be there: the last record of each key, everything that no compaction could reach, tombstones
// until their time has come, and nothing but what was appended.
func (w *keyedWorld) compare() {
	got := w.read()
	there := map[int64]bool{}
	at := 0
	for _, r := range got {
		for at < len(w.records) && w.records[at].offset < r.offset {
			at++
		}
		require.Less(w.t, at, len(w.records), "record %d was never appended", r.offset)
		require.Equal(w.t, w.records[at], r)
		there[r.offset] = true
	}
	last := w.lastOf(w.end)
	for _, r := range w.records {
		if r.offset < w.start || there[r.offset] {
			continue
		}
		require.Less(w.t, r.offset, w.limit, "record %d is gone and could not be compacted", r.offset)
		if last[r.key] != r.offset {
			continue
		}
		first, seen := w.cleaned[r.offset]
		require.True(w.t, r.value == nil && seen && w.lastRun > first+w.cfg.DeleteRetention.Milliseconds(),
			"record %d, the last of key %q, is gone", r.offset, r.key)
	}
}

// lastOf returns the offset of the last record of each key below an offset.
func (w *keyedWorld) lastOf(end int64) map[string]int64 {
	last := map[string]int64{}
	for _, r := range w.records {
		if r.offset < end && !r.noKey {
			last[r.key] = r.offset
		}
	}
	return last
}

// do carries out an operation; false if the process died in it, and was started again.
func (w *keyedWorld) do(f func() error) (err error, alive bool) {
	if end := w.d.Run(func() { err = f() }); end != simdisk.Returned {
		w.crash(end == simdisk.Cut, simdisk.Rule{})
		return nil, false
	}
	if w.s.Failed() != nil {
		w.crash(true, simdisk.Rule{})
		return nil, false
	}
	return err, true
}

func (w *keyedWorld) crash(power bool, then simdisk.Rule) {
	w.d.ClearRules()
	if then.Nth > 0 {
		w.d.AddRule(then)
	}
	durable := w.durable
	for again := true; again; {
		if w.durable = durable; !power && w.ioErrors() == w.failed {
			w.durable = max(durable, min(w.written, w.end)) // a kill takes nothing
		}
		if power {
			w.d.PowerLoss()
		} else {
			w.d.Kill()
		}
		fs := w.d.Mount()
		end := w.d.Run(func() { w.boot(fs) })
		again, power = end != simdisk.Returned, power || end == simdisk.Cut
		w.d.ClearRules()
	}
}

// put is a batch to append.
type put struct {
	producer int64
	codec    record.Codec
	records  []keyed // without offset
}

func (w *keyedWorld) append(puts ...put) {
	if len(w.epochs) == 0 || w.epochs[len(w.epochs)-1].Epoch < w.epoch {
		next := append(trimEpochs(w.epochs, w.end), log.EpochStart{Epoch: w.epoch, Start: w.end})
		if err, alive := w.do(func() error { return w.l.SaveEpochs(next) }); err != nil || !alive {
			return
		}
		w.epochs = next
	}
	before := w.end
	var batches []record.Batch
	for _, p := range puts {
		b := record.NewBuilder()
		b.BaseOffset, b.LeaderEpoch, b.Codec, b.Compressor = w.end, w.epoch, p.codec, compress.Codecs{}
		if p.producer > 0 {
			b.ProducerID, b.ProducerEpoch, b.BaseSequence = p.producer, 0, w.seqs[p.producer]
			w.seqs[p.producer] += int32(len(p.records))
		}
		for _, r := range p.records {
			r.offset = w.end
			key := []byte(r.key)
			if r.noKey {
				key = nil
			}
			if p.producer > 0 {
				r.time = p.records[0].time // the table has the latest of a batch, which may be of a record that goes
			}
			b.Add(record.Record{Timestamp: r.time, Key: key, Value: r.value})
			w.records = append(w.records, r)
			w.end++
		}
		batch, err := b.Build()
		require.NoError(w.t, err)
		batches = append(batches, batch)
	}
	w.batches = append(w.batches, batches...)
	err, alive := w.do(func() error { _, err := w.l.Append(batches); return err })
	switch {
	case !alive:
	case err != nil:
		w.cut(before)
	default:
		w.written = w.end
	}
}

func (w *keyedWorld) commit() {
	r := w.s.BeginSync()
	if err, alive := w.do(r.Run); err != nil || !alive {
		return
	}
	for _, e := range r.Finish() {
		w.durable = max(w.durable, e.End)
	}
}

// compact runs a compaction up to a limit, and checks what is left if it came to an end.
func (w *keyedWorld) compact(limit, buffer int64) {
	w.limit, w.lastRun = max(w.limit, limit), w.wall
	for _, r := range w.records {
		if _, seen := w.cleaned[r.offset]; !seen && r.value == nil && r.offset < limit {
			w.cleaned[r.offset] = w.wall
		}
	}
	var producers []int64
	for id := range w.seqs {
		producers = append(producers, id)
	}
	slices.Sort(producers)
	var spans []Span
	var bytes [][]byte
	var stats CompactStats
	err, alive := w.do(func() (err error) {
		if !w.misread {
			spans, bytes = w.spans()
		}
		stats, err = w.l.BeginCompact(CompactOptions{Limit: limit, Covered: math.MaxInt64, Wall: core.WallMillis(w.wall), Producers: producers, Buffer: buffer}).Run()
		return err
	})
	if !alive {
		return
	}
	if w.misread {
		w.misread = false
		w.d.ClearRules()
	}
	for i := range spans {
		buf := make([]byte, spans[i].Len)
		_, alive := w.do(func() error {
			if spans[i].ReadInto(buf) == nil {
				require.Equal(w.t, bytes[i], buf, "a span became other bytes")
			}
			spans[i].Release()
			return nil
		})
		if !alive {
			return
		}
	}
	if err != nil {
		require.True(w.t, w.faulty(), "%v", err)
		if w.l.brokenOr() {
			w.crash(false, simdisk.Rule{})
		}
		return
	}
	if !stats.Due {
		return
	}
	if _, alive := w.do(func() error { w.compare(); w.checkCompacted(stats); w.checkClients(); return w.l.Verify() }); !alive {
		return
	}
}

// spans opens the whole log for reading, and says what it holds.
func (w *keyedWorld) spans() (spans []Span, bytes [][]byte) {
	at, end := w.l.Bounds()
	for at < end {
		span, err := w.l.Read(at, end, 1<<20, true)
		if err != nil || span.Len == 0 {
			return spans, bytes
		}
		buf := make([]byte, span.Len)
		if span.ReadInto(buf) != nil {
			span.Release()
			return spans, bytes
		}
		spans, bytes, at = append(spans, span), append(bytes, buf), span.Next
	}
	return spans, bytes
}

// checkCompacted checks that nothing is left that a compaction should have taken.
func (w *keyedWorld) checkCompacted(stats CompactStats) {
	last := w.lastOf(stats.To)
	for _, r := range w.read() {
		if r.offset >= stats.To || r.noKey {
			continue
		}
		require.Equal(w.t, last[r.key], r.offset, "key %q below %d", r.key, stats.To)
	}
}

func (w *keyedWorld) truncate(to int64) {
	to = max(to, w.start)
	low := to
	for _, b := range w.batches {
		if b.BaseOffset() < to && to < b.NextOffset() {
			low = b.BaseOffset()
		}
	}
	if low < w.limit {
		low = 0 // in a gap it ends where the batch before did
	}
	w.durable, w.written, w.start = min(w.durable, low), min(w.written, low), min(w.start, low)
	var end int64
	err, alive := w.do(func() (err error) { end, err = w.l.Truncate(to); return err })
	if !alive {
		return
	}
	if err != nil {
		require.True(w.t, w.faulty(), "%v", err)
		w.crash(false, simdisk.Rule{})
		return
	}
	require.LessOrEqual(w.t, end, to)
	require.GreaterOrEqual(w.t, end, low)
	w.cut(end)
	w.start, _ = w.l.Bounds()
	w.end, w.written, w.durable = end, end, end
	w.do(func() error { w.resync(); return nil })
}

// faulty says that a call may have failed.
func (w *keyedWorld) faulty() bool {
	fired := w.d.Stats().Fired
	return w.ioErrors()+fired[simdisk.NoSpace]+fired[simdisk.Short] > 0
}

// resync takes what the log holds for what was appended, where a truncation went below what was compacted: what superseded
// the records that are gone may be gone, too.
func (w *keyedWorld) resync() {
	if w.end >= w.limit {
		return
	}
	w.records, w.limit, w.exact = w.read(), w.end, false
}

func (w *keyedWorld) setStart(start int64) {
	start = min(start, w.end)
	w.exact = w.exact && start <= w.start
	var got int64
	if err, alive := w.do(func() (err error) { got, err = w.l.SetStart(start, nil); return err }); err == nil && alive {
		w.start = got
	}
}

func (w *keyedWorld) stop() {
	err, alive := w.do(w.s.Close)
	switch {
	case !alive:
		return
	case err != nil:
		w.crash(true, simdisk.Rule{})
		return
	}
	w.durable = w.end
	w.d.ClearRules()
	w.d.PowerLoss()
	fs := w.d.Mount()
	if end := w.d.Run(func() { w.boot(fs) }); end != simdisk.Returned {
		w.crash(end == simdisk.Cut, simdisk.Rule{})
	}
}

func (w *keyedWorld) lookup(ts int64) {
	var want, got TimeResult
	err, alive := w.do(func() (err error) {
		want = notFound
		for _, r := range w.read() {
			if want.Offset < 0 && r.time >= ts && ts >= 0 || ts == MaxTimestamp && r.time > want.Timestamp {
				want.Offset, want.Timestamp = r.offset, r.time
			}
		}
		got, err = w.l.LookupTime(ts, w.end)
		return err
	})
	if alive && err == nil {
		got.LeaderEpoch = want.LeaderEpoch
		require.Equal(w.t, want, got, "look up %d", ts)
	}
}

func (w *keyedWorld) String() string {
	return fmt.Sprintf("[%d, %d) written %d durable %d limit %d segments %v", w.start, w.end, w.written, w.durable, w.limit, segments(w.l))
}

func (l *Log) brokenOr() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken != nil
}
