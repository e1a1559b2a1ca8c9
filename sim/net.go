package sim

import (
	"lockstep/sim/seed"
)

// NetPlan is what a world's network is like when nothing is wrong with it.
type NetPlan struct {
	Latency, Jitter Time // one way: at least, and at most that much more
	Split           int  // chance in a thousand that a message arrives in two pieces
}

// network carries bytes between the ends of connections.
type network struct {
	w      *world
	plan   NetPlan
	dials  []uint64 // by client, brokers last: how many connections it has made
	conns  []*conn  // open ones, oldest first
	nextID uint64
	slow   Time     // extra latency, while a fault says so
	clogs  []Time   // by client: until when nothing arrives, either way; the last is everybody's
	walls  [][]wall // from machine to machine. Brokers come first, then clients
	peers  []uint64 // by broker: how many connections to others it has made
}

// wall lets nothing through from one machine to another before an instant. What was sent meanwhile arrives then, as
// TCP sends again what was lost.
type wall struct {
	until Time
	count *FaultCount // of the fault that has put it up
}

func (n *network) wall(from, to int, until Time, count *FaultCount) {
	if w := &n.walls[from][to]; until > w.until {
		*w = wall{until, count}
	}
}

// clearWalls lets everything through again, from now on.
func (n *network) clearWalls() {
	for _, row := range n.walls {
		clear(row)
	}
}

func (n *network) clogOf(c *conn) Time {
	everybody := n.clogs[len(n.clogs)-1]
	if c.client >= 0 {
		return max(everybody, n.clogs[c.client])
	}
	return everybody
}

// endpoint is one end of a connection.
type endpoint interface {
	opened(c *conn)               // the dialer's: the other side has accepted
	arrived(c *conn, data []byte) // bytes, in order; the endpoint may keep them
	closed(c *conn)               // by the other end, or by the network
}

// Sides of a connection.
const (
	dialer = iota
	acceptor
)

// conn is a connection. Bytes arrive in the order in which they were sent, or not at all.
type conn struct {
	id      uint64
	net     *network
	chance  seed.Stream // its own, so that one client's doings do not change another's luck
	ends    [2]endpoint
	lanes   [2]int
	client  int       // index of the client that dialed it, -1 if it was a broker
	by      *host     // the broker that dialed it, nil if it was a client
	host    *host     // that accepts
	arrival [2]Time   // when the last bytes toward each side arrive
	flying  [2]int    // messages on their way to each side
	last    [2]*event // of each side, the arrival that was scheduled last; nil once it has fired
	held    Time      // a fault lets one direction stand still until then
	dead    bool      // nothing arrives any more
	shut    [2]bool   // the side has closed, or was told
}

const (
	evArrive uint8 = iota + 1
	evClose
	evDial
)

// dial opens a connection to a broker. The dialer hears opened or closed, or, if the
// machine is without power, nothing.
func (n *network) dial(from endpoint, lane, client int, to *host) *conn {
	n.dials[client]++
	return n.open(&conn{ends: [2]endpoint{from, nil}, lanes: [2]int{lane, to.lane}, client: client, host: to,
		chance: seed.New(n.w.plan.luck(), seed.Label("connection"), uint64(client), n.dials[client])})
}

// dialPeer opens a connection from one broker to another.
func (n *network) dialPeer(from endpoint, by, to *host) *conn {
	n.peers[by.index]++
	return n.open(&conn{ends: [2]endpoint{from, nil}, lanes: [2]int{by.lane, to.lane}, client: -1, by: by, host: to,
		chance: seed.New(n.w.plan.luck(), seed.Label("peer connection"), uint64(by.index), n.peers[by.index])})
}

func (n *network) open(c *conn) *conn {
	n.nextID++
	c.id, c.net = n.nextID, n
	n.conns = append(n.conns, c)
	c.schedule(acceptor, evDial)
	return c
}

// machine is whose end a side is, as an index into network.walls.
func (c *conn) machine(side int) int {
	switch {
	case side == acceptor:
		return c.host.index
	case c.by != nil:
		return c.by.index
	}
	return len(c.net.w.hosts) + c.client
}

// owner is the broker at a side, nil if it is a client.
func (c *conn) owner(side int) *host {
	if side == acceptor {
		return c.host
	}
	return c.by
}

// frozen is until when the process at a side does not run, 0 if it does.
func (c *conn) frozen(side int) Time {
	if h := c.owner(side); h != nil && h.up && c.net.w.now < h.paused {
		return h.paused
	}
	if w := c.net.w; side == dialer && c.by == nil && c.client < len(w.clients) && w.now < w.clients[c.client].base().paused {
		return w.clients[c.client].base().paused
	}
	return 0
}

// passes is the earliest instant at which something that would arrive at an instant does, as walls stand.
func (c *conn) passes(side int, at Time) Time {
	if wall := &c.net.walls[c.machine(1-side)][c.machine(side)]; at < wall.until {
		wall.count.Mattered++
		return wall.until + (at - c.net.w.now)
	}
	return at
}

// latency draws how long the next message takes.
func (c *conn) latency() Time {
	l := c.net.plan.Latency + c.net.slow
	if c.net.plan.Jitter > 0 {
		l += c.chance.Skewed(c.net.plan.Jitter>>6, c.net.plan.Jitter)
	}
	return l
}

