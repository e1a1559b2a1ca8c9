package simdisk

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"lockstep/disk"
	"lockstep/sim/seed"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, fs *FS, name string) disk.File {
	f, err := fs.Open(name, disk.Create)
	require.NoError(t, err)
	return f
}

func write(t *testing.T, f disk.File, b byte, n int, off int64) {
	k, err := f.WriteAt(bytes.Repeat([]byte{b}, n), off)
	require.NoError(t, err)
	require.Equal(t, n, k)
}

// outcomes counts what a scenario leaves over many seeds.
func outcomes(scenario func(s uint64) string) map[string]int {
	seen := map[string]int{}
	for s := uint64(1); s <= 400; s++ {
		seen[scenario(s)]++
	}
	return seen
}

// TestPowerLossOutcomes shows that a loss of power does all that it may: nothing
// unsynced left, all of it, a torn page, later pages without earlier ones, a grown
// file with a hole; and never what it may not.
func TestPowerLossOutcomes(t *testing.T) {
	seen := outcomes(func(s uint64) string {
		d := New(s, Options{})
		fs := d.Mount()
		f := open(t, fs, "f")
		write(t, f, 1, 4096, 0)
		require.NoError(t, f.Sync())
		require.NoError(t, fs.SyncDir("."))
		write(t, f, 2, 8192, 0)
		d.PowerLoss()
		got := d.Content("f")
		require.GreaterOrEqual(t, len(got), 4096)
		count := [3]int{}
		for _, b := range got {
			count[b]++
		}
		require.Equal(t, 0, bytes.Count(got[:4096], []byte{0}), "what was synced is there")
		switch {
		case count[2] == 0:
			return "all lost"
		case count[2] == 8192:
			return "all kept"
		case count[1] > 0 && bytes.IndexByte(got, 2) > bytes.IndexByte(got, 1):
			return "later without earlier"
		case count[1] > 0:
			return "earlier without later"
		}
		return "hole or short"
	})
	for _, want := range []string{"all lost", "all kept", "later without earlier", "earlier without later", "hole or short"} {
		require.Greater(t, seen[want], 2, "%s of %v", want, seen)
	}
}

// TestNamesAfterPowerLoss: rule 14. A name is durable after SyncDir only; file data and names are apart.
func TestNamesAfterPowerLoss(t *testing.T) {
	seen := outcomes(func(s uint64) string {
		d := New(s, Options{})
		fs := d.Mount()
		cur, next := open(t, fs, "cur"), open(t, fs, "next")
		write(t, cur, 1, 100, 0)
		require.NoError(t, fs.SyncAll())
		write(t, next, 2, 100, 0)
		require.NoError(t, fs.Rename("next", "cur")) // without syncing next first
		fresh := open(t, fs, "new")
		write(t, fresh, 3, 100, 0)
		require.NoError(t, fresh.Sync()) // its data, not its name
		d.PowerLoss()
		c := d.Content("cur")
		require.NotNil(t, c, "a rename is atomic: there is always a file of this name")
		out := fmt.Sprint("new:", d.Content("new") != nil)
		if n := d.Content("new"); n != nil {
			require.Equal(t, bytes.Repeat([]byte{3}, 100), n)
		}
		switch {
		case len(c) > 0 && c[0] == 1:
			require.Equal(t, bytes.Repeat([]byte{1}, 100), c)
			return out + " old"
		case len(c) == 100 && c[0] == 2:
			return out + " renamed"
		}
		return out + " renamed and empty"
	})
	for _, want := range []string{"new:true old", "new:false old", "new:true renamed", "new:false renamed", "new:true renamed and empty"} {
		require.Greater(t, seen[want], 2, "%s of %v", want, seen)
	}
	d := New(1, Options{})
	fs := d.Mount()
	open(t, fs, "kept")
	require.NoError(t, fs.SyncDir("."))
	d.PowerLoss()
	require.Equal(t, []string{"kept"}, d.Files())
}

