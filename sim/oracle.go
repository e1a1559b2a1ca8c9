package sim

import (
	"fmt"
	"hash/crc32"
	"slices"
	"sort"
	"strconv"
	"strings"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/controller"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/linearizability"
	"lockstep/sim/seed"
	"lockstep/sim/simdisk"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oracle watches what must hold at every step. It sees what brokers do with
// their logs from outside, by the effects that they ask for. What is to hold of one replica's
// log is in this file, what is to hold of a partition, however many replicas it has, in committed.go.
type oracle struct {
	w          *world
	logs       map[replicaKey]*truth
	order      []*truth
	partitions map[core.Partition]*agreed
	agreements []*agreed
	ids        map[string]core.TopicID
	producers  map[int64]int16
	power      bool              // some machine has lost power
	image      *controller.Image // the newest that any broker had
	terms      map[int32]*host   // who led the metadata quorum
}

type replicaKey struct {
	host int
	id   core.Partition
}

// truth is one replica's log as it must be.
type truth struct {
	host      *host
	id        core.Partition
	of        *agreed
	batches   []stored        // what was appended, oldest first
	written   int64           // end of what is surely in the page cache
	durable   int64           // end of what was reported as durable
	start     int64           // what was deleted below
	restart   int64           // where it is to begin again, 0 if it is not
	limbo     []stored        // of refused appends: they may be in the file yet, if they could not be cut off or the cut is lost with the power
	aside     bool            // reported as damaged
	dying     bool            // it is being deleted: a crash may leave any part of it
	gone      bool            // deleted
	pass      *broker.Compact // a compaction of which nobody has looked at what it did
	unsettled bool            // one before it, or it, has changed files
}

// stored is one batch that was appended.
type stored struct {
	base, next int64
	crc        uint32
	leader     int32 // its leader epoch
	sender     sender
	kept       []bool // of a batch that was compacted: which of its records are left; nil is all
	*content
}

// sender is who an idempotent producer's batch says that it is from. Nothing else is the same.
type sender struct {
	id       int64 // -1: it is from no such producer
	epoch    int16
	sequence int32
}

// content is what a batch holds, wherever it is stored.
type content struct {
	op     int32 // the operation that sent it, -1 if it does not say
	values []int64
	keyed  []keyed // of a compacted topic
}

func storedOf(b record.Batch) stored {
	return stored{base: b.BaseOffset(), next: b.NextOffset(), crc: crcOf(b), leader: b.LeaderEpoch(),
		sender: sender{b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()}}
}

func (s stored) is(x stored) bool { return s.base == x.base && s.next == x.next && s.crc == x.crc }

// same says that two batches are one, of which compaction may have taken records.
func (s stored) same(x stored) bool {
	return s.is(x) || s.base == x.base && s.next == x.next && s.content == x.content && s.keyed != nil
}

func (o *oracle) init(w *world) {
	o.w, o.logs, o.partitions = w, map[replicaKey]*truth{}, map[core.Partition]*agreed{}
	o.ids, o.producers, o.terms = map[string]core.TopicID{}, map[int64]int16{}, map[int32]*host{}
}

func (t *truth) end() int64 {
	if n := len(t.batches); n > 0 {
		return t.batches[n-1].next
	}
	return t.start
}

func (t *truth) name() string { return t.of.label }

func (o *oracle) log(h *host, id core.Partition) *truth { return o.logs[replicaKey{h.index, id}] }

// find returns what is known of a partition by its topic's name; nil if nothing is.
func (o *oracle) find(topic string, partition int32) *agreed {
	return o.partitions[core.Partition{Topic: o.ids[topic], Index: partition}]
}

// opened looks at what recovery found (rules 13 to 15).
func (o *oracle) opened(h *host, q *logQueue, topic string, s *log.State, err error) {
	t := o.log(h, q.id)
	if t == nil {
		t = &truth{host: h, id: q.id, of: o.agreement(q.id, topic)}
		o.logs[replicaKey{h.index, q.id}] = t
		o.order = append(o.order, t)
		o.ids[topic] = q.id.Topic
	}
	if t.dying {
		t.dying, t.written, t.durable = false, 0, 0
	}
	harmed, must := h.harmed(t.name()), h.undamaged(t.name(), t.durable)
	if err != nil {
		t.aside = true
		h.w.stats.SetAside++
		if !harmed && !h.failedCalls() {
			h.w.fail(h.whatBroke(), "%s: a log that no fault of the disk has damaged cannot be opened: %v", t.name(), err)
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
	if s.Start == s.End && s.End > 0 && s.End == t.restart {
		t.batches = nil
		t.start = s.End
	}
	t.restart = 0
	if s.End > t.end() && h.misdirected(t.name()) {
		h.w.fail(undecidable, "%s ends at %d after recovery; appended was up to %d", t.name(), s.End, t.end())
		return
	}
	if s.End > t.end() {
		h.w.fail("log from nowhere", "%s ends at %d after recovery; appended was up to %d", t.name(), s.End, t.end())
		return
	}
	if s.Start < t.start && !harmed {
		h.w.fail("deleted records back", "%s begins at %d after recovery; everything below %d was deleted", t.name(), s.Start, t.start)
		return
	}
	t.cut(s.End)
	t.limbo = nil
	t.start = max(t.start, s.Start)
	t.written, t.durable = s.End, s.End // all that recovery finds it has made durable
	if len(h.w.hosts) == 1 && (t.of.weak || harmed) {
		t.of.cut(s.End)
	}
	o.settlePass(h, t)
	o.lost(t)
}

// whatBroke names a log that was found damaged though its disk has kept all its promises.
func (h *host) whatBroke() string {
	switch {
	case h.blackedOut:
		return "broken by power loss"
	case h.lives > 1:
		return "broken by restart"
	}
	return "false alarm"
}

// cut forgets batches that are not in the log any more.
func (t *truth) cut(end int64) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].next > end })
	if i < len(t.batches) && t.batches[i].base < end && !t.host.harmed(t.name()) {
		t.host.w.fail("torn", "%s ends at %d, inside the batch at %d", t.name(), end, t.batches[i].base)
	}
	t.batches = t.batches[:i]
	t.written = min(t.written, end)
}

