package broker

import (
	"slices"
	"time"

	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// giveUpRetry is the pause before the controller is told again of a damaged log.
const giveUpRetry = 500 * time.Millisecond

// giveUp tells the controller that this broker's log of a partition is damaged (rules 13 and 15), so that another leads, and
// the rest of the in-sync set commits without waiting until this replica is known to lag. Where nobody else is in sync
// there is nobody to give it to: the log may be whole again after a restart, and stays what it is.
func (b *Broker) giveUp(p *partition) {
	self := b.cfg.NodeID
	if !p.damaged || p.gone || p.givingUp || b.membership.epoch < 0 || b.stopping ||
		len(p.state.ISR) < 2 || !slices.Contains(p.state.ISR, self) {
		return
	}
	p.givingUp = true
	ask := &replica.Proposal{LeaderEpoch: p.state.LeaderEpoch, PartitionEpoch: p.state.Epoch}
	b.askController(brokerPatience, b.alterPartition(p, ask), func(kmsg.Response, error) {
		b.timers.set(b.now.Add(giveUpRetry), func() { // if it was taken, its record has been applied by then
			p.givingUp = false
			b.giveUp(p)
		})
	})
}
