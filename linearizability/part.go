package linearizability

import (
	"fmt"
	"math"
)

// minTime is before every instant of a history.
const minTime = int64(math.MinInt64)

// maxOffset bounds the offsets that a history may name, so that sums do not overflow.
const maxOffset = int64(1) << 61

// part is one partition of a history, as the checkers see it.
type part struct {
	key   Key
	opts  Options
	ops   []*Op // by ascending invocation
	ids   []int // index in History.Ops of each
	truth *Truth
	last  int64 // the latest instant of any call or return
}

func newPart(h *History, key Key, ids []int, opts Options) *part {
	p := &part{key: key, opts: opts, ids: ids, ops: make([]*Op, len(ids)), last: minTime}
	for i, id := range ids {
		op := &h.Ops[id]
		p.ops[i] = op
		p.last = max(p.last, op.Invoke)
		if op.Return != Open {
			p.last = max(p.last, op.Return)
		}
	}
	if t, ok := h.Truth[key]; ok {
		p.truth = &t
	}
	return p
}

// anomaly makes an Anomaly of this partition; ops are indexes into p.ops, negative ones are left out.
func (p *part) anomaly(kind Name, ops []int32, format string, args ...any) Anomaly {
	a := Anomaly{Kind: kind, Key: p.key, Line: fmt.Sprintf(format, args...)}
	for _, i := range ops {
		if i >= 0 {
			a.Ops = append(a.Ops, p.ids[i])
		}
	}
	return a
}

// name names operation i with its place in the history.
func (p *part) name(i int32) string {
	if i < 0 {
		return "the truth"
	}
	return fmt.Sprintf("#%d %s", p.ids[i], p.ops[i])
}

// binding says that the operation is an acknowledged write that must be there.
func (o *Op) binding() bool { return o.Kind == Produce && o.Outcome == OK && o.Acks == All }

// weak says that the operation is an acknowledged write that may be lost: if it is there, then at its offset.
func (o *Op) weak() bool {
	return o.Kind == Produce && o.Outcome == OK && o.Acks != All && o.Offset >= 0
}

// open says that the operation is a write of which nobody knows whether, or where, it took effect.
func (o *Op) open() bool {
	return o.Kind == Produce && (o.Outcome == Unknown || o.Outcome == OK && o.Acks != All && o.Offset < 0)
}

// read says that the operation changes nothing.
func (o *Op) read() bool { return o.Kind == Fetch || o.Kind == Latest || o.Kind == Earliest }

// release is the earliest instant at which the operation may take effect.
func (p *part) release(i int32) int64 {
	if p.opts.Mode == Kafka && p.ops[i].read() {
		return minTime
	}
	return p.ops[i].Invoke
}

// due is the latest instant at which the operation takes effect, if it does.
func (p *part) due(i int32) int64 {
	op := p.ops[i]
	if op.weak() || op.Outcome == Unknown || op.open() {
		return Open
	}
	return op.Return
}

// malformed says why the history cannot be judged: a fault of whoever recorded it.
func (p *part) malformed() *Anomaly {
	for i, op := range p.ops {
		if why := op.malformed(); why != "" {
			a := p.anomaly(Malformed, []int32{int32(i)}, "%s: %s", p.name(int32(i)), why)
			return &a
		}
	}
	if t := p.truth; t != nil {
		ok := 0 <= t.Start && t.Start <= t.End && t.End <= maxOffset
		for i, r := range t.Records {
			ok = ok && r.Offset >= 0 && r.Offset < t.End && (i == 0 || t.Records[i-1].Offset < r.Offset)
		}
		if !ok {
			a := p.anomaly(Malformed, nil, "the truth's offsets are not ascending within [0, %d) with start %d", t.End, t.Start)
			return &a
		}
	}
	return nil
}

func (o *Op) malformed() string {
	switch {
	case o.Kind < Produce || o.Kind > Delete:
		return "no such kind"
	case o.Outcome > OutOfRange:
		return "no such outcome"
	case o.Return < o.Invoke:
		return "returned before it was called"
	case o.Return == Open && o.Outcome != Unknown:
		return "never returned, but has an outcome"
	case o.Outcome == OutOfRange && o.Kind != Fetch && o.Kind != Delete:
		return "out of range is no outcome of it"
	case o.Kind == Produce && len(o.Values) == 0:
		return "no values"
	case o.Kind == Fetch && (o.From < 0 || o.From > maxOffset):
		return "fetch from no offset"
	case o.Kind == Delete && (o.To < -1 || o.To > maxOffset):
		return "deletion up to no offset"
	}
	if o.Outcome != OK {
		return ""
	}
	switch {
	case o.Offset < -1 || o.Offset > maxOffset, o.Kind != Produce && o.Kind != Fetch && o.Offset < 0:
		return "answered with no offset"
	case o.Kind == Fetch && (max(o.HighWatermark, o.LogStart) > maxOffset || min(o.HighWatermark, o.LogStart) < -1):
		return "answered with no high watermark or start"
	}
	if o.Kind == Fetch {
		for _, r := range o.Records {
			if r.Offset < 0 || r.Offset > maxOffset {
				return "a record without an offset"
			}
		}
	}
	return ""
}
