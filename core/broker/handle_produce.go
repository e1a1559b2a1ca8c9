package broker

import (
	"time"

	"lockstep/core"
	"lockstep/core/record"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pendingProduce is a Produce request of which some partitions are not yet answered.
type pendingProduce struct {
	q    *request
	resp *kmsg.ProduceResponse
	acks int16
	// wait holds a waiter for each open partition, resp's entry beside it.
	wait  []produceWait
	open  int
	timer *timer
}

type produceWait struct {
	w    replica.Waiter // 0 when answered
	part *partition
	out  *kmsg.ProduceResponseTopicPartition
}

func handleProduce(b *Broker, q *request) {
	m := q.Msg.(*kmsg.ProduceRequest)
	p := &pendingProduce{q: q, resp: newProduceResponse(m), acks: m.Acks}
	next := 0
	for i := range m.Topics {
		t := &m.Topics[i]
		for j := range t.Partitions {
			checked := q.Batches[next]
			next++
			b.producePartition(p, t, t.Partitions[j].Partition, checked, &p.resp.Topics[i].Partitions[j])
		}
	}
	if p.open == 0 {
		b.finishProduce(p)
		return
	}
	q.drop = func() { b.cancelProduce(p) }
	timeout := max(0, time.Duration(m.TimeoutMillis)*time.Millisecond)
	p.timer = b.timers.set(b.now.Add(timeout), func() {
		b.cancelProduce(p)
		b.finishProduce(p)
	})
}

func newProduceResponse(m *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := m.ResponseKind().(*kmsg.ProduceResponse)
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(m.Topics))
	for i := range m.Topics {
		t := &resp.Topics[i]
		t.Default()
		t.Topic, t.TopicID = m.Topics[i].Topic, m.Topics[i].TopicID
		t.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(m.Topics[i].Partitions))
		for j := range t.Partitions {
			t.Partitions[j].Default()
			t.Partitions[j].Partition = m.Topics[i].Partitions[j].Partition
		}
	}
	return resp
}

// producePartition hands one partition's batch to its replica and records the outcome, or who will bring it.
func (b *Broker) producePartition(p *pendingProduce, t *kmsg.ProduceRequestTopic, index int32, c record.Checked, out *kmsg.ProduceResponseTopicPartition) {
	if p.acks < -1 || p.acks > 1 {
		refuseProduce(out, errInvalidRequiredAcks, "")
		return
	}
	part, code := b.findPartition(t.Topic, core.TopicID(t.TopicID), p.q.version >= 13, index)
	if code == errNone && isInternalTopic(part.topic) {
		code = errInvalidTopic
	}
	if code != errNone {
		refuseProduce(out, code, "")
		return
	}
	if c.Err == nil && c.Batch.Transactional() {
		// Nobody would ever end its transaction, and cleaning waits for the end (rule 19).
		refuseProduce(out, errInvalidTxnState, "there are no transactions")
		return
	}
	b.waiters++
	w := b.waiters
	res, pending := part.replica.Produce(b.now, p.q.Wall, c, p.acks, w, &b.rout)
	if pending {
		p.open++
		p.wait = append(p.wait, produceWait{w: w, part: part, out: out})
		b.producing[w] = p
	} else {
		fillProduced(out, &res)
		b.nameLeader(p.resp, out, part)
	}
	b.carryOut(part)
}

func refuseProduce(out *kmsg.ProduceResponseTopicPartition, code int16, msg string) {
	out.ErrorCode, out.BaseOffset, out.LogAppendTime, out.LogStartOffset = code, -1, -1, -1
	if msg != "" {
		out.ErrorMessage = &msg
	}
}

func fillProduced(out *kmsg.ProduceResponseTopicPartition, r *replica.Produced) {
	if r.Code != errNone {
		refuseProduce(out, r.Code, r.Message)
		if r.BadRecord >= 0 { // KIP-467
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset, e.ErrorMessage = r.BadRecord, &r.Message
			out.ErrorRecords = append(out.ErrorRecords, e)
		}
		return
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = r.BaseOffset, r.AppendTime, r.LogStart
}

// nameLeader tells a producer that came to the wrong broker where the leader is (KIP-951).
func (b *Broker) nameLeader(resp *kmsg.ProduceResponse, out *kmsg.ProduceResponseTopicPartition, part *partition) {
	if resp.Version < 10 || out.ErrorCode != errNotLeaderOrFollower {
		return
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = part.replica.Leader(), part.replica.LeaderEpoch()
	for _, have := range resp.Brokers {
		if have.NodeID == out.CurrentLeader.LeaderID {
			return
		}
	}
	if node, ok := b.endpoint(out.CurrentLeader.LeaderID); ok {
		e := kmsg.NewProduceResponseBroker()
		e.NodeID, e.Host, e.Port, e.Rack = node.NodeID, node.Host, node.Port, node.Rack
		resp.Brokers = append(resp.Brokers, e)
	}
}

// onProduced takes the outcome that a replica brings for a waiter.
func (b *Broker) onProduced(r *replica.Produced) {
	p := b.producing[r.Waiter]
	if p == nil {
		b.onGroupWritten(r)
		return
	}
	delete(b.producing, r.Waiter)
	for i := range p.wait {
		w := &p.wait[i]
		if w.w == r.Waiter {
			fillProduced(w.out, r)
			b.nameLeader(p.resp, w.out, w.part)
			w.w = 0
			p.open--
		}
	}
	if p.open == 0 {
		b.finishProduce(p)
	}
}

// cancelProduce gives up what is still open: the time is up, or the client is gone.
func (b *Broker) cancelProduce(p *pendingProduce) {
	b.timers.cancel(p.timer)
	for i := range p.wait {
		w := &p.wait[i]
		if w.w == 0 {
			continue
		}
		delete(b.producing, w.w)
		refuseProduce(w.out, w.part.replica.CancelProduce(w.w), "")
		w.w = 0
	}
	p.open = 0
}

func (b *Broker) finishProduce(p *pendingProduce) {
	b.timers.cancel(p.timer)
	if p.acks != 0 {
		b.respond(p.q, p.resp)
		return
	}
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			// A producer that asked for no answers learns of an error by losing its connection, as with Kafka.
			if code := p.resp.Topics[i].Partitions[j].ErrorCode; code != errNone {
				b.closeConn(p.q, "produce with acks=0 was refused")
				return
			}
		}
	}
	b.respond(p.q, nil)
}