// copies names what it is that a replica copies what it should not. Base offsets and epochs are not covered by a batch's CRC: where
// bits have changed in what it was copied from, nothing more can be said.
func (w *world) copies(kind, log string) string {
	for _, h := range w.hosts {
		for _, d := range h.disk.Damages() {
			if dir, _, _ := strings.Cut(d.Name, "/"); dir == log {
				return undecidable
			}
		}
	}
	return kind
}

func (o *oracle) appending(h *host, q *logQueue, batches []record.Batch) {
	t := o.log(h, q.id)
	for _, b := range batches {
		if b.BaseOffset() != t.end() && len(t.batches) > 0 && !t.of.passesOver(h.w, t.end(), b.BaseOffset()) {
			h.w.fail(h.w.copies("gap", t.name()), "%s: a batch at offset %d is appended to a log that ends at %d", t.name(), b.BaseOffset(), t.end())
			return
		}
		s := storedOf(b)
		if o.w.rots && crc32.Checksum(b.Bytes()[21:], castagnoli) != s.crc {
			h.w.fail("damage spreads", "%s: %s appends a batch at offset %d whose CRC is wrong", t.name(), h.name(), s.base)
			return
		}
		if !t.of.copied(h.w, &s, b) {
			s.content = t.of.content(h.w, s, b)
		}
		o.learnsDeletions(t, t.end(), &s)
		t.batches = append(t.batches, s)
	}
}

func crcOf(b record.Batch) uint32 {
	p := b.Bytes()
	return uint32(p[17])<<24 | uint32(p[18])<<16 | uint32(p[19])<<8 | uint32(p[20])
}

func (o *oracle) appended(h *host, q *logQueue, end int64) { o.log(h, q.id).written = end }

// appendFailed notes that the batches beyond end were refused. Their producer was told that nobody knows (KAFKA_STORAGE_ERROR).
func (o *oracle) appendFailed(h *host, q *logQueue, end int64) {
	t := o.log(h, q.id)
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].base >= end })
	t.limbo = append([]stored(nil), t.batches[i:]...)
	t.cut(end)
}

// reappear takes back the refused batches that a recovery has found.
func (t *truth) reappear(end int64) {
	for len(t.limbo) > 0 && t.limbo[0].base == t.end() && t.limbo[0].next <= end {
		t.batches, t.limbo = append(t.batches, t.limbo[0]), t.limbo[1:]
	}
}

func (o *oracle) durable(h *host, id core.Partition, end int64) {
	t := o.log(h, id)
	if len(t.limbo) > 0 && end > t.limbo[0].base {
		t.limbo = nil // something else is in their place
	}
	if end > t.end() {
		h.w.fail("log from nowhere", "%s is reported as durable up to %d, beyond its end %d", t.name(), end, t.end())
	}
	t.durable = max(t.durable, end)
}

// truncating notes that a log is about to be cut: whoever dies in it may find either end.
func (o *oracle) truncating(h *host, q *logQueue, to int64) {
	t := o.log(h, q.id)
	t.durable, t.written = min(t.durable, to), min(t.written, to)
}

// movingStart notes that a log is about to lose its start, and if all of it lies below, everything.
func (o *oracle) movingStart(h *host, q *logQueue, start int64) {
	if start > o.log(h, q.id).end() {
		o.restarting(h, q, start)
	}
}

// restarting notes that a log is about to be emptied, to begin again at start.
func (o *oracle) restarting(h *host, q *logQueue, start int64) {
	o.truncating(h, q, 0)
	o.log(h, q.id).restart = start
}

func (o *oracle) truncated(h *host, q *logQueue, end int64) {
	t := o.log(h, q.id)
	t.cut(end)
	t.limbo = nil
	t.durable = end // a truncation makes durable what it leaves (rule 16)
	o.lost(t)
}

