package log

import (
	"cmp"
	"slices"

	"lockstep/core"
	"lockstep/core/record"
)

// Kafka's error codes that Producers.Check returns.
const (
	CodeOutOfOrderSequence   int16 = 45 // OUT_OF_ORDER_SEQUENCE_NUMBER
	CodeInvalidProducerEpoch int16 = 47 // INVALID_PRODUCER_EPOCH
	CodeInvalidTxnState      int16 = 48 // INVALID_TXN_STATE
)

const (
	// DefaultMaxProducers is how many producers a table remembers unless told otherwise.
	DefaultMaxProducers = 50_000
	// window is the number of batches of a producer that can be told to be duplicates: as many as a client may have
	// in flight (rule 18).
	window = 5
	// maxUndo bounds what is kept to undo batches of the uncommitted tail.
	maxUndo = 16_384
)

// Batch is what is remembered of one batch of a producer.
type Batch struct {
	FirstSequence, LastSequence int32
	Base, Last                  int64 // offsets
	Timestamp                   int64 // the latest of its records, milliseconds
}

// producer is one entry of the table.
type producer struct {
	id         int64
	epoch      int16
	batches    []Batch // of this epoch, oldest first, at most window of them
	lastOffset int64   // of the last batch or marker, in whatever epoch; orders the list
	txnFirst   int64   // first offset of the open transaction, -1 if there is none
	seen       core.WallMillis
	prev, next *producer
}

// Producers is the producer table of one log: for each producer id its epoch and its last five batches (KIP-98). It is
// a function of the log's batches, so each replica has one, and truncating the log truncates it exactly: changes made
// above the committed offset can be undone.
//
// Memory is bounded. Over its maximum the table forgets the producer whose last batch is the oldest, unless it has a
// transaction open. A producer that was forgotten, by that or by expiry, is accepted with any sequence, as in Kafka.
//
// A nil *Producers is an empty table to read.
type Producers struct {
	max  int
	byID map[int64]*producer
	// head and tail are the ends of the list of all producers by lastOffset, ascending.
	head, tail *producer
	stamped    bool // Expire has given every entry a time at which it was seen

	undo      []undo // changes by batches at or above exactFrom, oldest first, from undoHead on
	undoHead  int
	exactFrom int64

	open      []txnSpan // open transactions by first offset; last is unused
	completed []txnSpan // ended ones whose marker is not committed yet, by marker offset
}

// txnSpan is a transaction's offsets, from its first record to its marker.
type txnSpan struct{ first, last int64 }

// NewProducers returns an empty table that remembers at most max producers, 0 being DefaultMaxProducers.
func NewProducers(max int) *Producers {
	p := &Producers{}
	p.SetMax(max)
	return p
}

// SetMax changes the maximum; it takes effect as producers are added.
func (p *Producers) SetMax(max int) {
	if max <= 0 {
		max = DefaultMaxProducers
	}
	p.max = max
}

// Len returns the number of producers remembered.
func (p *Producers) Len() int {
	if p == nil {
		return 0
	}
	return len(p.byID)
}

// Verdict is what Check finds.
type Verdict struct {
	Code      int16
	Duplicate bool  // the batch is in the log already:
	Original  Batch // here
}

// Check says whether a batch that a client sent may be appended next. It gives Kafka's answers (4.x):
//   - an epoch below the producer's is INVALID_PRODUCER_EPOCH;
//   - a batch with the first and last sequence of one of the last five of this epoch is a duplicate;
//   - any other first sequence than the one after the last, which is 0 after 2^31-1, is OUT_OF_ORDER_SEQUENCE_NUMBER;
//     so are duplicates older than five batches (DUPLICATE_SEQUENCE_NUMBER is not sent any more);
//   - a new epoch begins at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
//   - a producer that is not in the table begins at any sequence (KIP-360; UNKNOWN_PRODUCER_ID is not sent any more).
//
// Batches without a producer id pass.
func (p *Producers) Check(h *record.Header) Verdict {
	if p == nil || h.ProducerID < 0 {
		return Verdict{}
	}
	e := p.byID[h.ProducerID]
	if e == nil {
		return Verdict{}
	}
	last := h.LastSequence()
	if h.ProducerEpoch == e.epoch {
		for _, b := range e.batches {
			if b.FirstSequence == h.BaseSequence && b.LastSequence == last {
				return Verdict{Duplicate: true, Original: b}
			}
		}
	}
	switch {
	case h.ProducerEpoch < e.epoch:
		return Verdict{Code: CodeInvalidProducerEpoch}
	case h.BaseSequence != e.expects(h.ProducerEpoch):
		return Verdict{Code: CodeOutOfOrderSequence}
	case e.txnFirst >= 0 && h.Attributes&record.AttributeTransactional == 0:
		return Verdict{Code: CodeInvalidTxnState}
	}
	return Verdict{}
}

