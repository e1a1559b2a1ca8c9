package sim

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"lockstep/core/broker"
	"lockstep/core/group"
	"lockstep/core/record"
	"lockstep/linearizability"
)

// What compaction may do to a log, and nothing else (rule 19). What a partition has committed stays in agreed.batches as it was
// appended; a replica's log is what it was, without records that may be missing: those that a later committed record of the same
// key replaces, and tombstones that are past their delete horizon. Offsets never change, so that everything that is there must be
// what was committed there.

// compacted is what is known of a partition whose topic is compacted.
type compacted struct {
	may       bool             // its topic is compacted; nothing else is set if not
	latest    map[uint64]int64 // offset of the last committed record, by key
	retention int64            // delete.retention.ms
	lag       int64            // min.compaction.lag.ms
	begun     []passAt         // by ascending limit and time: see outlived
	wall      int64            // the latest of any run
}

// passAt is a run of compaction of some replica: what it may reach, and by its broker's wall clock when it was asked for.
type passAt struct{ limit, wall int64 }

// keyed is what compaction looks at of a record.
type keyed struct {
	key       uint64 // a hash; 0 if it has none
	sum       uint64 // of all that it holds
	at        int64  // its timestamp
	tombstone bool
}

func (c *compacted) init(w *world, topic string) {
	retention, lag := "", ""
	for i := range w.plan.Topics {
		if t := &w.plan.Topics[i]; t.Name == topic && t.Keys > 0 {
			c.may, retention, lag = true, t.setting("delete.retention.ms"), t.setting("min.compaction.lag.ms")
		}
	}
	if topic == group.OffsetsTopic && w.plan.Cleaner.Offsets {
		c.may, retention = true, w.plan.Brokers[0].setting("log.cleaner.delete.retention.ms")
	}
	if c.may {
		c.latest = map[uint64]int64{}
		c.retention, _ = strconv.ParseInt(retention, 10, 64)
		c.lag, _ = strconv.ParseInt(lag, 10, 64)
	}
}

