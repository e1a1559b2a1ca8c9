package controller

import (
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AuthoritySlack is for how long a controller answers with authority after it last heard its majority. The quorum's leader
// knows of that only as of a moment ago, so without slack hardly a request would be answered. A successor may have been elected in
// that time, but it has fenced nobody yet: for that it waits a full lease, which is longer.
const AuthoritySlack = 200 * time.Millisecond

// grantLease says in a heartbeat's answer how much of the lease is over. It is counted from when the majority was last heard, if
// that was before the heartbeat came in: a successor cannot have been elected earlier, so it need not know what was granted.
func (c *Controller) grantLease(resp *kmsg.BrokerHeartbeatResponse) {
	if c.heard < c.call.now {
		core.SetTag(&resp.UnknownTags, core.TagSpentLease, int64(c.call.now.Sub(c.heard)))
	}
}

// SpentLease returns how much shorter than broker.lease.ms the lease is that an answer to a heartbeat grants, counted from when the
// heartbeat was sent.
func SpentLease(resp *kmsg.BrokerHeartbeatResponse) time.Duration {
	return time.Duration(core.Tag(&resp.UnknownTags, core.TagSpentLease))
}
