package sim

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"lockstep/core"
	"lockstep/core/record"
	"lockstep/core/replica"
	"lockstep/linearizability"
)

// agreed is what a partition has committed, and who says so. It is built from what leaders claim by their high
// watermarks: at the instant of a claim everything that it covers must be durable and the same on every replica in sync
// (rule 6), and from then on no replica in sync may be without it.
type agreed struct {
	id       core.Partition
	topic    string
	label    string // topic-partition
	weak     bool   // may lose what is not synced though it was acknowledged
	batches  []stored
	hw       int64                 // the true high watermark: end of what is committed
	shown    int64                 // the highest high watermark that a client was told
	start    int64                 // records below it were deleted, by some replica
	deleted  int64                 // records below it are acknowledged as deleted
	leaders  map[int32]*host       // by leader epoch
	pending  map[batchKey]*content // of batches that are not committed yet
	epoch    int32                 // partition epoch of what follows
	replicas []int32
	isr      []int32
	sent     map[sender]int64 // where the batch of each sequence of an idempotent producer is
	compacted
}

type batchKey struct {
	base int64
	crc  uint32
}

func (o *oracle) agreement(id core.Partition, topic string) *agreed {
	of := o.partitions[id]
	if of == nil {
		of = &agreed{id: id, topic: topic, label: topic + "-" + itoa(int(id.Index)), weak: o.w.weak(topic), epoch: -1,
			leaders: map[int32]*host{}, pending: map[batchKey]*content{}, sent: map[sender]int64{}}
		of.compacted.init(o.w, topic)
		o.partitions[id] = of
		o.agreements = append(o.agreements, of)
	}
	return of
}

// lenient says that a partition may have lost what was committed: its files are damaged, or it answers before it syncs,
// in a world that takes away what is not synced.
func (of *agreed) lenient(w *world) bool {
	return of.weak && w.losesUnsynced || w.harmed(of.label)
}

// find returns the committed batch that holds an offset.
func (of *agreed) find(offset int64) *stored {
	i := sort.Search(len(of.batches), func(i int) bool { return of.batches[i].next > offset })
	if i == len(of.batches) || of.batches[i].base > offset {
		return nil
	}
	return &of.batches[i]
}

// cut forgets what was committed beyond end: nobody may demand it any more.
func (of *agreed) cut(end int64) {
	i := sort.Search(len(of.batches), func(i int) bool { return of.batches[i].next > end })
	for _, b := range of.batches[i:] {
		delete(of.sent, b.sender)
	}
	if gone := of.batches[i:]; len(gone) > 0 {
		of.batches = of.batches[:i]
		of.recount()
	}
	of.hw, of.shown = min(of.hw, end), min(of.shown, end)
}

// content returns what a batch holds that some replica appends.
func (of *agreed) content(w *world, s stored, b record.Batch) *content {
	if c := of.find(s.base); c != nil && c.is(s) {
		return c.content
	}
	k := batchKey{s.base, s.crc}
	c := of.pending[k]
	if c == nil {
		c = readContent(w, of, b)
		of.pending[k] = c
	}
	return c
}

// readContent reads the values of a batch's records, and which operation sent it.
func readContent(w *world, of *agreed, b record.Batch) *content {
	c := &content{op: -1}
	if of.id == core.MetadataPartition {
		return c
	}
	left := b.NextOffset() - b.BaseOffset()
	if of.may {
		c.keyed = make([]keyed, 0, left)
	}
	for r, err := range b.Records(&w.codecs, record.Limits{}) {
		if err != nil {
			break
		}
		v, ok := valueOf(&r)
		if !ok {
			v = linearizability.NoValue
		}
		if op, ok := operationOf(&r, of.may); ok {
			c.op = op
		}
		c.values = append(c.values, v)
		if of.may {
			c.keyed = append(c.keyed, keyedOf(&r))
		}
		left--
	}
	for ; left > 0; left-- { // a batch whose records cannot be read
		c.values = append(c.values, linearizability.NoValue)
		if of.may {
			c.keyed = append(c.keyed, keyed{})
		}
	}
	return c
}