// schedule lets something arrive at a side, after all that went there before.
func (c *conn) schedule(side int, kind uint8) *event {
	at := max(c.net.w.now+c.latency(), c.arrival[side])
	if clog := c.net.clogOf(c); at < clog {
		at = clog
		c.net.w.stats.fault("clog").Mattered++
	}
	if c.held > c.net.w.now {
		c.net.w.stats.fault("hold").Mattered++
	}
	if deaf := c.deafness(side); at < deaf {
		at = deaf
		c.net.w.stats.fault("deaf").Mattered++
	}
	at = c.passes(side, at)
	c.arrival[side] = at
	e := c.net.w.queue.add(at, c, kind)
	e.n = uint64(side)
	return e
}

// send gives bytes to the connection; they belong to it from now on.
func (c *conn) send(from int, data []byte) {
	if c.dead || c.shut[from] {
		return
	}
	to := 1 - from
	w := c.net.w
	w.stats.Messages++
	text := ""
	if w.trace != nil {
		text = describeFrame(from, data)
	}
	if c.net.plan.Split > 0 && len(data) > 1 && c.chance.Chance(c.net.plan.Split) {
		cut := 1 + c.chance.Intn(len(data)-1)
		e := c.schedule(to, evArrive)
		e.data = data[:cut:cut]
		c.flying[to]++
		data = data[cut:]
	}
	e := c.schedule(to, evArrive)
	e.data = data
	c.flying[to]++
	c.last[to] = e
	if w.trace != nil {
		m := w.trace.message()
		e.more = m
		w.trace.add(Entry{At: w.now, Lane: c.lanes[from], Kind: "send", Msg: m, To: c.lanes[to], Text: text})
	}
}

// close closes an end in good order: what was sent before still arrives, and then the news.
func (c *conn) close(from int) {
	if c.shut[from] || c.dead {
		return
	}
	c.shut[from] = true
	if !c.shut[1-from] {
		c.schedule(1-from, evClose)
	} else {
		c.net.forget(c)
	}
}

// tear lets a first part of what is on its way arrive, before a reset.
func (c *conn) tear() {
	for side := range c.ends {
		e := c.last[side]
		if c.dead || c.shut[side] || c.frozen(side) > 0 || c.flying[side] != 1 || e == nil || len(e.data) < 2 || c.chance.Chance(500) {
			continue
		}
		c.ends[side].arrived(c, e.data[:1+c.chance.Intn(len(e.data)-1)])
	}
}

// reset breaks the connection: what is on its way is lost. Both ends hear of it, but for those that cannot.
func (c *conn) reset() {
	if c.dead {
		return
	}
	c.dead = true
	for side := range c.ends {
		if !c.shut[side] && c.ends[side] != nil {
			e := c.net.w.queue.add(c.passes(side, c.net.w.now+c.latency()), c, evClose)
			e.n = uint64(side)
		}
	}
	c.net.forget(c)
}

// cut is what a power loss of the broker h does to a connection: silence, until the machine is there again and does not know it.
func (c *conn) cut(h *host) {
	c.dead = true
	for side := range c.ends {
		if c.owner(side) == h {
			c.shut[side] = true
		}
	}
	h.silent = append(h.silent, c)
	c.net.forget(c)
}

// refuse is what the machine says to who still uses a connection from before it lost power.
func (c *conn) refuse() {
	for side := range c.ends {
		if !c.shut[side] && c.ends[side] != nil {
			e := c.net.w.queue.add(c.passes(side, c.net.w.now+c.latency()), c, evClose)
			e.n = uint64(side)
		}
	}
}

func (n *network) forget(c *conn) {
	for i, x := range n.conns {
		if x == c {
			n.conns = append(n.conns[:i], n.conns[i+1:]...)
			return
		}
	}
}

func (c *conn) fire(e *event) {
	side := int(e.n)
	if until := c.frozen(side); until > 0 {
		name := "pause"
		if c.owner(side) == nil {
			name = "member-pause"
		}
		c.net.w.stats.fault(name).Mattered++
		x := c.net.w.queue.add(until, c, e.kind)
		x.n, x.data, x.more = e.n, e.data, e.more
		if c.last[side] == e {
			c.last[side] = x
		}
		return
	}
	switch e.kind {
	case evDial:
		c.connect(side)
	case evArrive:
		if c.flying[side]--; c.last[side] == e {
			c.last[side] = nil
		}
		if c.dead || c.shut[side] {
			return
		}
		w := c.net.w
		if m, ok := e.more.(uint64); ok && w.trace != nil {
			w.trace.add(Entry{At: w.now, Lane: c.lanes[side], Kind: "receive", Msg: m})
		}
		w.mixBytes(e.data)
		c.ends[side].arrived(c, e.data)
	case evClose:
		if !c.shut[side] {
			c.shut[side] = true
			if c.ends[side] != nil { // nobody has accepted it yet
				c.ends[side].closed(c)
			}
			if c.shut[1-side] {
				c.net.forget(c)
			}
		}
	}
}

// connect is the way there (side acceptor) and back (side dialer) of a dial.
func (c *conn) connect(side int) {
	switch {
	case c.dead || c.shut[dialer]:
	case side == dialer:
		c.ends[dialer].opened(c)
	case !c.host.powered:
		c.cut(c.host)
	default:
		if c.ends[acceptor] = c.host.accept(c); c.ends[acceptor] == nil {
			c.shut[acceptor] = true
			c.reset()
			return
		}
		c.schedule(dialer, evDial)
	}
}
