package linearizability

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// This file is the sequential specification of a partition log, as a model
// for porcupine. It is written to be read, not to be fast, and shares nothing
// with the near-linear checker, so that each can judge the other.
//
// The log is a sequence of values from offset 0, of which those below start
// are deleted.
//
//	Produce  appends its values at the end; acknowledged: at the offset answered.
//	         Without an answer: open-ended, so it may come after everything else.
//	         Acknowledged without acks=all: the same, and it may only be at its offset.
//	Fetch    from between start and any offset; shows values from there on, in order,
//	         without gaps, and the end and start as they are. Out of range: from is
//	         below the start or beyond the end.
//	Latest   the end. Earliest: the start.
//	Delete   moves the start up to To, which must not be beyond the end; never down.
//	         Answers the start. Up to the high watermark (-1) it takes two steps: the end
//	         is measured, and the start moves there, when the end may be further on
//	         already; so what is asked is that the end was not beyond the answer when it
//	         was measured. Without an answer: the start may move by itself from then on.
//	Truth    (at the very end) the start, the end, and all values between, and maybe some below.

// state is a state of the model; it is never changed.
type state struct {
	old   []int64 // what the log held at the very beginning; the same in all states of one model
	vals  []int64 // what stands behind it
	start int64
	drift bool   // the start may move by itself
	hash  uint64 // of vals
}

// hidden is the value of an offset that no reader sees, with Options.Gaps.
const hidden = NoValue + 1

func (s state) end() int64 { return int64(len(s.old) + len(s.vals)) }

// at returns the value at an offset below the end.
func (s state) at(offset int64) int64 {
	if n := int64(len(s.old)); offset >= n {
		return s.vals[offset-n]
	}
	return s.old[offset]
}

func (s state) push(vs ...int64) state {
	s.vals = append(s.vals[:len(s.vals):len(s.vals)], vs...)
	for _, v := range vs {
		s.hash = (s.hash ^ uint64(v)) * 0x9E3779B97F4A7C15
		s.hash ^= s.hash >> 29
	}
	return s
}

// extend takes the offsets below end with what nobody sees.
func (s state) extend(end int64) state {
	if end <= s.end() || end > modelled {
		return s
	}
	return s.push(slices.Repeat([]int64{hidden}, int(end-s.end()))...)
}

// modelOp is the input of a porcupine operation: an operation of the history, or the truth.
type modelOp struct {
	*Op
	id    int
	truth *Truth
	ends  bool  // the first step of a deletion up to the high watermark
	at    int64 // Produce: the only offset at which it may append, or -1
	must  bool  // Produce: it must take effect there
}

// model returns the specification that opts promise.
func model(opts Options) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, _ any) (bool, any) { return step(opts, s.(state), in.(modelOp)) },
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.hash == y.hash && x.start == y.start && x.drift == y.drift && slices.Equal(x.vals, y.vals)
		},
		Hash:              func(s any) uint64 { return s.(state).hash + uint64(s.(state).start) },
		DescribeOperation: func(in, _ any) string { return in.(modelOp).describe() },
		DescribeState:     func(s any) string { return s.(state).describe() },
	}
}

func step(opts Options, s state, op modelOp) (bool, state) {
	opts.Retention = opts.Retention || s.drift
	switch {
	case op.truth != nil:
		return stepTruth(opts, s, op.truth)
	case op.ends:
		return s.end() <= op.Offset, s
	}
	switch op.Kind {
	case Produce:
		return stepProduce(opts, s, op)
	case Fetch:
		if op.Outcome == OutOfRange {
			return stepRefused(opts, s, op.From)
		}
		return stepFetch(opts, s, op.Op)
	case Latest:
		s, ok := endIs(opts, s, op.Offset)
		return ok, s
	case Earliest:
		s, ok := startIs(opts, s, op.Offset)
		return ok, s
	default:
		return stepDelete(opts, s, op.Op)
	}
}

func stepProduce(opts Options, s state, op modelOp) (bool, state) {
	if op.at >= 0 && s.end() != op.at {
		if s.end() > op.at || !opts.Gaps {
			return !op.must, s
		}
		s = s.extend(op.at)
	}
	return true, s.push(op.Values...)
}

func stepFetch(opts Options, s state, op *Op) (bool, state) {
	next := op.From
	for _, r := range op.Records {
		if r.Offset >= s.end() || s.at(r.Offset) != r.Value {
			return false, s
		}
		if r.Offset < next || r.Offset > next && !opts.Gaps {
			return false, s
		}
		for ; next < r.Offset; next++ {
			if s.at(next) != hidden {
				return false, s
			}
		}
		next = r.Offset + 1
	}
	if len(op.Records) > 0 && op.HighWatermark >= 0 && next > op.HighWatermark {
		return false, s
	}
	ok := op.From >= s.start
	if ok && op.LogStart >= 0 {
		s, ok = startIs(opts, s, op.LogStart)
	}
	if ok && op.HighWatermark >= 0 {
		s, ok = endIs(opts, s, op.HighWatermark)
	}
	return ok && op.From >= s.start, s
}

