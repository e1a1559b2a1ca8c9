package main

import (
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
)

// Three real brokers and groups whose members are processes. `go run ./jepsen -groups -brokers 3 -rounds 50` is the long form.
func TestGroupsSkipNothingWhenMembersAndCoordinatorsAreKilled(t *testing.T) {
	o := options{brokers: 3, rounds: 2, load: 300 * time.Millisecond, partitions: 7, producers: 2, rate: 100,
		faults: []string{"kill-coordinator", "kill-member"}, seed: uint64(time.Now().UnixNano())}
	s, err := runGroups(o)
	require.NoError(t, err)
	require.NotEqual(t, linearizability.Violated, s.report.Verdict, s.String())
	require.Len(t, s.strikes, 2)
	require.Equal(t, 4, s.groups)
	require.GreaterOrEqual(t, s.members, 4*firstMembers+1)
	require.Greater(t, s.acked, 50)
	require.GreaterOrEqual(t, s.verdict.delivered, 4*s.acked)
	require.Positive(t, s.verdict.commits)
	require.Positive(t, s.verdict.looks)
	t.Log(s)
}

func TestGroupsNeedAPartitionForEachMember(t *testing.T) {
	_, err := runGroups(options{brokers: 3, partitions: 3})
	require.ErrorContains(t, err, "3 partitions are too few for 7 members")
	_, err = runGroups(options{brokers: 3, partitions: 12, faults: []string{"no-such"}})
	require.ErrorContains(t, err, `no fault "no-such"`)
}
