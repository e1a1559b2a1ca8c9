package broker

import (
	"lockstep/core/quorum"
	"lockstep/core/record"
	"lockstep/core/replica"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleQuorum passes a peer's request to the metadata quorum, which answers by respondPeer.
func handleQuorum(b *Broker, q *request) {
	if b.quorum == nil {
		b.closeConn(q, "the metadata log is not open yet")
		return
	}
	b.tokens++
	token := uint64(b.tokens)
	b.peerRequests[token] = q
	q.drop = func() {
		delete(b.peerRequests, token)
		b.quorum.Cancel(token)
	}
	b.stepQuorum(func(c *quorumCall) {
		if !c.Handle(b.now, token, q.Msg, c.out) {
			delete(b.peerRequests, token)
			b.closeConn(q, "not a request between voters")
		}
	})
}

func (b *Broker) respondPeer(r quorum.Respond) {
	q := b.peerRequests[r.Token]
	if q == nil {
		return
	}
	delete(b.peerRequests, r.Token)
	resp := Respond{Msg: r.Msg}
	if r.Read != nil {
		resp.MaxBytes = r.Read.MaxBytes
		resp.Reads = []Read{{Log: core.MetadataPartition, From: r.Read.From, Limit: r.Read.Limit, MaxBytes: r.Read.MaxBytes}}
	}
	b.respondWith(q, resp)
}

// flatten joins the batches of a Fetch response's partitions.
func flatten(parts [][]record.Batch) []record.Batch {
	if len(parts) == 0 {
		return nil
	}
	all := parts[0]
	for _, p := range parts[1:] {
		all = append(all[:len(all):len(all)], p...)
	}
	return all
}

// proposeISR asks the controller for a change of a partition's in-sync set (KIP-497).
func (b *Broker) proposeISR(p *partition, ask *replica.Proposal) {
	b.askController(brokerPatience, b.alterPartition(p, ask), func(resp kmsg.Response, err error) {
		if p.gone {
			return
		}
		code, epoch, isr := isrVerdict(resp, err)
		p.replica.Proposed(b.now, ask, code, epoch, isr, &b.rout)
		b.carryOut(p)
	})
}

// alterPartition is the request for one partition. Without an in-sync set it says that this broker's log is damaged.
func (b *Broker) alterPartition(p *partition, ask *replica.Proposal) *kmsg.AlterPartitionRequest {
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version = 3
	r.BrokerID, r.BrokerEpoch = b.cfg.NodeID, b.membership.epoch
	t := kmsg.NewAlterPartitionRequestTopic()
	t.TopicID = p.id.Topic
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = p.id.Index, ask.LeaderEpoch, ask.PartitionEpoch
	for _, m := range ask.ISR {
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID, e.BrokerEpoch = m.ID, m.Epoch
		rp.NewEpochISR = append(rp.NewEpochISR, e)
	}
	t.Partitions = append(t.Partitions, rp)
	r.Topics = append(r.Topics, t)
	return r
}

// isrVerdict reads the answer to a proposal for one partition. No answer leaves the outcome open.
func isrVerdict(resp kmsg.Response, err error) (code int16, partitionEpoch int32, isr []int32) {
	if err != nil {
		return errNotController, -1, nil
	}
	r := resp.(*kmsg.AlterPartitionResponse)
	switch {
	case r.ErrorCode != errNone:
		return r.ErrorCode, -1, nil
	case len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1:
		return errRequestTimedOut, -1, nil
	}
	a := &r.Topics[0].Partitions[0]
	return a.ErrorCode, a.PartitionEpoch, a.ISR
}
