package segment

import (
	"encoding/binary"
	"slices"

	"lockstep/core"
	"lockstep/core/log"
)

// recoveryPoint says up to where a log was certainly durable. Everything below
// it that is not as it was written is damage; a torn end can only be at or above it (rule 15).
type recoveryPoint struct {
	off          int64 // offset; -1 if there is none yet
	seg          int64 // base offset of the segment that holds the end of it
	pos          int64 // and the byte position there
	maxTimestamp int64 // of the batches of that segment below pos
}

var noRecoveryPoint = recoveryPoint{off: -1}

// facts are the small things that are known of a log beside its segments.
type facts struct {
	topic         string // its name
	recovery      recoveryPoint
	start         int64 // first offset
	highWatermark int64
	epochs        []log.EpochStart // ascending; replaced, never changed in place
	gaps          bool             // compaction may have removed offsets
	suspect       bool             // damaged, and the recovery point that would prove it is not known
	cleaned       int64            // compacted below: no two records there have one key
}

func newFacts() *facts { return &facts{recovery: noRecoveryPoint} }

// Kinds of entries in the journal. An entry is the kind, the topic id, the partition index and the numbers of the kind.
const (
	entryRecovery = 1 + iota
	entryStart
	entryHighWatermark
	entryEpochs
	entryForget // the log is deleted
	entrySuspect
	entryGaps
	entryTopic
	entryCleaned
)

// entryWriter appends entries.
type entryWriter struct{ buf []byte }

func (w *entryWriter) begin(kind byte, id core.Partition) {
	w.buf = append(w.buf, kind)
	w.buf = append(w.buf, id.Topic[:]...)
	w.int(int64(id.Index))
}

func (w *entryWriter) int(v int64) { w.buf = binary.AppendVarint(w.buf, v) }

func (w *entryWriter) recovery(id core.Partition, p recoveryPoint) {
	w.begin(entryRecovery, id)
	w.int(p.off)
	w.int(p.seg)
	w.int(p.pos)
	w.int(p.maxTimestamp)
}

func (w *entryWriter) offset(kind byte, id core.Partition, off int64) {
	w.begin(kind, id)
	w.int(off)
}

func (w *entryWriter) epochs(id core.Partition, epochs []log.EpochStart) {
	w.begin(entryEpochs, id)
	w.int(int64(len(epochs)))
	for _, e := range epochs {
		w.int(int64(e.Epoch))
		w.int(e.Start)
	}
}

func (w *entryWriter) topic(id core.Partition, name string) {
	w.begin(entryTopic, id)
	w.int(int64(len(name)))
	w.buf = append(w.buf, name...)
}

// all appends everything that is known of a log.
func (w *entryWriter) all(id core.Partition, f *facts) {
	if f.recovery.off >= 0 {
		w.recovery(id, f.recovery)
	}
	w.topic(id, f.topic)
	w.offset(entryStart, id, f.start)
	if f.highWatermark > 0 {
		w.offset(entryHighWatermark, id, f.highWatermark)
	}
	if len(f.epochs) > 0 {
		w.epochs(id, f.epochs)
	}
	if f.suspect {
		w.begin(entrySuspect, id)
	}
	if f.gaps {
		w.begin(entryGaps, id)
	}
	if f.cleaned > 0 {
		w.offset(entryCleaned, id, f.cleaned)
	}
}

// entryReader reads entries; bad once something did not make sense.
type entryReader struct {
	buf []byte
	bad bool
}

func (r *entryReader) int() int64 {
	v, n := binary.Varint(r.buf)
	if n <= 0 {
		r.bad, r.buf = true, nil
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

func (r *entryReader) offset() int64 {
	v := r.int()
	if v < 0 {
		r.bad = true
	}
	return v
}

func (r *entryReader) begin() (kind byte, id core.Partition) {
	if len(r.buf) < 1+len(id.Topic) {
		r.bad = true
		return 0, id
	}
	kind = r.buf[0]
	copy(id.Topic[:], r.buf[1:])
	r.buf = r.buf[1+len(id.Topic):]
	index := r.int()
	id.Index = int32(index)
	r.bad = r.bad || int64(id.Index) != index
	return kind, id
}

func (r *entryReader) text() string {
	n := r.offset()
	if n > int64(len(r.buf)) {
		r.bad = true
		return ""
	}
	text := string(r.buf[:n])
	r.buf = r.buf[n:]
	return text
}

func (r *entryReader) epochs() []log.EpochStart {
	n := r.offset()
	if n > int64(len(r.buf))/2 {
		r.bad = true
		return nil
	}
	list := make([]log.EpochStart, 0, n)
	for range n {
		list = append(list, log.EpochStart{Epoch: int32(r.int()), Start: r.offset()})
	}
	if !slices.IsSortedFunc(list, func(a, b log.EpochStart) int { return int(a.Epoch) - int(b.Epoch) }) {
		r.bad = true
	}
	return list
}

// apply reads entries into m until they end, and reports whether all made sense.
func (r *entryReader) apply(m map[core.Partition]*facts) bool {
	for len(r.buf) > 0 && !r.bad {
		kind, id := r.begin()
		f := m[id]
		if f == nil {
			f = newFacts()
		}
		switch kind {
		case entryRecovery:
			f.recovery = recoveryPoint{off: r.offset(), seg: r.offset(), pos: r.offset(), maxTimestamp: r.int()}
		case entryStart:
			f.start = r.offset()
		case entryHighWatermark:
			f.highWatermark = r.offset()
		case entryEpochs:
			f.epochs = r.epochs()
		case entrySuspect:
			f.suspect = true
		case entryGaps:
			f.gaps = true
		case entryTopic:
			f.topic = r.text()
		case entryCleaned:
			f.cleaned = r.offset()
		case entryForget:
		default:
			r.bad = true
		}
		switch {
		case r.bad:
		case kind == entryForget:
			delete(m, id)
		default:
			m[id] = f
		}
	}
	return !r.bad
}
