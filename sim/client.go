package sim

import (
	"encoding/binary"
	"lockstep/core/record"
	"lockstep/net/kafka"
	"lockstep/sim/seed"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// client is a state machine that speaks the protocol.
type client interface {
	actor
	base() *clientBase
	start()
	stop()      // begin nothing new
	idle() bool // stopped, and nothing is on its way
}

// clientBase is what all clients have: connections, request bookkeeping, metadata.
type clientBase struct {
	w       *world
	index   int
	lane    int
	plan    *ClientPlan
	chance  seed.Stream
	name    string
	wires   []*wire // by broker
	meta    metadata
	ops     int // operations begun
	stopped bool
	paused  Time       // the process does not run before
	maxes   [128]int16 // versions chosen for each API key
}

// Kinds of events for clients.
const (
	evWork  uint8 = iota + 32 // think time is over
	evRetry                   // a pause before another try is over
	evDue                     // the oldest request of a wire is due
)

func (c *clientBase) base() *clientBase { return c }

func (c *clientBase) init(w *world, index int, plan *ClientPlan) {
	c.w, c.index, c.plan = w, index, plan
	c.name = plan.Kind.String() + "-" + itoa(index)
	c.chance = seed.New(plan.Seed, seed.Label("client"))
	c.lane = w.newLane(c.name)
	for i := range w.hosts {
		c.wires = append(c.wires, &wire{client: c, broker: i})
	}
	for i := range c.maxes {
		c.maxes[i] = c.chooseVersion(int16(i))
	}
}

// chooseVersion draws one of the versions that the broker speaks: half of all clients speak
// the newest, as new ones do.
func (c *clientBase) chooseVersion(key int16) int16 {
	api, ok := kafka.Lookup(key, false)
	if !ok {
		return 0
	}
	if v := c.plan.Version; v > 0 {
		return max(api.Served, api.Max-int16(v-1))
	}
	return api.Max
}

// think draws the time until the next operation.
func (c *clientBase) think() Time {
	return c.chance.Skewed(int64(c.plan.Think[0]), int64(c.plan.Think[1]))
}

// more reports whether another operation may begin, and counts it.
func (c *clientBase) more() bool {
	if c.stopped || c.plan.Ops > 0 && c.ops >= c.plan.Ops {
		return false
	}
	c.ops++
	return true
}

// skips says that the operation that was counted last is cut away.
func (c *clientBase) skips() bool { return c.plan.skips(c.ops) }

// sends counts a step: what a client asks for once, however often it has to ask.
func (c *clientBase) sends(req kmsg.Request) {
	if c.index >= len(c.w.plan.Clients) {
		return // the verifier is no part of the plan
	}
	switch req := req.(type) {
	case *kmsg.ProduceRequest, *kmsg.MetadataRequest, *kmsg.FindCoordinatorRequest, *kmsg.InitProducerIDRequest, *kmsg.HeartbeatRequest:
		return // a batch counts when it is sent for the first time; the others are what comes with it
	case *kmsg.ConsumerGroupHeartbeatRequest:
		if req.MemberEpoch > 0 && req.Topics == nil {
			return
		}
	}
	c.w.stats.Steps++
}

func (c *clientBase) flying() (n int) {
	for _, x := range c.wires {
		n += len(x.sent) + len(x.waiting)
	}
	return n
}

// call sends a request to a broker; done is called exactly once, with nil if no answer will come.
func (c *clientBase) call(broker int, req kmsg.Request, done func(kmsg.Response)) {
	req.SetVersion(min(c.maxes[req.Key()], req.MaxVersion()))
	c.wires[broker].call(req, done)
}

// sent is a request that has not been answered.
type sent struct {
	key, version int16
	correlation  int32
	due          Time
	done         func(kmsg.Response)
}

// wire is a client's connection to one broker.
type wire struct {
	client  *clientBase
	broker  int
	conn    *conn
	open    bool
	in      []byte
	sent    []sent // in order
	waiting []pendingCall
	next    int32
	timer   *event
}

// pendingCall is a request that waits for the connection to open.
type pendingCall struct {
	req  kmsg.Request
	done func(kmsg.Response)
	due  Time
}

func (x *wire) call(req kmsg.Request, done func(kmsg.Response)) {
	w := x.client.w
	x.client.sends(req)
	if x.conn == nil {
		x.open = false
		x.in = x.in[:0]
		x.conn = w.net.dial(x, x.client.lane, x.client.index, w.hosts[x.broker])
	}
	due := w.now + int64(x.client.plan.Timeout)
	if !x.open {
		x.waiting = append(x.waiting, pendingCall{req, done, due})
		x.watch()
		return
	}
	x.write(req, done, due)
}

func (x *wire) write(req kmsg.Request, done func(kmsg.Response), due Time) {
	x.next++
	frame := kafka.AppendRequest(x.client.w.takeBufFor(req), x.next, x.client.name, req)
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		x.conn.send(dialer, frame)
		done(nil)
		return
	}
	x.sent = append(x.sent, sent{req.Key(), req.GetVersion(), x.next, due, done})
	x.conn.send(dialer, frame)
	x.watch()
}

