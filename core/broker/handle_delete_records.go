package broker

import (
	"time"

	"lockstep/core"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pendingDelete is a DeleteRecords request of which some partitions have not moved their start yet (KIP-107).
type pendingDelete struct {
	q     *request
	resp  *kmsg.DeleteRecordsResponse
	wait  []deleteWait
	open  int
	timer *timer
}

type deleteWait struct {
	w    replica.Waiter // 0 when answered
	part *partition
	out  *kmsg.DeleteRecordsResponseTopicPartition
}

func handleDeleteRecords(b *Broker, q *request) {
	m := q.Msg.(*kmsg.DeleteRecordsRequest)
	d := &pendingDelete{q: q, resp: m.ResponseKind().(*kmsg.DeleteRecordsResponse)}
	d.resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(m.Topics))
	for i := range m.Topics {
		t := &d.resp.Topics[i]
		t.Default()
		t.Topic = m.Topics[i].Topic
		t.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(m.Topics[i].Partitions))
		for j := range t.Partitions {
			ask := &m.Topics[i].Partitions[j]
			t.Partitions[j].Default()
			t.Partitions[j].Partition = ask.Partition
			b.deleteRecords(d, t.Topic, ask, &t.Partitions[j])
		}
	}
	if d.open == 0 {
		b.respond(q, d.resp)
		return
	}
	q.drop = func() { b.cancelDelete(d) }
	d.timer = b.timers.set(b.now.Add(time.Duration(m.TimeoutMillis)*time.Millisecond), func() {
		b.cancelDelete(d)
		b.respond(q, d.resp)
	})
}

func (b *Broker) deleteRecords(d *pendingDelete, topic string, ask *kmsg.DeleteRecordsRequestTopicPartition, out *kmsg.DeleteRecordsResponseTopicPartition) {
	out.LowWatermark = -1
	p, code := b.findPartition(topic, core.TopicID{}, false, ask.Partition)
	if code == errNone && isInternalTopic(topic) {
		code = errInvalidTopic
	}
	if code != errNone {
		out.ErrorCode = code
		return
	}
	b.waiters++
	w := b.waiters
	res, pending := p.replica.DeleteRecords(b.now, ask.Offset, w, &b.rout)
	if pending {
		d.open++
		d.wait = append(d.wait, deleteWait{w: w, part: p, out: out})
		b.deleting[w] = d
	} else {
		out.ErrorCode, out.LowWatermark = res.Code, res.LowWatermark
	}
	b.carryOut(p)
}

func (b *Broker) onRecordsDeleted(r *replica.Deleted) {
	d := b.deleting[r.Waiter]
	if d == nil {
		return
	}
	delete(b.deleting, r.Waiter)
	for i := range d.wait {
		if w := &d.wait[i]; w.w == r.Waiter {
			w.out.ErrorCode, w.out.LowWatermark = r.Code, r.LowWatermark
			w.w = 0
			d.open--
		}
	}
	if d.open == 0 {
		b.timers.cancel(d.timer)
		b.respond(d.q, d.resp)
	}
}

func (b *Broker) cancelDelete(d *pendingDelete) {
	b.timers.cancel(d.timer)
	for i := range d.wait {
		if w := &d.wait[i]; w.w != 0 {
			delete(b.deleting, w.w)
			w.part.replica.CancelDelete(w.w)
			w.out.ErrorCode = errRequestTimedOut
			w.w = 0
		}
	}
	d.open = 0
}
