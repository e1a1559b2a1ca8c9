package segment

import (
	"bytes"
	"fmt"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

// part is a partition for tests.
func part(n int) core.Partition {
	id := core.Partition{Index: int32(n)}
	id.Topic[0], id.Topic[15] = 7, byte(n)
	return id
}

var smallLog = log.Config{SegmentBytes: 2000, IndexIntervalBytes: 200, FlushMessages: 1, RetentionBytes: -1, RetentionMillis: -1, Delete: true}

// spec describes a batch to build.
type spec struct {
	base     int64
	records  int
	size     int // bytes of each value
	epoch    int32
	time     int64 // of the first record; the next ones are 1 ms later each
	producer int64 // 0 is none
	sequence int32
	codec    record.Codec
}

func build(s spec) record.Batch {
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch = s.base, s.epoch
	if s.producer > 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = s.producer, 0, s.sequence
	}
	for i := range max(s.records, 1) {
		value := bytes.Repeat([]byte{byte(s.base) + byte(i) + 1}, s.size)
		b.Add(record.Record{Timestamp: s.time + int64(i), Key: fmt.Appendf(nil, "%d", s.base+int64(i)), Value: value})
	}
	batch, err := b.Build()
	if err != nil {
		panic(err)
	}
	return batch
}

func newDisk() *simdisk.Disk { return simdisk.New(1, simdisk.Options{}) }

func openStore(t require.TestingT, fs disk.FS) *Store {
	s, err := Open(fs, Options{})
	require.NoError(t, err)
	return s
}

func openLog(t require.TestingT, s *Store, n int, cfg log.Config) (*Log, log.State) {
	l, st, err := s.OpenLog(part(n), "t", cfg)
	require.NoError(t, err)
	return l, st
}

// fill appends n batches of one record each to the log's end.
func fill(t require.TestingT, l *Log, n, size int) {
	for range n {
		_, end := l.Bounds()
		_, err := l.Append([]record.Batch{build(spec{base: end, size: size, time: 1000 + end})})
		require.NoError(t, err)
	}
}

func commit(t require.TestingT, s *Store) []DurableEnd {
	r := s.BeginSync()
	require.NoError(t, r.Run())
	return r.Finish()
}

// readAll reads everything by spans and checks that it is contiguous.
func readAll(t require.TestingT, l *Log) []record.Batch {
	at, end := l.Bounds()
	var all []record.Batch
	for at < end {
		batches, err := l.ReadBatches(at, end, 700)
		require.NoError(t, err)
		require.NotEmpty(t, batches)
		all = append(all, batches...)
		at = batches[len(batches)-1].NextOffset()
	}
	return all
}

func restart(t require.TestingT, d *simdisk.Disk, s *Store) *Store {
	require.NoError(t, s.Close())
	d.Unmount()
	return openStore(t, d.Mount())
}

func segments(l *Log) (bases []int64) {
	for _, seg := range l.segs {
		bases = append(bases, seg.base)
	}
	return bases
}