// TestRenameBetweenDirectories waits for both directories to be synced.
func TestRenameBetweenDirectories(t *testing.T) {
	seen := outcomes(func(s uint64) string {
		d := New(s, Options{})
		fs := d.Mount()
		require.NoError(t, fs.Mkdir("a"))
		require.NoError(t, fs.Mkdir("b"))
		open(t, fs, "a/f")
		require.NoError(t, fs.SyncAll())
		require.NoError(t, fs.Rename("a/f", "b/g"))
		require.NoError(t, fs.SyncDir("b"))
		d.PowerLoss()
		return fmt.Sprint(d.Files())
	})
	require.Len(t, seen, 2, "one place or the other, never both or none: %v", seen)
	require.Greater(t, seen["[a/f]"], 5)
	require.Greater(t, seen["[b/g]"], 5)
}

// TestCrashInEveryCall ends the process in each call in turn; nothing can be done after it, whatever the code recovers or defers.
func TestCrashInEveryCall(t *testing.T) {
	work := func(fs *FS) {
		defer func() { recover() }() // code that would swallow anything
		defer func() { _ = fs.Remove("f") }()
		f, _ := fs.Open("f", disk.Create)
		f.WriteAt(make([]byte, 1000), 0)
		f.Sync()
		fs.SyncDir(".")
		fs.Rename("f", "g")
		f.Truncate(10)
		fs.SyncAll()
		f.Close()
		fs.Rename("g", "f")
	}
	clean := New(1, Options{})
	fs := clean.Mount()
	require.Equal(t, Returned, clean.Run(func() { work(fs) }))
	calls := int(clean.Stats().Total)
	require.Equal(t, 10, calls)
	partial := 0
	for n := 1; n <= calls; n++ {
		for s := uint64(0); s < 20; s++ {
			d := New(s, Options{})
			effect, want := Crash, Killed
			if s%2 == 1 {
				effect, want = PowerCut, Cut
			}
			d.AddRule(Rule{Op: OpAll, Nth: n, Effect: effect, Seed: s})
			fs := d.Mount()
			require.Equal(t, want, d.Run(func() { work(fs) }), "call %d", n)
			require.EqualValues(t, n, d.Stats().Total, "no call counts after the last one")
			require.EqualValues(t, 1, d.Stats().Fired[effect])
			if n > 1 && n < calls && want == Killed {
				require.NotEmpty(t, d.Files(), "the deferred Remove had no effect")
			}
			if c := d.Content("f"); n == 2 && len(c) > 0 && len(c) < 1000 {
				partial++
			}
			if want == Cut {
				d.PowerLoss()
			} else {
				d.Kill()
			}
			_, err := d.Mount().Open("h", disk.Create)
			require.NoError(t, err)
		}
	}
	require.Positive(t, partial, "some writes are cut in the middle")
}

func TestOtherPanicsPassThroughRun(t *testing.T) {
	d := New(1, Options{})
	d.Mount()
	require.PanicsWithValue(t, "boom", func() { d.Run(func() { panic("boom") }) })
}

// TestFailedSync: rule 13. After it, what was to be synced is gone, and a later sync that succeeds does not bring it back.
func TestFailedSync(t *testing.T) {
	for _, effect := range []Effect{IOError, IOErrorStale} {
		for _, op := range []Op{OpSync, OpSyncAll} {
			seen := outcomes(func(s uint64) string {
				d := New(s, Options{})
				d.AddRule(Rule{Op: op, Nth: 2, Effect: effect, Seed: s})
				fs := d.Mount()
				f := open(t, fs, "f")
				sync := f.Sync
				if op == OpSyncAll {
					sync = fs.SyncAll
				}
				require.NoError(t, fs.SyncDir("."))
				write(t, f, 1, 1024, 0)
				require.NoError(t, sync())
				write(t, f, 2, 1024, 0)
				require.ErrorIs(t, sync(), disk.ErrIO)
				require.NoError(t, sync())
				cached := d.Content("f")
				d.PowerLoss()
				after := d.Content("f")
				require.Len(t, after, 1024)
				require.Equal(t, 1024, bytes.Count(after, []byte{1})+bytes.Count(after, []byte{2}))
				if effect == IOError {
					require.Equal(t, cached, after)
				} else {
					require.Equal(t, bytes.Repeat([]byte{2}, 1024), cached)
				}
				return fmt.Sprint(bytes.Count(after, []byte{2}))
			})
			require.Greater(t, seen["0"], 20, "%v", seen)
			require.Greater(t, seen["1024"], 20, "%v", seen)
			if effect == IOError {
				require.Greater(t, seen["512"], 5, "%v", seen)
			}
		}
	}
}