// watch keeps one timer for the oldest request.
func (x *wire) watch() {
	if x.timer != nil {
		return
	}
	due := Time(0)
	switch {
	case len(x.sent) > 0:
		due = x.sent[0].due
	case len(x.waiting) > 0:
		due = x.waiting[0].due
	default:
		return
	}
	x.timer = x.client.w.queue.add(max(due, x.client.w.now), x, evDue)
}

func (x *wire) fire(*event) {
	x.timer = nil
	now := x.client.w.now
	if now < x.client.paused {
		x.timer = x.client.w.queue.add(x.client.paused, x, evDue)
		return
	}
	if len(x.sent) > 0 && x.sent[0].due <= now || len(x.waiting) > 0 && x.waiting[0].due <= now {
		x.client.w.stats.Timeouts++
		c := x.conn
		x.lose()
		if c != nil {
			c.close(dialer)
		}
		return
	}
	x.watch()
}

// lose forgets the connection; no request on it will be answered.
func (x *wire) lose() {
	x.conn, x.open = nil, false
	if len(x.client.w.hosts) > 1 {
		x.client.meta.topics = nil // as real clients do: who leads now may be another
	}
	if x.timer != nil {
		x.client.w.queue.cancel(x.timer)
		x.timer = nil
	}
	sent, waiting := x.sent, x.waiting
	x.sent, x.waiting = nil, nil
	for _, s := range sent {
		s.done(nil)
	}
	for _, p := range waiting {
		p.done(nil)
	}
}

func (x *wire) opened(c *conn) {
	if x.conn != c {
		return
	}
	x.open = true
	waiting := x.waiting
	x.waiting = nil
	for _, p := range waiting {
		x.write(p.req, p.done, p.due)
	}
}

func (x *wire) closed(c *conn) {
	if x.conn == c {
		x.lose()
	}
}

const maxResponse = 100 << 20

func (x *wire) arrived(c *conn, data []byte) {
	if x.conn != c {
		return
	}
	w := x.client.w
	whole := data
	if len(x.in) > 0 {
		x.in = append(x.in, data...)
		data = x.in
	}
	rest := data
	for {
		frame, after, ok, err := kafka.SplitFrame(rest, maxResponse)
		if err != nil {
			w.fail("protocol", "%s: response frame: %v", x.client.name, err)
			return
		}
		if !ok {
			break
		}
		rest = after
		x.answer(frame)
		if x.conn != c || w.failure != nil {
			return
		}
	}
	if len(rest) == 0 {
		x.in = x.in[:0]
		w.giveBuf(whole)
	} else {
		x.in = append(x.in[:0], rest...)
	}
}

// answer matches a response with the oldest request: they come in order (compat.md, trap 7).
func (x *wire) answer(frame []byte) {
	w := x.client.w
	corr, err := kafka.ResponseCorrelation(frame)
	if err != nil || len(x.sent) == 0 || corr != x.sent[0].correlation {
		w.fail("protocol", "%s: response with correlation id %d does not answer the oldest of %d requests (%v)", x.client.name, corr, len(x.sent), err)
		return
	}
	s := x.sent[0]
	copy(x.sent, x.sent[1:])
	x.sent[len(x.sent)-1] = sent{}
	x.sent = x.sent[:len(x.sent)-1]
	resp, err := kafka.DecodeResponse(frame, s.key, s.version)
	if err != nil {
		w.fail("protocol", "%s: %v", x.client.name, err)
		return
	}
	w.stats.Responses++
	s.done(resp)
}

