package sim

import (
	"slices"
	"testing"
	"time"

	"lockstep/linearizability"

	"github.com/stretchr/testify/require"
)

// How long a partition takes no write when the controller dies, or freezes, is known in virtual time: an election, a lease, and
// the way of the news. A frozen broker that was not the controller is missed by its session alone.
func TestTimeWithoutWrites(t *testing.T) {
	for _, x := range []struct {
		kind  FaultKind
		whom  int
		limit time.Duration
	}{
		{Kill, TheController, 700 * time.Millisecond},
		{Kill, TheLeader, 700 * time.Millisecond},
		{Pause, TheController, 1800 * time.Millisecond}, // election.timeout at the most, and a lease
		{Pause, TheLeader, 2800 * time.Millisecond},     // a session, and the client's patience
	} {
		t.Run(x.kind.String(), func(t *testing.T) {
			var all []time.Duration
			for seed := uint64(1); seed <= 6; seed++ {
				p := splitWorld(seed, 0, 0)
				p.Clients = p.Clients[:1]
				for i := range p.Clients {
					c := &p.Clients[i]
					c.Kind, c.InFlight, c.Spread, c.Timeout = Producer, 1, 1, 300*time.Millisecond
					c.Think = [2]time.Duration{time.Millisecond, 2 * time.Millisecond}
				}
				p.Topics[0].Partitions = 1
				p.Faults = []Fault{{Kind: x.kind, Broker: x.whom, At: 2 * time.Second, For: 3500 * time.Millisecond, Seed: seed}}
				r := RunPlan(p, Options{})
				require.Nil(t, r.Failure)
				all = append(all, longestPause(r.History))
			}
			t.Log("longest times without a write:", all)
			require.Less(t, slices.Max(all), x.limit)
		})
	}
}

// longestPause is the longest virtual time between two writes that were acknowledged.
func longestPause(h *linearizability.History) (longest time.Duration) {
	last := int64(0)
	for _, op := range h.Ops {
		if op.Kind == linearizability.Produce && op.Outcome == linearizability.OK {
			if last > 0 {
				longest = max(longest, time.Duration(op.Return-last))
			}
			last = op.Return
		}
	}
	return longest
}
