package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is a client's request while it is being answered.
type request struct {
	Request
	version int16
	done    bool   // answered, or its connection is gone
	drop    func() // takes back what it has parked, if its connection goes
}

// conn is what the broker remembers of a connection: the requests that it has not answered.
type conn struct{ open []*request }

func (b *Broker) onRequest(r Request) {
	q := &request{Request: r, version: r.Msg.GetVersion()}
	c := b.conns[r.Conn]
	if c == nil {
		c = &conn{}
		b.conns[r.Conn] = c
	}
	c.open = append(c.open, q)
	h := handlerFor(r.Msg.Key())
	if h == nil {
		b.closeConn(q, "no handler for "+kmsg.NameForKey(r.Msg.Key()))
		return
	}
	h(b, q)
}

func (b *Broker) onConnClosed(id ConnID) {
	c := b.conns[id]
	if c == nil {
		return
	}
	delete(b.conns, id)
	for _, q := range c.open {
		q.done = true
		if q.drop != nil {
			q.drop()
		}
	}
}

// respond answers q; a nil msg ends it without an answer.
func (b *Broker) respond(q *request, msg kmsg.Response) { b.respondWith(q, Respond{Msg: msg}) }

func (b *Broker) respondWith(q *request, r Respond) {
	if q.done {
		return
	}
	b.finish(q)
	r.Conn, r.Seq = q.Conn, q.Seq
	b.out.Add(r)
}

func (b *Broker) finish(q *request) {
	q.done, q.drop = true, nil
	if c := b.conns[q.Conn]; c != nil {
		c.open = slices.DeleteFunc(c.open, func(x *request) bool { return x == q })
	}
}

// closeConn ends q, and the connection with it: there is no answer that the protocol would have for it.
func (b *Broker) closeConn(q *request, reason string) {
	if q.done {
		return
	}
	b.finish(q)
	b.out.Add(CloseConn{Conn: q.Conn, Reason: reason})
}
