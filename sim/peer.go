package sim

import (
	"errors"
	"strconv"
	"strings"

	"lockstep/core/broker"
	"lockstep/core/controller"
	"lockstep/core/quorum"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds on calls to peers, as in package node.
const (
	peerDialTimeout = 2 * second
	peerTimeout     = 30 * second
	minPeerBackoff  = 10 * millisecond
	maxPeerBackoff  = 500 * millisecond
)

const peerClientID = "lockstep-peer-"

var (
	errPeerBackoff = errors.New("the peer could not be reached a moment ago")
	errPeerClosed  = errors.New("the connection to the peer broke")
	errPeerSilent  = errors.New("the peer does not answer")
)

// peerOf returns which broker a client id names, 0 if it names none.
func peerOf(clientID string) int32 {
	n, err := strconv.ParseInt(strings.TrimPrefix(clientID, peerClientID), 10, 32)
	if err != nil || !strings.HasPrefix(clientID, peerClientID) {
		return 0
	}
	return int32(n)
}

func (h *host) peerEndpoint() controller.Endpoint {
	if len(h.w.hosts) == 1 {
		return controller.Endpoint{}
	}
	return controller.Endpoint{Name: "PEER", Host: "broker-" + itoa(h.index+1), Port: 9093}
}

// numVoters is how many brokers are in the metadata quorum, from the first on.
func (w *world) numVoters() int {
	if w.plan.Voters > 0 {
		return min(w.plan.Voters, len(w.plan.Brokers))
	}
	return len(w.plan.Brokers)
}

// voters is the metadata quorum; none is named where there is but one broker.
func (w *world) voters() []quorum.Voter {
	if len(w.plan.Brokers) == 1 {
		return nil
	}
	var list []quorum.Voter
	for i := range w.numVoters() {
		list = append(list, quorum.Voter{ID: int32(i) + 1, Host: "broker-" + itoa(i+1), Port: 9093})
	}
	return list
}

type peerLane struct {
	to   int32
	lane broker.Lane
}

// peerWire is one of a broker's connections to another, the simulator's counterpart of package node's.
type peerWire struct {
	peerLane
	h       *host
	life    uint64 // of the process that it belongs to
	conn    *conn
	open    bool
	in      []byte
	sent    []peerCall    // in order, which is that of their answers
	waiting []broker.Call // for the connection to open
	next    int32
	timer   *event
	dueAt   Time
	backoff Time
	retryAt Time
}

type peerCall struct {
	token        broker.Token
	sent         Time
	key, version int16
	correlation  int32
}

// call sends a request to a peer. Every call is answered, if only by an error.
func (h *host) call(c broker.Call) {
	to := h.w.hostIndex(c.Peer)
	if to < 0 {
		h.fail(c.Token, c.Peer, errPeerClosed)
		return
	}
	x := h.wireFor(c)
	if x.conn == nil {
		if h.w.now < x.retryAt {
			h.fail(c.Token, c.Peer, errPeerBackoff)
			return
		}
		x.open, x.in = false, nil
		x.conn = h.w.net.dialPeer(x, h, h.w.hosts[to])
		x.watch(peerDialTimeout)
	}
	if !x.open {
		x.waiting = append(x.waiting, c)
		return
	}
	x.write(c)
}

func (h *host) fail(t broker.Token, peer int32, err error) {
	e := h.later(0, evInput)
	e.more = broker.Answer{Token: t, Peer: peer, Err: err}
}

// wireFor finds the lane for a call: for a fetch one that is free, if there is any.
func (h *host) wireFor(c broker.Call) *peerWire {
	first := broker.LaneOf(c.Msg)
	last := first
	if first == broker.FetchLane {
		last = broker.NumLanes - 1
	}
	var best *peerWire
	for l := first; l <= last; l++ {
		x := h.wires[peerLane{c.Peer, l}]
		if x == nil {
			x = &peerWire{peerLane: peerLane{c.Peer, l}, h: h, life: h.life}
			h.wires[x.peerLane] = x
		}
		if best == nil || x.busy() < best.busy() {
			best = x
		}
		if best.busy() == 0 {
			break
		}
	}
	return best
}

func (x *peerWire) busy() int { return len(x.sent) + len(x.waiting) }

func (x *peerWire) write(c broker.Call) {
	x.next++
	w := x.h.w
	frame := kafka.AppendRequest(w.takeBuf(), x.next, peerClientID+itoa(int(x.h.nodeID())), c.Msg)
	x.sent = append(x.sent, peerCall{c.Token, w.now, c.Msg.Key(), c.Msg.GetVersion(), x.next})
	x.conn.send(dialer, frame)
	x.watch(peerTimeout)
}

// watch gives what is under way so much time from now on.
func (x *peerWire) watch(d Time) {
	x.dueAt = x.h.w.now + d
	if x.timer == nil {
		x.timer = x.h.later(d, evPeer)
		x.timer.more = x
	}
}

func (x *peerWire) due() {
	x.timer = nil
	switch now := x.h.w.now; {
	case x.busy() == 0:
	case now < x.dueAt:
		x.watch(x.dueAt - now)
	default:
		c := x.conn
		x.lose(errPeerSilent)
		if c != nil {
			c.close(dialer)
		}
	}
}

// lose forgets the connection: what is under way finds no answer.
func (x *peerWire) lose(err error) {
	wasOpen := x.open
	x.conn, x.open = nil, false
	sent, waiting := x.sent, x.waiting
	x.sent, x.waiting = nil, nil
	for _, c := range sent {
		x.h.fail(c.token, x.to, err)
	}
	for _, c := range waiting {
		x.h.fail(c.Token, x.to, err)
	}
	if wasOpen {
		e := x.h.later(0, evInput)
		e.more = broker.PeerClosed{Peer: x.to}
		return
	}
	x.backoff = min(maxPeerBackoff, max(minPeerBackoff, 2*x.backoff))
	x.retryAt = x.h.w.now + x.backoff
}

func (x *peerWire) opened(c *conn) {
	if x.conn != c || x.life != x.h.life {
		return
	}
	x.open, x.backoff = true, 0
	waiting := x.waiting
	x.waiting = nil
	for _, call := range waiting {
		x.write(call)
	}
}

func (x *peerWire) closed(c *conn) {
	if x.conn == c && x.life == x.h.life {
		x.lose(errPeerClosed)
	}
}

func (x *peerWire) arrived(c *conn, data []byte) {
	if x.conn != c || x.life != x.h.life {
		return
	}
	if len(x.in) > 0 {
		data = append(x.in, data...)
	}
	for x.conn == c {
		frame, rest, ok, err := kafka.SplitFrame(data, maxResponse)
		if err != nil {
			x.h.w.fail("protocol", "%s: frame of an answer: %v", x.h.name(), err)
			return
		}
		if !ok {
			x.in = data
			return
		}
		data = rest
		life := x.h.life
		x.answer(frame)
		if x.h.life != life {
			return
		}
	}
}

func (h *host) name() string { return "broker-" + itoa(h.index+1) }

// answer hands the core the answer to the oldest call. Its batches refer to the frame, which is never used again.
func (x *peerWire) answer(frame []byte) {
	h := x.h
	corr, err := kafka.ResponseCorrelation(frame)
	if err != nil || len(x.sent) == 0 || corr != x.sent[0].correlation {
		h.w.fail("protocol", "%s: answer %d does not belong to the oldest of %d calls (%v)", h.name(), corr, len(x.sent), err)
		return
	}
	s := x.sent[0]
	x.sent = x.sent[1:]
	x.dueAt = h.w.now + peerTimeout
	a := broker.Answer{Token: s.token, Peer: x.to}
	a.Msg, a.Err = kafka.DecodeResponse(frame, s.key, s.version)
	if fetch, ok := a.Msg.(*kmsg.FetchResponse); ok && a.Err == nil {
		a.Batches = kafka.FetchBatches(fetch)
	}
	if a.Err != nil {
		a.Msg, a.Batches = nil, nil
	}
	if h.sways != nil && h.sways.keeps(x, a) {
		a.Msg, a.Batches, a.Err = nil, nil, errPeerSilent
	}
	h.step(a)
	h.hears(x, s.sent, a.Msg)
}
