package sim

import (
	"slices"

	"lockstep/core/record"
	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumer reads partitions that were assigned to it for good, one fetch at a time from each broker.
type consumer struct {
	clientBase
	parts    []*position
	sessions []session // by broker
	asking   bool
}

// position is where a consumer is in one partition.
type position struct {
	topic     int
	partition int32
	next      int64 // offset to fetch; -1: to be asked for
	assigned  int64 // goes up when the consumer goes elsewhere
	wants     int64 // special timestamp to ask for where next is -1: -1 the end, -2 the start
	sent      int64 // next as the session knows it, -1 if the session has none
	at        int   // the broker whose session it is in
}

// session is an incremental fetch session with one broker (KIP-227).
type session struct {
	id    int32
	epoch int32
	holds []*position
	busy  bool // a fetch or a lookup is on its way, or the pause after one
}

func (c *consumer) start() {
	c.sessions = make([]session, len(c.wires))
	for _, t := range c.plan.Topics {
		for i := range c.w.partitions(t) {
			if c.chance.Chance(800) {
				c.parts = append(c.parts, &position{topic: t, partition: i, next: -1, wants: -2, sent: -1})
			}
		}
	}
	c.w.after(int64(c.plan.Start), c, evWork)
}

func (c *consumer) stop()      { c.stopped = true }
func (c *consumer) idle() bool { return c.stopped && c.flying() == 0 && !c.asking }

func (c *consumer) fire(e *event) {
	if e.n > 0 {
		c.sessions[e.n-1].busy = false
	}
	c.work()
}

// rest pauses before the next request to a broker.
func (c *consumer) rest(broker int) {
	c.sessions[broker].busy = true
	c.w.after(c.think(), c, evWork).n = uint64(broker) + 1
}

func (c *consumer) again(d Time) {
	if !c.stopped {
		c.w.after(d, c, evWork)
	}
}

// work fetches from each broker that it does not wait for.
func (c *consumer) work() {
	if c.stopped || c.asking || c.w.failure != nil {
		return
	}
	for _, p := range c.parts {
		if c.leader(c.topicName(p), p.partition) < 0 {
			c.asking = true
			c.refresh(c.topicNames(), func() {
				c.asking = false
				c.again(c.chance.Between(5*millisecond, 100*millisecond))
			})
			return
		}
	}
	for broker := range c.wires {
		switch {
		case c.sessions[broker].busy || !c.more():
		case c.skips():
			c.rest(broker)
		case !c.lookUp(broker):
			c.fetch(broker)
		}
	}
}

func (c *consumer) topicName(p *position) string { return c.w.plan.Topics[p.topic].Name }

func (c *consumer) topicNames() []string {
	var names []string
	for _, t := range c.plan.Topics {
		names = append(names, c.w.plan.Topics[t].Name)
	}
	return names
}

// lookUp asks for the offsets to start at, if there are any to ask for.
func (c *consumer) lookUp(broker int) bool {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	var asked []*position
	var ops []int
	for _, p := range c.parts {
		if p.next >= 0 || c.leader(c.topicName(p), p.partition) != broker {
			continue
		}
		kind := linearizability.Earliest
		if p.wants == -1 {
			kind = linearizability.Latest
		}
		asked = append(asked, p)
		ops = append(ops, c.w.beginAt(p.topic, linearizability.Op{Process: c.index, Kind: kind, Topic: c.topicName(p), Partition: p.partition}))
		putOffset(req, c.topicName(p), p.partition, p.wants)
	}
	if len(asked) == 0 {
		return false
	}
	c.sessions[broker].busy = true
	c.call(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.ListOffsetsResponse)
		for i, p := range asked {
			if a := findOffset(resp, c.topicName(p), p.partition); a != nil {
				c.looked(p, ops[i], a)
			}
		}
		c.rest(broker)
	})
	return true
}

func putOffset(req *kmsg.ListOffsetsRequest, topic string, partition int32, timestamp int64) {
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
	for i := range req.Topics {
		if req.Topics[i].Topic == topic {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
			return
		}
	}
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
}

func findOffset(resp *kmsg.ListOffsetsResponse, topic string, partition int32) *kmsg.ListOffsetsResponseTopicPartition {
	if resp == nil {
		return nil
	}
	for i := range resp.Topics {
		if resp.Topics[i].Topic == topic {
			for j := range resp.Topics[i].Partitions {
				if resp.Topics[i].Partitions[j].Partition == partition {
					return &resp.Topics[i].Partitions[j]
				}
			}
		}
	}
	return nil
}

