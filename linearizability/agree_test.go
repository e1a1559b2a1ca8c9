package linearizability

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The near-linear checker must give porcupine's verdict on every small
// history, valid or not. Histories come from a log that is stepped at instants
// which the operations' windows contain, so that they are linearizable; then
// anything in them is changed at random.

// source draws small histories.
type source struct {
	t     *rapid.T
	opts  Options
	vals  []int64 // the log, with hidden ones
	start int64
	next  int64 // the next value
	h     History
	sends bool // send the same values again at times
}

func (s *source) n(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(s.t, label)
}

func (s *source) one(label string, in int) bool { return s.n(label, 1, in) == 1 }

func drawHistory(t *rapid.T) (*History, Options) {
	s := &source{t: t, next: 1}
	s.opts.Mode = Mode(s.n("mode", 0, 1))
	s.opts.Gaps = s.one("gaps", 4)
	s.opts.Retention = s.one("retention", 4)
	s.sends = !s.opts.Gaps && s.one("sends", 3)
	for i := range s.n("ops", 1, 9) {
		s.op(int64(10 * (i + 1)))
	}
	if s.one("truth", 2) {
		s.truth()
	}
	for range s.n("mutations", 0, 3) {
		s.mutate()
	}
	return &s.h, s.opts
}

// op steps the log at an instant and records an operation around it.
func (s *source) op(at int64) {
	if s.opts.Gaps && s.one("hide", 4) {
		s.vals = append(s.vals, hidden)
	}
	if s.opts.Retention && s.one("retain", 4) {
		s.start += int64(s.n("retained", 0, len(s.vals)-int(s.start)))
	}
	op := Op{Process: s.n("process", 0, 2), Topic: "t", Offset: -1,
		Invoke: at - int64(s.n("before", 0, 25)), Return: at + int64(s.n("after", 0, 25))}
	switch Kind(s.n("kind", 1, 6)) {
	case Latest:
		op.Kind, op.Outcome, op.Offset = Latest, OK, s.end()
	case Earliest:
		op.Kind, op.Outcome, op.Offset = Earliest, OK, s.start
	case Delete:
		s.del(&op)
	case Fetch:
		s.fetch(&op)
	default:
		s.produce(&op)
	}
	if s.opts.Mode == Kafka && op.read() && op.Return != Open {
		op.Invoke = op.Return - 1 // stale
	}
	s.h.Ops = append(s.h.Ops, op)
}

func (s *source) end() int64 { return int64(len(s.vals)) }

func (s *source) produce(op *Op) {
	op.Kind, op.Acks = Produce, All
	for range s.n("batch", 1, 4)/2 + 1 {
		op.Values = append(op.Values, s.next)
		s.next++
	}
	if s.sends && len(s.h.Ops) > 0 && s.one("again", 2) {
		if was := s.h.Ops[s.n("which", 0, len(s.h.Ops)-1)]; was.Kind == Produce {
			op.Values = was.Values
		}
	}
	effect := true
	switch s.n("outcome", 1, 8) {
	case 1:
		op.Outcome, effect = Failed, false
	case 2, 3:
		op.Outcome, op.Return, effect = Unknown, Open, s.one("effect", 2)
	case 4:
		op.Outcome, op.Acks, op.Offset, effect = OK, 1, s.end(), !s.one("lost", 3)
	case 5:
		op.Outcome = OK // without an offset
	default:
		op.Outcome, op.Offset = OK, s.end()
	}
	if effect {
		s.vals = append(s.vals, op.Values...)
	}
}

func (s *source) fetch(op *Op) {
	op.Kind = Fetch
	op.From = int64(s.n("from", 0, len(s.vals)+1))
	if op.From < s.start || op.From > s.end() {
		op.Outcome = OutOfRange
		return
	}
	op.Outcome = OK
	for o := op.From; o < s.end() && !s.one("enough", 5); o++ {
		if s.vals[o] != hidden {
			op.Records = append(op.Records, Record{o, s.vals[o]})
		}
	}
	op.HighWatermark, op.LogStart = -1, -1
	if !s.one("no high watermark", 4) {
		op.HighWatermark = s.end()
	}
	if s.one("log start", 2) {
		op.LogStart = s.start
	}
}

func (s *source) del(op *Op) {
	op.Kind, op.Outcome = Delete, OK
	op.To = int64(s.n("to", -1, len(s.vals)+1))
	to := op.To
	if to < 0 {
		to = s.end()
	}
	effect := true
	if s.one("unknown", 3) {
		op.Outcome, op.Return, effect = Unknown, Open, s.one("effect", 2)
	}
	if to > s.end() {
		effect = false
		if op.Outcome == OK {
			op.Outcome = OutOfRange
		}
	}
	if effect {
		s.start = max(s.start, to)
	}
	op.Offset = s.start
}

func (s *source) truth() {
	t := Truth{Start: s.start, End: s.end()}
	first := s.start
	if s.one("remembered", 2) {
		first = 0
	}
	for o := first; o < s.end(); o++ {
		if s.vals[o] != hidden {
			t.Records = append(t.Records, Record{o, s.vals[o]})
		}
	}
	s.h.Truth = map[Key]Truth{{Topic: "t"}: t}
}