// TestStalePageWrittenAgain: a page that the cache lies about is whole again once it is written and synced.
// TestTruncatedThenFailedSync: what a failed sync brings back of a truncated file is not seen when the file grows again.
func TestTruncatedThenFailedSync(t *testing.T) {
	for s := range uint64(100) {
		d := New(s, Options{})
		f := open(t, d.Mount(), "f")
		write(t, f, 7, 10_000, 0)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Truncate(100))
		d.AddRule(Rule{Op: OpSync, Nth: 1, Effect: IOError, Seed: s})
		require.ErrorIs(t, f.Sync(), disk.ErrIO)
		write(t, f, 9, 1, 9_999)
		b := make([]byte, 10_000)
		_, err := f.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 9_899), b[100:9_999])
	}
}

func TestStalePageWrittenAgain(t *testing.T) {
	d := New(3, Options{})
	d.AddRule(Rule{Op: OpSync, Nth: 1, Effect: IOErrorStale})
	fs := d.Mount()
	f := open(t, fs, "f")
	require.NoError(t, fs.SyncDir("."))
	write(t, f, 1, 1024, 0)
	require.Error(t, f.Sync())
	write(t, f, 2, 1, 0)
	require.NoError(t, f.Sync())
	d.PowerLoss()
	require.Equal(t, append([]byte{2}, bytes.Repeat([]byte{1}, 1023)...), d.Content("f"))
}

