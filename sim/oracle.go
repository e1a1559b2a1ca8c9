package sim

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/linearizability"
	"lockstep/sim/seed"
	"lockstep/sim/simdisk"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oracle watches what must hold at every step. It sees what brokers do with
// their logs from outside, by the effects that they ask for.
type oracle struct {
	logs      map[core.Partition]*truth
	order     []*truth
	ids       map[string]core.TopicID
	producers map[int64]int16
	power     bool // some machine has lost power
}

// truth is one log as it must be.
type truth struct {
	id      core.Partition
	topic   string
	label   string   // topic-partition
	weak    bool     // may lose what is not synced though it was acknowledged
	batches []stored // what was appended, oldest first
	values  []int64  // of all records that batches hold, in their order
	written int64    // end of what is surely in the page cache
	durable int64    // end of what was reported as durable
	shown   int64    // the highest high watermark that a client was told
	start   int64    // what was deleted below
	limbo   []stored // of refused appends: they may be in the file yet, if they could not be cut off or the cut is lost with the power
	unsure  []int64  // the values of limbo
	aside   bool     // reported as damaged
	gone    bool     // deleted
}

// stored is one batch that was appended.
type stored struct {
	base, next int64
	crc        uint32
	op         int32 // the operation that sent it, -1 if it does not say
}

func (o *oracle) init() {
	o.logs, o.ids, o.producers = map[core.Partition]*truth{}, map[string]core.TopicID{}, map[int64]int16{}
}

func (t *truth) end() int64 {
	if n := len(t.batches); n > 0 {
		return t.batches[n-1].next
	}
	return t.start
}

func (t *truth) name() string { return t.label }

// find returns what is known of a partition by its topic's name; nil if nothing is.
func (o *oracle) find(topic string, partition int32) *truth {
	return o.logs[core.Partition{Topic: o.ids[topic], Index: partition}]
}

// opened looks at what recovery found (rules 13 to 15).
func (o *oracle) opened(h *host, q *logQueue, topic string, s *log.State, err error) {
	t := o.logs[q.id]
	if t == nil {
		t = &truth{id: q.id, topic: topic, label: topic + "-" + itoa(int(q.id.Index)), weak: h.w.weak(topic)}
		o.logs[q.id] = t
		o.order = append(o.order, t)
		o.ids[topic] = q.id.Topic
	}
	harmed, must := h.harmed(t.name()), h.undamaged(t.name(), t.durable)
	if err != nil {
		t.aside = true
		h.w.stats.SetAside++
		if !harmed && !h.failedCalls() {
			h.w.fail("false alarm", "%s is reported as damaged and is not: %v", t.name(), err)
		}
		return
	}
	t.aside = false
	if harmed && t.start >= t.durable {
		must = 0 // all of it was deleted: where it ends stood only in the small files
	}
	if s.End < must {
		h.w.fail("durable lost", "%s ends at %d after recovery; up to %d was synced and is not damaged", t.name(), s.End, must)
		return
	}
	if s.End < t.written && !harmed && !h.errors() {
		h.w.fail("written lost", "%s ends at %d after recovery; up to %d was written and the power stayed on", t.name(), s.End, t.written)
		return
	}
	t.reappear(s.End)
	if s.End > t.end() {
		h.w.fail("log from nowhere", "%s ends at %d after recovery; appended was up to %d", t.name(), s.End, t.end())
		return
	}
	if s.Start < t.start && !harmed {
		h.w.fail("deleted records back", "%s begins at %d after recovery; everything below %d was deleted", t.name(), s.Start, t.start)
		return
	}
	t.cut(h, s.End)
	t.limbo, t.unsure = nil, nil
	t.start = max(t.start, s.Start)
	t.written, t.durable = s.End, s.End // all that recovery finds it has made durable
	if t.weak || harmed {
		t.shown = min(t.shown, s.End)
	}
}

