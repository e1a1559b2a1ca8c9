package linearizability

import (
	"cmp"
	"slices"
)

// This file fills what nobody saw: several sends of the same values, and offsets without a known batch.

// assignGroup says which of several sends of the same values put them at which
// of their places. An acknowledged send names its place. The others have no
// deadline, so that only their calls bound them from below; as places are
// appended in ascending order, giving the earliest calls to the lowest places
// is at least as good as anything else.
func (l *layout) assignGroup(group []int32) {
	first := group[0]
	places := l.places(first)
	taken := map[int64]int32{}
	var flexible, weak []int32
	sends := 0
	for _, i := range group {
		op := l.p.ops[i]
		switch {
		case op.binding() && op.Offset >= 0:
			if by, twice := taken[op.Offset]; twice {
				l.bad(Duplicate, []int32{by, i}, "two sends acknowledged at one offset: %s and %s", l.p.name(by), l.p.name(i))
				return
			}
			taken[op.Offset] = i
			l.put(i, op.Offset)
		case op.binding() || op.open():
			flexible = append(flexible, i)
		case op.weak():
			weak = append(weak, i)
		default:
			continue // failed
		}
		sends++
	}
	var free []int64
	for _, at := range places {
		if _, ok := taken[at]; !ok {
			free = append(free, at)
		}
	}
	if sends == 0 && len(places) > 0 {
		l.aborted(first, places[0])
		return
	}
	l.share(first, sends, free, flexible, weak)
}

// share gives the free places to the sends that may have any place (flexible) or one place (weak).
func (l *layout) share(first int32, sends int, free []int64, flexible, weak []int32) {
	own := map[int64]int32{} // the weak send of a place, the earliest
	for _, i := range weak {
		at := l.p.ops[i].Offset
		if _, dup := own[at]; !dup && slices.Contains(free, at) {
			own[at] = i
		} else {
			l.loose = append(l.loose, i)
		}
	}
	switch n := len(own) + len(flexible); {
	case n < len(free) && len(l.places(first)) == 1: // all that may be there say that they are elsewhere
		l.misplaced(weak[0], free[0])
	case n < len(free):
		l.duplicate(first, sends)
	case l.mustBe(flexible) && (n > len(free) || len(flexible) > 1):
		l.shareLoosely(first, free, flexible, own)
	default:
		l.shareExactly(first, free, flexible, own)
	}
}

// shareExactly goes through the places by ascending offset. A place takes its
// own weak send if that costs nothing: if it was called before any other that
// could be there, or before what stands below was. It takes the earliest
// flexible one if no later place can miss it. Where neither can be said, the rest is left open.
func (l *layout) shareExactly(first int32, free []int64, flexible []int32, own map[int64]int32) {
	below := minTime // the latest call of what stands below
	needed := 0      // flexible ones, by the places to come
	for _, at := range free {
		if _, ok := own[at]; !ok {
			needed++
		}
	}
	for k, at := range free {
		i, ok := own[at]
		later := len(free) - k - 1
		if !ok {
			needed--
		}
		switch mine := l.ownRelease(i, ok); {
		case ok && (len(flexible) == needed || mine <= max(below, l.p.release(flexible[0]))):
			l.put(i, at)
			below = max(below, mine)
		case !ok || later == 0 || len(flexible) > later && l.p.release(flexible[later]) <= mine:
			l.put(flexible[0], at)
			below = max(below, l.p.release(flexible[0]))
			if ok {
				l.loose, l.spared = append(l.loose, i), append(l.spared, flexible[0])
			}
			flexible = flexible[1:]
		default:
			l.shareLoosely(first, free[k:], flexible, own)
			return
		}
	}
	l.loose = append(l.loose, flexible...)
}

func (l *layout) ownRelease(i int32, ok bool) int64 {
	if !ok {
		return Open
	}
	return l.p.release(i)
}

// shareLoosely leaves open who is where, and where the others are, if anywhere.
func (l *layout) shareLoosely(first int32, free []int64, flexible []int32, own map[int64]int32) {
	l.open = true
	for _, at := range free {
		l.putAny(first, at, flexible, own)
	}
	l.loose = append(l.loose, flexible...) // all but one of them may be elsewhere
}

// mustBe says whether one of the sends was acknowledged, so that it has a deadline.
func (l *layout) mustBe(sends []int32) bool {
	return slices.ContainsFunc(sends, func(i int32) bool { return l.p.ops[i].binding() })
}