// observe looks at a broker between two steps.
func (o *oracle) observe(h *host) {
	if im := h.core.Image(); o.image == nil || im.Next() > o.image.Next() {
		o.image = im.Clone()
		o.changed()
	}
	for _, id := range h.core.Touched() {
		if r := h.core.Replica(id); r != nil && r.Role() == replica.Leader {
			o.leads(h, id, r)
		}
	}
	if q, ok := h.core.Quorum(); ok && q.Leads {
		o.leadsQuorum(h, q.Term, q.HighWatermark)
	}
}

// changed looks at partitions whose state a committed record has changed: whoever is in sync holds all that is committed (rule 7).
func (o *oracle) changed() {
	for _, s := range o.w.sways {
		s.changed(o.image)
	}
	for p := range o.image.AllPartitions() {
		of := o.partitions[p.Partition]
		if of == nil || of.epoch == p.Epoch {
			continue
		}
		of.epoch, of.replicas, of.isr = p.Epoch, p.Replicas, slices.Clone(p.ISR)
		o.w.atMoment(AfterChange, of)
		if o.w.trace != nil {
			o.w.event(-1, "epoch", fmt.Sprintf("%s: leader %d in epoch %d, in sync %v, eligible %v (partition epoch %d)", of.label, p.Leader, p.LeaderEpoch, p.ISR, p.ELR, p.Epoch))
		}
		for _, id := range of.isr {
			if !slices.Contains(p.Replicas, id) {
				o.w.fail("stranger in sync", "%s: %d is in sync and no replica of %v", of.label, id, p.Replicas)
			}
			if b := o.image.Broker(id); b == nil || b.Fenced {
				o.w.fail("fenced in sync", "%s: broker-%d is in the in-sync set, and fenced", of.label, id)
			}
			o.holds(of, id, "is in the in-sync set")
			if h := o.w.hosts[id-1]; h.core != nil && h.core.Replica(of.id) != nil {
				o.knowsProducers(h, of, h.core.Replica(of.id), "is in the in-sync set")
			}
		}
	}
}

// holds demands that a replica in sync has all that is committed, durably.
func (o *oracle) holds(of *agreed, id int32, why string) {
	t := o.logs[replicaKey{int(id) - 1, of.id}]
	switch {
	case of.hw == 0 || of.lenient(o.w):
	case t == nil:
		o.w.fail("committed missing", "%s: broker-%d %s, has no log, and up to %d is committed", of.label, id, why, of.hw)
	case t.aside || o.covered(of, t) >= of.hw:
	case t.durable < of.hw && !of.weak || t.end() < of.hw:
		o.w.fail("committed missing", "%s: broker-%d %s, holds up to %d (durable %d), and up to %d is committed", of.label, id, why, t.end(), t.durable, of.hw)
	default:
		o.w.fail("logs differ", "%s: broker-%d %s, and its log differs from what is committed from offset %d on", of.label, id, why, o.covered(of, t))
	}
}

// covered is the offset up to which a replica durably holds what is committed. It looks at the latest batch first: logs
// that agree there agree below, where the same question was asked before.
func (o *oracle) covered(of *agreed, t *truth) int64 {
	end := t.durable
	if of.weak {
		end = t.end()
	}
	if end >= of.hw && (len(of.batches) == 0 || t.holdsBatch(&of.batches[len(of.batches)-1])) {
		return of.hw
	}
	for i := range of.batches {
		b := &of.batches[i]
		if b.next > end || b.base >= t.start && !t.holdsBatch(b) {
			return b.base
		}
	}
	return of.hw
}

