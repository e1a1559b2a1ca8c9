package controller

import (
	"encoding/binary"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AuthoritySlack is for how long a controller answers with authority after it last heard its majority. The quorum's leader
// knows of that only as of a moment ago, so without slack hardly a request would be answered. A successor may have been elected in
// that time, but it has fenced nobody yet: for that it waits a full lease, which is longer.
const AuthoritySlack = 200 * time.Millisecond

// spentLeaseTag is the tagged field of a BrokerHeartbeat's answer that says how much of the lease is over already, counted from
// when the heartbeat was sent: microseconds in a big-endian uint32. Kafka, which has no leases, has no such field.
const spentLeaseTag = 7000

// grantLease says in a heartbeat's answer how much of the lease is over. It is counted from when the majority was last heard, if
// that was before the heartbeat came in: a successor cannot have been elected earlier, so it need not know what was granted.
func (c *Controller) grantLease(resp *kmsg.BrokerHeartbeatResponse) {
	if c.heard == core.Never || c.heard >= c.call.now {
		return
	}
	spent := (c.call.now.Sub(c.heard) + time.Microsecond - 1) / time.Microsecond
	resp.UnknownTags.Set(spentLeaseTag, binary.BigEndian.AppendUint32(nil, uint32(min(spent, 1<<32-1))))
}

// SpentLease returns how much shorter than broker.lease.ms the lease is that an answer to a heartbeat grants, counted from when the
// heartbeat was sent.
func SpentLease(resp *kmsg.BrokerHeartbeatResponse) (spent time.Duration) {
	resp.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == spentLeaseTag && len(value) == 4 {
			spent = time.Duration(binary.BigEndian.Uint32(value)) * time.Microsecond
		}
	})
	return spent
}