func TestIOErrors(t *testing.T) {
	d := New(1, Options{})
	fs := d.Mount()
	f := open(t, fs, "f")
	write(t, f, 1, 1000, 0)
	for _, c := range []struct {
		op   Op
		call func() error
	}{
		{OpOpen, func() error { _, err := fs.Open("f", 0); return err }},
		{OpMkdir, func() error { return fs.Mkdir("d") }},
		{OpRename, func() error { return fs.Rename("f", "g") }},
		{OpRemove, func() error { return fs.Remove("f") }},
		{OpList, func() error { _, err := fs.List("."); return err }},
		{OpStat, func() error { _, err := fs.Stat("f"); return err }},
		{OpStat, func() error { _, err := f.Size(); return err }},
		{OpRead, func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{OpWrite, func() error { _, err := f.WriteAt(make([]byte, 10), 0); return err }},
		{OpTruncate, func() error { return f.Truncate(5) }},
		{OpAllocate, func() error { return f.Allocate(0, 5) }},
		{OpSyncDir, func() error { return fs.SyncDir(".") }},
		{OpLock, func() error { _, err := fs.Lock("l"); return err }},
	} {
		d.AddRule(Rule{Op: c.op, Nth: 1, Effect: IOError})
		require.ErrorIs(t, c.call(), disk.ErrIO, "op %d", c.op)
		d.ClearRules()
		require.Equal(t, []string{"f"}, d.Files())
	}
	require.Len(t, d.Content("f"), 1000)
	require.EqualValues(t, 13, d.Stats().Fired[IOError])
}

func TestFullDisk(t *testing.T) {
	d := New(1, Options{Capacity: 10 * pageSize})
	fs := d.Mount()
	f := open(t, fs, "f")
	write(t, f, 1, 8*pageSize, 0)
	free, err := fs.Free()
	require.NoError(t, err)
	require.EqualValues(t, 2*pageSize, free)
	n, err := f.WriteAt(make([]byte, 4*pageSize), 8*pageSize)
	require.ErrorIs(t, err, disk.ErrNoSpace)
	require.Equal(t, 2*pageSize, n, "what fits is written")
	g := open(t, fs, "g")
	require.ErrorIs(t, g.Allocate(0, 1), disk.ErrNoSpace)
	require.NoError(t, f.Truncate(pageSize))
	require.NoError(t, g.Allocate(0, 5*pageSize))
	require.EqualValues(t, 6*pageSize, d.Used())
	require.NoError(t, fs.Remove("f"))
	require.EqualValues(t, 6*pageSize, d.Used(), "an open file keeps its room")
	require.NoError(t, f.Close())
	require.EqualValues(t, 5*pageSize, d.Used())
	d.AddRule(Rule{Op: OpWrite, Nth: 1, Effect: NoSpace})
	_, err = g.WriteAt(make([]byte, 10), 0)
	require.ErrorIs(t, err, disk.ErrNoSpace)
}

func TestShortWrite(t *testing.T) {
	d := New(1, Options{})
	d.AddRule(Rule{Op: OpWrite, Nth: 1, Times: 1, Effect: Short, Seed: 5})
	f := open(t, d.Mount(), "f")
	n, err := f.WriteAt(make([]byte, 1000), 0)
	require.NoError(t, err)
	require.Less(t, n, 1000)
	m, err := f.WriteVAt([][]byte{make([]byte, 500), make([]byte, 500)}, 0)
	require.NoError(t, err)
	require.Less(t, m, int64(1000))
	require.Len(t, d.Content("f"), max(n, int(m)))
	write(t, f, 1, 1000, 0)
}

func TestMisdirectedWrite(t *testing.T) {
	for s := uint64(0); s < 20; s++ {
		d := New(s, Options{})
		d.AddRule(Rule{Op: OpWrite, Path: "f", Nth: 2, Effect: Misdirect, Seed: s})
		fs := d.Mount()
		f, g := open(t, fs, "f"), open(t, fs, "g")
		write(t, f, 1, 4096, 0)
		write(t, g, 1, 4096, 0)
		write(t, f, 2, 512, 4096)
		require.Equal(t, make([]byte, 512), d.Content("f")[4096:])
		require.NoError(t, fs.SyncAll())
		d.PowerLoss()
		all := append(d.Content("f"), d.Content("g")...)
		require.Equal(t, 512, bytes.Count(all, []byte{2}), "it landed elsewhere, durably")
		require.Len(t, d.Damages(), 2)
	}
}

func TestRot(t *testing.T) {
	d := New(1, Options{})
	fs := d.Mount()
	f := open(t, fs, "logs/f"[5:])
	write(t, f, 0, 5000, 0)
	require.NoError(t, fs.SyncAll())
	chance := seed.New(7)
	require.True(t, d.Rot("*", &chance))
	require.False(t, d.Rot("nothing*", &chance))
	damage := d.Damages()[0]
	require.Equal(t, "f", damage.Name)
	d.PowerLoss()
	got := d.Content("f")
	require.NotZero(t, got[damage.Off])
	require.Equal(t, 4999, bytes.Count(got, []byte{0}))

	d.AddRule(Rule{Op: OpRead, Nth: 1, Effect: Rot})
	d.AddRule(Rule{Op: OpRead, Nth: 3, Effect: RotRead, Seed: 1})
	g, err := d.Mount().Open("f", 0)
	require.NoError(t, err)
	bits := func() int {
		p := make([]byte, 5000)
		_, err := g.ReadAt(p, 0)
		require.NoError(t, err)
		return 5000 - bytes.Count(p, []byte{0})
	}
	require.Equal(t, 2, bits(), "rotten for good")
	require.Equal(t, 2, bits())
	require.Equal(t, 3, bits(), "wrong once")
	require.Equal(t, 2, bits())
}

func TestSlowCallsCostTime(t *testing.T) {
	d := New(1, Options{})
	fs := d.Mount()
	f := open(t, fs, "f")
	d.TakeCost()
	write(t, f, 1, 100, 0)
	require.Less(t, d.TakeCost(), 100*time.Microsecond)
	require.NoError(t, f.Sync())
	require.Greater(t, d.TakeCost(), 100*time.Microsecond)
	d.AddRule(Rule{Op: OpSyncs, Path: "*f", Nth: 1, Times: -1, Effect: Slow, Delay: time.Second})
	require.NoError(t, f.Sync())
	require.NoError(t, f.Sync())
	require.Greater(t, d.TakeCost(), 2*time.Second)
	require.EqualValues(t, 2, d.Stats().Fired[Slow])
	require.Zero(t, d.TakeCost())
}

func TestLockAndHandlesEndWithTheProcess(t *testing.T) {
	d := New(1, Options{})
	fs := d.Mount()
	release, err := fs.Lock("lock")
	require.NoError(t, err)
	_, err = fs.Lock("lock")
	require.ErrorIs(t, err, disk.ErrLocked)
	f := open(t, fs, "f")
	d.Kill()
	require.Panics(t, func() { f.WriteAt([]byte{1}, 0) }, "a dead process writes nothing")
	require.Panics(t, func() { _ = release() })
	fs = d.Mount()
	release, err = fs.Lock("lock")
	require.NoError(t, err)
	require.NoError(t, release())
	require.Equal(t, []string{"f", "lock"}, d.Files())
	require.Panics(t, func() { d.Mount() })
}

func TestTreeErrors(t *testing.T) {
	fs := New(1, Options{}).Mount()
	_, err := fs.Open("no/f", disk.Create)
	require.ErrorIs(t, err, disk.ErrNotExist)
	_, err = fs.Open("f", 0)
	require.ErrorIs(t, err, disk.ErrNotExist)
	require.NoError(t, fs.Mkdir("d"))
	require.ErrorIs(t, fs.Mkdir("d"), disk.ErrExist)
	f := open(t, fs, "d/f")
	require.Error(t, fs.Remove("d"))
	require.ErrorIs(t, fs.Remove("x"), disk.ErrNotExist)
	require.NoError(t, fs.Rename("d", "e"))
	info, err := fs.Stat("e")
	require.NoError(t, err)
	require.True(t, info.Dir)
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, f.Allocate(100, 400))
	info, err = fs.Stat("e/f")
	require.NoError(t, err)
	require.EqualValues(t, 500, info.Size)
	require.NoError(t, fs.Remove("e/f"))
	require.NoError(t, fs.Remove("e"))
	require.NoError(t, f.Close())
	require.Error(t, f.Sync())
}