// putAny puts a batch at a place that any of several sends may have written.
func (l *layout) putAny(first int32, at int64, flexible []int32, own map[int64]int32) {
	release := l.p.release(flexible[0])
	if i, ok := own[at]; ok {
		release = min(release, l.p.release(i))
	}
	l.batches = append(l.batches, batch{at, at + int64(len(l.p.ops[first].Values)), noOp, release, Open})
}

// hole is a range of offsets below the known end of which nobody saw the batch.
type hole struct{ base, end int64 }

// holes fills the offsets that nobody saw. If all writes that may stand there
// are single records without a deadline, the earliest calls go to the lowest
// offsets, as in assignGroup. If not, it is left open.
func (l *layout) holes() {
	holes, size := l.findHoles()
	if len(holes) == 0 {
		l.tail = l.lost
		return
	}
	if l.p.opts.Gaps {
		l.open = l.open || len(l.lost) > 0
		l.ghosts(holes, minTime)
		l.resort()
		return
	}
	single, room, earliest := true, int64(0), Open
	for _, i := range slices.Concat(l.loose, l.lost, l.spared) {
		first := l.first[i] // its values' earliest send, which may be the one in the hole
		op := l.p.ops[i]
		if op.weak() && !l.inHole(holes, op) {
			continue
		}
		single = single && len(op.Values) == 1 && op.open() && l.groups[first] == nil
		room += int64(len(op.Values))
		earliest = min(earliest, l.p.ops[first].Invoke)
	}
	if room < size {
		l.gap(holes[0])
		return
	}
	if single {
		l.fillSingles(holes)
	} else {
		l.open = true
		l.ghosts(holes, earliest)
	}
	l.resort()
}

// findHoles returns the holes and how many offsets they have together.
func (l *layout) findHoles() (holes []hole, size int64) {
	next := int64(0)
	for _, b := range l.batches {
		if b.base > next {
			holes = append(holes, hole{next, b.base})
			size += b.base - next
		}
		next = b.end
	}
	if l.end > next {
		holes = append(holes, hole{next, l.end})
		size += l.end - next
	}
	return holes, size
}

// inHole says whether a write of a known offset fits into one of the holes; into the last one also where it goes beyond.
func (l *layout) inHole(holes []hole, op *Op) bool {
	for _, h := range holes {
		if h.base <= op.Offset && op.Offset < h.end && (op.Offset+int64(len(op.Values)) <= h.end || h.end == l.end) {
			return true
		}
	}
	return false
}

func (l *layout) gap(h hole) {
	by, what := l.ender, l.end
	if k, ok := slices.BinarySearchFunc(l.batches, h.end, func(b batch, base int64) int { return cmp.Compare(b.base, base) }); ok {
		by, what = l.batches[k].op, h.end
		if c := l.cells.get(what); c.set {
			by = c.claim
		}
	}
	l.bad(OffsetGap, []int32{by}, "no record was sent that could stand at offset %d, but the log reaches %d by %s",
		h.base, what, l.p.name(by))
}

func (l *layout) fillSingles(holes []hole) {
	var free []int32
	for _, i := range l.loose {
		if l.p.ops[i].open() {
			free = append(free, i) // by ascending call, as p.ops is
		}
	}
	for _, h := range holes {
		for at := h.base; at < h.end; at++ {
			l.put(free[0], at)
			free = free[1:]
		}
	}
}

// ghosts puts batches of unknown writers into the holes, as many as any operation could tell apart: an end at each offset
// that somebody saw, or was bounded by.
func (l *layout) ghosts(holes []hole, release int64) {
	ends := l.bounded()
	for _, h := range holes {
		base := h.base
		k, _ := slices.BinarySearch(ends, base+1)
		for ; base < h.end; k++ {
			end := h.end
			if k < len(ends) {
				end = min(end, ends[k])
			}
			l.batches = append(l.batches, batch{base, end, noOp, release, Open})
			base = end
		}
	}
}

// bounded returns all offsets at which it may matter that the log ended there, ascending.
func (l *layout) bounded() []int64 {
	var ends []int64
	for _, op := range l.p.ops {
		ends = append(ends, op.HighWatermark, op.LogStart, op.Offset, op.From-1, op.From, op.From+1, op.To-1, op.To)
	}
	if t := l.p.truth; t != nil {
		ends = append(ends, t.Start, t.End)
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

func (l *layout) resort() {
	slices.SortFunc(l.batches, func(a, b batch) int { return cmp.Compare(a.base, b.base) })
}