// cut forgets batches that are not in the log any more.
func (t *truth) cut(h *host, end int64) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].next > end })
	if i < len(t.batches) && t.batches[i].base < end && !h.harmed(t.name()) {
		h.w.fail("torn", "%s ends at %d, inside the batch at %d", t.name(), end, t.batches[i].base)
	}
	for _, s := range t.batches[i:] {
		t.values = t.values[:max(0, len(t.values)-int(s.next-s.base))]
	}
	t.batches = t.batches[:i]
	t.written = min(t.written, end)
}

func (o *oracle) appending(h *host, q *logQueue, batches []record.Batch) {
	t := o.logs[q.id]
	for _, b := range batches {
		if b.BaseOffset() != t.end() && len(t.batches) > 0 {
			h.w.fail("gap", "%s: a batch at offset %d is appended to a log that ends at %d", t.name(), b.BaseOffset(), t.end())
			return
		}
		t.batches = append(t.batches, stored{b.BaseOffset(), b.NextOffset(), crcOf(b), t.remember(h.w, b)})
	}
}

func crcOf(b record.Batch) uint32 {
	p := b.Bytes()
	return uint32(p[17])<<24 | uint32(p[18])<<16 | uint32(p[19])<<8 | uint32(p[20])
}

func (o *oracle) appended(q *logQueue, end int64) { o.logs[q.id].written = end }

// appendFailed notes that the batches beyond end were refused. Their producer was told that nobody knows (KAFKA_STORAGE_ERROR).
func (o *oracle) appendFailed(h *host, q *logQueue, end int64) {
	t := o.logs[q.id]
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].base >= end })
	refused := t.batches[i:]
	if len(refused) == 0 {
		return
	}
	values := max(0, len(t.values)-int(refused[len(refused)-1].next-refused[0].base)) // there are none of the metadata log
	t.limbo, t.unsure = append([]stored(nil), refused...), append([]int64(nil), t.values[values:]...)
	t.cut(h, end)
}

// reappear takes back the refused batches that a recovery has found.
func (t *truth) reappear(end int64) {
	for len(t.limbo) > 0 && t.limbo[0].base == t.end() && t.limbo[0].next <= end {
		s := t.limbo[0]
		n := min(len(t.unsure), int(s.next-s.base))
		t.batches, t.values = append(t.batches, s), append(t.values, t.unsure[:n]...)
		t.limbo, t.unsure = t.limbo[1:], t.unsure[n:]
	}
}

func (o *oracle) durable(h *host, id core.Partition, end int64) {
	t := o.logs[id]
	if len(t.limbo) > 0 && end > t.limbo[0].base {
		t.limbo, t.unsure = nil, nil // something else is in their place
	}
	if end > t.end() {
		h.w.fail("log from nowhere", "%s is reported as durable up to %d, beyond its end %d", t.name(), end, t.end())
	}
	t.durable = max(t.durable, end)
}

func (o *oracle) truncated(h *host, q *logQueue, end int64) {
	t := o.logs[q.id]
	if end < t.shown && !h.harmed(t.name()) {
		h.w.fail("acked write lost", "%s is truncated to %d; up to %d was shown to clients", t.name(), end, t.shown)
	}
	t.cut(h, end)
	t.limbo, t.unsure = nil, nil
	t.durable = end // a truncation makes durable what it leaves (rule 16)
}

// startMoved is the durable end of what was deleted.
func (o *oracle) startMoved(q *logQueue, start int64) {
	t := o.logs[q.id]
	t.start = max(t.start, start)
}

// setAside notes that the host has reported a log as unreadable or unwritable.
func (o *oracle) setAside(id core.Partition) {
	if t := o.logs[id]; t != nil {
		t.aside = true
	}
}

func (o *oracle) deleted(q *logQueue) {
	if t := o.logs[q.id]; t != nil {
		t.gone = true
	}
}

func (o *oracle) processGone(h *host) {}

// powerLoss is the end of what was only in the page cache.
func (o *oracle) powerLoss(h *host) {
	o.power = true
	for _, t := range o.order {
		t.written = t.durable
		if t.weak {
			t.shown = 0
		}
	}
}

