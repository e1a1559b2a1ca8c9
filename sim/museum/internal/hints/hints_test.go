package hints

import (
	"testing"
	"time"

	"lockstep/sim"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	p := &sim.Plan{
		Duration: 4 * time.Second,
		Brokers:  []sim.BrokerPlan{{Settings: []sim.Setting{{Name: "replica.fetch.max.bytes", Value: "100"}}}, {}, {}},
		Topics:   []sim.TopicPlan{{Settings: []sim.Setting{{Name: "retention.ms", Value: "5"}}}},
		Clients:  []sim.ClientPlan{{Kind: sim.Producer}},
		Faults: []sim.Fault{{Kind: sim.CleanStop, At: time.Second, For: time.Second}, {Kind: sim.Kill, At: 3 * time.Second, When: sim.AfterAck},
			{Kind: sim.DiskRule, At: 1500 * time.Millisecond, Rule: simdisk.Rule{Effect: simdisk.PowerCut}}},
	}
	for hint, want := range map[string]bool{
		"kill": true, "power-loss": false, "power-loss|kill": true, "disk-power-cut": true, "power-loss-at-end": false,
		"brokers-3": true, "brokers-4": false, "topic-retention.ms": true, "topic-segment.bytes": false, "no-admin": true,
		"short-5": true, "short-3": false, "after-ack": true, "after-election": false, "deaf": false,
		"broker-replica.fetch.max.bytes": true, "broker-replica.lag.time.max.ms": false,
		"clean-stop>kill": true, "kill>clean-stop": false, "clean-stop>disk-power-cut": false, "clean-stop>power-loss-at-end": false,
		"clean-stop|pause>disk-power-cut|kill": true,
	} {
		require.True(t, Known(hint), hint)
		require.Equal(t, want, Match(p, []string{hint}), hint)
	}
	require.True(t, Match(p, nil))
	require.False(t, Match(p, []string{"kill", "power-loss"}))
	p.PowerLossAtEnd = true
	require.True(t, Match(p, []string{"clean-stop>power-loss-at-end"}))
	p.Clients = append(p.Clients, sim.ClientPlan{Kind: sim.Admin})
	require.False(t, Match(p, []string{"no-admin"}))
	p.Clients = append(p.Clients, sim.ClientPlan{Kind: sim.Member, Member: &sim.MemberPlan{Modern: true, Session: time.Second}})
	for hint, want := range map[string]bool{"group": true, "group-consumer": true, "group-classic": false, "member-lost-long": false} {
		require.True(t, Known(hint), hint)
		require.Equal(t, want, Match(p, []string{hint}), hint)
	}
	for _, hint := range []string{"", "nothing", "brokers-", "topic-nosuch", "broker-nosuch", "short-x", "kill>nothing", "kill|nothing"} {
		require.False(t, Known(hint), hint)
	}
}
