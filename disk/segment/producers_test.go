package segment

import (
	"testing"

	"lockstep/core/log"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

// tableOf is the snapshot of a producer table that one batch at an offset was told to.
func tableOf(offset int64) []byte {
	t := log.NewProducers(0)
	t.Replay(build(spec{base: offset, producer: 5, sequence: int32(offset)}).Header())
	t.Committed(offset + 1)
	return t.Snapshot()
}

// filled is a log of twelve batches.
func filled(t *testing.T) (*simdisk.Disk, *Store, *Log) {
	d := newDisk()
	s := openStore(t, d.Mount())
	l, _ := openLog(t, s, 0, smallLog)
	fill(t, l, 12, 300)
	commit(t, s)
	return d, s, l
}

// A snapshot that is there is not written again: that would take a durable one away for a moment, of a log that may have nothing else.
func TestAProducerSnapshotIsNotReplaced(t *testing.T) {
	d, s, l := filled(t)
	require.NoError(t, l.SaveProducers(12, tableOf(11)))
	start, err := l.SetStart(12, nil)
	require.NoError(t, err)
	require.EqualValues(t, 12, start)
	d.PowerLoss()
	for range 2 {
		s = openStore(t, d.Mount())
		l, st := openLog(t, s, 0, smallLog)
		require.Equal(t, tableOf(11), st.Producers.Snapshot())
		require.NoError(t, l.SaveProducers(12, tableOf(11)))
		require.NoError(t, l.SaveProducers(9, tableOf(8)))
		d.PowerLoss()
	}
}

// A snapshot that a power loss has torn is removed, and does not stand in the way of the next one.
func TestATornProducerSnapshotIsRemoved(t *testing.T) {
	d, s, l := filled(t)
	require.NoError(t, l.SaveProducers(9, tableOf(8)))
	require.NoError(t, l.SaveProducers(12, tableOf(11)[:20]))
	s = restart(t, d, s)
	l, st := openLog(t, s, 0, smallLog)
	require.Equal(t, []int64{9}, l.snapshots)
	require.Equal(t, 1, st.Producers.Len())
	require.NoError(t, l.SaveProducers(12, tableOf(11)))
	require.Equal(t, []int64{9, 12}, l.snapshots)
}

// A snapshot that cannot be read is not taken for one that is not there.
func TestAnUnreadableProducerSnapshotIsAnError(t *testing.T) {
	d, s, l := filled(t)
	require.NoError(t, l.SaveProducers(12, tableOf(11)))
	s = restart(t, d, s)
	d.AddRule(simdisk.Rule{Op: simdisk.OpRead, Path: "*.snapshot", Nth: 1, Effect: simdisk.IOError})
	_, _, err := s.OpenLog(part(0), "t", smallLog)
	require.ErrorIs(t, err, disk.ErrIO)
}

// Without room for a snapshot retention deletes what an earlier one covers, and a start is not moved beyond that.
func TestWithoutRoomForProducersTheyAreNotForgotten(t *testing.T) {
	d := newDisk()
	s := openStore(t, d.Mount())
	cfg := smallLog
	cfg.RetentionBytes = 0
	l, _ := openLog(t, s, 0, cfg)
	fill(t, l, 40, 300)
	commit(t, s)
	require.NoError(t, l.SaveProducers(20, tableOf(19)))
	d.AddRule(simdisk.Rule{Op: simdisk.OpOpen | simdisk.OpWrite, Path: "*.snapshot", Nth: 1, Times: 3, Effect: simdisk.NoSpace})
	require.ErrorIs(t, l.SaveProducers(40, tableOf(39)), disk.ErrNoSpace)
	_, err := l.SetStart(30, nil)
	require.ErrorIs(t, err, disk.ErrNoSpace)
	start, err := l.Retain(40, 2_000_000)
	require.NoError(t, err)
	require.Positive(t, start)
	require.LessOrEqual(t, start, int64(20))
	start, err = l.SetStart(30, nil)
	require.NoError(t, err, "there is room again")
	require.EqualValues(t, 30, start)
	require.Equal(t, []int64{20, 40}, l.snapshots)
	_, err = l.Truncate(35)
	require.NoError(t, err)
	require.Equal(t, []int64{20}, l.snapshots)
}

// What could not be stored of a log is not stored of the one that begins anew in its place.
func TestAnUnsavedProducerSnapshotGoesWithItsLog(t *testing.T) {
	d, s, l := filled(t)
	d.AddRule(simdisk.Rule{Op: simdisk.OpOpen | simdisk.OpWrite, Path: "*.snapshot", Nth: 1, Effect: simdisk.NoSpace})
	require.ErrorIs(t, l.SaveProducers(12, tableOf(11)), disk.ErrNoSpace)
	require.NoError(t, l.Reset(0))
	fill(t, l, 20, 300)
	commit(t, s)
	start, err := l.SetStart(15, nil)
	require.NoError(t, err)
	require.EqualValues(t, 15, start)
	require.Empty(t, l.snapshots)
	s = restart(t, d, s)
	_, st := openLog(t, s, 0, smallLog)
	require.Zero(t, st.Producers.Len())
}
