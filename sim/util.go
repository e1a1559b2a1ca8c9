package sim

import (
	"fmt"
	"strconv"

	"lockstep/compress"
	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/record"
	"lockstep/disk/segment"
	"lockstep/linearizability"
	"lockstep/net/kafka"
	"lockstep/sim/simdisk"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func itoa(n int) string { return strconv.Itoa(n) }

// scratch is memory that is used again and again.
type scratch struct {
	reads   []segment.ReadRequest
	results []segment.ReadResult
	spans   []kafka.Span
	found   []int
	pieces  []kafka.Piece
	head    []byte
	bufs    [][]byte
}

// takeBuf returns an empty buffer for a frame.
func (w *world) takeBuf() []byte {
	if n := len(w.scratch.bufs); n > 0 {
		b := w.scratch.bufs[n-1]
		w.scratch.bufs = w.scratch.bufs[:n-1]
		return b[:0]
	}
	return make([]byte, 0, 512)
}

// takeBufFor returns an empty buffer that is large enough for a request. Those of Produce are never given back: what
// brokers store refers to them.
func (w *world) takeBufFor(req kmsg.Request) []byte {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return w.takeBuf()
	}
	n := 100
	for i := range p.Topics {
		n += 40
		for j := range p.Topics[i].Partitions {
			n += 20 + len(p.Topics[i].Partitions[j].Records)
		}
	}
	return make([]byte, 0, n)
}

// giveBuf takes a frame back that nothing refers to any more.
func (w *world) giveBuf(b []byte) {
	if cap(b) >= 512 && len(w.scratch.bufs) < 64 {
		w.scratch.bufs = append(w.scratch.bufs, b)
	}
}

// wallBirth is the wall clock at the beginning of every world, in milliseconds.
const wallBirth = 1_700_000_000_000

// wall is the true wall clock in milliseconds, which is what clients have.
func (w *world) wall() int64 { return wallBirth + w.now/millisecond }

func (w *world) newLane(name string) int {
	w.lanes++
	if w.trace != nil {
		w.trace.lane(name)
	}
	return w.lanes - 1
}

func (w *world) event(lane int, kind, text string) {
	if w.trace != nil {
		w.trace.add(Entry{At: w.now, Lane: lane, Kind: kind, Text: text})
	}
}

func (w *world) hostIndex(nodeID int32) int {
	if i := int(nodeID) - 1; i >= 0 && i < len(w.hosts) {
		return i
	}
	return -1
}

// partitions returns how many partitions a topic has for certain.
func (w *world) partitions(topic int) int32 { return w.plan.Topics[topic].Partitions + w.added[topic] }

// grow notes that a topic has n partitions.
func (w *world) grow(topic int, n int32) {
	w.added[topic] = max(w.added[topic], n-w.plan.Topics[topic].Partitions)
}

func (w *world) weak(topic string) bool {
	for i := range w.plan.Topics {
		if w.plan.Topics[i].Name == topic {
			return w.plan.Topics[i].weak()
		}
	}
	return false
}

// recorded says that operations on a topic go into the history: not those on a
// topic that promises nothing in a world in which machines lose power or disks fail.
func (w *world) recorded(topic int) bool {
	return !w.plan.Topics[topic].weak() || !w.losesUnsynced
}

// losesUnsynced says that something in the plan may take away what is not synced.
func (p *Plan) losesUnsynced() bool {
	if p.PowerLossAtEnd || len(p.LostAtEnd) > 0 {
		return true
	}
	for i := range p.Faults {
		switch p.Faults[i].Kind {
		case PowerLoss, Blackout, DiskRule, BitRot:
			return true
		}
	}
	return false
}

// rots says that something in the plan may change bytes.
func (p *Plan) rots() bool {
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Kind == BitRot || f.Kind == DiskRule && (f.Rule.Effect == simdisk.RotRead || f.Rule.Effect == simdisk.Misdirect) {
			return true
		}
	}
	return false
}

// begin notes that an operation is called, and returns its place in the history.
func (w *world) begin(op linearizability.Op) int {
	op.Invoke, op.Return, op.Outcome = w.now, linearizability.Open, linearizability.Unknown
	op.Offset = -1
	w.history.Ops = append(w.history.Ops, op)
	return len(w.history.Ops) - 1
}

