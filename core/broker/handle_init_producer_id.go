package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerIDs is the broker's stock of producer ids, taken from the controller a block at a time (KIP-730).
type producerIDs struct {
	next, end int64 // ids in [next, end) are left
	asking    bool
	waiting   []*request
}

// maxIDWaiters bounds the requests that wait for a block of producer ids.
const maxIDWaiters = 10_000

// handleInitProducerID gives an idempotent producer its id (KIP-98). Transactional ids are not served yet.
func handleInitProducerID(b *Broker, q *request) {
	m := q.Msg.(*kmsg.InitProducerIDRequest)
	if m.TransactionalID != nil {
		b.answerProducerID(q, -1, -1, errInvalidRequest) // final: a client does not try again
		return
	}
	b.producers.waiting = append(b.producers.waiting, q)
	b.serveProducerIDs()
}

func (b *Broker) answerProducerID(q *request, id int64, epoch, code int16) {
	resp := q.Msg.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch, resp.ErrorCode = id, epoch, code
	b.respond(q, resp)
}

func (b *Broker) serveProducerIDs() {
	s := &b.producers
	for len(s.waiting) > 0 && s.next < s.end {
		q := s.waiting[0]
		s.waiting = s.waiting[1:]
		if !q.done {
			b.answerProducerID(q, s.next, 0, errNone)
			s.next++
		}
	}
	switch {
	case len(s.waiting) == 0:
		s.waiting = nil
	case len(s.waiting) > maxIDWaiters:
		b.refuseProducerIDs(errCoordinatorLoadInProgress)
	case !s.asking:
		b.askProducerIDs()
	}
}

func (b *Broker) askProducerIDs() {
	s := &b.producers
	s.asking = true
	r := kmsg.NewPtrAllocateProducerIDsRequest()
	r.BrokerID, r.BrokerEpoch = b.cfg.NodeID, b.membership.epoch
	b.askController(brokerPatience, r, func(resp kmsg.Response, err error) {
		s.asking = false
		a, _ := resp.(*kmsg.AllocateProducerIDsResponse)
		if err != nil || a.ErrorCode != errNone {
			b.refuseProducerIDs(errCoordinatorLoadInProgress) // retriable: the client asks again
			return
		}
		s.next, s.end = a.ProducerIDStart, a.ProducerIDStart+int64(a.ProducerIDLen)
		b.serveProducerIDs()
	})
}

func (b *Broker) refuseProducerIDs(code int16) {
	waiting := b.producers.waiting
	b.producers.waiting = nil
	for _, q := range waiting {
		b.answerProducerID(q, -1, -1, code)
	}
}
