package broker

import (
	"slices"
	"time"

	"lockstep/core/controller"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// giveUpRetry is the pause before the controller is told again of a damaged log.
const giveUpRetry = 500 * time.Millisecond

// giveUp tells the controller that this broker's log of a partition is damaged (rules 13 and 15), so that another leads, and
// the rest of the in-sync set commits without waiting until this replica is known to lag. Where nobody else who holds all
// that is committed is alive, there is nobody to give it to: the log may be whole again after a restart, and stays what it is.
//
// It is told of one that was not in sync, too: a new leader epoch has to begin before the log is begun anew. Otherwise the leader would
// take what the damaged log had for what the new one has, and let it into the in-sync set at once (rule 6).
func (b *Broker) giveUp(p *partition) {
	if !p.damaged || p.gone || p.givingUp || b.membership.epoch < 0 || b.stopping || !b.mustGiveUp(p) {
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

func (b *Broker) mustGiveUp(p *partition) bool {
	if slices.Contains(p.state.ISR, b.cfg.NodeID) {
		return b.successor(p.state)
	}
	return b.unneeded(p.state) && p.state.LeaderEpoch <= p.damagedIn
}

// successor says that another broker that is alive is in sync, or was when it left and is eligible.
func (b *Broker) successor(st *controller.Partition) bool {
	may := func(id int32) bool { return id != b.cfg.NodeID && b.image.Broker(id).Active() }
	return slices.ContainsFunc(st.ISR, may) || slices.ContainsFunc(st.ELR, may)
}