// newProducer: a producer id is given once.
func (o *oracle) newProducer(w *world, pid int64, epoch int16) {
	if was, ok := o.producers[pid]; ok && was >= epoch {
		w.fail("producer id", "producer id %d with epoch %d is given a second time", pid, epoch)
	}
	o.producers[pid] = epoch
}

// acked looks at an acknowledgement as its producer gets it (rules 1 and 10).
func (o *oracle) acked(w *world, p *producer, l *line, b *outgoing, a *kmsg.ProduceResponseTopicPartition) {
	t := o.find(w.plan.Topics[l.topic].Name, l.partition)
	if t == nil {
		w.fail("acked write lost", "%s has an acknowledgement from a log that was never opened", p.name)
		return
	}
	end := a.BaseOffset + int64(len(b.values))
	if p.plan.Acks != -1 || t.weak {
		return
	}
	if (a.BaseOffset < 0 || end > t.durable) && !w.harmed(t.name()) {
		w.fail("acked before durable", "%s: offsets %d to %d of %s are acknowledged; durable is up to %d", p.name, a.BaseOffset, end, t.name(), t.durable)
	}
}

// answering looks at an answer as it leaves the broker (rule 6).
func (o *oracle) answering(h *host, a *answer) {
	switch m := a.resp.Msg.(type) {
	case *kmsg.FetchResponse:
		for i := range m.Topics {
			id := core.TopicID(m.Topics[i].TopicID)
			if m.Version < 13 {
				id = o.ids[m.Topics[i].Topic]
			}
			for j := range m.Topics[i].Partitions {
				p := &m.Topics[i].Partitions[j]
				if p.ErrorCode == 0 {
					o.show(h, o.logs[core.Partition{Topic: id, Index: p.Partition}], p.HighWatermark)
				}
			}
		}
	}
}

// show is a high watermark that a client is told: it never falls, and it covers only what is durable.
func (o *oracle) show(h *host, t *truth, hw int64) {
	switch {
	case t == nil:
		h.w.fail("log from nowhere", "a fetch is answered from a log that was never opened")
	case hw < t.shown && !h.harmed(t.name()):
		h.w.fail("watermark fell", "%s: high watermark %d was shown, and then %d", t.name(), t.shown, hw)
	case hw > t.durable && !t.weak && hw > t.start && !h.harmed(t.name()):
		h.w.fail("uncommitted shown", "%s: high watermark %d is shown; durable is up to %d", t.name(), hw, t.durable)
	case hw > t.shown:
		t.shown = hw
		if h.w.trace != nil {
			h.w.trace.add(Entry{At: h.w.now, Lane: h.lane, Kind: "watermark", Text: fmt.Sprintf("high watermark of %s is %d", t.name(), hw), Log: t.name(), End: hw})
		}
	}
}

// somewhere draws an offset to delete records up to.
func (o *oracle) somewhere(topic string, partition int32, chance *seed.Stream) int64 {
	t := o.find(topic, partition)
	if t == nil || chance.Chance(100) {
		return -1
	}
	return chance.Between(0, t.shown+chance.Between(0, 1))
}

// harmed says that a rule has damaged what is stored of a log, or of the small files that all logs depend on.
func (h *host) harmed(log string) bool {
	for _, d := range h.disk.Damages() {
		dir, _, in := strings.Cut(d.Name, "/")
		if !in || dir == log || dir == core.MetadataTopic+"-0" {
			return true
		}
	}
	return false
}

// undamaged is the end of what must be there of a log, of which everything up to end was synced: what comes
// before the first of its segments that a rule has damaged. Damage to other files takes no record away (rule 15): it is
// reported, or they are made anew.
func (h *host) undamaged(log string, end int64) int64 {
	for _, d := range h.disk.Damages() {
		dir, file, _ := strings.Cut(d.Name, "/")
		if base, isLog := strings.CutSuffix(file, ".log"); isLog && dir == log {
			if n, err := strconv.ParseInt(base, 10, 64); err == nil {
				end = min(end, n)
			}
		}
	}
	return end
}

