package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	gonet "net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/core/broker"
	"lockstep/core/quorum"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	dialTimeout = 2 * time.Second
	// After a connection broke, the next calls fail at once for a while, which
	// doubles from the first to the second of these with each failure.
	minBackoff = 10 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
	// maxPeerFrame bounds a peer's answer.
	maxPeerFrame = 1 << 30
	// peerTimeout is how long a call may take at most; no request parks that long.
	peerTimeout = 30 * time.Second
)

// peerClientID, with the broker's number, is the client id in requests to peers.
const peerClientID = "lockstep-peer-"

// peerOf returns which peer a client id names.
func peerOf(clientID string) (id int32, ok bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(clientID, peerClientID), 10, 32)
	return int32(n), err == nil && strings.HasPrefix(clientID, peerClientID)
}

var (
	errUnknownPeer = errors.New("address of the peer is not known")
	errBackoff     = errors.New("the peer could not be reached a moment ago")
)

// peers calls other brokers, over a connection for each lane, on which calls follow
// each other without waiting. Every call is answered, if only by an error.
type peers struct {
	in     *inbox
	log    *slog.Logger
	client string // client id in requests

	mu     sync.Mutex
	voters map[int32]bool // their addresses come from the configuration
	addrs  map[int32]string
	peers  map[peerLane]*peer
	closed bool
	work   sync.WaitGroup
	ctx    context.Context // of connecting
	cancel context.CancelFunc
}

func newPeers(self int32, voters []quorum.Voter, in *inbox, lg *slog.Logger) *peers {
	p := &peers{in: in, log: lg, client: peerClientID + strconv.Itoa(int(self)), voters: map[int32]bool{}, addrs: map[int32]string{}, peers: map[peerLane]*peer{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, v := range voters {
		p.voters[v.ID] = true
		p.addrs[v.ID] = gonet.JoinHostPort(v.Host, strconv.Itoa(int(v.Port)))
	}
	return p
}

// know notes where a broker is reached. Its connections stay where they are until they break.
func (p *peers) know(k broker.KnowPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.voters[k.Peer] {
		p.addrs[k.Peer] = gonet.JoinHostPort(k.Host, strconv.Itoa(int(k.Port)))
	}
}

type peerLane struct {
	id   int32
	lane broker.Lane
}

// peer is one lane to another broker. Its fields are guarded by peers.mu.
type peer struct {
	peerLane
	queue   []broker.Call // not sent yet
	busy    int           // calls without an answer
	running bool          // a goroutine has the queue
	conn    *peerConn
	backoff time.Duration
	retryAt time.Time
	failed  error // to connect, if that is how the last try ended
}

// call sends a request to a peer. It never waits.
func (p *peers) call(c broker.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	addr, ok := p.addrs[c.Peer]
	if !ok || p.closed {
		p.fail(c, errUnknownPeer)
		return
	}
	t := p.laneFor(c)
	if t.conn == nil && time.Now().Before(t.retryAt) {
		p.fail(c, errBackoff)
		return
	}
	t.queue = append(t.queue, c)
	t.busy++
	if !t.running {
		t.running = true
		p.work.Go(func() { p.send(t, addr) })
	}
}

// laneFor finds the lane for a call: for a fetch one that is free, if there is any.
func (p *peers) laneFor(c broker.Call) (t *peer) {
	first := broker.LaneOf(c.Msg)
	last := first
	if first == broker.FetchLane {
		last += broker.FetcherCalls - 1
	}
	for l := first; l <= last; l++ {
		to := peerLane{c.Peer, l}
		x := p.peers[to]
		if x == nil {
			x = &peer{peerLane: to}
			p.peers[to] = x
		}
		if t == nil || x.busy < t.busy {
			t = x
		}
		if t.busy == 0 {
			break
		}
	}
	return t
}

// answered hands on what became of a call that a lane had taken.
func (p *peers) answered(t *peer, a broker.Answer) {
	p.mu.Lock()
	t.busy--
	p.mu.Unlock()
	p.in.put(a)
}

func (p *peers) fail(c broker.Call, err error) {
	p.in.put(broker.Answer{Token: c.Token, Peer: c.Peer, Err: err})
}

// send writes what is queued for a peer, connecting first if need be.
func (p *peers) send(t *peer, addr string) {
	for {
		p.mu.Lock()
		calls := t.queue
		t.queue = nil
		conn := t.conn
		t.running = len(calls) > 0
		p.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		var err error
		if conn == nil {
			conn, err = p.connect(t, addr)
		}
		if err == nil {
			err = conn.write(calls)
		}
		if err != nil {
			for _, c := range calls {
				p.answered(t, broker.Answer{Token: c.Token, Peer: c.Peer, Err: err})
			}
		}
	}
}

func (p *peers) connect(t *peer, addr string) (*peerConn, error) {
	dialer := gonet.Dialer{Timeout: dialTimeout}
	sock, err := dialer.DialContext(p.ctx, "tcp", addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		sock.Close()
		err = gonet.ErrClosed
	}
	if err != nil {
		t.backoff = min(maxBackoff, max(minBackoff, 2*t.backoff))
		t.retryAt = time.Now().Add(t.backoff)
		t.failed = err
		p.log.Debug("connecting to a peer failed", "peer", t.id, "addr", addr, "err", err)
		return nil, fmt.Errorf("connecting to peer %d at %s: %w", t.id, addr, err)
	}
	c := &peerConn{peers: p, peer: t, sock: sock, open: map[int32]sentCall{}}
	t.conn, t.backoff, t.failed = c, 0, nil
	p.work.Go(c.read)
	return c, nil
}

// unreachable says of each peer that cannot be connected to why, by id.
func (p *peers) unreachable() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := map[int32]error{}
	for _, t := range p.peers {
		if t.failed != nil {
			why[t.id] = t.failed
		}
	}
	for _, id := range slices.Sorted(maps.Keys(why)) {
		all = append(all, fmt.Sprintf("%d@%s: %v", id, p.addrs[id], why[id]))
	}
	return all
}

// close breaks all connections and fails what is open.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for _, t := range p.peers {
		if t.conn != nil {
			t.conn.sock.Close()
		}
	}
	p.mu.Unlock()
	p.work.Wait()
}

