package sim

import (
	"testing"

	"lockstep/core"

	"github.com/stretchr/testify/require"
)

// TestEmptyLogBeginsFurtherUp: a follower's log that holds nothing, and begins anew where its leader's does, is durable up to there.
func TestEmptyLogBeginsFurtherUp(t *testing.T) {
	w := newWorld(&Plan{Topics: []TopicPlan{{Name: "t0", Partitions: 1}}, Brokers: []BrokerPlan{{}}}, Options{})
	id := core.Partition{Topic: core.TopicID{1}}
	q, h := &logQueue{id: id}, w.hosts[0]
	log := &truth{host: h, id: id, of: w.oracle.agreement(id, "t0"), start: 49, written: 49, durable: 49}
	w.oracle.logs[replicaKey{0, id}] = log
	w.oracle.movingStart(h, q, 52)
	w.oracle.startMoved(h, q, 52)
	require.EqualValues(t, 52, log.start)
	require.EqualValues(t, 52, log.durable)
	require.EqualValues(t, 52, log.written)
}