// mutate changes something.
func (s *source) mutate() {
	k := s.n("mutated", 0, len(s.h.Ops)-1)
	op := &s.h.Ops[k]
	by := int64(s.n("by", -1, 1))
	switch s.n("mutation", 0, 10) {
	case 0:
		op.Invoke += 10 * by
	case 1:
		op.Return = max(op.Invoke, op.Return-10)
	case 2, 3:
		op.Offset = max(-1, op.Offset+by)
	case 4:
		op.HighWatermark = max(-1, op.HighWatermark+by)
	case 5:
		op.LogStart = max(-1, op.LogStart+by)
	case 6:
		op.From = max(0, op.From+by)
	case 7:
		op.To = max(-1, op.To+by)
	case 8:
		s.mutateRecord(op, by)
	case 9:
		s.mutateOutcome(op)
	case 10:
		s.mutateTruth(by)
	}
}

func (s *source) mutateRecord(op *Op, by int64) {
	if len(op.Records) == 0 {
		return
	}
	op.Records = slices.Clone(op.Records)
	k := s.n("record", 0, len(op.Records)-1)
	switch s.n("record mutation", 0, 3) {
	case 0:
		op.Records[k].Offset = max(0, op.Records[k].Offset+by)
	case 1:
		op.Records[k].Value = int64(s.n("value", 1, int(s.next)))
	case 2:
		op.Records = slices.Delete(op.Records, k, k+1)
	case 3:
		for i := range op.Records {
			op.Records[i].Offset = max(0, op.Records[i].Offset+by)
		}
		op.From = max(0, op.From+by)
	}
}

func (s *source) mutateOutcome(op *Op) {
	op.Outcome = Outcome(s.n("new outcome", 0, 3))
	if op.Return == Open && op.Outcome != Unknown {
		op.Return = op.Invoke + 20
	}
	if op.Outcome == OutOfRange && op.Kind != Delete && op.Kind != Fetch {
		op.Outcome = Failed
	}
}

func (s *source) mutateTruth(by int64) {
	k := Key{Topic: "t"}
	t, ok := s.h.Truth[k]
	if !ok {
		return
	}
	switch s.n("truth mutation", 0, 2) {
	case 0:
		t.Start = max(0, t.Start+by)
	case 1:
		t.End = max(0, t.End+by)
	case 2:
		if len(t.Records) > 0 {
			t.Records = t.Records[:len(t.Records)-1]
		}
	}
	s.h.Truth[k] = t
}

// text is the history as it is saved, for a failing test's message.
func text(h *History) string {
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// agreement counts what the comparison saw.
type agreement struct{ valid, violated, undecided, malformed int }

// agree compares the verdicts on one history.
func (c *agreement) agree(t *rapid.T) {
	h, opts := drawHistory(t)
	keys, ops := h.partitions()
	p := newPart(h, keys[0], ops[keys[0]], opts)
	l := newLayout(p)
	fast, why := Valid, ""
	if len(l.anomalies) > 0 {
		if fast, why = Violated, l.anomalies[0].String(); l.anomalies[0].Kind == Malformed {
			c.malformed++
			return
		}
	} else if a, certain := l.order(); a != nil {
		fast, why = Violated, a.String()
	} else if !certain {
		fast = Undecided
	}
	var known map[int64]int64
	if opts.Gaps { // where the model cannot guess; see known
		known = l.known()
	}
	slow := porcupine.CheckOperations(model(opts), p.operations(known))
	switch {
	case fast == Undecided:
		if c.undecided++; resolvable(h, l) {
			t.Fatalf("%+v: undecided, though the truth tells everything\n%s", opts, text(h))
		}
		return
	case slow:
		c.valid++
	default:
		c.violated++
	}
	if slow != (fast == Valid) {
		t.Fatalf("%+v: near-linear: %v %s; porcupine: %v\n%s", opts, fast, why, slow, text(h))
	}
	if len(l.anomalies) == 0 && slow != porcupine.CheckOperations(model(opts), p.operations(l.known())) {
		t.Fatalf("%+v: resolving unanswered writes changes the verdict from %v\n%s", opts, slow, text(h))
	}
	if strings.Contains(why, "%!") || strings.Contains(why, "\n") {
		t.Fatalf("not one line: %s", why)
	}
}

// resolvable says that nothing can be left open: the truth has every offset, no
// values were sent twice and no deletion is without an answer.
func resolvable(h *History, l *layout) bool {
	openDelete := slices.ContainsFunc(h.Ops, func(op Op) bool { return op.Kind == Delete && op.Outcome == Unknown })
	return h.Truth != nil && !l.p.opts.Gaps && l.known() != nil && !openDelete
}

func TestNearLinearAgreesWithPorcupine(t *testing.T) {
	var c agreement
	for range 40 { // rapid draws a hundred at a time
		rapid.Check(t, c.agree)
	}
	require.NotZero(t, c.valid)
	require.NotZero(t, c.violated)
}

func FuzzNearLinearAgreesWithPorcupine(f *testing.F) {
	var c agreement
	f.Fuzz(rapid.MakeFuzz(c.agree))
}