// metadata is what a client believes of the cluster.
type metadata struct {
	asking bool
	topics map[string]*topicMeta
	after  []func() // to be called when the answer is there, or none comes
}

type topicMeta struct {
	id      [16]byte
	leaders []int // broker indexes by partition, -1 if there is none
}

// leader returns the broker to ask about a partition, or -1.
func (c *clientBase) leader(topic string, partition int32) int {
	if t := c.meta.topics[topic]; t != nil && int(partition) < len(t.leaders) {
		return t.leaders[partition]
	}
	return -1
}

func (c *clientBase) topicID(topic string) [16]byte {
	if t := c.meta.topics[topic]; t != nil {
		return t.id
	}
	return [16]byte{}
}

// refresh asks any broker about the topics, and then calls then.
func (c *clientBase) refresh(topics []string, then func()) {
	c.meta.after = append(c.meta.after, then)
	if c.meta.asking {
		return
	}
	c.meta.asking = true
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	c.call(c.chance.Intn(len(c.w.hosts)), req, func(r kmsg.Response) {
		c.meta.asking = false
		if resp, ok := r.(*kmsg.MetadataResponse); ok {
			c.learn(resp)
		}
		after := c.meta.after
		c.meta.after = nil
		for _, f := range after {
			f()
		}
	})
}

func (c *clientBase) learn(resp *kmsg.MetadataResponse) {
	if c.meta.topics == nil {
		c.meta.topics = map[string]*topicMeta{}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		if t.ErrorCode != 0 {
			delete(c.meta.topics, *t.Topic)
			continue
		}
		m := &topicMeta{id: t.TopicID, leaders: make([]int, len(t.Partitions))}
		for j := range m.leaders {
			m.leaders[j] = -1
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if int(p.Partition) < len(m.leaders) && p.ErrorCode == 0 {
				m.leaders[p.Partition] = c.w.hostIndex(p.Leader)
			}
		}
		c.meta.topics[*t.Topic] = m
	}
}

// Values. A record's value is 8 bytes of number and a filler that follows from
// it, so that a reader can tell a whole value from a damaged one.

// appendValue appends the bytes of value v, size of them.
func appendValue(dst []byte, v int64, size int) []byte {
	for i := 7; i >= 0; i-- {
		dst = append(dst, byte(v>>(8*i)))
	}
	x := seed.Mix(uint64(v))
	for i := 8; i < size; i++ {
		dst = append(dst, byte(x>>(8*(i&7))))
	}
	return dst
}

// readValue is the reverse of appendValue.
func readValue(p []byte) (int64, bool) {
	if len(p) < 8 {
		return 0, false
	}
	var v int64
	for _, b := range p[:8] {
		v = v<<8 | int64(b)
	}
	x := seed.Mix(uint64(v))
	for i := 8; i < len(p); i++ {
		if p[i] != byte(x>>(8*(i&7))) {
			return 0, false
		}
	}
	return v, true
}

// Names of headers in records of compacted topics, whose keys and values are not free to say more.
const (
	operationHeader = "o" // the operation that sent the batch, in its first record
	valueHeader     = "v" // a tombstone's value
)

// valueOf returns the value of a record that a producer has sent.
func valueOf(r *record.Record) (int64, bool) {
	if r.Value != nil {
		return readValue(r.Value)
	}
	for _, h := range r.Headers {
		if string(h.Key) == valueHeader {
			return readValue(h.Value)
		}
	}
	return 0, false
}

// operationOf returns the operation that sent a record's batch, if the record says that.
func operationOf(r *record.Record, compacted bool) (int32, bool) {
	if !compacted {
		op, n := binary.Uvarint(r.Key)
		return int32(op), n > 0
	}
	for _, h := range r.Headers {
		if string(h.Key) == operationHeader {
			op, n := binary.Uvarint(h.Value)
			return int32(op), n > 0
		}
	}
	return 0, false
}
