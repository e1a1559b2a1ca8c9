package node

import (
	"errors"
	"time"

	"lockstep/core/broker"
	"lockstep/net"
	"lockstep/net/kafka"
	"lockstep/net/tcp"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listener makes the handlers of one listener's connections.
type listener struct {
	node    *Node
	decoder *kafka.Decoder
}

// Opened implements net.Acceptor.
func (l *listener) Opened(c net.Conn) net.Handler {
	return &client{listener: l, conn: c}
}

// client handles one connection.
type client struct {
	*listener
	conn     net.Conn
	software string
	stepped  uint64 // requests given to the core
	peer     int32  // on the peers' listener: which broker this is
	isPeer   bool   // it has said so
}

// request is a request that is not answered yet.
type request struct {
	client  *client
	seq     uint64 // among the connection's frames
	coreSeq uint64 // among those that the core sees
	header  kafka.Header
	frame   net.Frame
	began   time.Time
}

// Admit implements net.Handler.
func (c *client) Admit(head []byte, size int) (net.Admission, error) {
	a, err := c.decoder.Admit(head, size)
	a.Pipelined = a.Pipelined || c.decoder.Peer // peers know what they do
	return a, err
}

// Frame implements net.Handler: it decodes and checks on the connection's goroutine, and passes the request on.
func (c *client) Frame(seq uint64, f net.Frame) error {
	r := &request{client: c, seq: seq, frame: f, began: time.Now()}
	decoded, err := c.decoder.Decode(f.Bytes())
	if err != nil {
		f.Release()
		return err
	}
	r.header = decoded.Header
	c.node.metrics.received(&decoded, len(f.Bytes()))
	if decoded.Answered {
		r.answer(broker.Respond{Msg: decoded.Reply})
		return nil
	}
	if v, ok := decoded.Msg.(*kmsg.ApiVersionsRequest); ok && v.Version >= 3 {
		c.software = v.ClientSoftwareName + " " + v.ClientSoftwareVersion
	}
	if c.decoder.Peer && c.stepped == 0 {
		c.peer, c.isPeer = peerOf(decoded.ClientID)
	}
	r.coreSeq = c.stepped
	c.stepped++
	in := broker.Request{
		Conn:    broker.ConnID(c.conn.ID()),
		Seq:     r.coreSeq,
		Peer:    c.decoder.Peer,
		Client:  broker.Client{ID: decoded.ClientID, Software: c.software, Host: c.conn.Host()},
		Wall:    wallNow(),
		Msg:     decoded.Msg,
		Batches: decoded.Batches,
	}
	if !c.node.inbox.putRequest(event{in: in, req: r}) {
		// The core is done. Answers that it made are still on their way, so the connection is left to its end.
		f.Release()
	}
	return nil
}

// Closed implements net.Handler.
func (c *client) Closed(err error) {
	if err != nil && !errors.Is(err, tcp.ErrShutdown) {
		c.node.metrics.dropped.WithLabelValues(dropReason(err)).Inc()
		c.node.complains.add(c.node.cfg.Log, c.conn.Host(), err)
	}
	if c.stepped > 0 {
		c.node.inbox.put(broker.ConnClosed{Conn: broker.ConnID(c.conn.ID())})
	}
	if c.isPeer {
		c.node.inbox.put(broker.PeerClosed{Peer: c.peer})
	}
}