// errors says that syncs may have failed, so that what was written need not be there.
func (h *host) errors() bool {
	s := h.disk.Stats()
	return s.Fired[simdisk.IOError]+s.Fired[simdisk.IOErrorStale] > 0
}

// failedCalls says that disk calls have failed, so that a log may not have been readable.
func (h *host) failedCalls() bool {
	s := h.disk.Stats()
	return s.Fired[simdisk.IOError]+s.Fired[simdisk.IOErrorStale]+s.Fired[simdisk.Short]+s.Fired[simdisk.NoSpace]+s.Refused > 0
}

func (w *world) harmed(log string) bool {
	for _, h := range w.hosts {
		if h.harmed(log) {
			return true
		}
	}
	return false
}

// mayRot says that what comes from a partition's files may be damaged, at rest or on the way.
func (w *world) mayRot(topic string, partition int32) bool {
	for _, h := range w.hosts {
		if h.disk.Stats().Fired[simdisk.RotRead] > 0 {
			return true
		}
	}
	return w.harmed(fmt.Sprintf("%s-%d", topic, partition))
}

// forgiven says that a partition may have lost what was acknowledged: it is on a damaged disk, or it
// answers before it syncs and something has taken away what was not synced.
func (w *world) forgiven(topic int, partition int32) bool {
	t := &w.plan.Topics[topic]
	if t.weak() {
		for _, h := range w.hosts {
			if h.errors() || w.oracle.power {
				return true
			}
		}
	}
	return w.harmed(fmt.Sprintf("%s-%d", t.Name, partition))
}

// excused says that nothing need come out of a partition any more: it is set aside, or it is damaged.
func (w *world) excused(topic int, partition int32) bool {
	name := w.plan.Topics[topic].Name
	return w.oracle.aside(name, partition) || w.harmed(fmt.Sprintf("%s-%d", name, partition))
}

// label names a log for people.
func (o *oracle) label(id core.Partition) string {
	if t := o.logs[id]; t != nil {
		return t.name()
	}
	return id.String()
}

// remember notes the values of a batch's records, and returns which operation sent it.
func (t *truth) remember(w *world, b record.Batch) int32 {
	sender, left := int32(-1), b.NextOffset()-b.BaseOffset()
	if t.id == core.MetadataPartition {
		return sender
	}
	for r, err := range b.Records(&w.codecs, record.Limits{}) {
		if err != nil {
			break
		}
		v, ok := readValue(r.Value)
		if !ok {
			v = linearizability.NoValue
		}
		if op, n := binary.Uvarint(r.Key); n > 0 {
			sender = int32(op)
		}
		t.values = append(t.values, v)
		left--
	}
	for ; left > 0; left-- { // a batch whose records cannot be read
		t.values = append(t.values, linearizability.NoValue)
	}
	return sender
}

// records returns all records that a log ever held and did not lose, also those
// that were deleted since. It notes which operations have written them.
func (t *truth) records(w *world) []linearizability.Record {
	out := make([]linearizability.Record, 0, len(t.values))
	for _, s := range t.batches {
		for at := s.base; at < s.next; at++ {
			out = append(out, linearizability.Record{Offset: at, Value: t.values[len(out)]})
		}
		if s.op >= 0 {
			w.came[uint64(s.op)] = true
		}
	}
	return out
}

// resolve uses the world's own truth on writes of which their clients do not know what became of them: those that
// are nowhere in their logs have failed. What is left unknown took effect at some instant, and the check need not guess.
func (w *world) resolve() {
	for i := range w.history.Ops {
		op := &w.history.Ops[i]
		if op.Kind != linearizability.Produce || op.Outcome != linearizability.Unknown || w.came[uint64(i)] {
			continue
		}
		if _, known := w.history.Truth[linearizability.Key{Topic: op.Topic, Partition: op.Partition}]; known {
			op.Outcome, op.Return = linearizability.Failed, w.now
		}
	}
}
