package sim

import (
	"encoding/binary"
	"strconv"

	"lockstep/compress"
	"lockstep/core/record"
	"lockstep/linearizability"
	"lockstep/sim/seed"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producer sends batches of records with values that nobody else sends.
type producer struct {
	clientBase
	lines   []*line // by the order in which they were first used
	pid     int64   // of an idempotent producer; -1: to be asked for
	epoch   int16
	asking  bool
	pausing bool // waits before another try
	renew   bool // the broker has forgotten this producer: ask for another id once nothing is on its way
	builder *record.Builder
	scratch []byte
	key     [binary.MaxVarintLen64]byte
	keyOf   [40]byte // of a record of a compacted topic
	headers []record.RecordHeader
}

// line is what a producer has under way for one partition. Batches are sent in order;
// after a failure nothing is sent until all that is out has come back.
type line struct {
	topic     int
	partition int32
	batches   []*outgoing // not yet done, oldest first
	out       int         // of which so many are on their way
	halted    bool        // one came back undone: wait for the rest
	sequence  int32       // of the next batch
	id        [16]byte    // of the topic, as last sent
	gaveUp    bool        // in the end, a batch of an idempotent producer: nothing takes writes any more
	overtaken bool        // a batch was acknowledged before an earlier one: that one's first try failed, and took what the broker knew with it
}

// outgoing is one batch.
type outgoing struct {
	values   []int64
	bytes    []byte // built for the producer's present id and epoch
	sequence int32
	op       int // in the history; -1: not in it
	tries    int
}

func (p *producer) start() {
	p.pid = -1
	p.builder = record.NewBuilder()
	p.builder.Codec = record.Codec(p.plan.Codec)
	p.builder.Compressor = compress.Codecs{}
	p.w.after(int64(p.plan.Start), p, evWork)
}

func (p *producer) stop() { p.stopped = true }

func (p *producer) idle() bool {
	if !p.stopped || p.flying() > 0 || p.asking || p.meta.asking {
		return false
	}
	for _, l := range p.lines {
		if len(l.batches) > 0 {
			return false
		}
	}
	return true
}

func (p *producer) fire(e *event) {
	switch e.kind {
	case evWork:
		if p.more() {
			p.produce()
			p.w.after(p.think(), p, evWork)
		}
	case evRetry:
		p.pausing = false
	}
	p.pump()
}

// produce makes a batch for each of some partitions.
func (p *producer) produce() {
	topic := p.plan.Topics[p.chance.Intn(len(p.plan.Topics))]
	n := p.w.partitions(topic)
	for range min(p.plan.Spread, int(n)) {
		l := p.line(topic, int32(p.chance.Intn(int(n))))
		if len(l.batches) >= 4*p.plan.InFlight {
			continue // the broker is behind: a real client blocks
		}
		b := &outgoing{op: -1, sequence: l.sequence}
		records := p.chance.Between(int64(p.plan.Records[0]), int64(p.plan.Records[1]))
		if p.skips() {
			continue
		}
		for range records {
			p.w.values++
			b.values = append(b.values, p.w.values)
		}
		l.sequence = nextSequence(l.sequence, len(b.values))
		l.batches = append(l.batches, b)
	}
}

// nextSequence adds to a sequence number, after whose largest comes 0.
func nextSequence(s int32, n int) int32 { return int32((int64(s) + int64(n)) & (1<<31 - 1)) }

func (p *producer) line(topic int, partition int32) *line {
	for _, l := range p.lines {
		if l.topic == topic && l.partition == partition {
			return l
		}
	}
	l := &line{topic: topic, partition: partition}
	p.lines = append(p.lines, l)
	return l
}

// pump sends what can be sent.
func (p *producer) pump() {
	if p.pausing || p.asking || p.meta.asking || p.w.failure != nil {
		return
	}
	pending, homeless := false, (*line)(nil)
	for _, l := range p.lines {
		if p.renew && l.out > 0 {
			return
		}
		if l.out == 0 && p.stopped && p.w.excused(l.topic, l.partition) {
			l.batches, l.gaveUp = nil, true
		}
		if len(l.batches) == 0 {
			continue
		}
		pending = true
		if p.leader(p.w.plan.Topics[l.topic].Name, l.partition) < 0 {
			homeless = l
		}
	}
	if homeless != nil && (len(p.wires) == 1 || p.meta.topics == nil) {
		p.refresh(p.topicNames(), func() { p.pauseUnlessKnown(homeless) })
		return
	}
	if !pending {
		return
	}
	if p.plan.Idempotent && (p.pid < 0 || p.renew) {
		p.renew = false
		p.askID()
		return
	}
	for broker := range p.wires {
		for p.sendTo(broker) {
		}
	}
	if homeless != nil && !p.meta.asking { // the others need not wait for it
		p.refresh(p.topicNames(), func() { p.pauseUnlessKnown(homeless) })
	}
}

func (p *producer) topicNames() []string {
	var names []string
	for _, t := range p.plan.Topics {
		names = append(names, p.w.plan.Topics[t].Name)
	}
	return names
}

func (p *producer) pauseUnlessKnown(l *line) {
	if p.leader(p.w.plan.Topics[l.topic].Name, l.partition) < 0 {
		p.pause()
		return
	}
	p.pump()
}

func (p *producer) pause() {
	if !p.pausing {
		p.pausing = true
		p.w.after(p.chance.Between(5*millisecond, 100*millisecond), p, evRetry)
	}
}

func (p *producer) askID() {
	p.asking = true
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60000
	req.ProducerID, req.ProducerEpoch = -1, -1
	p.call(p.chance.Intn(len(p.wires)), req, func(r kmsg.Response) {
		p.asking = false
		resp, ok := r.(*kmsg.InitProducerIDResponse)
		if !ok || resp.ErrorCode != 0 {
			if ok && !retriable(resp.ErrorCode) {
				p.w.fail("protocol", "%s: InitProducerID: %v", p.name, kerr.ErrorForCode(resp.ErrorCode))
			}
			p.pause()
			return
		}
		p.pid, p.epoch = resp.ProducerID, resp.ProducerEpoch
		p.w.oracle.newProducer(p.w, p.pid, p.epoch)
		p.renumber()
		p.pump()
	})
}

// renumber starts the sequences of all partitions anew, for a new producer id. What has been sent under the old one, and may have
// been stored, is from here on sent as something else: nobody could tell that it is the same.
func (p *producer) renumber() {
	for _, l := range p.lines {
		l.sequence = 0
		for _, b := range l.batches {
			b.sequence, b.bytes = l.sequence, nil
			if b.tries > 0 {
				b.op = -1
			}
			l.sequence = nextSequence(l.sequence, len(b.values))
		}
	}
}

// sendTo sends one request with the next batches for partitions that a broker leads, if there is one.
func (p *producer) sendTo(broker int) bool {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = p.plan.Acks
	req.TimeoutMillis = int32(p.plan.Timeout.Milliseconds())
	var lines []*line
	var batches []*outgoing
	first := false
	for _, l := range p.lines {
		if len(batches) == p.plan.Spread || l.halted || l.out >= p.plan.InFlight || l.out >= len(l.batches) {
			continue
		}
		if p.leader(p.w.plan.Topics[l.topic].Name, l.partition) != broker {
			continue
		}
		b := l.batches[l.out]
		lines, batches = append(lines, l), append(batches, b)
		l.out++
		b.tries++
		first = first || b.tries == 1
		p.record(l, b)
		p.put(req, l, b)
	}
	if len(batches) == 0 {
		return false
	}
	p.w.stats.Steps += b2i(first)
	p.call(broker, req, func(r kmsg.Response) { p.done(lines, batches, r) })
	return p.plan.Acks != 0
}

// put adds a batch to a request.
func (p *producer) put(req *kmsg.ProduceRequest, l *line, b *outgoing) {
	name := p.w.plan.Topics[l.topic].Name
	if b.bytes == nil {
		b.bytes = p.build(l.topic, b)
	}
	var t *kmsg.ProduceRequestTopic
	for i := range req.Topics {
		if req.Topics[i].Topic == name {
			t = &req.Topics[i]
		}
	}
	if t == nil {
		req.Topics = append(req.Topics, kmsg.NewProduceRequestTopic())
		t = &req.Topics[len(req.Topics)-1]
		t.Topic, t.TopicID = name, p.topicID(name)
	}
	l.id = t.TopicID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = l.partition, b.bytes
	t.Partitions = append(t.Partitions, rp)
}

func (p *producer) build(topic int, b *outgoing) []byte {
	bb := p.builder
	bb.ProducerID, bb.ProducerEpoch, bb.BaseSequence = record.NoProducerID, record.NoProducerEpoch, record.NoSequence
	if p.plan.Idempotent {
		bb.ProducerID, bb.ProducerEpoch, bb.BaseSequence = p.pid, p.epoch, b.sequence
	}
	wall := p.w.wall()
	size := int(p.chance.Between(int64(p.plan.Bytes[0]), int64(p.plan.Bytes[1])))
	bb.Grow(len(b.values) * (size + 16))
	for i, v := range b.values {
		p.scratch = appendValue(p.scratch[:0], v, size)
		r := record.Record{Timestamp: wall, Value: p.scratch}
		op := []byte(nil)
		if i == 0 && b.op >= 0 {
			op = binary.AppendUvarint(p.key[:0], uint64(b.op)) // which of several tries came through: see resolve
		}
		if t := &p.w.plan.Topics[topic]; t.Keys > 0 {
			p.keyed(t, &r, v, op)
		} else {
			r.Key = op
		}
		bb.Add(r)
	}
	batch, err := bb.Build()
	if err != nil {
		p.w.fail("simulator", "%s: building a batch: %v", p.name, err)
		return []byte{}
	}
	return batch.Bytes()
}

// keyed makes a record one of a compacted topic. What it is depends on its value alone, so that another try is the same.
func (p *producer) keyed(t *TopicPlan, r *record.Record, v int64, op []byte) {
	c := seed.New(p.w.plan.Seed, seed.Label("keys"), uint64(v))
	r.Key = append(p.keyOf[:0], "key-"...)
	r.Key = strconv.AppendInt(r.Key, c.Skewed(0, int64(t.Keys)-1), 10)
	if r.Key[len(r.Key)-1]&3 == 0 { // some are so long that compaction knows a digest of them only
		r.Key = append(r.Key, "-of-those-that-are-long"...)
	}
	p.headers = p.headers[:0]
	if op != nil {
		p.headers = append(p.headers, record.RecordHeader{Key: []byte(operationHeader), Value: op})
	}
	if c.Chance(t.Tombstones) {
		p.headers = append(p.headers, record.RecordHeader{Key: []byte(valueHeader), Value: r.Value})
		r.Value = nil
	}
	r.Headers = p.headers
}

// record notes the beginning of an operation. A batch of an idempotent producer is
// one operation with all its tries; else each try is one of its own.
func (p *producer) record(l *line, b *outgoing) {
	if !p.w.recorded(l.topic) || p.plan.Idempotent && b.op >= 0 {
		return
	}
	acks := p.plan.Acks
	if p.w.plan.Topics[l.topic].weak() && acks == -1 {
		acks = 1
	}
	b.op = p.w.begin(linearizability.Op{Process: p.index, Kind: linearizability.Produce, Topic: p.w.plan.Topics[l.topic].Name,
		Partition: l.partition, Acks: acks, Values: b.values})
}

// done takes the answer to one request; r is nil if there is none.
func (p *producer) done(lines []*line, batches []*outgoing, r kmsg.Response) {
	resp, _ := r.(*kmsg.ProduceResponse)
	for i, l := range lines {
		b := batches[i]
		l.out--
		var a *kmsg.ProduceResponseTopicPartition
		if resp != nil {
			if a = p.answerFor(resp, l); a == nil {
				p.w.fail("protocol", "%s: the answer lacks %s-%d", p.name, p.w.plan.Topics[l.topic].Name, l.partition)
				return
			}
		}
		p.settle(l, b, a)
	}
	for _, l := range lines {
		if l.out == 0 {
			l.halted = false
		}
	}
	p.pump()
}

func (p *producer) answerFor(resp *kmsg.ProduceResponse, l *line) *kmsg.ProduceResponseTopicPartition {
	name := p.w.plan.Topics[l.topic].Name
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic != name && (resp.Version < 13 || t.TopicID != l.id) {
			continue
		}
		for j := range t.Partitions {
			if t.Partitions[j].Partition == l.partition {
				return &t.Partitions[j]
			}
		}
	}
	return nil
}