func stepRefused(opts Options, s state, from int64) (bool, state) {
	switch {
	case from > s.end() || from < s.start:
		return true, s
	case opts.Retention && (from < s.end() || opts.Gaps):
		s = s.extend(from + 1)
		s.start = from + 1
		return true, s
	}
	return false, s
}

// endIs says whether the end can be h, and how the log then looks.
func endIs(opts Options, s state, h int64) (state, bool) {
	if opts.Gaps {
		s = s.extend(h)
	}
	return s, s.end() == h
}

// startIs says whether the start can be at, and how the log then looks.
func startIs(opts Options, s state, at int64) (state, bool) {
	if opts.Retention && at >= s.start {
		if opts.Gaps {
			s = s.extend(at)
		}
		if at <= s.end() {
			s.start = at
		}
	}
	return s, s.start == at
}

func stepDelete(opts Options, s state, op *Op) (bool, state) {
	to := op.To
	switch {
	case to < 0 && op.Outcome == Unknown:
		s.drift = true
		return true, s
	case to < 0 && op.Outcome == OutOfRange:
		return false, s
	case to < 0:
		to = op.Offset
	}
	if opts.Gaps && op.Outcome != OutOfRange {
		s = s.extend(to)
	}
	switch {
	case op.Outcome == OutOfRange:
		return to > s.end(), s
	case to > s.end():
		return op.Outcome == Unknown, s // refused, if it came at all
	}
	s.start = max(s.start, to)
	if op.Outcome == Unknown {
		return true, s
	}
	s, ok := startIs(opts, s, op.Offset)
	return ok, s
}

func stepTruth(opts Options, s state, t *Truth) (bool, state) {
	s, ok := startIs(opts, s, t.Start)
	if ok {
		s, ok = endIs(opts, s, t.End)
	}
	next := t.Start
	for _, r := range t.Records {
		ok = ok && s.at(r.Offset) == r.Value
		for ; ok && next < r.Offset; next++ {
			ok = s.at(next) == hidden
		}
		next = max(next, r.Offset+1)
	}
	for ; ok && next < t.End; next++ {
		ok = s.at(next) == hidden
	}
	return ok, s
}

func (op modelOp) describe() string {
	if op.truth != nil {
		return fmt.Sprintf("the truth → %d to %d", op.truth.Start, op.truth.End)
	}
	if op.ends {
		return fmt.Sprintf("#%d measures the end", op.id)
	}
	text := op.Op.String()
	if k := strings.LastIndex(text, " ["); k >= 0 {
		text = text[:k] // the picture shows the times
	}
	return fmt.Sprintf("#%d %s", op.id, text)
}

func (s state) describe() string {
	const few = 4
	var b strings.Builder
	fmt.Fprintf(&b, "start %d, end %d:", s.start, s.end())
	first := max(0, s.end()-few)
	if first > 0 {
		b.WriteString(" …")
	}
	for at := first; at < s.end(); at++ {
		if v := s.at(at); v == hidden {
			b.WriteString(" hidden")
		} else {
			b.WriteString(" " + show(v))
		}
	}
	return b.String()
}

// operations returns what porcupine has to order. Operations without effect or
// answer are left out. With at, a map of the places of values that is known to
// be complete, unanswered writes are resolved beforehand.
func (p *part) operations(at map[int64]int64) []porcupine.Operation {
	var list []porcupine.Operation
	for i, op := range p.ops {
		if op.Outcome == Failed || op.read() && op.Outcome == Unknown {
			continue
		}
		m := modelOp{Op: op, id: p.ids[i], at: -1}
		if op.binding() || op.weak() {
			m.at, m.must = op.Offset, op.binding()
		}
		if op.Kind == Produce && m.at < 0 && at != nil {
			place, there := at[op.Values[0]]
			if !there && !m.must {
				continue
			}
			if there {
				m.at = place
			}
		}
		o := porcupine.Operation{ClientId: op.Process, Input: m, Call: p.release(int32(i)), Return: p.due(int32(i))}
		list = append(list, o)
		if op.Kind == Delete && op.To < 0 && op.Outcome == OK {
			m.ends = true
			o.Input = m
			list = append(list, o)
		}
	}
	if t := p.truth; t != nil {
		call := max(p.last, minTime+1) + 1
		list = append(list, porcupine.Operation{Input: modelOp{truth: t, id: -1}, Call: call, Return: call})
	}
	return list
}
