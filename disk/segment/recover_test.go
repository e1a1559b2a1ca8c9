package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

// poke changes a byte of a file at rest, as far as the test's process can.
func poke(t *testing.T, fs disk.FS, name string, off int64) {
	f, err := fs.Open(name, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	require.NoError(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// writtenDisk returns a disk with a log of 30 durable batches.
func writtenDisk(t *testing.T) (*simdisk.Disk, *Store, *Log) {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, smallLog)
	fill(t, l, 30, 100)
	commit(t, s)
	require.NoError(t, s.Checkpoint([]HighWatermark{{part(0), 29}}))
	return d, s, l
}

// TestDamageIsNeverCutAway is rule 15: below the recovery point every wrong byte is found by whoever parses it, and
// costs nothing but that.
func TestDamageIsNeverCutAway(t *testing.T) {
	d, s, l := writtenDisk(t)
	require.Greater(t, len(segments(l)), 2)
	var names []string
	sizes := map[string]int64{}
	for _, seg := range l.segs {
		names = append(names, seg.name(logExt))
		sizes[seg.name(logExt)] = seg.size
	}
	require.NoError(t, s.Close())
	d.Unmount()
	for _, clean := range []bool{true, false} {
		for i, name := range names {
			for off := int64(0); off < sizes[name]; off += 37 {
				fs := d.Mount()
				if !clean {
					require.NoError(t, removeIfThere(fs, cleanName))
				}
				poke(t, fs, name, off)
				s := openStore(t, fs)
				l, st := openLogAnyway(t, s)
				if l != nil {
					require.EqualValues(t, 30, st.End, "%s at %d", name, off)
					var damage *CorruptError
					require.ErrorAs(t, l.Verify(), &damage, "%s at %d", name, off)
					require.Equal(t, name, damage.File)
				}
				size, err := fs.Stat(name)
				require.NoError(t, err)
				require.Equal(t, sizes[name], size.Size, "segment %d is cut", i)
				require.NoError(t, s.Close())
				poke(t, fs, name, off)
				d.Unmount()
			}
		}
	}
	s = openStore(t, d.Mount())
	l, _ = openLog(t, s, 0, smallLog)
	require.NoError(t, l.Verify())
	require.Len(t, readAll(t, l), 30)
}

// openLogAnyway opens log 0; the replay of its producers may find the damage, and then it is not opened.
func openLogAnyway(t *testing.T, s *Store) (*Log, log.State) {
	l, st, err := s.OpenLog(part(0), "t", smallLog)
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
		return nil, st
	}
	return l, st
}

func TestTornEndIsCut(t *testing.T) { // museum C04
	d, _, l := writtenDisk(t)
	_, end := l.Bounds()
	_, err := l.Append([]record.Batch{build(spec{base: end, size: 500})})
	require.NoError(t, err)
	name, size := l.last().name(logExt), l.last().size
	d.Kill()
	fs := d.Mount()
	poke(t, fs, name, size-3)
	s := openStore(t, fs)
	l, st := openLog(t, s, 0, smallLog)
	require.EqualValues(t, 30, st.End)
	require.EqualValues(t, 29, st.HighWatermark)
	require.False(t, st.Clean)
	require.Contains(t, strings.Join(s.Notices(), "\n"), "torn end")
	fill(t, l, 5, 100)
	require.NoError(t, l.Verify())
	require.Len(t, readAll(t, l), 35)
}

func TestMissingOrShortFilesAreDamage(t *testing.T) {
	for _, what := range []string{"first", "middle", "last", "short"} {
		d, _, l := writtenDisk(t)
		segs := l.segs
		d.Kill()
		fs := d.Mount()
		name := map[string]*segment{"first": segs[0], "middle": segs[1], "last": segs[len(segs)-1], "short": segs[len(segs)-1]}[what].name(logExt)
		if what == "short" {
			f, err := fs.Open(name, 0)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(10))
		} else {
			require.NoError(t, fs.Remove(name))
		}
		s := openStore(t, fs)
		l, _, err := s.OpenLog(part(0), "t", smallLog)
		if what == "middle" && err == nil {
			err = l.Verify()
		}
		require.ErrorIs(t, err, ErrCorrupt, what)
		require.Equal(t, what == "middle", s.Found()[0].Err == nil)
		for range 2 { // and it stays damage, until the log is deleted
			require.NoError(t, s.Close())
			d.Unmount()
			s = openStore(t, d.Mount())
		}
		if what != "middle" {
			require.ErrorIs(t, s.Found()[0].Err, ErrCorrupt)
		}
		require.NoError(t, s.DeleteLogs(part(0)))
		_, st := openLog(t, s, 0, smallLog)
		require.Zero(t, st.End)
	}
}

