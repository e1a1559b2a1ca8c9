package controller

import (
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterPartition takes a leader's proposal of a new in-sync set (rule 7;
// KIP-497, KIP-841, KIP-903). As an extension among Lockstep's brokers, an
// empty set says that the log of the broker that asks is damaged (rule 15): its replica
// leaves the in-sync set and is eligible for nothing until it has caught up anew. With that a new leader epoch begins, also under the
// same leader, which so forgets what the damaged log had: what the replica asked for until then, and is still under way, counts no more.
func (c *Controller) alterPartition(req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	if c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch) != codeNone {
		resp.ErrorCode = codeStaleBrokerEpoch
		return resp
	}
	for _, rt := range req.Topics {
		t := kmsg.NewAlterPartitionResponseTopic()
		t.Topic, t.TopidID = rt.Topic, rt.TopicID
		id := core.TopicID(rt.TopicID)
		if topic := c.spec.Topic(rt.Topic); req.Version < 2 && topic != nil {
			id = topic.ID
		}
		known := c.spec.TopicByID(id) != nil
		for i := range rt.Partitions {
			rp := &rt.Partitions[i]
			p := kmsg.NewAlterPartitionResponseTopicPartition()
			p.Partition = rp.Partition
			switch {
			case !known && req.Version >= 2:
				p.ErrorCode = codeUnknownTopicID
			case !known:
				p.ErrorCode = codeUnknownTopicOrPartition
			default:
				c.alterISR(req.BrokerID, core.Partition{Topic: id, Index: rp.Partition}, rp, &p)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (c *Controller) alterISR(from int32, id core.Partition, rp *kmsg.AlterPartitionRequestTopicPartition, out *kmsg.AlterPartitionResponseTopicPartition) {
	p := c.spec.Partition(id)
	isr := rp.NewEpochISR
	for _, n := range rp.NewISR { // versions 0 to 2
		isr = append(isr, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: n, BrokerEpoch: -1})
	}
	if out.ErrorCode = c.checkISR(from, p, rp, isr); out.ErrorCode != codeNone {
		return
	}
	ch := choice{recovered: rp.LeaderRecoveryState == 0}
	if len(isr) == 0 {
		c.log(levelError, "a log is damaged: its replica is not in sync any more", "topic", c.spec.topicName(p.Topic),
			"partition", p.Index, "broker", from)
		ch = choice{without: from, taking: true, distrust: true, wiped: true, newEpoch: true}
	}
	for _, m := range isr {
		ch.isr = append(ch.isr, m.BrokerID)
	}
	c.reconsider(p, ch)
	p = c.spec.Partition(id)
	out.LeaderID, out.LeaderEpoch, out.PartitionEpoch, out.ISR = p.Leader, p.LeaderEpoch, p.Epoch, p.ISR
	if p.Recovering {
		out.LeaderRecoveryState = 1
	}
}

// checkISR returns the error code that refuses a proposal, or 0.
func (c *Controller) checkISR(from int32, p *Partition, rp *kmsg.AlterPartitionRequestTopicPartition, isr []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR) int16 {
	switch {
	case p == nil:
		return codeUnknownTopicOrPartition
	case rp.LeaderEpoch > p.LeaderEpoch || rp.PartitionEpoch > p.Epoch:
		return codeNotController // the asker knows of decisions that are unknown here: another controller made them (A31)
	case rp.LeaderEpoch < p.LeaderEpoch:
		return codeFencedLeaderEpoch
	case from != p.Leader && !(len(isr) == 0 && slices.Contains(p.Replicas, from)):
		return codeInvalidRequest
	case rp.PartitionEpoch < p.Epoch:
		return codeInvalidUpdateVersion
	case len(isr) == 0:
		return codeNone
	}
	ids := make([]int32, len(isr))
	for i, m := range isr {
		ids[i] = m.BrokerID
	}
	switch {
	case !subset(ids, p.Replicas) || hasDuplicates(ids) || !slices.Contains(ids, p.Leader):
		return codeInvalidRequest
	case rp.LeaderRecoveryState < 0 || rp.LeaderRecoveryState > 1:
		return codeInvalidRequest
	case rp.LeaderRecoveryState == 1 && (!p.Recovering || len(ids) > 1):
		return codeInvalidRequest
	}
	for _, m := range isr {
		if !c.eligible(p, m.BrokerID, m.BrokerEpoch) {
			return codeIneligibleReplica
		}
	}
	for _, id := range p.ISR {
		if !slices.Contains(ids, id) && !c.knowsLeader(p, id) {
			return codeRequestTimedOut // not yet: the leader asks again
		}
	}
	return codeNone
}

// knowsLeader reports whether a member of the in-sync set knows who leads a partition, or serves nobody. A former leader that has not
// heard of its successor has its lease as long as its heartbeats count. While it is in the in-sync set nothing new is committed, and its
// reads are not stale; without it they would be (rule 6). It learns, or it is fenced within a session (hear).
func (c *Controller) knowsLeader(p *Partition, id int32) bool {
	if b := c.spec.Broker(id); b == nil || b.Fenced {
		return true
	}
	known, l := c.committed.Partition(p.Partition), c.life(id)
	return known != nil && known.LeaderEpoch == p.LeaderEpoch && l != nil && l.offset >= c.committed.ledSince(known)
}

// eligible reports whether a broker may be in the proposed in-sync set. Who is
// in it already may stay while it is stopping; who joins must be live, and in
// the very life in which it caught up (rule 7, museum A12).
func (c *Controller) eligible(p *Partition, id int32, epoch int64) bool {
	b := c.spec.Broker(id)
	if slices.Contains(p.ISR, id) {
		return b != nil && !b.Fenced && (epoch == -1 || epoch == b.Epoch)
	}
	return b.Active() && epoch == b.Epoch
}