// startMoved is the durable end of what was deleted.
func (o *oracle) startMoved(h *host, q *logQueue, start int64) {
	t := o.log(h, q.id)
	end := t.end()
	if t.start = max(t.start, start); start > end { // a follower begins anew where its leader's log begins
		t.batches, t.limbo, t.written, t.durable = nil, nil, start, start
	}
	t.of.start = max(t.of.start, start)
}

// reset notes that a log is empty now and begins at start, wherever it was before.
func (o *oracle) reset(h *host, q *logQueue, start int64) {
	t := o.log(h, q.id)
	t.batches, t.limbo = nil, nil
	t.start, t.written, t.durable = start, start, start
	o.lost(t)
}

// setAside notes that the host has reported a log as unreadable or unwritable.
func (o *oracle) setAside(h *host, id core.Partition) {
	if t := o.log(h, id); t != nil {
		t.aside = true
	}
}

// deleting notes that a log is about to go.
func (o *oracle) deleting(h *host, q *logQueue) {
	if t := o.log(h, q.id); t != nil {
		t.dying = true
	}
}

// deleted notes that a log is gone: its topic is, or it was damaged and is fetched again.
func (o *oracle) deleted(h *host, q *logQueue) {
	if t := o.log(h, q.id); t != nil {
		t.dying, t.gone, t.pass = false, true, nil
		t.batches, t.limbo, t.start, t.written, t.durable = nil, nil, 0, 0, 0
	}
}

// powerLoss is the end of what was only in the page cache.
func (o *oracle) powerLoss(h *host) {
	o.power = true
	for _, t := range o.order {
		if t.host == h {
			t.written = t.durable
			if t.of.weak {
				t.of.shown = 0
			}
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
func (o *oracle) acked(p *producer, l *line, b *outgoing, a *kmsg.ProduceResponseTopicPartition) {
	of := o.find(o.w.plan.Topics[l.topic].Name, l.partition)
	if of == nil {
		o.w.fail("acked write lost", "%s has an acknowledgement from a log that was never opened", p.name)
		return
	}
	if p.plan.Acks != -1 {
		return
	}
	o.w.atMoment(AfterAck, of)
	if of.lenient(o.w) {
		return
	}
	end := a.BaseOffset + int64(len(b.values))
	if a.BaseOffset < 0 || end > of.hw {
		o.w.fail("acked before committed", "%s: offsets %d to %d of %s are acknowledged; committed is up to %d", p.name, a.BaseOffset, end, of.label, of.hw)
		return
	}
	if at := of.find(a.BaseOffset); at == nil || at.base != a.BaseOffset || !slices.Equal(at.values, b.values) {
		o.w.fail("acked write lost", "%s: offset %d of %s is acknowledged, and something else is committed there", p.name, a.BaseOffset, of.label)
	}
}

// answering looks at an answer as the broker gives it (rule 6).
func (o *oracle) answering(h *host, msg kmsg.Response) {
	m, ok := msg.(*kmsg.FetchResponse)
	if !ok {
		return
	}
	for i := range m.Topics {
		id := core.TopicID(m.Topics[i].TopicID)
		if m.Version < 13 {
			id = o.ids[m.Topics[i].Topic]
		}
		for j := range m.Topics[i].Partitions {
			p := &m.Topics[i].Partitions[j]
			if p.ErrorCode == 0 && p.HighWatermark >= 0 {
				o.show(h, o.partitions[core.Partition{Topic: id, Index: p.Partition}], p.HighWatermark)
			}
		}
	}
}

// show is a high watermark that a client is told: it never falls, and it covers only what is committed.
func (o *oracle) show(h *host, of *agreed, hw int64) {
	switch {
	case of == nil:
		h.w.fail("log from nowhere", "a fetch is answered from a log that was never opened")
	case hw < of.shown && !of.lenient(o.w) && !o.w.drifts:
		h.w.fail("watermark fell", "%s: high watermark %d was shown, and then, by %s, %d", of.label, of.shown, h.name(), hw)
	case hw > of.hw && hw > of.start && !of.lenient(o.w):
		h.w.fail("uncommitted shown", "%s: high watermark %d is shown; committed is up to %d", of.label, hw, of.hw)
	case hw > of.shown:
		of.shown = hw
	}
}

// somewhere draws an offset to delete records up to.
func (o *oracle) somewhere(topic string, partition int32, chance *seed.Stream) int64 {
	of := o.find(topic, partition)
	if of == nil || chance.Chance(100) {
		return -1
	}
	return chance.Between(0, of.shown+chance.Between(0, 1))
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

// misdirected says that a write which belonged elsewhere has landed among a log's files.
func (h *host) misdirected(log string) bool {
	for _, d := range h.disk.Damages() {
		if dir, _, _ := strings.Cut(d.Name, "/"); dir == log && d.Effect == simdisk.Misdirect {
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
	if len(w.hosts) > 1 {
		return w.unavailable(topic, partition) || w.harmed(fmt.Sprintf("%s-%d", name, partition))
	}
	return w.oracle.aside(name, partition) || w.harmed(fmt.Sprintf("%s-%d", name, partition))
}

// label names a log for people.
func (o *oracle) label(id core.Partition) string {
	if of := o.partitions[id]; of != nil {
		return of.label
	}
	return id.String()
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
