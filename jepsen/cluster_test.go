package main

import (
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
)

// Three real processes, two leaders killed. `go run ./jepsen -brokers 3 -rounds 30` is the long form, with all faults.
func TestClusterLosesNothingWhenLeadersAreKilled(t *testing.T) {
	o := options{brokers: 3, rounds: 2, load: 300 * time.Millisecond, partitions: 3, producers: 4, rate: 100,
		faults: []string{"kill-leader"}, seed: uint64(time.Now().UnixNano())}
	s, err := runCluster(o)
	require.NoError(t, err)
	require.NotEqual(t, linearizability.Violated, s.report.Verdict, s.String())
	require.Len(t, s.strikes, 2)
	require.Greater(t, s.acked, 50)
	require.Greater(t, s.records, 50)
	require.Positive(t, s.committed)
	t.Log(s)
}

func TestLongestGap(t *testing.T) {
	acks := []int64{10, 20, 100, 110, 500}
	for _, c := range []struct {
		at, until int64
		want      time.Duration
	}{
		{15, 18, 10},    // within one
		{15, 30, 80},    // the second begins before the end
		{105, 108, 10},  // what lies before and after does not count
		{30, 200, 390},  // the longest of two
		{600, 700, 0},   // nothing came after it
		{0, 10, 0},      // what begins at the end does not count
		{-5, 1000, 390}, // all
	} {
		require.Equal(t, c.want, longestGap(acks, c.at, c.until), "%d to %d", c.at, c.until)
	}
	require.Zero(t, longestGap(nil, 0, 10))
}

func TestQuantiles(t *testing.T) {
	var all []struck
	for i := range 100 {
		all = append(all, struck{pause: time.Duration(100-i) * time.Second})
	}
	require.Equal(t, "51.00s/99.00s/100.00s", quantiles(all, func(k struck) time.Duration { return k.pause }))
	require.Equal(t, "-", quantiles(nil, func(k struck) time.Duration { return k.pause }))
}
