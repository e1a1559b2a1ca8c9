package main

import (
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
)

// Three lives of the real binary, all kinds of faults once. `go run ./jepsen -rounds 100` is the long form.
func TestNothingAcknowledgedIsLostUnderKills(t *testing.T) {
	o := options{rounds: 3, load: 200 * time.Millisecond, partitions: 3, producers: 4, rate: 300,
		faults: []string{"kill"}, deletes: true, seed: uint64(time.Now().UnixNano())}
	s, err := run(o)
	require.NoError(t, err)
	require.NotEqual(t, linearizability.Violated, s.report.Verdict, s.String())
	require.Equal(t, 3, s.faults["kill"])
	require.Greater(t, s.acked, 50)
	require.Greater(t, s.records, 50)
	t.Log(s)
}

func TestPayloadNamesItsNumber(t *testing.T) {
	for _, v := range []int64{1, 42, 1 << 40} {
		for _, size := range []int{0, 20, 500} {
			b := payload(v, size)
			require.Equal(t, v, number(b))
			if len(b) > 16 {
				b[len(b)-1] ^= 1
				require.Equal(t, linearizability.NoValue, number(b))
			}
		}
	}
	require.Equal(t, linearizability.NoValue, number([]byte("x")))
}
