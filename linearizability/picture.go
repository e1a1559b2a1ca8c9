package linearizability

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// pictured bounds the operations of one picture: more neither porcupine nor a reader digests.
const pictured = 200

// WriteHTML writes one self-contained page with porcupine's picture of the
// partition of the first anomaly: all its operations if they are few, else
// those around the offending ones in time, on top of the log as it was before
// them. The offending operations are marked, with the reason. A valid report
// shows its first partition.
func (r Report) WriteHTML(w io.Writer) error {
	keys, ops := r.history.partitions()
	if len(keys) == 0 {
		return fmt.Errorf("an empty history has no picture")
	}
	a := Anomaly{Key: keys[0]}
	if len(r.Anomalies) > 0 {
		a = r.Anomalies[0]
	}
	p := newPart(r.history, a.Key, ops[a.Key], r.opts)
	m := model(r.opts)
	list := p.operations(nil)
	if len(list) > pictured {
		l := newLayout(p)
		p = newPart(r.history, a.Key, r.around(ops[a.Key], a.Ops), r.opts)
		p.truth = nil
		initial := p.before(l)
		m.Init = func() any { return initial }
		list = p.after(l, initial.end())
	}
	clients(list)
	_, info := porcupine.CheckOperationsVerbose(m, list, 2*time.Second)
	info.AddAnnotations(r.annotations(p, a))
	return porcupine.Visualize(m, info, w)
}

// around chooses operations near the offending ones in time.
func (r Report) around(ids, offending []int) []int {
	low, high := Open, minTime
	for _, id := range offending {
		op := &r.history.Ops[id]
		low, high = min(low, op.Invoke), max(high, op.Invoke)
		if op.Return != Open {
			high = max(high, op.Return)
		}
	}
	away := func(id int) int64 { // from the window
		op := &r.history.Ops[id]
		return max(0, low-op.Return, op.Invoke-high)
	}
	near := slices.Clone(ids)
	slices.SortStableFunc(near, func(a, b int) int {
		if x, y := slices.Contains(offending, a), slices.Contains(offending, b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(away(a), away(b))
	})
	near = near[:min(len(near), pictured)]
	slices.SortFunc(near, func(a, b int) int { return cmp.Compare(r.history.Ops[a].Invoke, r.history.Ops[b].Invoke) })
	return near
}

// before returns the log as it was before the operations of p, a part of those
// that l lays out: all that stands below the first of their appends and of the
// ends they saw.
func (p *part) before(l *layout) state {
	end, start := l.end, Open
	for _, op := range p.ops {
		if op.Outcome != OK {
			continue
		}
		switch op.Kind {
		case Produce:
			if op.Offset >= 0 {
				end = min(end, op.Offset)
			}
		case Fetch:
			if op.HighWatermark >= 0 {
				end = min(end, op.HighWatermark)
			}
			if op.LogStart >= 0 {
				start = min(start, op.LogStart)
			}
		case Latest:
			end = min(end, op.Offset)
		case Earliest:
			start = min(start, op.Offset)
		}
	}
	var s state
	if end > modelled {
		end = 0 // nobody has written so much: somebody saw an end that makes no sense
	}
	for at := range end {
		if c := l.cells.get(at); c.set {
			s.old = append(s.old, c.value)
		} else {
			s.old = append(s.old, hidden)
		}
	}
	if start != Open {
		s.start = min(start, end)
	}
	return s
}

// after returns the operations of p, without writes that stand below begin or nowhere.
func (p *part) after(l *layout, begin int64) []porcupine.Operation {
	places := map[int64]int64{}
	for i, op := range l.p.ops {
		if op.Kind == Produce && l.place[i] >= 0 {
			places[op.Values[0]] = l.place[i]
		}
	}
	return slices.DeleteFunc(p.operations(places), func(o porcupine.Operation) bool {
		op := o.Input.(modelOp)
		return op.Kind == Produce && op.at >= 0 && op.at < begin
	})
}

// clients numbers the processes from 0 without gaps, as porcupine wants them.
func clients(list []porcupine.Operation) {
	dense := map[int]int{}
	for i := range list {
		op := list[i].Input.(modelOp)
		id := minInt // the truth's
		if op.truth == nil {
			id = list[i].ClientId
		}
		if _, ok := dense[id]; !ok {
			dense[id] = len(dense)
		}
		list[i].ClientId = dense[id]
	}
}

const minInt = -int(^uint(0)>>1) - 1

// annotations marks the offending operations.
func (r Report) annotations(p *part, a Anomaly) []porcupine.Annotation {
	var list []porcupine.Annotation
	for _, id := range a.Ops {
		op := &r.history.Ops[id]
		end := op.Return
		if end == Open {
			end = max(p.last, op.Invoke)
		}
		list = append(list, porcupine.Annotation{
			Tag: "offending", Start: op.Invoke, End: end, Description: fmt.Sprintf("#%d", id),
			Details: fmt.Sprintf("%s: %s", a.Kind, a.Line), BackgroundColor: "#ffb3b3",
		})
	}
	return list
}