// beginAt is begin for an operation on a topic, if it is to be recorded; else it returns -1.
func (w *world) beginAt(topic int, op linearizability.Op) int {
	if !w.recorded(topic) {
		return -1
	}
	return w.begin(op)
}

// end notes that an operation has returned.
func (w *world) end(i int, outcome linearizability.Outcome) *linearizability.Op {
	op := &w.history.Ops[i]
	op.Return, op.Outcome = w.now, outcome
	return op
}

func (w *world) endWith(i int, outcome linearizability.Outcome, offset int64) {
	if i >= 0 {
		w.end(i, outcome).Offset = offset
	}
}

// note adds an operation that began at an earlier instant and returns now.
func (w *world) note(topic int, op linearizability.Op, began Time) {
	if w.recorded(topic) {
		op.Invoke, op.Return = began, w.now
		w.history.Ops = append(w.history.Ops, op)
	}
}

// What a trace says of frames, inputs and effects. Only worlds that are watched come here.

func describeFrame(from int, data []byte) string {
	if from == dialer && len(data) >= 12 {
		h, err := kafka.ParseHead(data[4:])
		if err == nil {
			return fmt.Sprintf("%s v%d, %d bytes", kmsg.NameForKey(h.Key), h.Version, len(data))
		}
	}
	return fmt.Sprintf("answer, %d bytes", len(data))
}

// eventOn is an entry about one log, which ends at end.
func (h *host) eventOn(kind string, log core.Partition, end int64, text string) {
	name := h.w.oracle.label(log)
	h.w.trace.add(Entry{At: h.w.now, Lane: h.lane, Kind: kind, Text: fmt.Sprintf("%s (%s, end %d)", text, name, end), Log: name, End: end})
}

func (h *host) traceInput(in broker.Input) {
	text := ""
	switch in := in.(type) {
	case broker.Tick:
		return
	case broker.Request:
		text = kmsg.NameForKey(in.Msg.Key()) + " from " + in.Client.ID
	case broker.LogOpened:
		h.eventOn("input", in.Log, in.State.End, fmt.Sprintf("log opened: start %d clean %v err %v", in.State.Start, in.State.Clean, in.Err))
		return
	case broker.Written:
		h.eventOn("input", in.Log, in.End, "written")
		return
	case broker.Durable:
		h.eventOn("input", in.Log, in.End, "durable")
		return
	default:
		text = fmt.Sprintf("%T%+v", in, in)
	}
	h.w.event(h.lane, "input", text)
}

func (h *host) traceEffect(e broker.Effect) {
	switch e := e.(type) {
	case broker.Append:
		last := e.Batches[len(e.Batches)-1]
		h.eventOn("effect", e.Log, last.NextOffset(), fmt.Sprintf("append: from %d sync %v", e.Batches[0].BaseOffset(), e.Sync))
	case broker.Respond:
		h.w.event(h.lane, "effect", fmt.Sprintf("respond to %d.%d", e.Conn, e.Seq))
	case broker.Log:
		h.w.event(h.lane, "log", fmt.Sprint(e.Msg, " ", e.Attrs))
	case broker.SaveState, broker.SaveProducers, broker.SaveSnapshot:
		h.w.event(h.lane, "effect", fmt.Sprintf("%T", e))
	default:
		h.w.event(h.lane, "effect", fmt.Sprintf("%T%+v", e, e))
	}
}

// codecs decompresses into memory of its own: what it returns is good until the next call.
type codecs struct {
	compress.Codecs
	buf []byte
}

// Decompress implements record.Decompressor.
func (c *codecs) Decompress(dst []byte, codec record.Codec, src []byte, limit int) ([]byte, error) {
	if dst != nil {
		return c.Codecs.Decompress(dst, codec, src, limit)
	}
	out, err := c.Codecs.Decompress(c.buf[:0:cap(c.buf)], codec, src, limit)
	if cap(out) > cap(c.buf) {
		c.buf = out
	}
	return out, err
}

// Release implements record.Decompressor.
func (c *codecs) Release([]byte) {}