// TestSameSeedSameHash: two disks with one seed and one sequence of calls agree in all; another seed differs.
func TestSameSeedSameHash(t *testing.T) {
	run := func(s uint64) (uint64, string) {
		d := New(s, Options{Capacity: 1 << 20})
		c := seed.New(s)
		for life := 0; life < 20; life++ {
			d.AddRule(Rule{Op: OpAll, Nth: 1 + c.Intn(40), Effect: []Effect{PowerCut, IOError, Short, Misdirect, Rot}[c.Intn(5)], Seed: c.Uint64()})
			fs := d.Mount()
			d.Run(func() {
				for i := 0; i < 30; i++ {
					f, err := fs.Open(fmt.Sprint("f", c.Intn(4)), disk.Create)
					if err != nil {
						continue
					}
					f.WriteAt(bytes.Repeat([]byte{byte(c.Uint64())}, c.Intn(3000)), int64(c.Intn(10000)))
					switch c.Intn(4) {
					case 0:
						f.Sync()
					case 1:
						fs.SyncDir(".")
					case 2:
						fs.Rename("f0", "f1")
					}
				}
			})
			d.PowerLoss()
		}
		var all string
		for _, n := range d.Files() {
			all += n + string(d.Content(n))
		}
		return d.Hash(), all
	}
	h1, all1 := run(5)
	h2, all2 := run(5)
	h3, _ := run(6)
	require.Equal(t, h1, h2)
	require.True(t, all1 == all2)
	require.NotEqual(t, h1, h3)
}

func BenchmarkAppendSync(b *testing.B) {
	d := New(1, Options{})
	f, _ := d.Mount().Open("f", disk.Create)
	p := make([]byte, 200)
	for i := 0; i < b.N; i++ {
		f.WriteAt(p, int64(i%100000)*200)
		f.Sync()
	}
}