// settle decides what an answer, or none, means for a batch.
func (p *producer) settle(l *line, b *outgoing, a *kmsg.ProduceResponseTopicPartition) {
	switch {
	case a == nil && p.plan.Acks == 0:
		p.finish(l, b)
	case a == nil:
		p.again(l, b, true)
	case a.ErrorCode == 0:
		p.w.stats.Acked++
		p.end(b, linearizability.OK, a.BaseOffset, "")
		p.w.oracle.acked(p, l, b, a)
		l.overtaken = l.batches[0] != b
		p.finish(l, b)
	default:
		p.refused(l, b, a.ErrorCode)
	}
}

func (p *producer) refused(l *line, b *outgoing, code int16) {
	p.w.stats.Refused++
	err := kerr.ErrorForCode(code)
	switch {
	case code == kerr.OutOfOrderSequenceNumber.Code && p.plan.Idempotent:
		if l.gaveUp {
			p.finish(l, b)
			return
		}
		overtaken := l.overtaken || l.mayBeOvertaken()
		if l.batches[0] == b && (overtaken || p.w.forgiven(l.topic, l.partition)) {
			p.renew, p.w.reordered = true, p.w.reordered || overtaken // as the Java client does: a new epoch, and the batch again
		} else if l.batches[0] == b {
			p.w.fail("sequence", "%s: %s-%d refuses sequence %d of producer %d as out of order, though all before it are acknowledged",
				p.name, p.w.plan.Topics[l.topic].Name, l.partition, b.sequence, p.pid)
			return
		}
		p.again(l, b, true)
	case code == kerr.UnknownTopicID.Code || code == kerr.UnknownTopicOrPartition.Code || code == kerr.NotLeaderForPartition.Code ||
		code == kerr.InconsistentTopicID.Code:
		delete(p.meta.topics, p.w.plan.Topics[l.topic].Name)
		p.fallible(l, b, code)
	case retriable(code), code == kerr.InvalidTimestamp.Code: // the broker's wall clock has jumped
		p.fallible(l, b, code)
	default:
		p.w.fail("protocol", "%s: Produce to %s-%d: %v", p.name, p.w.plan.Topics[l.topic].Name, l.partition, err)
	}
}