// peerConn is a connection to a peer.
type peerConn struct {
	peers *peers
	peer  *peer
	sock  gonet.Conn
	buf   []byte // of the sender

	mu     sync.Mutex
	open   map[int32]sentCall // by correlation id
	next   int32
	closed bool
}

type sentCall struct {
	token        broker.Token
	key, version int16
}

// write sends calls in one go. An error says that none was; what is lost once
// sent is answered by the reader, when the connection breaks.
func (c *peerConn) write(calls []broker.Call) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return gonet.ErrClosed
	}
	c.buf = c.buf[:0]
	for _, call := range calls {
		c.next++
		c.open[c.next] = sentCall{token: call.Token, key: call.Msg.Key(), version: call.Msg.GetVersion()}
		c.buf = kafka.AppendRequest(c.buf, c.next, c.peers.client, call.Msg)
	}
	c.sock.SetDeadline(time.Now().Add(peerTimeout))
	c.mu.Unlock()
	if _, err := c.sock.Write(c.buf); err != nil {
		c.sock.Close()
	}
	return nil
}

// read takes answers until the connection breaks, which ends all open calls.
func (c *peerConn) read() {
	var err error
	for err == nil {
		err = c.readOne()
	}
	p := c.peers
	p.mu.Lock()
	c.peer.conn = nil
	closed := p.closed
	p.mu.Unlock()
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = map[int32]sentCall{}
	c.mu.Unlock()
	c.sock.Close()
	for _, s := range open {
		p.answered(c.peer, broker.Answer{Token: s.token, Peer: c.peer.id, Err: err})
	}
	if !closed {
		p.log.Info("connection to a peer broke", "peer", c.peer.id, "err", err)
		p.in.put(broker.PeerClosed{Peer: c.peer.id})
	}
}

func (c *peerConn) readOne() error {
	var prefix [4]byte
	if _, err := io.ReadFull(c.sock, prefix[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(prefix[:])
	if size < 4 || size > maxPeerFrame {
		return fmt.Errorf("%w: %d bytes", kafka.ErrFrameSize, size)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(c.sock, frame); err != nil {
		return err
	}
	id, err := kafka.ResponseCorrelation(frame)
	if err != nil {
		return err
	}
	c.mu.Lock()
	s, ok := c.open[id]
	delete(c.open, id)
	if len(c.open) == 0 {
		c.sock.SetDeadline(time.Time{}) // an idle connection may stay
	}
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: answer to unknown request %d", kafka.ErrMalformed, id)
	}
	a := broker.Answer{Token: s.token, Peer: c.peer.id}
	a.Msg, a.Err = kafka.DecodeResponse(frame, s.key, s.version)
	if fetch, ok := a.Msg.(*kmsg.FetchResponse); ok && a.Err == nil {
		a.Batches = kafka.FetchBatches(fetch)
	}
	if a.Err != nil {
		a.Msg, a.Batches = nil, nil
	}
	c.peers.answered(c.peer, a)
	return nil
}
