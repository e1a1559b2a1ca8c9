package linearizability

import (
	"cmp"
	"slices"
)

// layout is the one log that a partition must have had if everything seen of
// it is true: which batch stood where. An append-only log leaves no choice as
// long as each offset was seen, or its batch acknowledged, or the truth tells
// it; what is left open is filled if that can be done without loss of
// generality, else open is set and what follows from layout is necessary for
// the history to be linearizable, but not sufficient.
type layout struct {
	p       *part
	cells   cells
	writers map[int64]sent
	first   []int32           // of each produce, the first that sent its values
	groups  map[int32][]int32 // operations with the same values, by the first of them, where there are several
	place   []int64           // of each produce that is first of its values: where they stand, -1 if unseen
	more    map[int32][]int64 // further places of the same values
	batches []batch           // the log, by ascending offsets
	tail    []int32           // acknowledged without an offset and seen nowhere: they stand behind everything seen
	loose   []int32           // writes that may have taken effect, but were seen nowhere
	spared  []int32           // writes at places that others of the same values could have, so that they may be elsewhere
	lost    []int32           // acknowledged without an offset and seen nowhere
	end     int64             // the highest end that the log is known to have had
	ender   int32             // who saw it
	open    bool

	anomalies []Anomaly
}

// sent says who sent a value, and where in its batch.
type sent struct {
	op    int32
	index int32
}

// batch is the records [base, end) of the log, appended by op at an instant in [release, due].
type batch struct {
	base, end    int64
	op           int32 // noOp: by somebody
	release, due int64
}

// noOp is the op of a batch of which it is not known who wrote it.
const noOp = int32(-2)

// newLayout lays out a partition. If anomalies come of it, the rest is not filled in.
func newLayout(p *part) *layout {
	l := &layout{p: p, place: make([]int64, len(p.ops)), first: make([]int32, len(p.ops)), ender: truthClaim}
	if a := p.malformed(); a != nil {
		l.anomalies = append(l.anomalies, *a)
		return l
	}
	for _, step := range []func(){l.sends, l.claims, l.fill, l.skips, l.assign, l.sort, l.holes} {
		if step(); len(l.anomalies) > 0 {
			return l
		}
	}
	return l
}

func (l *layout) bad(kind Name, ops []int32, format string, args ...any) {
	l.anomalies = append(l.anomalies, l.p.anomaly(kind, ops, format, args...))
}

// sends notes who sent each value.
func (l *layout) sends() {
	n := 0
	for _, op := range l.p.ops {
		if op.Kind == Produce {
			n += len(op.Values)
		}
	}
	l.writers = make(map[int64]sent, n)
	for i, op := range l.p.ops {
		l.place[i], l.first[i] = -1, int32(i)
		if op.Kind == Produce {
			l.send(int32(i), op)
		}
	}
}

func (l *layout) send(i int32, op *Op) {
	first, again := l.writers[op.Values[0]]
	if again {
		if !slices.Equal(l.p.ops[first.op].Values, op.Values) {
			l.bad(Malformed, []int32{first.op, i}, "%s and %s share a value", l.p.name(first.op), l.p.name(i))
			return
		}
		if l.groups == nil {
			l.groups = map[int32][]int32{}
		}
		if l.groups[first.op] == nil {
			l.groups[first.op] = []int32{first.op}
		}
		l.groups[first.op] = append(l.groups[first.op], i)
		l.first[i] = first.op
		return
	}
	for k, v := range op.Values {
		if w, dup := l.writers[v]; dup || v == NoValue {
			l.bad(Malformed, []int32{w.op, i}, "%s and %s share a value", l.p.name(w.op), l.p.name(i))
			return
		}
		l.writers[v] = sent{i, int32(k)}
	}
}

// claims notes what every answer and the truth say of offsets and of the end.
func (l *layout) claims() {
	for i, op := range l.p.ops {
		if op.Outcome == OK {
			l.claimsOf(int32(i), op)
		}
	}
	if t := l.p.truth; t != nil {
		for _, r := range t.Records {
			l.claim(truthClaim, r.Offset, r.Value)
		}
		l.reach(truthClaim, t.End)
	}
}

func (l *layout) claimsOf(i int32, op *Op) {
	switch op.Kind {
	case Produce:
		if op.binding() && op.Offset >= 0 {
			for k, v := range op.Values {
				l.claim(i, op.Offset+int64(k), v)
			}
			l.reach(i, op.Offset+int64(len(op.Values)))
		}
	case Fetch:
		for _, r := range op.Records {
			l.claim(i, r.Offset, r.Value)
		}
		l.bounds(i, op)
		l.reach(i, max(op.HighWatermark, op.LogStart))
	case Latest, Earliest:
		l.reach(i, op.Offset)
	case Delete:
		l.reach(i, max(op.Offset, op.To))
		if op.Offset < op.To {
			l.bad(StartMismatch, []int32{i}, "%s: the low watermark is below the offset asked for", l.p.name(i))
		}
	}
}