// expects returns the sequence with which the producer's next batch must begin.
func (e *producer) expects(epoch int16) int32 {
	if epoch != e.epoch || len(e.batches) == 0 {
		return 0
	}
	return record.AddSequence(e.batches[len(e.batches)-1].LastSequence, 1)
}

// Append records a batch that is appended at h's offsets, which are above all before. It checks nothing: that is
// Check's, and what a leader accepted its followers take. seen is the time of the append by the wall clock that
// Expire is given, 0 where it is not known.
func (p *Producers) Append(h *record.Header, seen core.WallMillis) {
	if h.ProducerID < 0 {
		return
	}
	e, u := p.byID[h.ProducerID], undo{offset: h.BaseOffset, id: h.ProducerID}
	if e == nil {
		u.created = true
		u.evicted = p.makeRoom()
		e = &producer{id: h.ProducerID, epoch: h.ProducerEpoch, txnFirst: -1}
		p.insert(e)
	} else {
		u.lastOffset, u.txnFirst = e.lastOffset, e.txnFirst
		p.unlink(e)
	}
	if e.epoch != h.ProducerEpoch {
		u.replaced, u.epoch, u.batches = true, e.epoch, e.batches
		e.epoch, e.batches = h.ProducerEpoch, nil
	}
	if h.Attributes&record.AttributeControl != 0 {
		u.marker = true
		p.endTxn(e, h)
	} else {
		p.push(e, h, &u)
	}
	e.lastOffset, e.seen = h.LastOffset(), seen
	if seen == 0 {
		p.stamped = false
	}
	p.linkLast(e)
	p.remember(u)
}

// Replay is Append for recovery and rebuilding, where nobody knows when the batch came.
func (p *Producers) Replay(h record.Header) { p.Append(&h, 0) }

// push adds a data batch to the producer's window.
func (p *Producers) push(e *producer, h *record.Header, u *undo) {
	if h.Attributes&record.AttributeTransactional != 0 && e.txnFirst < 0 {
		e.txnFirst = h.BaseOffset
		p.open = append(p.open, txnSpan{first: h.BaseOffset})
	}
	b := Batch{FirstSequence: h.BaseSequence, LastSequence: h.LastSequence(), Base: h.BaseOffset, Last: h.LastOffset(), Timestamp: h.MaxTimestamp}
	if len(e.batches) == window {
		u.dropped, u.hasDropped = e.batches[0], true
		copy(e.batches, e.batches[1:])
		e.batches[window-1] = b
		return
	}
	if len(e.batches) == 1 { // most stay at one batch, or go on to fill the window
		e.batches = append(make([]Batch, 0, window), e.batches[0])
	}
	e.batches = append(e.batches, b)
}

// endTxn takes the marker that ends the producer's transaction.
func (p *Producers) endTxn(e *producer, h *record.Header) {
	if e.txnFirst < 0 {
		return
	}
	i, ok := slices.BinarySearchFunc(p.open, e.txnFirst, func(s txnSpan, first int64) int { return cmp.Compare(s.first, first) })
	if ok {
		p.open = slices.Delete(p.open, i, i+1)
	}
	p.completed = append(p.completed, txnSpan{first: e.txnFirst, last: h.LastOffset()})
	e.txnFirst = -1
}

// FirstUnstable returns the first offset of a transaction that is open, or ended by a marker that is not committed
// yet; -1 if there is none. The last stable offset is there (KIP-98).
func (p *Producers) FirstUnstable() int64 {
	if p == nil {
		return -1
	}
	first := int64(-1)
	if len(p.open) > 0 {
		first = p.open[0].first
	}
	for _, s := range p.completed {
		if first < 0 || s.first < first {
			first = s.first
		}
	}
	return first
}

