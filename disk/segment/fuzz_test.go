package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"testing"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"

	"github.com/stretchr/testify/require"
)

func init() { flag.Set("rapid.checks", "300") }

// withFile returns a file system with a data directory in which log 0 has the given files, after a kill.
func withFile(t require.TestingT, cfg log.Config, fillLog func(l *Log), files map[string][]byte) disk.FS {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, cfg)
	fillLog(l)
	commit(t, s)
	d.Kill()
	fs := d.Mount()
	for name, content := range files {
		f, err := fs.Open(name, disk.Create)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(0))
		_, err = f.WriteAt(content, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return fs
}

// FuzzSegmentFile: whatever is in a segment's file, nothing panics, and what is read is batches that are what was written.
func FuzzSegmentFile(f *testing.F) {
	var good []byte
	for i := range 4 {
		good = append(good, build(spec{base: int64(i), size: 20 * i, time: 5}).Bytes()...)
	}
	f.Add(good, true)
	f.Add(good[:len(good)-5], false)
	f.Add(append(bytes.Clone(good), make([]byte, 300)...), true)
	huge := bytes.Clone(good)
	binary.BigEndian.PutUint32(huge[8:], 1<<31-1)
	f.Add(huge, false)
	f.Fuzz(func(t *testing.T, content []byte, durable bool) {
		fill := func(l *Log) {
			if durable {
				_, err := l.Append([]record.Batch{build(spec{base: 0, time: 5}), build(spec{base: 1, size: 20, time: 5})})
				require.NoError(t, err)
			}
		}
		s := openStore(t, withFile(t, smallLog, fill, map[string][]byte{"t-0/00000000000000000000.log": content}))
		l, st, err := s.OpenLog(part(0), "t", smallLog)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		verified := l.Verify()
		at := st.Start
		for at < st.End {
			batches, err := l.ReadBatches(at, st.End, 100)
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				require.Error(t, verified)
				break
			}
			for _, b := range batches {
				parsed, n, err := record.Parse(b.Bytes())
				require.NoError(t, err)
				require.Equal(t, b.Size(), n)
				require.LessOrEqual(t, parsed.BaseOffset(), at)
				at = parsed.NextOffset()
			}
			if len(batches) == 0 {
				break
			}
		}
		for _, ts := range []int64{0, 6, MaxTimestamp} {
			l.LookupTime(ts, st.End)
		}
		if _, err := l.Append([]record.Batch{build(spec{base: st.End, epoch: 1 << 30})}); err == nil {
			_, err = l.Truncate(st.End / 2)
			require.True(t, err == nil || errors.Is(err, ErrCorrupt), "%v", err)
		}
		require.NoError(t, s.Close())
	})
}

// FuzzIndexFile: whatever is in an index file, lookups find what they find without one.
func FuzzIndexFile(f *testing.F) {
	cfg := log.Config{IndexIntervalBytes: 100}
	const batches = 120
	write := func(l *Log) {
		for i := range batches {
			if _, err := l.Append([]record.Batch{build(spec{base: int64(2 * i), records: 2, size: 20, time: int64(10 * i)})}); err != nil {
				panic(err)
			}
		}
	}
	const index = "t-0/00000000000000000000.index"
	good, err := readFile(withFile(f, cfg, write, nil), index)
	require.NoError(f, err)
	require.NotEmpty(f, good)
	f.Add(good)
	f.Add(good[:len(good)/2+3])
	swapped := bytes.Clone(good)
	copy(swapped[0:], good[entrySize*8:entrySize*9])
	f.Add(swapped)
	f.Fuzz(func(t *testing.T, content []byte) {
		s := openStore(t, withFile(t, cfg, write, map[string][]byte{index: content}))
		l, st := openLog(t, s, 0, cfg)
		require.EqualValues(t, 2*batches, st.End)
		for from := int64(0); from < st.End; from += 7 {
			l.forgetPlaces()
			got, err := l.ReadBatches(from, st.End, 150)
			require.NoError(t, err)
			require.Equal(t, from/2*2, got[0].BaseOffset())
			r, err := l.LookupTime(from/2*10+1, st.End)
			require.NoError(t, err)
			require.Equal(t, from/2*2+1, r.Offset)
		}
		require.NoError(t, l.Verify())
	})
}

// FuzzCheckpoints: whatever is in the checkpoints file, Open says what it thinks of it and goes on.
func FuzzCheckpoints(f *testing.F) {
	good, err := readFile(withFile(f, smallLog, func(l *Log) {
		fill(f, l, 9, 50)
		require.NoError(f, l.SaveEpochs([]log.EpochStart{{Epoch: 0}, {Epoch: 3, Start: 9}}))
	}, nil), journalName)
	require.NoError(f, err)
	good = bytes.TrimRight(good, "\x00")
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte(journalMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		c := parseJournal(content)
		require.LessOrEqual(t, c.end, int64(len(content)))
		if c.damage == nil { // what is known can be written and read again
			j := journal{facts: c.facts}
			again := parseJournal(append([]byte(journalMagic), encodeFrame(c.seq, 0, j.snapshot())...))
			require.NoError(t, again.damage)
			for id, facts := range c.facts {
				require.Equal(t, facts, again.facts[id])
			}
		}
		list, err := ReadCheckpoints(content)
		require.Equal(t, c.damage, err)
		require.Len(t, list, len(c.facts))
		s, err := Open(withFile(t, smallLog, func(l *Log) { fill(t, l, 9, 50) }, map[string][]byte{journalName: content}), Options{})
		require.NoError(t, err)
		if s.Found()[0].Err == nil {
			l, st, err := s.OpenLog(part(0), "t", smallLog)
			if err == nil {
				require.LessOrEqual(t, st.End-st.Start, max(9, st.Start))
				l.Verify()
			}
		}
		require.NoError(t, s.Close())
	})
}

// FuzzMetadata: a log's metadata file is believed only if it is whole.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(formatMetadata(core.Partition{Topic: core.TopicID{1}, Index: 3}, "topic")))
	f.Add([]byte("version: 0\ntopic_id: AAAA\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		id, topic, err := parseMetadata("m", content)
		if err == nil {
			again, name, err := parseMetadata("m", formatMetadata(id, topic))
			require.NoError(t, err)
			require.Equal(t, id, again)
			require.Equal(t, topic, name)
		}
	})
}