func (c *consumer) looked(p *position, op int, a *kmsg.ListOffsetsResponseTopicPartition) {
	if a.ErrorCode != 0 {
		c.w.endWith(op, linearizability.Failed, -1)
		c.trouble(p, a.ErrorCode)
		return
	}
	c.w.endWith(op, linearizability.OK, a.Offset)
	p.next = a.Offset
	p.assigned++
}

// trouble deals with an error for one partition.
func (c *consumer) trouble(p *position, code int16) {
	switch {
	case code == kerr.UnknownTopicID.Code || code == kerr.UnknownTopicOrPartition.Code || code == kerr.NotLeaderForPartition.Code ||
		code == kerr.InconsistentTopicID.Code:
		delete(c.meta.topics, c.topicName(p))
	case code == kerr.OffsetOutOfRange.Code:
		p.next, p.wants = -1, -2
		if c.chance.Chance(300) {
			p.wants = -1
		}
	case !retriable(code) && code != kerr.KafkaStorageError.Code:
		c.w.fail("protocol", "%s: %s-%d: %v", c.name, c.topicName(p), p.partition, kerr.ErrorForCode(code))
	}
}

// fetch sends one fetch for everything that a broker leads.
func (c *consumer) fetch(broker int) {
	s := &c.sessions[broker]
	for _, p := range s.holds { // who is led elsewhere now leaves the session, and with it this client does
		if c.leader(c.topicName(p), p.partition) != broker {
			c.forget(broker)
			break
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(c.plan.MaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = c.plan.MinBytes, c.plan.MaxBytes
	req.SessionID, req.SessionEpoch = 0, -1
	if c.plan.Session {
		req.SessionID, req.SessionEpoch = s.id, s.epoch
	}
	incremental := c.plan.Session && s.id != 0 && c.maxes[kmsg.Fetch.Int16()] >= 7
	var asked []fetching
	for _, p := range c.parts {
		name := c.topicName(p)
		if c.leader(name, p.partition) != broker {
			continue
		}
		asked = append(asked, fetching{p, p.next, c.w.now, c.topicID(name)})
		if incremental && p.sent == p.next && p.at == broker {
			continue
		}
		p.sent, p.at = p.next, broker
		if !slices.Contains(s.holds, p) {
			s.holds = append(s.holds, p)
		}
		putFetch(req, name, c.topicID(name), p, c.plan.PartitionBytes)
	}
	if len(asked) == 0 {
		c.rest(broker)
		return
	}
	s.busy = true
	c.call(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.FetchResponse)
		if resp == nil {
			c.forget(broker)
		} else {
			c.fetched(broker, asked, resp)
		}
		c.rest(broker)
	})
}

// fetching is what a fetch asked of one partition.
type fetching struct {
	p    *position
	from int64
	at   Time
	id   [16]byte // of the topic, as it was asked for
}

func putFetch(req *kmsg.FetchRequest, topic string, id [16]byte, p *position, maxBytes int32) {
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p.partition, p.next, maxBytes, -1
	for i := range req.Topics {
		if req.Topics[i].Topic == topic {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
			return
		}
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
}

// forget gives up the session with a broker.
func (c *consumer) forget(broker int) {
	s := &c.sessions[broker]
	s.id, s.epoch, s.holds = 0, 0, nil
	for _, p := range c.parts {
		p.sent = -1
	}
}

func (c *consumer) fetched(broker int, asked []fetching, resp *kmsg.FetchResponse) {
	s := &c.sessions[broker]
	if resp.ErrorCode != 0 {
		if resp.ErrorCode != kerr.FetchSessionIDNotFound.Code && resp.ErrorCode != kerr.InvalidFetchSessionEpoch.Code && !retriable(resp.ErrorCode) {
			c.w.fail("protocol", "%s: Fetch: %v", c.name, kerr.ErrorForCode(resp.ErrorCode))
		}
		c.forget(broker)
		return
	}
	if c.plan.Session && resp.Version >= 7 {
		s.id = resp.SessionID
		s.epoch = nextEpoch(s.epoch)
		if s.id == 0 {
			s.epoch = 0
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			f := c.find(asked, resp.Version, t, t.Partitions[j].Partition)
			if f == nil {
				c.w.fail("protocol", "%s: the fetch has an answer for a partition that was not asked for", c.name)
				return
			}
			c.take(f, &t.Partitions[j])
		}
	}
}

// nextEpoch is the epoch of a session's next request; 0 and -1 are not among them.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

func (c *consumer) find(asked []fetching, version int16, t *kmsg.FetchResponseTopic, partition int32) *fetching {
	for i := range asked {
		p := asked[i].p
		if p.partition == partition && (version < 13 && t.Topic == c.topicName(p) || version >= 13 && t.TopicID == asked[i].id) {
			return &asked[i]
		}
	}
	return nil
}

// take reads the answer for one partition.
func (c *consumer) take(f *fetching, a *kmsg.FetchResponseTopicPartition) {
	p := f.p
	op := linearizability.Op{Process: c.index, Kind: linearizability.Fetch, Topic: c.topicName(p), Partition: p.partition,
		From: f.from, Session: p.assigned, HighWatermark: a.HighWatermark, LogStart: a.LogStartOffset}
	if a.ErrorCode != 0 {
		op.Outcome = linearizability.Failed
		if a.ErrorCode == kerr.OffsetOutOfRange.Code {
			op.Outcome = linearizability.OutOfRange
		}
		c.w.note(p.topic, op, f.at)
		c.trouble(p, a.ErrorCode)
		return
	}
	if a.HighWatermark < 0 && len(c.w.hosts) == 1 {
		c.w.fail("protocol", "%s: %s-%d: high watermark %d in an answer without error", c.name, op.Topic, op.Partition, a.HighWatermark)
	}
	if a.HighWatermark < 0 && len(a.RecordBatches) == 0 {
		return // a new leader, which knows of something to read and did not find room for it in this answer, and no more
	}
	records, next := readRecords(c.w, c.name, op.Topic, op.Partition, f.from, a.RecordBatches)
	op.Outcome, op.Records = linearizability.OK, records
	c.w.note(p.topic, op, f.at)
	c.w.stats.Delivered += int64(len(records))
	if p.next != f.from {
		return // it went elsewhere meanwhile
	}
	if p.next = next; len(a.RecordBatches) > 0 && next == f.from {
		c.seek(p, max(a.HighWatermark, 0)) // damage: whoever operates this consumer lets it go on behind it
		return
	}
	if c.plan.Seek > 0 && c.chance.Chance(c.plan.Seek) {
		c.seek(p, max(a.HighWatermark, 0))
	}
}

// seek goes elsewhere: to some offset, or to an end that has to be asked for.
func (c *consumer) seek(p *position, end int64) {
	switch c.chance.Intn(4) {
	case 0:
		p.next, p.wants = -1, -1
	case 1:
		p.next, p.wants = -1, -2
	default:
		p.next = c.chance.Between(0, end+2)
		p.assigned++
	}
}

// foreign names what it is that records are read which no client has sent to a partition. A whole batch of another log has a right
// CRC: where a misdirected write puts one in the place of another, nothing more can be said.
func (w *world) foreign(topic string, partition int32) string {
	for _, h := range w.hosts {
		if h.misdirected(topic + "-" + itoa(int(partition))) {
			return undecidable
		}
	}
	return "damage served"
}

// readRecords turns the records of a fetch into values, with what compaction may have taken away, and returns the offset to go on at.
// Every batch must be whole and right: the broker serves no damage (rule 17).
func readRecords(w *world, who, topic string, partition int32, from int64, raw []byte) ([]linearizability.Record, int64) {
	var out []linearizability.Record
	next := from
	for len(raw) > 0 {
		b, n, err := record.Parse(raw)
		if err != nil && w.mayRot(topic, partition) {
			w.stats.DamageSeen++ // the file went to the socket unread; that is what the CRC is for
			return out, next
		}
		if err != nil {
			w.fail("damage served", "%s: %s-%d at offset %d: %v", who, topic, partition, next, err)
			return out, next
		}
		raw = raw[n:]
		if b.LastOffset() < from {
			continue
		}
		for r, err := range b.Records(&w.codecs, record.Limits{}) {
			if err != nil {
				w.fail("damage served", "%s: %s-%d, batch at offset %d: %v", who, topic, partition, b.BaseOffset(), err)
				return out, next
			}
			if r.Offset < from {
				continue
			}
			v, ok := valueOf(&r)
			if !ok {
				w.fail(w.foreign(topic, partition), "%s: %s-%d, offset %d: not the bytes of any record that was sent", who, topic, partition, r.Offset)
				return out, next
			}
			out = append(out, linearizability.Record{Offset: r.Offset, Value: v})
		}
		next = max(next, b.NextOffset())
	}
	return w.oracle.fill(who, topic, partition, from, next, out), next
}