// reach notes that the log had this end once.
func (l *layout) reach(i int32, end int64) {
	if end > l.end {
		l.end, l.ender = end, i
	}
}

// claim notes that operation i says value stands at offset.
func (l *layout) claim(i int32, offset, value int64) {
	c := l.cells.at(offset)
	if c.set {
		if c.value != value {
			l.inconsistent(offset, c.claim, c.value, i, value)
		}
		return
	}
	*c = cell{value: value, claim: i, set: true}
	w, ok := l.writers[value]
	if !ok {
		l.nobodySent(i, offset, value)
		return
	}
	base := offset - int64(w.index)
	switch at := l.place[w.op]; {
	case at < 0 && base >= 0:
		l.place[w.op] = base
		l.reach(i, base+int64(len(l.p.ops[w.op].Values)))
	case base < 0:
		l.bad(TornBatch, []int32{w.op, i}, "%s shows %s at offset %d, so its batch would begin before offset 0: %s",
			l.p.name(i), show(value), offset, l.p.name(w.op))
	case at != base && !slices.Contains(l.more[w.op], base):
		if l.more == nil {
			l.more = map[int32][]int64{}
		}
		l.more[w.op] = append(l.more[w.op], base)
		l.reach(i, base+int64(len(l.p.ops[w.op].Values)))
	}
}

func (l *layout) inconsistent(offset int64, a int32, va int64, b int32, vb int64) {
	l.bad(InconsistentOffsets, []int32{a, b}, "offset %d holds %s by %s, but %s by %s",
		offset, show(va), l.p.name(a), show(vb), l.p.name(b))
}

func (l *layout) nobodySent(i int32, offset, value int64) {
	if value == NoValue {
		l.bad(CorruptRecord, []int32{i}, "%s shows at offset %d a record that nobody can read", l.p.name(i), offset)
		return
	}
	l.bad(PhantomRecord, []int32{i}, "%s shows %s at offset %d, which nobody sent", l.p.name(i), show(value), offset)
}

// bounds checks one fetch against its own watermarks.
func (l *layout) bounds(i int32, op *Op) {
	if k := len(op.Records); k > 0 && op.HighWatermark >= 0 && op.Records[k-1].Offset >= op.HighWatermark {
		l.bad(BeyondEnd, []int32{i}, "%s shows offset %d, at or beyond its own high watermark", l.p.name(i), op.Records[k-1].Offset)
	}
	if op.LogStart > op.From {
		l.bad(BeyondEnd, []int32{i}, "%s began below its own log start", l.p.name(i))
	}
}

// skips checks that each fetch, and the truth, show all that stands between the first and the last offset they show.
func (l *layout) skips() {
	for i, op := range l.p.ops {
		if op.Kind == Fetch && op.Outcome == OK {
			l.contiguous(int32(i), op.From, op.Records)
		}
	}
	t := l.p.truth
	if t == nil {
		return
	}
	next := t.Start
	for _, r := range append(slices.Clip(t.Records), Record{Offset: t.End}) {
		if r.Offset > next && !l.missing(truthClaim, next, r.Offset) {
			return
		}
		next = max(next, r.Offset+1)
	}
}

func (l *layout) contiguous(i int32, from int64, records []Record) {
	next := from
	for _, r := range records {
		if r.Offset < next {
			l.bad(IntNonmonotonicPoll, []int32{i}, "%s: offset %d comes where %d or a later one should", l.p.name(i), r.Offset, next)
			return
		}
		if r.Offset > next && !l.missing(i, next, r.Offset) {
			return
		}
		next = r.Offset + 1
	}
}

// missing says whether the offsets [from, to) may be missing in what i shows.
func (l *layout) missing(i int32, from, to int64) bool {
	at, holds := l.cells.next(from, to)
	if holds && (l.p.opts.Gaps || at == from) {
		kind := IntPollSkip
		if i == truthClaim {
			kind = LostWrite
		}
		c := l.cells.get(at)
		w := l.writers[c.value].op
		l.bad(kind, []int32{w, i}, "%s passes over offset %d, which holds %s by %s", l.p.name(i), at, show(c.value), l.p.name(w))
		return false
	}
	if !l.p.opts.Gaps {
		l.bad(OffsetGap, []int32{i}, "%s goes on at offset %d where %d should come", l.p.name(i), to, from)
		return false
	}
	return true
}

// fill writes each batch that was seen in part into all of its offsets.
func (l *layout) fill() {
	for i := range l.place {
		if l.place[i] < 0 || l.torn(int32(i)) {
			continue
		}
		l.fillAt(int32(i), l.place[i])
		for _, base := range l.more[int32(i)] {
			l.fillAt(int32(i), base)
		}
	}
}

