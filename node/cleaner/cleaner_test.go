package cleaner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/disk"
	"lockstep/disk/segment"

	"github.com/stretchr/testify/require"
)

func TestPacer(t *testing.T) {
	var p Pacer
	now := 1000 * time.Second
	require.Zero(t, p.Take(now, 1<<30), "no limit")
	p.Limit(1.7976931348623157e308)
	require.Zero(t, p.Take(now, 1<<30))
	p.Limit(1000)
	require.Equal(t, 2*time.Second, p.Take(now, 2000))
	require.Equal(t, 3*time.Second, p.Take(now, 1000), "who comes at the same time waits, too")
	require.Equal(t, 500*time.Millisecond, p.Take(now+4*time.Second, 500), "what was not used is not saved up")
}

func TestAnswers(t *testing.T) {
	id := core.Partition{Index: 3}
	stats := &segment.CompactStats{Due: true, From: 5, To: 9, Keys: 2, BytesBefore: 100, BytesAfter: 60, Full: true}
	compacted := func(err error) broker.Compacted {
		return broker.Compacted{Log: id, Due: true, From: 5, To: 9, Keys: 2, Before: 100, After: 60, More: true, Err: err}
	}
	failed, corrupt := fmt.Errorf("sync: %w", segment.ErrDiskFailed), fmt.Errorf("read: %w", segment.ErrCorrupt)
	for _, x := range []struct {
		err  error
		want []broker.Input
	}{
		{nil, []broker.Input{compacted(nil)}},
		{disk.ErrNoSpace, []broker.Input{compacted(disk.ErrNoSpace)}},
		{failed, []broker.Input{broker.DiskFailed{Err: failed}, compacted(failed)}},
		{corrupt, []broker.Input{broker.LogFailed{Log: id, Err: corrupt}, compacted(corrupt)}},
		{fmt.Errorf("compact: %w", ErrStopping), nil},
		{errors.Join(segment.ErrClosed), nil},
	} {
		require.Equal(t, x.want, Answers(id, stats, x.err), "%v", x.err)
	}
}
