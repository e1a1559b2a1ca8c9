package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// 10,000 partitions are created by one request and fail over in one batch; the times are logged, the work is bounded.
func TestTenThousandPartitions(t *testing.T) {
	c := threeBrokers(t)
	start := time.Now()
	p := c.create("t", numbered(10_000, 3))
	created := time.Since(start)
	require.Equal(t, 10_000, c.image().PartitionCount())

	records := len(c.log)
	c.heartbeat(1)
	c.peerClosed(1)
	for _, id := range []int32{2, 3} {
		c.heartbeat(id)
	}
	c.now = c.now.Add(550 * time.Millisecond)
	start = time.Now()
	c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	decided := time.Since(start)
	start = time.Now()
	c.commit()
	applied := time.Since(start)
	require.Equal(t, 10_001, len(c.log)-records, "one record for each partition")
	led := map[int32]int{}
	for x := range c.image().Partitions(p.Topic) {
		led[x.Leader]++
	}
	require.Zero(t, led[1]+led[NoLeader])
	require.InDelta(t, led[2], led[3], 20, "the followers of one leader's partitions are spread")
	bytes := 0
	for _, r := range c.log[records:] {
		bytes += len(r)
	}
	start = time.Now()
	snapshot := c.image().Snapshot()
	t.Logf("created in %v; failover decided in %v, applied on two brokers in %v, %d bytes; snapshot of %d records in %v",
		created, decided, applied, bytes, len(snapshot), time.Since(start))
}