// hashOf is FNV-1a.
func hashOf(h uint64, p []byte) uint64 {
	for _, b := range p {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

const hashBasis = 14695981039346656037

func keyedOf(r *record.Record) keyed {
	k := keyed{at: r.Timestamp, tombstone: r.Value == nil}
	if r.Key != nil {
		k.key = max(1, hashOf(hashBasis, r.Key))
	}
	h := hashOf((hashBasis^uint64(r.Timestamp))*1099511628211, r.Key)
	h = hashOf(h^uint64(len(r.Key)), r.Value)
	for _, x := range r.Headers {
		h = hashOf(hashOf(h^uint64(len(x.Key)), x.Key), x.Value)
	}
	k.sum = h
	return k
}

// committed takes a batch that is committed now. Nothing of it can have been compacted yet.
func (of *agreed) committed(w *world, b *stored) {
	if !of.may {
		return
	}
	if b.kept != nil && !of.lenient(w) {
		w.fail("compacted too early", "%s: the batch at %d was compacted before it was committed", of.label, b.base)
	}
	for i := range b.keyed {
		of.latest[b.keyed[i].key] = b.base + int64(i)
	}
}

// recount looks again at all that is committed, some of which was forgotten.
func (of *agreed) recount() {
	if !of.may {
		return
	}
	clear(of.latest)
	for i := range of.batches {
		for j := range of.batches[i].keyed {
			of.latest[of.batches[i].keyed[j].key] = of.batches[i].base + int64(j)
		}
	}
}

// compacting notes that a replica is asked to compact its log.
func (o *oracle) compacting(h *host, q *logQueue, e *broker.Compact) {
	t := o.log(h, q.id)
	t.pass = e
	of := t.of
	of.wall = max(of.wall, int64(e.Wall))
	if e.Limit > of.hw && !of.lenient(o.w) {
		o.w.fail("compacted too early", "%s: %s compacts up to %d; committed is up to %d", of.label, h.name(), e.Limit, of.hw)
	}
	of.note(passAt{e.Limit, int64(e.Wall)})
}

// note keeps of all runs those that no other was before in time and reached as far as.
func (c *compacted) note(at passAt) {
	i := sort.Search(len(c.begun), func(i int) bool { return c.begun[i].limit >= at.limit })
	if i < len(c.begun) && c.begun[i].wall <= at.wall {
		return
	}
	from := i
	for from > 0 && c.begun[from-1].wall >= at.wall {
		from--
	}
	if i < len(c.begun) && c.begun[i].limit == at.limit {
		i++
	}
	c.begun = slices.Replace(c.begun, from, i, at)
}

// outlived says that by a wall clock a tombstone is past its delete horizon: that is set by the first run that reaches it, of any
// replica. So no run before says less than that.
func (c *compacted) outlived(offset, wall int64) bool {
	i := sort.Search(len(c.begun), func(i int) bool { return c.begun[i].limit > offset })
	return i < len(c.begun) && wall > c.begun[i].wall+c.retention
}

// young says that a record is younger than min.compaction.lag.ms by every clock.
func (of *agreed) young(k *keyed) bool { return of.lag > 0 && k.at >= 0 && of.wall-k.at < of.lag }

// mayMiss says that a committed record may be missing.
func (of *agreed) mayMiss(b *stored, offset, wall int64) bool {
	k := &b.keyed[offset-b.base]
	return !of.young(k) && k.key != 0 && (of.latest[k.key] > offset || k.tombstone && of.outlived(offset, wall))
}

// whyKept says why a committed record may not be missing.
func (of *agreed) whyKept(b *stored, offset int64) string {
	k := &b.keyed[offset-b.base]
	switch {
	case of.young(k):
		return "is younger than min.compaction.lag.ms"
	case k.tombstone:
		return "is a tombstone before its horizon"
	}
	return "is the last of its key"
}

// mayLack says that all records of a committed batch that are not kept may be missing.
func (of *agreed) mayLack(b *stored, kept []bool) bool {
	for i, there := range kept {
		if offset := b.base + int64(i); !there && !of.mayMiss(b, offset, of.wall) {
			return false
		}
	}
	return true
}

// passesOver says that a log without the offsets [from, to) may be a copy of one that was compacted.
func (of *agreed) passesOver(w *world, from, to int64) bool {
	switch {
	case !of.may || to < from:
		return false
	case of.lenient(w):
		return true
	case to > of.hw:
		return false
	}
	i := sort.Search(len(of.batches), func(i int) bool { return of.batches[i].next > from })
	for ; i < len(of.batches) && of.batches[i].base < to; i++ {
		b := &of.batches[i]
		if b.base < from || b.next > to || !of.mayLack(b, make([]bool, b.next-b.base)) {
			return false
		}
	}
	return true
}

// copied says that a batch is a committed one, as it was appended first or compacted, and notes what is left of it.
func (of *agreed) copied(w *world, s *stored, b record.Batch) bool {
	if !of.may {
		return false
	}
	full := of.find(s.base)
	if full == nil || full.is(*s) || full.leader != s.leader { // of another epoch: the replica departs here, and will be told so
		return false
	}
	why := of.thinned(w, full, s, b)
	if why != "" && !of.lenient(w) {
		w.fail("compacted wrongly", "%s: the batch at %d: %s", of.label, s.base, why)
	}
	return why == ""
}

// thinned notes what is left of a batch in another one, which takes its place; or it says why that must not be so.
func (of *agreed) thinned(w *world, full, s *stored, b record.Batch) (why string) {
	hollow := b.Count() == 0 && s.sender.id < 0 // that of a producer who is not known any more
	switch {
	case s.base != full.base || s.next != full.next:
		return "it has other offsets than were appended"
	case s.leader != full.leader:
		return "it is of another leader epoch"
	case s.sender != full.sender && !hollow:
		return "it is from another producer, or has another sequence"
	}
	kept := make([]bool, s.next-s.base)
	for r, err := range b.Records(&w.codecs, record.Limits{}) {
		if err != nil {
			return "its records cannot be read: " + err.Error()
		}
		i := r.Offset - s.base
		if i < 0 || i >= int64(len(kept)) || keyedOf(&r) != full.keyed[i] {
			return "a record differs from what was appended"
		}
		kept[i] = true
	}
	s.content, s.kept = full.content, kept
	return ""
}

// compacted looks at what a run has done.
func (o *oracle) compacted(h *host, p *compaction) {
	t := o.log(h, p.q.id)
	if t == nil || t.pass == nil {
		return
	}
	if t.unsettled = t.unsettled || p.stats.BytesBefore > 0; p.err == nil && t.unsettled { // else the next one looks, or the next start
		o.settlePass(h, t)
	}
}

// settlePass reads a log's files, by itself, and demands of them what compaction must leave. Without a run nothing may be missing.
func (o *oracle) settlePass(h *host, t *truth) {
	if !t.of.may || t.aside || t.gone || t.of.lenient(o.w) {
		return
	}
	found, ok := o.readLog(h, t)
	if !ok {
		return
	}
	defer func() { t.pass, t.unsettled = nil, false }()
	was := t.batches
	left := o.compare(t, found)
	if o.w.failure != nil {
		return
	}
	if n := len(was); n > 0 && was[n-1].next > t.start && (len(left) == 0 || left[len(left)-1].next != was[len(was)-1].next) {
		o.w.fail("compacted wrongly", "%s: %s has lost the last offset of its log, %d", t.name(), h.name(), t.end()-1)
		return
	}
	o.keepsProducers(h, t, was, left)
	t.batches = left
}

// compare goes through what a log had and what it has, and returns the latter.
func (o *oracle) compare(t *truth, found []stored) []stored {
	left := make([]stored, 0, len(t.batches))
	buried := map[uint64]int64{} // keys whose tombstone is gone
	n := 0
	for i := range t.batches {
		was := &t.batches[i]
		var kept []bool
		switch {
		case n < len(found) && found[n].base == was.base:
			if kept = found[n].kept; kept == nil {
				kept = was.kept
			}
			left = append(left, found[n])
			if n++; slices.Equal(kept, was.kept) {
				continue
			}
		case was.next <= t.start:
			continue
		default:
			kept = make([]bool, was.next-was.base)
		}
		if o.gone(t, was, kept, buried); o.w.failure != nil {
			return left
		}
	}
	if n < len(found) && found[n].base < t.end() {
		o.w.fail("compacted wrongly", "%s: %s has a batch at offset %d that was compacted away", t.name(), t.host.name(), found[n].base)
	}
	o.staysDeleted(t, left, buried)
	return left
}

// gone looks at the records that a batch has lost.
func (o *oracle) gone(t *truth, was *stored, kept []bool, buried map[uint64]int64) {
	for i := range kept {
		offset := was.base + int64(i)
		had := was.kept == nil || was.kept[i]
		switch {
		case had == kept[i]:
			continue
		case !had:
			o.w.fail("compacted wrongly", "%s: %s has a record at offset %d again that was compacted away", t.name(), t.host.name(), offset)
			return
		case t.pass == nil:
			o.w.fail("compacted wrongly", "%s: %s lacks the record at offset %d, and nothing was compacted", t.name(), t.host.name(), offset)
			return
		case was.next > t.pass.Limit || offset >= t.of.hw:
			o.w.fail("compacted too early", "%s: %s has taken away the record at offset %d; the run may not reach %d", t.name(), t.host.name(), offset, t.pass.Limit)
			return
		case !t.of.mayMiss(was, offset, int64(t.pass.Wall)):
			o.w.fail("compacted too early", "%s: %s has taken away the record at offset %d, which %s", t.name(), t.host.name(), offset, t.of.whyKept(was, offset))
			return
		}
		o.w.stats.Compacted++
		if k := &was.keyed[i]; t.of.latest[k.key] == offset {
			o.w.stats.Buried++
			buried[k.key] = offset
		}
	}
}

// staysDeleted demands that nothing older is left of keys whose tombstone was taken away. What is below the log's start is deleted,
// though it may still be in a file.
func (o *oracle) staysDeleted(t *truth, left []stored, buried map[uint64]int64) {
	if len(buried) == 0 {
		return
	}
	for i := range left {
		b := &left[i]
		for j := range b.keyed {
			offset := b.base + int64(j)
			if at, ok := buried[b.keyed[j].key]; ok && offset >= t.start && offset < at && (b.kept == nil || b.kept[j]) {
				o.w.fail("deleted key back", "%s: %s lacks the tombstone at offset %d and has the record at %d", t.name(), t.host.name(), at, offset)
				return
			}
		}
	}
}

// learnsDeletions looks at the tombstones that a follower does not get with a batch, nor before it from an offset on: it must not
// have anything older of their keys, or what was deleted is back for good with the next leader.
func (o *oracle) learnsDeletions(t *truth, from int64, s *stored) {
	of := t.of
	if !of.may || from == s.base && s.kept == nil || of.lenient(o.w) {
		return
	}
	o.staysDeleted(t, t.batches, of.lost(from, s.next, []stored{*s}))
}

// lost returns the tombstones, by key, that are the last of their keys, lie in [from, to), and are not among some batches.
func (of *agreed) lost(from, to int64, batches []stored) map[uint64]int64 {
	var lost map[uint64]int64
	n := 0
	i := sort.Search(len(of.batches), func(i int) bool { return of.batches[i].next > from })
	for ; i < len(of.batches) && of.batches[i].base < to; i++ {
		b := &of.batches[i]
		for n < len(batches) && batches[n].base < b.base {
			n++
		}
		for j := range b.keyed {
			k, offset := &b.keyed[j], b.base+int64(j)
			if k.key == 0 || !k.tombstone || of.latest[k.key] != offset || offset < from {
				continue
			}
			if n < len(batches) && batches[n].base == b.base && (batches[n].kept == nil || batches[n].kept[j]) {
				continue
			}
			if lost == nil {
				lost = map[uint64]int64{}
			}
			lost[k.key] = offset
		}
	}
	return lost
}

// window is how many batches of a producer must be known, to tell duplicates (rule 18).
const window = 5

// keepsProducers demands that the last batches of each producer that the broker knows are there, if only as headers.
func (o *oracle) keepsProducers(h *host, t *truth, was, left []stored) {
	if t.pass == nil {
		return
	}
	last := map[int64]int{}
	n := len(left) - 1
	for i := len(was) - 1; i >= 0 && o.w.failure == nil; i-- {
		b := &was[i]
		for n >= 0 && left[n].base > b.base {
			n--
		}
		id := b.sender.id
		if _, known := sort.Find(len(t.pass.Producers), func(i int) int { return cmp.Compare(id, t.pass.Producers[i]) }); id < 0 || !known {
			continue
		}
		if last[id]++; last[id] > window || b.next <= t.start {
			continue
		}
		if n < 0 || left[n].base != b.base || left[n].sender != b.sender {
			o.w.fail("producer forgotten", "%s: %s has compacted away the batch at offset %d, the last but %d of producer %d", t.name(), h.name(), b.base,
				last[id]-1, id)
		}
	}
}

// readLog reads the batches in a log's files, as far as they are the log's. It reports false where the files are between two states.
func (o *oracle) readLog(h *host, t *truth) (found []stored, ok bool) {
	dir := t.name() + "/"
	end := t.end()
	at := 0
	for _, name := range h.disk.Files() {
		if !strings.HasPrefix(name, dir) {
			continue
		}
		if strings.HasSuffix(name, ".swap") {
			return nil, false
		}
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		batches, _, _ := record.ParseAll(h.disk.Written(name))
		for _, b := range batches {
			s := storedOf(b)
			if s.base >= end {
				break
			}
			for at < len(t.batches) && t.batches[at].base < s.base {
				at++
			}
			switch {
			case at < len(t.batches) && t.batches[at].is(s):
				s = t.batches[at]
			case s.next <= t.start:
				continue
			case at == len(t.batches) || t.batches[at].base != s.base:
				o.w.fail("log from nowhere", "%s: %s holds no batch that was appended or left at offset %d", name, h.name(), s.base)
				return nil, false
			default:
				if why := t.of.thinned(o.w, &t.batches[at], &s, b); why != "" {
					o.w.fail("compacted wrongly", "%s: the batch at %d: %s", name, s.base, why)
					return nil, false
				}
			}
			found = append(found, s)
		}
	}
	return found, true
}

// checkCompacted is checkLog for a log that may be compacted: it holds what is committed, but for what may be missing.
func (o *oracle) checkCompacted(h *host, t *truth) {
	o.settlePass(h, t)
	if o.w.failure != nil || t.of.lenient(o.w) {
		return
	}
	if found, ok := o.readLog(h, t); ok && t.start < t.durable && (len(found) == 0 || found[len(found)-1].next < t.durable) {
		o.w.fail("durable lost", "%s ends too early in its files; up to %d was synced", t.name(), t.durable)
		return
	}
	o.staysDeleted(t, t.batches, t.of.lost(t.start, t.end(), t.batches))
	if !slices.Contains(t.of.isr, h.nodeID()) { // it may hold what never was committed, where nobody is left to tell it so
		return
	}
	for i := range t.of.batches {
		if b := &t.of.batches[i]; b.next <= t.end() && b.base >= t.start && !t.holdsBatch(b) {
			o.w.fail("committed missing", "%s: %s lacks records of the committed batch at %d which nothing replaces", t.name(), h.name(), b.base)
			return
		}
	}
}

// fill puts what may be missing into what a reader got from an offset up to another, so that its history is that of a log without
// gaps. What may not be missing is a failure: each key's last value, and deletions as long as their readers have time.
func (o *oracle) fill(who, topic string, partition int32, from, next int64, got []linearizability.Record) []linearizability.Record {
	of := o.find(topic, partition)
	if of == nil || !of.may || of.lenient(o.w) {
		return got
	}
	var out []linearizability.Record
	i := sort.Search(len(of.batches), func(i int) bool { return of.batches[i].next > from })
	for ; i < len(of.batches) && of.batches[i].base < next; i++ {
		b := &of.batches[i]
		for offset := max(b.base, from); offset < min(b.next, next); offset++ {
			if len(got) > 0 && got[0].Offset == offset {
				out, got = append(out, got[0]), got[1:]
				continue
			}
			if !of.mayMiss(b, offset, of.wall) && offset >= of.start {
				o.w.fail("newest skipped", "%s: %s reads from %d to %d without the record at %d, which is the last of its key", of.label, who, from, next, offset)
				return out
			}
			o.w.stats.Holes++
			out = append(out, linearizability.Record{Offset: offset, Value: b.values[offset-b.base]})
		}
	}
	return append(out, got...)
}
