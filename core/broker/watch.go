package broker

import (
	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/quorum"
	"lockstep/core/replica"
)

// What an observer may look at between two steps: checkers and metrics, which must not change it.

// Image is the cluster as this broker believes it to be. It changes with the next Step.
func (b *Broker) Image() *controller.Image { return b.image }

// Touched returns the partitions whose replicas the last Step has called upon, some of them more than once.
func (b *Broker) Touched() []core.Partition { return b.touched }

// Replica returns this broker's replica of a partition, or nil if it has none that is open.
func (b *Broker) Replica(id core.Partition) *replica.Replica {
	if p := b.parts[id]; p != nil && !p.gone {
		return p.replica
	}
	return nil
}

// QuorumView is one broker's view of the metadata quorum.
type QuorumView struct {
	Leader, Term  int32 // Leader is -1 if none is known
	Leads         bool
	HighWatermark int64
}

// Quorum returns this broker's view of the metadata quorum, once its log is loaded.
func (b *Broker) Quorum() (v QuorumView, ok bool) {
	if b.quorum == nil {
		return QuorumView{Leader: quorum.None}, false
	}
	v.Leader, v.Term = b.quorum.Leader()
	v.Leads, _ = b.quorum.Leading()
	v.HighWatermark = b.quorum.HighWatermark()
	return v, true
}
