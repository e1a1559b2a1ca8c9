package sim

import (
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
)

// splitWorld is a world in which broker 0 is cut off, with some of the clients, while its clock and those of the others go
// apart: it may go on to lead by its own clock after the others have chosen another leader by theirs.
func splitWorld(seed uint64, slowPPM, fastPPM int64) *Plan {
	p := &Plan{Seed: seed, Duration: 6 * time.Second, Net: NetPlan{Latency: 100 * microsecond, Jitter: millisecond}}
	for i := range 3 {
		b := BrokerPlan{DiskSlowness: 1, SyncAllAbove: 4, MaxOpenFiles: 64, DriftPPM: fastPPM}
		if i == 0 {
			b.DriftPPM = slowPPM
		}
		p.Brokers = append(p.Brokers, b)
	}
	p.Topics = []TopicPlan{{Name: "t0", Partitions: 3, Replicas: 3}}
	for i := range 9 {
		c := ClientPlan{Seed: seed*100 + uint64(i), Topics: []int{0}, Think: [2]time.Duration{10 * time.Millisecond, 40 * time.Millisecond},
			Timeout: time.Second, Acks: -1, InFlight: 1, Spread: 1, Records: [2]int{1, 2}, Bytes: [2]int{8, 16}, MaxWait: 20 * time.Millisecond,
			MaxBytes: 1 << 20, PartitionBytes: 1 << 20}
		c.Kind = []ClientKind{Producer, Consumer, Reader}[i%3]
		p.Clients = append(p.Clients, c)
	}
	p.Faults = []Fault{{Kind: Split, At: 2 * time.Second, For: 3 * time.Second, Seed: seed}}
	return p
}

// Reads are linearizable as long as clocks do not run away from one another by more than docs/guarantees.md says, and the
// bound is real: where they do, a deposed leader answers with what is old.
func TestDriftBeyondTheBoundIsSeen(t *testing.T) {
	stale := 0
	for seed := uint64(1); seed <= 24; seed++ {
		r := RunPlan(splitWorld(seed, -MaxDriftPPM, MaxDriftPPM), Options{})
		require.Nil(t, r.Failure, "seed %d, within the bound", seed)
		if f := RunPlan(splitWorld(seed, -850_000, 500_000), Options{}).Failure; f != nil {
			require.Equal(t, string(linearizability.StaleRead), f.Kind, "seed %d: %s", seed, f.Line)
			stale++
		}
	}
	require.NotZero(t, stale, "nothing shows that the bound is needed")
}