// torn looks whether the values of one batch were each seen at one offset, but not one after another.
func (l *layout) torn(i int32) bool {
	places := l.places(i)
	if len(places) <= l.sendsOf(i) {
		return false
	}
	vs := l.p.ops[i].Values
	offsets := make([]int64, len(vs))
	for k, v := range vs {
		offsets[k] = -1
		for _, base := range places {
			if c := l.cells.get(base + int64(k)); c.set && c.value == v {
				if offsets[k] >= 0 {
					return false // truly twice
				}
				offsets[k] = base + int64(k)
			}
		}
	}
	kind, last, at := IntSendSkip, int64(-1), 0
	for k, o := range offsets {
		if o < 0 {
			continue
		}
		if o < last {
			kind = IntNonmonotonicSend
		}
		if last >= 0 && (o < last || o-last != int64(k-at)) {
			l.bad(kind, []int32{i}, "%s stands at offset %d and %s at %d, though one batch: %s",
				show(vs[at]), last, show(vs[k]), o, l.p.name(i))
			return true
		}
		last, at = o, k
	}
	return false
}

// sendsOf returns how often i's values were sent and not refused.
func (l *layout) sendsOf(i int32) int {
	group := l.groups[i]
	if group == nil {
		group = []int32{i}
	}
	n := 0
	for _, k := range group {
		if o := l.p.ops[k].Outcome; o == OK || o == Unknown {
			n++
		}
	}
	return n
}

func (l *layout) fillAt(i int32, base int64) {
	for k, v := range l.p.ops[i].Values {
		c := l.cells.at(base + int64(k))
		if !c.set {
			*c = cell{value: v, claim: i, set: true}
		} else if c.value != v {
			l.bad(TornBatch, []int32{i, c.claim}, "the batch of %s was seen at offset %d, but offset %d holds %s by %s",
				l.p.name(i), base, base+int64(k), show(c.value), l.p.name(c.claim))
			return
		}
	}
}

// assign says for each place of a batch which operation put it there.
func (l *layout) assign() {
	for i, op := range l.p.ops {
		if op.Kind != Produce || l.first[i] != int32(i) {
			continue // of a group: done with its first
		}
		if group := l.groups[int32(i)]; group != nil {
			l.assignGroup(group)
		} else {
			l.assignOne(int32(i), op)
		}
	}
}

// put says that operation i wrote its values at base.
func (l *layout) put(i int32, base int64) {
	op := l.p.ops[i]
	l.batches = append(l.batches, batch{base, base + int64(len(op.Values)), i, l.p.release(i), l.p.due(i)})
}

func (l *layout) assignOne(i int32, op *Op) {
	base, more := l.place[i], l.more[i]
	switch {
	case op.Outcome == Failed || op.Outcome == OutOfRange:
		if base >= 0 {
			l.aborted(i, base)
		}
	case len(more) > 0:
		l.duplicate(i, 1)
	case base >= 0 && op.weak() && base != op.Offset:
		l.misplaced(i, base)
	case base >= 0:
		l.put(i, base)
	case op.binding():
		l.lost = append(l.lost, i)
	default:
		l.loose = append(l.loose, i)
	}
}

func (l *layout) aborted(i int32, base int64) {
	by := l.seenBy(i, base)
	l.bad(AbortedRead, []int32{i, by}, "%s shows offset %d, which holds what was refused: %s",
		l.p.name(by), base, l.p.name(i))
}

// seenBy returns who claimed any offset of i's batch at base first.
func (l *layout) seenBy(i int32, base int64) int32 {
	for k := range l.p.ops[i].Values {
		if c := l.cells.get(base + int64(k)); c.claim != i {
			return c.claim
		}
	}
	return i
}

func (l *layout) duplicate(i int32, sends int) {
	places := l.places(i)
	ops := []int32{i}
	for _, at := range places {
		if by := l.seenBy(i, at); by != i {
			ops = append(ops, by)
		}
	}
	l.bad(Duplicate, ops, "sent %d times, but at %d places, offsets %d and %d among them: %s",
		sends, len(places), places[0], places[1], l.p.name(i))
}

func (l *layout) misplaced(i int32, base int64) {
	l.bad(InconsistentOffsets, []int32{i, l.seenBy(i, base)}, "acknowledged at offset %d, but %s shows it at %d: %s",
		l.p.ops[i].Offset, l.p.name(l.seenBy(i, base)), base, l.p.name(i))
}

// places returns where the values of i stand, ascending.
func (l *layout) places(i int32) []int64 {
	if l.place[i] < 0 {
		return nil
	}
	list := append([]int64{l.place[i]}, l.more[i]...)
	slices.Sort(list)
	return list
}

// sort orders the batches by offset. They cannot overlap: every offset has one value, and every value one place in its batch.
func (l *layout) sort() {
	slices.SortFunc(l.batches, func(a, b batch) int { return cmp.Compare(a.base, b.base) })
	slices.Sort(l.lost)
	slices.Sort(l.loose)
}