// makeRoom forgets a producer if the table is full, and returns it.
func (p *Producers) makeRoom() *producer {
	if len(p.byID) < p.max {
		return nil
	}
	for e := p.head; e != nil; e = e.next {
		if e.txnFirst < 0 {
			p.remove(e)
			return e
		}
	}
	return nil
}

// Expire forgets producers that were not seen for ttl milliseconds, and returns how many. Producers with an open
// transaction or with uncommitted batches stay. Those of whom nobody knows when they were seen count as seen now. The
// clock must not be one that jumps: to forget a live producer is to accept its duplicates.
func (p *Producers) Expire(now core.WallMillis, ttl int64) int {
	if p == nil || p.head == nil {
		return 0
	}
	if !p.stamped {
		for e := p.head; e != nil; e = e.next {
			if e.seen == 0 {
				e.seen = now
			}
		}
		p.stamped = true
	}
	n := 0
	for e := p.head; e != nil && int64(now-e.seen) >= ttl; {
		next := e.next
		if e.txnFirst < 0 && e.lastOffset < p.exactFrom {
			p.remove(e)
			n++
		}
		e = next
	}
	return n
}

// Below returns what is known of the batches below offset: the table with which a log begins there whose earlier records are
// deleted. Of batches of an epoch that a later one above offset has replaced, and of those that more than five followed, nothing
// is known, unless those are not committed: who has the batches from offset on, too, as far as they are committed or further, comes to
// the same table as who has all.
func (p *Producers) Below(offset int64) *Producers {
	t := NewProducers(0)
	if p == nil {
		return t
	}
	t.max, t.exactFrom = p.max, offset
	committed, _ := p.AsOf(max(offset, p.exactFrom))
	for e := committed.head; e != nil; e = e.next {
		x := &producer{id: e.id, epoch: e.epoch, lastOffset: e.lastOffset, txnFirst: e.txnFirst}
		for _, b := range e.batches {
			if b.Last < offset {
				x.batches = append(x.batches, b)
			}
		}
		if e.lastOffset >= offset {
			if len(x.batches) == 0 {
				continue
			}
			x.lastOffset = x.batches[len(x.batches)-1].Last
		}
		if x.txnFirst >= offset {
			x.txnFirst = -1
		}
		t.insert(x)
		t.linkLast(x)
	}
	t.relink()
	t.reopen(offset)
	return t
}

// AsOf returns the table, or a copy to read, as it was when the log ended at end; false if that cannot be told any more, see ExactFrom.
func (p *Producers) AsOf(end int64) (*Producers, bool) {
	switch {
	case p == nil:
		return NewProducers(0), true
	case end < p.exactFrom:
		return nil, false
	case len(p.undo) == p.undoHead || p.undo[len(p.undo)-1].offset < end:
		return p, true
	}
	c, err := LoadSnapshot(p.Snapshot())
	if err != nil {
		panic(err) // it has just been made
	}
	return c, c.Truncate(end)
}

// Recovered forgets when producers were seen: that was by the wall clock of another process, which may have been wrong, or be wrong now.
func (p *Producers) Recovered() {
	for e := p.head; e != nil; e = e.next {
		e.seen = 0
	}
	p.stamped = false
}

func (p *Producers) insert(e *producer) {
	if p.byID == nil {
		p.byID = make(map[int64]*producer)
	}
	p.byID[e.id] = e
}

func (p *Producers) remove(e *producer) {
	p.unlink(e)
	delete(p.byID, e.id)
}

func (p *Producers) unlink(e *producer) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		p.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		p.tail = e.prev
	}
	e.prev, e.next = nil, nil
}

func (p *Producers) linkLast(e *producer) {
	e.prev, e.next = p.tail, nil
	if p.tail != nil {
		p.tail.next = e
	} else {
		p.head = e
	}
	p.tail = e
}

// IDs returns the producers that are remembered, ascending.
func (p *Producers) IDs() []int64 {
	if p.Len() == 0 {
		return nil
	}
	ids := make([]int64, 0, len(p.byID))
	for e := p.head; e != nil; e = e.next {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	return ids
}
