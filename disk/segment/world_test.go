package segment

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

// logState is what a log should be.
type logState struct {
	batches []record.Batch // from the first one that a producer table may know on
	start   int64
	end     int64
	durable int64 // all below survives a power loss
	epochs  []log.EpochStart
	kept    []log.EpochStart // of epochs, what survives
	whole   bool             // nothing was ever deleted at the start
	absent  bool
	starts  []int64 // where retention may have moved the start
}

func (s *logState) String() string {
	text := fmt.Sprintf("[%d, %d) durable %d epochs %v kept %v whole %v absent %v starts %v:", s.start, s.end, s.durable, s.epochs, s.kept, s.whole, s.absent, s.starts)
	for _, b := range s.batches {
		text += fmt.Sprintf(" %d-%d@%d", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
	return text
}

func (s *logState) clone() *logState {
	c := *s
	c.batches, c.epochs, c.kept = slices.Clone(s.batches), slices.Clone(s.epochs), slices.Clone(s.kept)
	return &c
}

// fork returns the log as an operation in progress would make it.
func (s *logState) fork(change func(n *logState)) *logState {
	n := s.clone()
	change(n)
	return n
}

func (s *logState) table(end int64) *log.Producers {
	p := log.NewProducers(0)
	for _, b := range s.batches {
		if b.BaseOffset() < end {
			p.Replay(b.Header())
		}
	}
	return p
}

// world is a Store under test with its model: cur is what each log is, next what the operation in progress makes of it.
type world struct {
	t       require.TestingT
	d       *simdisk.Disk
	s       *Store
	cfg     log.Config
	logs    map[int]*Log
	cur     map[int]*logState
	next    map[int]*logState
	misread bool // a read of the recovery returns a wrong bit
	coin    bool
	failed  int64     // I/O errors before the last boot
	third   *logState // what the log in question may be, too
	state   []byte    // of SaveState
	nextS   []byte    // while it is being saved
	epoch   int32
	seqs    map[int64]int32
}

func newWorld(t require.TestingT, d *simdisk.Disk, cfg log.Config) *world {
	return &world{t: t, d: d, cfg: cfg, logs: map[int]*Log{}, cur: map[int]*logState{}, next: map[int]*logState{}, seqs: map[int64]int32{}}
}

// boot opens the Store and all logs and checks that they are what they must be after the process died as it did.
func (w *world) boot(fs disk.FS, lost bool) {
	s, err := Open(fs, Options{SyncAllAbove: 3, MaxOpenFiles: 6})
	require.NoError(w.t, err)
	w.s = s
	state, err := s.LoadState()
	require.NoError(w.t, err)
	if w.misread {
		w.d.ClearRules() // the recovery has to bear it, not the comparison that follows
	}
	if string(state) != string(w.nextS) {
		require.Equal(w.t, string(w.state), string(state))
	}
	w.state, w.nextS = state, state
	found := map[core.Partition]bool{}
	for _, f := range s.Found() {
		require.NoError(w.t, f.Err)
		found[f.Partition] = true
	}
	for n := range 4 {
		if cur, next := w.cur[n], w.next[n]; cur != nil {
			w.check(n, cur, next, found[part(n)], lost || w.ioErrors() > w.failed)
		}
	}
	clear(w.next)
	w.third, w.failed = nil, w.ioErrors()
}

// ioErrors counts what may have taken away what was written.
func (w *world) ioErrors() int64 {
	fired := w.d.Stats().Fired
	return fired[simdisk.IOError] + fired[simdisk.IOErrorStale]
}

// check compares a recovered log with what it was (cur) and what an interrupted operation was making of it (next).
func (w *world) check(n int, cur, next *logState, found, lost bool) {
	if next == nil {
		next = cur
	}
	if !found {
		require.True(w.t, cur.absent || next.absent || min(cur.durable, next.durable) == 0, "log %d is gone", n)
		w.cur[n] = &logState{absent: true, whole: true}
		delete(w.logs, n)
		return
	}
	l, st := openLog(w.t, w.s, n, w.cfg)
	w.logs[n] = l
	got := readAll(w.t, l)
	require.NoError(w.t, l.Verify())
	var reasons []string
	for _, s := range []*logState{next, cur, w.third} {
		if s == nil {
			continue
		}
		least := min(cur.durable, next.durable)
		if !lost {
			least = min(cur.end, next.end)
		}
		if reason := s.explains(st, got, least); reason != "" {
			reasons = append(reasons, reason)
			continue
		}
		n2 := s.clone()
		n2.starts, n2.absent, n2.start, n2.end, n2.durable = nil, false, st.Start, st.End, st.End
		n2.batches = slices.DeleteFunc(n2.batches, func(b record.Batch) bool { return b.NextOffset() > st.End })
		n2.epochs, n2.kept = st.Epochs, st.Epochs
		w.checkEpochs(s, st, got)
		if n2.whole {
			require.Equal(w.t, n2.table(st.End).Snapshot(), st.Producers.Snapshot(), "log %d: producers", n)
		}
		w.cur[n] = n2
		return
	}
	require.Fail(w.t, "a log is not what it can be", "log %d: start %d end %d, %v\ncur  %v\nnext %v", n, st.Start, st.End, reasons, cur, next)
}

// explains says why the recovered log cannot come from s, or nothing.
func (s *logState) explains(st log.State, got []record.Batch, least int64) string {
	switch {
	case s.absent && st.End == 0:
		return ""
	case st.Start != s.start && !slices.Contains(s.starts, st.Start):
		return "start"
	case st.End == st.Start && len(got) == 0 && least <= st.Start:
		return "" // what was not durable is lost, and the rest is below the start
	case st.End < min(least, s.end):
		return "durable batches are missing"
	case st.End > s.end:
		return "end"
	}
	want := slices.DeleteFunc(slices.Clone(s.batches), func(b record.Batch) bool {
		return b.NextOffset() <= st.Start || b.BaseOffset() >= st.End
	})
	same := func(a, b record.Batch) bool { return slices.Equal(a.Bytes(), b.Bytes()) }
	if !slices.EqualFunc(want, got, same) {
		return "batches differ"
	}
	return ""
}

// checkEpochs checks the history of a recovered log: what was durable is there, and every batch is in its epoch.
func (w *world) checkEpochs(s *logState, st log.State, got []record.Batch) {
	for _, e := range s.kept {
		if e.Start < st.End {
			require.Contains(w.t, st.Epochs, e)
		}
	}
	for _, b := range got {
		require.Equal(w.t, b.LeaderEpoch(), latestEpoch(st.Epochs, b.BaseOffset()+1), "epochs %v", st.Epochs)
	}
	for _, e := range st.Epochs {
		require.LessOrEqual(w.t, e.Start, st.End)
	}
}

// do carries out an operation that makes next of log n, and restarts the world if it dies in it.
func (w *world) do(n int, next *logState, f func() error) error {
	var err error
	if next != nil {
		w.next[n] = next
	}
	if end := w.d.Run(func() { err = f() }); end != simdisk.Returned {
		w.crash(end == simdisk.Cut, simdisk.Rule{})
		return errCrashed
	}
	if errors.Is(err, ErrDiskFailed) { // the broker stops, and may be started again at once, or after the power was lost
		w.coin = !w.coin
		w.crash(w.coin, simdisk.Rule{})
		return errCrashed
	}
	if err == nil && next != nil {
		w.cur[n] = next
	}
	delete(w.next, n)
	w.third = nil
	return err
}

var errCrashed = errors.New("crashed")

// crash ends the process; then is a fault during the recovery.
func (w *world) crash(power bool, then simdisk.Rule) {
	w.d.ClearRules()
	w.misread = then.Effect == simdisk.RotRead
	if then.Nth > 0 {
		w.d.AddRule(then)
	}
	for again := true; again; { // it may die again while it recovers
		if power {
			w.d.PowerLoss()
		} else {
			w.d.Kill()
		}
		fs := w.d.Mount()
		end := w.d.Run(func() { w.boot(fs, power) })
		again, power = end != simdisk.Returned, power || end == simdisk.Cut
	}
}

func (w *world) ensure(n int) bool {
	if w.logs[n] != nil {
		return true
	}
	if w.cur[n] == nil {
		w.cur[n] = &logState{absent: true, whole: true}
	}
	return w.do(n, &logState{whole: true}, func() error {
		l, st, err := w.s.OpenLog(part(n), "t", w.cfg)
		if err == nil {
			require.Zero(w.t, st.End)
			w.logs[n] = l
		}
		return err
	}) == nil
}

// specs of batches that follow on a log's end.
func (w *world) follow(n int, specs []spec) []record.Batch {
	at := w.cur[n].end
	var batches []record.Batch
	for _, s := range specs {
		s.base, s.epoch = at, w.epoch
		if s.producer > 0 {
			s.sequence = w.seqs[s.producer]
			w.seqs[s.producer] += int32(max(s.records, 1))
		}
		b := build(s)
		batches = append(batches, b)
		at = b.NextOffset()
	}
	return batches
}

func (w *world) append(n int, specs ...spec) {
	if !w.ensure(n) {
		return
	}
	if h := w.cur[n].epochs; len(h) == 0 || h[len(h)-1].Epoch < w.epoch {
		if w.takeEpoch(n) != nil {
			return
		}
	}
	batches := w.follow(n, specs)
	next := w.cur[n].fork(func(s *logState) {
		s.batches = append(s.batches, batches...)
		s.end = batches[len(batches)-1].NextOffset()
	})
	err := w.do(n, next, func() error { _, err := w.logs[n].Append(batches); return err })
	if err != nil && err != errCrashed {
		_, end := w.logs[n].Bounds()
		require.Equal(w.t, w.cur[n].end, end)
	}
}

func (w *world) takeEpoch(n int) error {
	next := w.cur[n].fork(func(s *logState) {
		s.epochs = append(trimEpochs(s.epochs, s.end), log.EpochStart{Epoch: w.epoch, Start: s.end})
		s.kept = trimEpochs(s.kept, s.end)
	})
	return w.do(n, next, func() error { return w.logs[n].SaveEpochs(next.epochs) })
}

// commit runs a round; between says what happens while it runs.
func (w *world) commit(between func(), want ...*Log) {
	r := w.s.BeginSync(want...)
	s := w.s
	before := map[int]*logState{}
	for n, c := range w.cur {
		before[n] = c.clone()
	}
	if between != nil {
		between()
	}
	if w.s != s {
		return
	}
	err := w.do(-1, nil, r.Run)
	if err == errCrashed {
		return
	}
	if err != nil {
		require.ErrorIs(w.t, err, disk.ErrNoSpace)
		return
	}
	for _, e := range r.Finish() {
		c, b := w.cur[int(e.Partition.Index)], before[int(e.Partition.Index)]
		require.LessOrEqual(w.t, e.End, c.end)
		c.durable = max(c.durable, e.End)
		if len(want) == 0 {
			require.Equal(w.t, b.end, e.End)
		}
		c.kept = slices.DeleteFunc(slices.Clone(b.epochs), func(e log.EpochStart) bool { return !slices.Contains(c.epochs, e) })
	}
}

func (w *world) truncate(n int, to int64) {
	if w.logs[n] == nil {
		return
	}
	c := w.cur[n]
	to = max(to, c.start)
	end := min(to, c.end)
	for _, b := range c.batches {
		if b.BaseOffset() < to && to < b.NextOffset() {
			end = b.BaseOffset()
		}
	}
	next := c.fork(func(s *logState) {
		s.batches = slices.DeleteFunc(s.batches, func(b record.Batch) bool { return b.BaseOffset() >= end })
		s.end, s.durable, s.start = end, end, min(s.start, end)
		s.epochs = trimEpochs(s.epochs, end)
		s.kept = s.epochs
	})
	// On the way the log may be cut anywhere down to the new end, and have lost the epochs above it.
	w.cur[n] = c.fork(func(s *logState) {
		s.durable, s.kept = min(s.durable, end), trimEpochs(s.kept, end)
	})
	if end < c.start { // cut inside the batch that holds the start
		w.third = &logState{start: c.start, end: c.start}
	}
	err := w.do(n, next, func() error {
		got, err := w.logs[n].Truncate(to)
		if err == nil {
			require.Equal(w.t, end, got)
		}
		return err
	})
	if err != errCrashed {
		require.NoError(w.t, err)
	}
}

func (w *world) setStart(n int, start int64) {
	if w.logs[n] == nil {
		return
	}
	next := w.cur[n].fork(func(s *logState) {
		s.start, s.whole = max(s.start, start), s.whole && start <= s.start
		if start > s.end {
			*s = logState{start: start, end: start, durable: start}
		}
	})
	err := w.do(n, next, func() error {
		got, err := w.logs[n].SetStart(start, nil)
		if err == nil {
			require.Equal(w.t, next.start, got)
		}
		return err
	})
	if err != errCrashed {
		require.NoError(w.t, err)
	}
}

func (w *world) reset(n int, at int64) {
	if w.logs[n] == nil {
		return
	}
	// On the way epochs are gone, and the start may be the new one, already or still.
	w.cur[n] = w.cur[n].fork(func(s *logState) {
		s.kept, s.durable, s.whole, s.starts = nil, min(s.durable, at), false, []int64{at}
	})
	next := &logState{start: at, end: at, durable: at, starts: []int64{w.cur[n].start}}
	err := w.do(n, next, func() error { return w.logs[n].Reset(at) })
	if err != errCrashed {
		require.NoError(w.t, err)
		w.cur[n].starts = nil
	}
}

func (w *world) retain(n int, bytes int64, wall core.WallMillis) {
	l := w.logs[n]
	if l == nil {
		return
	}
	cfg := w.cfg
	cfg.RetentionBytes, cfg.RetentionMillis = bytes, 1_000_000
	l.Configure(cfg)
	defer l.Configure(w.cfg)
	before, limit := w.cur[n], w.cur[n].durable
	var start int64
	next := before.fork(func(s *logState) {
		s.whole = false
		for i := range l.segs { // what it may come to
			if end := l.endOf(i); end <= limit {
				s.starts = append(s.starts, end)
			}
		}
	})
	err := w.do(n, next, func() (err error) { start, err = l.Retain(limit, wall); return err })
	if err == errCrashed {
		return
	}
	require.NoError(w.t, err)
	require.True(w.t, start == before.start || slices.Contains(next.starts, start))
	w.cur[n] = before.fork(func(s *logState) { s.start, s.whole = start, s.whole && start == s.start })
}

func (w *world) saveProducers(n int, off int64) {
	if w.logs[n] == nil || !w.cur[n].whole {
		return
	}
	for _, b := range w.cur[n].batches {
		if b.BaseOffset() < off && off < b.NextOffset() {
			off = b.NextOffset()
		}
	}
	off = min(off, w.cur[n].end)
	err := w.do(n, nil, func() error { return w.logs[n].SaveProducers(off, w.cur[n].table(off).Snapshot()) })
	if err != errCrashed {
		require.NoError(w.t, err)
	}
}

func (w *world) delete(n int) {
	if w.logs[n] == nil {
		return
	}
	err := w.do(n, &logState{absent: true, whole: true}, func() error { return w.s.DeleteLogs(part(n), part(n), part(99)) })
	if err != errCrashed {
		require.NoError(w.t, err)
		delete(w.logs, n)
	}
}

func (w *world) stop() {
	err := w.do(-1, nil, w.s.Close)
	if err == errCrashed {
		return
	}
	require.NoError(w.t, err)
	w.d.PowerLoss()
	for _, c := range w.cur {
		c.durable, c.kept = c.end, c.epochs
	}
	fs := w.d.Mount()
	if end := w.d.Run(func() { w.boot(fs, true) }); end != simdisk.Returned {
		w.crash(end == simdisk.Cut, simdisk.Rule{})
	}
}

func (w *world) checkpoint() {
	var marks []HighWatermark
	for n := range 4 {
		if c := w.cur[n]; c != nil && !c.absent {
			marks = append(marks, HighWatermark{part(n), c.durable})
		}
	}
	if err := w.do(-1, nil, func() error { return w.s.Checkpoint(marks) }); err != errCrashed {
		require.NoError(w.t, err)
	}
}

func (w *world) saveState(b []byte) {
	w.nextS = b
	if err := w.do(-1, nil, func() error { return w.s.SaveState(b) }); err != errCrashed {
		require.NoError(w.t, err)
		w.state = b
	}
}

func (w *world) newEpoch() { w.epoch++ }

func (w *world) read(n int) {
	l := w.logs[n]
	if l == nil {
		return
	}
	c := w.cur[n]
	err := w.do(-1, nil, func() error {
		got := readAll(w.t, l)
		var want []record.Batch
		for _, b := range c.batches {
			if b.NextOffset() > c.start {
				want = append(want, b)
			}
		}
		require.Equal(w.t, len(want), len(got))
		for i := range want {
			require.Equal(w.t, want[i].Bytes(), got[i].Bytes())
		}
		return nil
	})
	if err != errCrashed {
		require.NoError(w.t, err)
	}
}

func (w *world) lookup(n int, ts, limit int64) {
	l := w.logs[n]
	if l == nil {
		return
	}
	c := w.cur[n]
	want := notFound
	latest := int64(-1)
	for _, b := range c.batches {
		for r, err := range b.Records(nil, record.Limits{}) {
			require.NoError(w.t, err)
			if r.Offset < c.start || r.Offset >= min(limit, c.end) {
				continue
			}
			if ts == MaxTimestamp && r.Timestamp > latest || ts >= 0 && want.Offset < 0 && r.Timestamp >= ts {
				latest, want = r.Timestamp, TimeResult{r.Offset, r.Timestamp, b.LeaderEpoch()}
			}
		}
	}
	err := w.do(-1, nil, func() error {
		got, err := l.LookupTime(ts, limit)
		require.NoError(w.t, err)
		require.Equal(w.t, want, got)
		return nil
	})
	if err != errCrashed {
		require.NoError(w.t, err)
	}
}