// holdsBatch says that a log has a committed batch, but for what it may have lost by compaction.
func (t *truth) holdsBatch(b *stored) bool {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].next > b.base })
	switch {
	case b.next <= t.start || i < len(t.batches) && t.batches[i].is(*b):
		return true
	case !t.of.may:
		return false
	case i < len(t.batches) && t.batches[i].same(*b):
		return t.of.mayLack(b, t.batches[i].kept)
	}
	return t.of.mayLack(b, make([]bool, b.next-b.base)) && (i == len(t.batches) || t.batches[i].base >= b.next)
}

// newestEpoch is the newest leader epoch in which somebody has led.
func (a *agreed) newestEpoch() int32 {
	newest := int32(-1)
	for epoch := range a.leaders {
		newest = max(newest, epoch)
	}
	return newest
}

// leads looks at a leader: the only one of its epoch (rule 8), with a high watermark that is a claim.
func (o *oracle) leads(h *host, id core.Partition, r *replica.Replica) {
	of, epoch := o.partitions[id], r.LeaderEpoch()
	if of == nil {
		return
	}
	if was := of.leaders[epoch]; was == nil {
		of.leaders[epoch] = h
		o.knowsProducers(h, of, r, "leads")
		o.w.atMoment(AfterElection, of)
		o.w.event(h.lane, "leader", fmt.Sprintf("leads %s in epoch %d from offset %d", of.label, epoch, r.LogEnd()))
	} else if was != h {
		o.w.fail("two leaders", "%s: %s and %s lead in epoch %d", of.label, was.name(), h.name(), epoch)
		return
	}
	if r.LogStart() < of.deleted && epoch == of.newestEpoch() && !of.lenient(o.w) { // a deposed one, which may not know it, answers nobody
		o.w.fail("deleted records back", "%s: %s leads with records from %d on; everything below %d was acknowledged as deleted", of.label, h.name(), r.LogStart(), of.deleted)
		return
	}
	if r.LogEnd() > r.HighWatermark() {
		o.w.atMoment(AfterAppend, of)
	}
	if hw := r.HighWatermark(); hw > of.hw || of.lenient(o.w) && hw != of.hw {
		o.claim(h, of, hw)
	}
}

// knowsProducers demands that who leads, or may lead next, can tell the last committed batch of each idempotent producer, though it
// may be deleted, from one that was never sent (rule 18).
func (o *oracle) knowsProducers(h *host, of *agreed, r *replica.Replica, why string) {
	p := o.image.Partition(of.id)
	switch {
	case len(of.sent) == 0 || of.lenient(o.w) || p == nil:
		return
	case r.Role() == replica.Failed || r.Rebuilding(): // it takes no batches
		return
	case r.LeaderEpoch() < max(p.LeaderEpoch, of.newestEpoch()): // it has yet to hear of the newest
		return
	}
	last := map[int64]sender{}
	for s, base := range of.sent {
		if was, ok := last[s.id]; !ok || base > of.sent[was] {
			last[s.id] = s
		}
	}
	for p := range r.Log().Producers().Active() {
		if s, ok := last[p.ID]; ok && (p.Epoch > s.epoch || p.Epoch == s.epoch && p.LastSequence >= s.sequence) {
			delete(last, p.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(last)) {
		o.w.fail("producer forgotten", "%s: %s %s and does not know the batch of producer %d with sequence %d in epoch %d, which is committed at offset %d",
			of.label, h.name(), why, id, last[id].sequence, last[id].epoch, of.sent[last[id]])
	}
}

// claim is a leader's statement that everything below hw is committed.
func (o *oracle) claim(h *host, of *agreed, hw int64) {
	t := o.log(h, of.id)
	if of.lenient(o.w) {
		of.cut(min(hw, t.end()))
		o.take(of, t, hw)
		return
	}
	if t.end() < hw {
		o.w.fail("watermark beyond log", "%s: %s has the high watermark %d and a log that ends at %d", of.label, h.name(), hw, t.end())
		return
	}
	o.take(of, t, hw)
	if o.w.trace != nil {
		o.w.trace.add(Entry{At: o.w.now, Lane: h.lane, Kind: "watermark", Text: fmt.Sprintf("high watermark of %s is %d", of.label, hw), Log: of.label, End: hw})
	}
	if len(of.isr) == 0 { // a leader knows of its partition's birth before anybody has applied more
		o.holds(of, h.nodeID(), "leads")
	}
	for _, id := range of.isr {
		o.holds(of, id, "is in sync when "+h.name()+" commits")
	}
}

// take adds to what is committed what a log holds of it.
func (o *oracle) take(of *agreed, t *truth, hw int64) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].base >= of.hw })
	for ; i < len(t.batches) && t.batches[i].next <= hw; i++ {
		b := &t.batches[i]
		of.batches = append(of.batches, *b)
		delete(of.pending, batchKey{b.base, b.crc})
		o.once(of, b)
		of.committed(o.w, b)
	}
	of.hw = max(of.hw, hw)
}