func TestCheckpointsLostOrDamaged(t *testing.T) {
	for _, what := range []string{"missing", "damaged", "damaged later"} {
		t.Run(what, func(t *testing.T) {
			d, s, l := writtenDisk(t)
			require.NoError(t, l.SaveEpochs([]log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 30}}))
			_, err := l.Append([]record.Batch{build(spec{base: 30, epoch: 4})})
			require.NoError(t, err)
			commit(t, s)
			require.NoError(t, s.Checkpoint(nil))
			require.NoError(t, s.Checkpoint([]HighWatermark{{part(0), 30}}))
			damagePos := l.segs[1].size / 2
			name := l.segs[1].name(logExt)
			d.Kill()
			fs := d.Mount()
			switch what {
			case "missing":
				require.NoError(t, fs.Remove(journalName))
			case "damaged":
				poke(t, fs, journalName, 20)
			default:
				poke(t, fs, journalName, 110)
			}
			s = openStore(t, fs)
			require.Contains(t, strings.Join(s.Notices(), "\n"), journalName)
			l, st := openLog(t, s, 0, smallLog)
			require.EqualValues(t, 31, st.End)
			require.Equal(t, []log.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 30}}, st.Epochs)
			require.NoError(t, l.Verify())

			// Without recovery points damage could pass for a torn end, but must not, the next time neither.
			d.Kill()
			fs = d.Mount()
			require.NoError(t, fs.Remove(journalName))
			poke(t, fs, name, damagePos)
			for range 3 {
				s = openStore(t, fs)
				require.ErrorIs(t, s.Found()[0].Err, ErrCorrupt)
				require.NoError(t, s.Close())
				d.Unmount()
				fs = d.Mount()
			}
			poke(t, fs, name, damagePos)
			s = openStore(t, fs)
			_, st = openLog(t, s, 0, smallLog)
			require.EqualValues(t, 31, st.End)
		})
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	d, s, _ := writtenDisk(t)
	require.NoError(t, s.Close())
	d.Unmount()
	fs := d.Mount()
	names := []string{"README", "notes/x", "t-0/123.log", "t-0/00000000000000000000.log.bak", "t-0/cleaner", "other-1/" + metadataName, "other-1/00000000000000000000.log"}
	for _, dir := range []string{"notes", "other-1", "empty-7", "plain"} {
		require.NoError(t, fs.Mkdir(dir))
	}
	for _, name := range names {
		f, err := fs.Open(name, disk.Create)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("something"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	left, err := fs.Open("t-0/00000000000000000000.index.tmp", disk.Create)
	require.NoError(t, err)
	require.NoError(t, left.Close())
	s = openStore(t, fs)
	require.Len(t, s.Found(), 1)
	notices := strings.Join(s.Notices(), "\n")
	for _, name := range []string{"README", "notes", "t-0/123.log", "t-0/00000000000000000000.log.bak", "t-0/cleaner", "other-1", "plain"} {
		require.Contains(t, notices, name)
	}
	for _, name := range names {
		_, err := fs.Stat(name)
		require.NoError(t, err, name)
	}
	for _, name := range []string{"t-0/00000000000000000000.index.tmp", "empty-7"} { // what a crash leaves of a replacement, and of a log being made
		_, err = fs.Stat(name)
		require.ErrorIs(t, err, disk.ErrNotExist, name)
	}
	other := core.Partition{Topic: core.TopicID{9}, Index: 1}
	_, st, err := s.OpenLog(other, "other", smallLog)
	require.NoError(t, err)
	require.Zero(t, st.End)
	_, err = fs.Stat("other-1.0.stray/" + metadataName)
	require.NoError(t, err)
}

// TestRecreatedTopic: a topic that is deleted and made again has another id, and the old one's replica may still be there.
func TestRecreatedTopic(t *testing.T) {
	d, s, old := writtenDisk(t)
	id := core.Partition{Topic: core.TopicID{99}}
	span, err := old.Read(3, 30, 1000, true)
	require.NoError(t, err)
	l, st, err := s.OpenLog(id, "t", smallLog)
	require.NoError(t, err)
	require.Zero(t, st.End)
	require.Equal(t, "t-0", l.Dir())
	require.Equal(t, "t-0.0.stray", old.Dir())
	fill(t, l, 4, 10)
	fill(t, old, 40, 100)
	commit(t, s)
	require.NoError(t, span.ReadInto(make([]byte, span.Len)))
	span.Release()
	d.PowerLoss()
	s = openStore(t, d.Mount())
	require.Len(t, s.Found(), 2)
	l, st, err = s.OpenLog(id, "t", smallLog)
	require.NoError(t, err)
	require.EqualValues(t, 4, st.End)
	_, st = openLog(t, s, 0, smallLog)
	require.EqualValues(t, 70, st.End)
	require.NoError(t, s.DeleteLogs(part(0)))
	d.PowerLoss()
	s = openStore(t, d.Mount())
	require.Equal(t, []Found{{id, "t", nil}}, s.Found())
}

// TestWhoseLog: a log that was durable is never taken for a new one, whatever became of its metadata file or its directory.
func TestWhoseLog(t *testing.T) {
	for _, what := range []string{"damaged", "missing", "no directory", "nobody knows"} {
		d, s, _ := writtenDisk(t)
		require.NoError(t, s.DeleteLogs(part(5)))
		d.Kill()
		fs := d.Mount()
		switch what {
		case "damaged":
			poke(t, fs, "t-0/"+metadataName, 30)
		case "missing":
			require.NoError(t, fs.Remove("t-0/"+metadataName))
		case "no directory":
			names, err := fs.List("t-0")
			require.NoError(t, err)
			for _, name := range names {
				require.NoError(t, fs.Remove("t-0/"+name))
			}
			require.NoError(t, fs.Remove("t-0"))
		case "nobody knows":
			poke(t, fs, "t-0/"+metadataName, 30)
			require.NoError(t, fs.Remove(journalName))
		}
		s = openStore(t, fs)
		_, st, err := s.OpenLog(part(0), "t", smallLog)
		switch what {
		case "damaged", "missing":
			require.NoError(t, err)
			require.EqualValues(t, 30, st.End)
			d.PowerLoss()
			s = openStore(t, d.Mount())
			require.Equal(t, []Found{{part(0), "t", nil}}, s.Found())
			require.Empty(t, s.Notices(), "it was made anew")
		case "no directory":
			require.ErrorIs(t, err, ErrCorrupt)
			require.NoError(t, s.Close())
			s = openStore(t, fs)
			_, _, err = s.OpenLog(part(0), "t", smallLog)
			require.ErrorIs(t, err, ErrCorrupt, "until it is deleted")
			require.NoError(t, s.DeleteLogs(part(0)))
			_, st = openLog(t, s, 0, smallLog)
			require.Zero(t, st.End)
		case "nobody knows":
			require.ErrorIs(t, err, ErrCorrupt)
			_, _, err = s.OpenLog(part(1), "t", smallLog)
			require.NoError(t, err, "others are not concerned")
		}
	}
}

// TestUnreadableLog: what cannot be read of one log concerns no other.
func TestUnreadableLog(t *testing.T) {
	for _, path := range []string{"t-0/*.metadata", "t-0/*.log", "t-0"} {
		d, s, _ := writtenDisk(t)
		other, _ := openLog(t, s, 1, smallLog)
		fill(t, other, 3, 100)
		fill(t, s.Log(part(0)), 3, 100)
		d.Kill()
		d.AddRule(simdisk.Rule{Op: simdisk.OpRead | simdisk.OpList, Path: path, Nth: 1, Times: -1, Effect: simdisk.IOError})
		fs := d.Mount()
		s = openStore(t, fs)
		_, _, err := s.OpenLog(part(0), "t", smallLog)
		require.ErrorIs(t, err, disk.ErrIO, path)
		_, st := openLog(t, s, 1, smallLog)
		require.EqualValues(t, 3, st.End)
		require.NoError(t, s.Close())
		d.ClearRules()
		_, st = openLog(t, openStore(t, fs), 0, smallLog)
		require.EqualValues(t, 33, st.End, path)
	}
}

// TestDeletionIsFinished: a crash in the middle of a deletion leaves neither the log nor the word that it is missing.
func TestDeletionIsFinished(t *testing.T) {
	for call, done := 1, false; !done; call++ {
		d, s, _ := writtenDisk(t)
		d.AddRule(simdisk.Rule{Op: simdisk.OpAll, Nth: call, Effect: simdisk.PowerCut, Seed: uint64(call)})
		done = d.Run(func() { require.NoError(t, s.DeleteLogs(part(0))) }) == simdisk.Returned
		d.ClearRules()
		d.PowerLoss()
		s = openStore(t, d.Mount())
		for _, f := range s.Found() {
			require.False(t, done)
			require.NoError(t, f.Err)
		}
		d.PowerLoss()
		fs := d.Mount()
		s = openStore(t, fs)
		names, err := fs.List(".")
		require.NoError(t, err)
		require.NotContains(t, names, part(0).String()+deletedSuffix)
		_, st := openLog(t, s, 0, smallLog)
		require.True(t, st.End == 30 || st.End == 0)
	}
}

func TestDeletedLogStaysReadableUntilReleased(t *testing.T) {
	_, s, l := writtenDisk(t)
	span, err := l.Read(0, 30, 1000, true)
	require.NoError(t, err)
	require.NoError(t, s.DeleteLogs(part(0)))
	require.NoError(t, span.ReadInto(make([]byte, span.Len)))
	span.Release()
	span.Release()
	_, err = l.Read(0, 30, 1000, true)
	require.ErrorIs(t, err, ErrNoLog)
	_, err = l.Append([]record.Batch{build(spec{base: 30})})
	require.ErrorIs(t, err, ErrNoLog)
	require.Nil(t, s.Log(part(0)))
	require.NoError(t, s.DeleteLogs(part(0)), "it is gone already")
}

func TestIndexIsRebuilt(t *testing.T) {
	cfg := smallLog
	cfg.SegmentBytes = 200_000
	for _, damage := range []string{"gone", "zeros", "cut", "swapped"} {
		d := newDisk()
		s := openStore(t, d.Mount())
		l, _ := openLog(t, s, 0, cfg)
		fill(t, l, 3000, 50)
		index, want := l.segs[0].name(indexExt), l.segs[0].indexed+len(l.segs[0].pending)
		require.NoError(t, s.Close())
		d.Unmount()
		fs := d.Mount()
		switch damage {
		case "gone":
			require.NoError(t, fs.Remove(index))
		default:
			f, err := fs.Open(index, 0)
			require.NoError(t, err)
			switch damage {
			case "zeros":
				_, err = f.WriteAt(make([]byte, 3000), 500)
			case "cut":
				err = f.Truncate(entrySize*3 + 7)
			case "swapped": // good entries of another segment
				b, readErr := readFile(fs, l.segs[1].name(indexExt))
				require.NoError(t, readErr)
				_, err = f.WriteAt(b, 0)
			}
			require.NoError(t, err)
		}
		s = openStore(t, fs)
		l, _ = openLog(t, s, 0, cfg)
		require.NoError(t, l.Verify(), damage)
		for from := int64(0); from < 3000; from += 99 {
			l.forgetPlaces()
			got, err := l.ReadBatches(from, 3000, 1)
			require.NoError(t, err)
			require.Equal(t, from, got[0].BaseOffset())
			r, err := l.LookupTime(1000+from, 3000)
			require.NoError(t, err)
			require.Equal(t, from, r.Offset)
		}
		if damage != "cut" && damage != "gone" { // a short index is only a sparse one
			require.Equal(t, want, l.segs[0].indexed, damage)
		}
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	d := newDisk()
	s, err := Open(d.Mount(), Options{MaxOpenFiles: 10})
	require.NoError(t, err)
	for i := range 50 {
		l, _ := openLog(t, s, i, smallLog)
		fill(t, l, 20, 100)
		require.LessOrEqual(t, s.files.open, 10)
	}
	require.Len(t, commit(t, s), 50)
	for i := range 50 {
		require.Len(t, readAll(t, s.Log(part(i))), 20)
		require.LessOrEqual(t, s.files.open, 10)
	}
	d.PowerLoss()
	s, err = Open(d.Mount(), Options{MaxOpenFiles: 10})
	require.NoError(t, err)
	for i := range 50 {
		_, st := openLog(t, s, i, smallLog)
		require.EqualValues(t, 20, st.End)
	}
	require.LessOrEqual(t, s.files.open, 10)
}

func TestFullDisk(t *testing.T) {
	d := simdisk.New(3, simdisk.Options{Capacity: 600 << 10})
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, log.Config{SegmentBytes: 50_000, FlushMessages: 1})
	var err error
	durable := int64(0)
	grow := func() {
		for n := 0; n < 1000; n++ {
			_, end := l.Bounds()
			if _, err = l.Append([]record.Batch{build(spec{base: end, size: 1000})}); err != nil {
				return
			}
			if n%10 == 0 {
				durable = commit(t, s)[0].End
			}
		}
	}
	grow()
	require.ErrorIs(t, err, disk.ErrNoSpace)
	_, end := l.Bounds()
	require.Len(t, readAll(t, l), int(end))
	commit(t, s)
	_, err = l.SetStart(durable/2, nil)
	require.NoError(t, err, "there is room in the journal")
	grow()
	_, now := l.Bounds()
	require.Greater(t, now, end)
	commit(t, s)
	grow()
	d.PowerLoss()
	s = openStore(t, d.Mount())
	l, st := openLog(t, s, 0, smallLog)
	require.GreaterOrEqual(t, st.End, durable)
	require.NoError(t, l.Verify())
}

func TestLockAndFormat(t *testing.T) {
	d := newDisk()
	fs := d.Mount()
	s := openStore(t, fs)
	_, err := Open(fs, Options{})
	require.ErrorIs(t, err, disk.ErrLocked)
	require.Nil(t, s.Meta())
	require.NoError(t, s.SaveMeta([]byte("node 1")))
	require.NoError(t, s.SaveState([]byte("term 3")))
	d.PowerLoss()
	fs = d.Mount()
	s = openStore(t, fs)
	require.Equal(t, "node 1", string(s.Meta()))
	state, err := s.LoadState()
	require.NoError(t, err)
	require.Equal(t, "term 3", string(state))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	next := seal([]byte("node 1"))
	next[sealHead] = sealVersion + 1
	binary.BigEndian.PutUint32(next[sealCRC:], crc32.Checksum(next[sealHead:], castagnoli))
	f, err := fs.Open(metaName, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(next, 0)
	require.NoError(t, err)
	_, err = Open(fs, Options{})
	require.ErrorIs(t, err, ErrFormat)
	_, err = fs.Stat(cleanName)
	require.NoError(t, err, "it is not this version's to touch")
	poke(t, fs, stateName, 12)
	_, err = unsealedState(fs)
	require.ErrorIs(t, err, ErrCorrupt)
}

func unsealedState(fs disk.FS) ([]byte, error) {
	b, err := readFile(fs, stateName)
	if err != nil {
		return nil, err
	}
	return unseal(stateName, b)
}

// TestCleanStopMarker: the word of a clean stop is taken back before anything is loaded (museum A14).
func TestCleanStopMarker(t *testing.T) {
	d, s, _ := writtenDisk(t)
	require.NoError(t, s.Close())
	d.Unmount()
	for call := 1; ; call++ {
		d.AddRule(simdisk.Rule{Op: simdisk.OpAll, Nth: call, Effect: simdisk.Crash})
		fs := d.Mount()
		marked := func() bool {
			_, err := fs.Stat(cleanName)
			return !errors.Is(err, disk.ErrNotExist)
		}
		loaded := false
		end := d.Run(func() {
			s := openStore(t, fs)
			loaded = true
			require.True(t, s.Clean())
		})
		d.ClearRules()
		if end == simdisk.Returned {
			require.False(t, marked())
			break
		}
		require.False(t, loaded)
		d.PowerLoss()
		fs = d.Mount()
		if call > 30 { // it is long gone when logs are listed
			require.False(t, marked(), "after call %d", call)
		}
		if !marked() { // make the next round begin as this one did
			require.NoError(t, openStore(t, fs).Close())
		}
		d.Unmount()
	}
}

func TestNamesOfLogs(t *testing.T) {
	for _, topic := range []string{"t", "a-b-c", "x.y_z", strings.Repeat("n", 249)} {
		id := core.Partition{Topic: core.TopicID{1, 2, 3}, Index: 12}
		got, name, err := parseMetadata("m", formatMetadata(id, topic))
		require.NoError(t, err)
		require.Equal(t, id, got)
		require.Equal(t, topic, name)
		dir, index, ok := splitDir(dirName(topic, 12))
		require.True(t, ok)
		require.Equal(t, topic, dir)
		require.Equal(t, "12", index)
	}
	for _, bad := range []string{"00000000000000000001", "1.log", "0000000000000000000x.log", "-0000000000000000001.log", "99999999999999999999.log"} {
		_, _, ok := parseName(bad)
		require.False(t, ok, bad)
	}
	off, ext, ok := parseName("00000000000000000042.log")
	require.True(t, ok && off == 42 && ext == ".log", fmt.Sprint(off, ext))
}
