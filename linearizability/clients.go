package linearizability

import (
	"cmp"
	"slices"
)

// This file holds the anomalies that one client's operations show by their own
// order, beyond what linearizability asks: a consumer's polls under one
// assignment, a producer's sends. Both look at a laid out partition, whose
// cells say what stands at each offset.

// polls looks for PollSkip and NonmonotonicPoll. Like Jepsen, it forgets a
// consumer's position when its assignment changes; unlike Jepsen, a fetch
// without records leaves the position where it was, and what was deleted
// meanwhile may be passed over.
func (l *layout) polls() (found []Anomaly) {
	type position struct {
		session int64
		op      int32
		last    int64
	}
	at := map[int]position{}
	for i, op := range l.p.ops {
		if op.Kind != Fetch || op.Outcome != OK || len(op.Records) == 0 {
			continue
		}
		i, first := int32(i), op.Records[0].Offset
		if was, ok := at[op.Process]; ok && was.session == op.Session {
			if first <= was.last {
				found = append(found, l.p.anomaly(NonmonotonicPoll, []int32{was.op, i}, "%s goes back to offset %d after %s",
					l.p.name(i), first, l.p.name(was.op)))
			} else if a := l.pollSkip(was.op, i, max(was.last+1, op.LogStart), first); a != nil {
				found = append(found, *a)
			}
		}
		at[op.Process] = position{op.Session, i, op.Records[len(op.Records)-1].Offset}
	}
	return found
}

// pollSkip looks for a record in [from, to).
func (l *layout) pollSkip(was, i int32, from, to int64) *Anomaly {
	o, holds := l.cells.next(from, to)
	if !holds {
		return nil
	}
	a := l.p.anomaly(PollSkip, []int32{was, i}, "%s passes over offset %d, which holds %s, after %s",
		l.p.name(i), o, show(l.cells.get(o).value), l.p.name(was))
	return &a
}

// nonmonotonicSends looks for NonmonotonicSend. Values sent several times are left out: each may be at an earlier send's place.
func (l *layout) nonmonotonicSends() (found []Anomaly) {
	last := map[int]int32{} // by process
	for i, op := range l.p.ops {
		i := int32(i)
		if op.Kind != Produce || op.Outcome == Failed || l.place[i] < 0 || l.groups[l.first[i]] != nil {
			continue
		}
		if was, ok := last[op.Process]; ok && l.place[was] > l.place[i] {
			found = append(found, l.p.anomaly(NonmonotonicSend, []int32{was, i},
				"sent later, but at offset %d before %d: %s, after %s", l.place[i], l.place[was], l.p.name(i), l.p.name(was)))
		}
		last[op.Process] = i
	}
	return found
}

// unseen looks for Unseen among what was not deleted.
func (l *layout) unseen() (found []Anomaly) {
	seen := map[int64]bool{}
	start := int64(0)
	for _, op := range l.p.ops {
		if op.Outcome != OK {
			continue
		}
		switch op.Kind {
		case Fetch:
			start = max(start, op.LogStart)
			for _, r := range op.Records {
				seen[r.Offset] = true
			}
		case Earliest, Delete:
			start = max(start, op.Offset)
		}
	}
	if l.p.truth != nil {
		start = max(start, l.p.truth.Start)
	}
	for i, op := range l.p.ops {
		if !op.binding() || op.Offset < 0 {
			continue
		}
		for k, v := range op.Values {
			if o := op.Offset + int64(k); o >= start && !seen[o] {
				found = append(found, l.p.anomaly(Unseen, []int32{int32(i)}, "no fetch ever showed %s at offset %d by %s",
					show(v), o, l.p.name(int32(i))))
				break
			}
		}
	}
	return found
}

// lostWrites looks for acknowledged records that the truth does not have.
func (l *layout) lostWrites() (found []Anomaly) {
	t := l.p.truth
	if t == nil {
		return nil
	}
	for i, op := range l.p.ops {
		if !op.binding() || op.Offset < 0 {
			continue
		}
		for k, v := range op.Values {
			o := op.Offset + int64(k)
			w, there := t.at(o)
			if there && w == v || !there && o < t.Start {
				continue
			}
			what := "is not there"
			if there {
				what = "holds " + show(w)
			}
			found = append(found, l.p.anomaly(LostWrite, []int32{int32(i)}, "acknowledged, but in the end, with the log at [%d, %d), offset %d %s: %s",
				t.Start, t.End, o, what, l.p.name(int32(i))))
			break
		}
	}
	return found
}

// at returns the value at an offset, if there is one.
func (t *Truth) at(offset int64) (value int64, ok bool) {
	rs := t.Records
	if len(rs) == 0 {
		return 0, false
	}
	if k := offset - rs[0].Offset; k >= 0 && k < int64(len(rs)) && rs[k].Offset == offset {
		return rs[k].Value, true // no gaps before it
	}
	k, ok := slices.BinarySearchFunc(rs, offset, func(r Record, o int64) int { return cmp.Compare(r.Offset, o) })
	if !ok {
		return 0, false
	}
	return rs[k].Value, true
}