// mayBeOvertaken says whether batches after the first have been sent whose outcome is not known. A leader that knows nothing of a
// producer takes whatever comes first from it, so one of them may stand in the log where the first was refused for want of replicas.
func (l *line) mayBeOvertaken() bool {
	for _, b := range l.batches[1:] {
		if b.tries > 0 {
			return true
		}
	}
	return false
}

// fallible deals with an error after which a client may try again.
func (p *producer) fallible(l *line, b *outgoing, code int16) {
	if !p.plan.Idempotent && !mayHaveHappened(code) {
		p.end(b, linearizability.Failed, -1, kerr.ErrorForCode(code).Error())
	}
	p.again(l, b, true)
}

// again tries once more, now or after a pause, or gives the batch up.
func (p *producer) again(l *line, b *outgoing, pause bool) {
	give := !p.plan.Idempotent && (!p.plan.Retries || b.tries >= 20)
	if give || p.stopped && (l.gaveUp || p.w.excused(l.topic, l.partition)) {
		l.gaveUp = p.plan.Idempotent // what comes after it would be out of order
		p.finish(l, b)
		return
	}
	if !p.plan.Idempotent { // another try is another operation, and says so in its bytes
		b.op, b.bytes = -1, nil
	}
	if p.plan.Idempotent || l.out > 0 {
		l.halted = l.out > 0
	}
	if pause {
		p.pause()
	}
}

// end notes the end of an operation.
func (p *producer) end(b *outgoing, outcome linearizability.Outcome, offset int64, note string) {
	if b.op >= 0 {
		op := p.w.end(b.op, outcome)
		op.Offset, op.Note = offset, note
	}
}

func (p *producer) finish(l *line, b *outgoing) {
	for i, x := range l.batches {
		if x == b {
			l.batches = append(l.batches[:i], l.batches[i+1:]...)
			return
		}
	}
}

// retriable says whether a client would try again after an error.
func retriable(code int16) bool {
	err := kerr.TypedErrorForCode(code)
	return err != nil && err.Retriable
}

// mayHaveHappened says whether a write that was refused with this code may be in the log all the same.
func mayHaveHappened(code int16) bool {
	switch code {
	case kerr.RequestTimedOut.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.KafkaStorageError.Code,
		kerr.NotLeaderForPartition.Code, kerr.LeaderNotAvailable.Code, kerr.UnknownServerError.Code, kerr.NetworkException.Code:
		return true
	}
	return false
}