// once demands that a batch of an idempotent producer is committed once (rule 18): each of its sequences has one place.
func (o *oracle) once(of *agreed, b *stored) {
	if b.sender.id < 0 || of.lenient(o.w) {
		return
	}
	if was, twice := of.sent[b.sender]; twice {
		o.w.fail("duplicate", "%s: sequence %d of producer %d in epoch %d is committed at offset %d, and at %d before", of.label, b.sender.sequence,
			b.sender.id, b.sender.epoch, b.base, was)
	}
	of.sent[b.sender] = b.base
}

// lost looks at a log that has lost its end, rightly or not: no replica in sync may lose what is committed.
func (o *oracle) lost(t *truth) {
	if t.id == core.MetadataPartition {
		o.majority(t.of, "after "+t.host.name()+" lost its end")
		return
	}
	if slices.Contains(t.of.isr, t.host.nodeID()) {
		o.holds(t.of, t.host.nodeID(), "is in the in-sync set")
	}
}

// leadsQuorum looks at the leader of the metadata quorum: the only one of its term, and what it takes for committed is
// durable on a majority (rule 11).
func (o *oracle) leadsQuorum(h *host, term int32, hw int64) {
	if was := o.terms[term]; was == nil {
		o.terms[term] = h
		o.w.event(h.lane, "leader", fmt.Sprintf("leads the metadata quorum in term %d", term))
	} else if was != h {
		o.w.fail("two leaders", "%s and %s lead the metadata quorum in term %d", was.name(), h.name(), term)
		return
	}
	o.hearsMajority(h, term)
	of, t := o.partitions[core.MetadataPartition], o.log(h, core.MetadataPartition)
	if of == nil || t == nil || hw <= of.hw {
		return
	}
	o.take(of, t, hw)
	o.majority(of, "when "+h.name()+" commits")
}

// majority demands that more than half of the voters hold all that the metadata log has committed.
func (o *oracle) majority(of *agreed, when string) {
	if of.hw == 0 {
		return
	}
	n := 0
	voters := o.w.hosts[:o.w.numVoters()]
	for _, h := range voters {
		if t := o.log(h, of.id); t != nil && o.covered(of, t) >= of.hw || h.harmed(of.label) {
			n++
		}
	}
	if 2*n <= len(voters) {
		o.w.fail("committed missing", "%s: up to %d is committed and only %d of %d voters hold it, %s", of.label, of.hw, n, len(voters), when)
	}
}

// deletedRecords notes that a DeleteRecords was acknowledged: no leader shows anything below it again.
func (o *oracle) deletedRecords(topic string, partition int32, to int64) {
	if of := o.find(topic, partition); of != nil {
		of.deleted = max(of.deleted, to)
	}
}

// records returns all records that a partition ever committed and did not lose, also those
// that were deleted since. It notes which operations have written them.
func (of *agreed) records(w *world) []linearizability.Record {
	var out []linearizability.Record
	for i := range of.batches {
		s := &of.batches[i]
		for j, v := range s.values {
			out = append(out, linearizability.Record{Offset: s.base + int64(j), Value: v})
		}
		if s.op >= 0 {
			w.came[uint64(s.op)] = true
		}
	}
	return out
}
