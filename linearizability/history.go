package linearizability

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Kind is what an operation asked for.
type Kind uint8

// Kinds of operations. Each concerns one partition: a request that names
// several partitions is recorded as one operation for each.
const (
	Produce  Kind = iota + 1 // append Values as one batch
	Fetch                    // read records from From on
	Latest                   // ListOffsets -1: the end that a reader may see, the high watermark
	Earliest                 // ListOffsets -2: the log start offset
	Delete                   // DeleteRecords up to To
)

// Outcome is what the client knows of an operation's effect.
type Outcome uint8

// Outcomes.
const (
	Unknown    Outcome = iota // no answer, or one that leaves open whether it took effect
	OK                        // done, and the result fields are the answer
	Failed                    // for certain without effect
	OutOfRange                // Fetch, Delete: refused with OFFSET_OUT_OF_RANGE
)

// Open is the Return of an operation that never returned.
const Open = int64(math.MaxInt64)

// All is the Acks of a produce whose acknowledgement binds: Outcome OK means
// that it is in the log, readable, when the operation returns.
const All = int16(-1)

// NoValue is the value of a record whose bytes the reader could not interpret;
// it never equals what a producer sent.
const NoValue = int64(math.MinInt64)

// Record is one record as a reader saw it.
type Record struct {
	Offset int64 `json:"o"`
	Value  int64 `json:"v"`
}

// Op is one operation of a client on one partition. A field that is not of its Kind is ignored.
type Op struct {
	Process   int     `json:"p"` // who called; used by the consumer's and producer's anomalies and by the picture
	Kind      Kind    `json:"k"`
	Topic     string  `json:"t"`
	Partition int32   `json:"n"`
	Invoke    int64   `json:"i"` // when it was called, nanoseconds on the history's one clock
	Return    int64   `json:"r"` // when it returned, or Open
	Outcome   Outcome `json:"e"`
	Note      string  `json:"note,omitempty"` // for people: the error's name, the attempt, the broker asked

	// Produce. Values are unique in the history, but for one case: a producer
	// that is not idempotent and sends again after a lost answer records each
	// request it sent as an operation of its own with the same Values. An
	// idempotent producer's call, with all its retries, is one operation.
	Acks   int16   `json:"acks,omitempty"`
	Values []int64 `json:"vals,omitempty"`

	// Produce: base offset, -1 if the answer has none. Latest, Earliest: the
	// answer. Delete: the low watermark answered.
	Offset int64 `json:"off,omitempty"`

	// Fetch. Records are those at From and after (a reader drops what a batch
	// holds before From). HighWatermark and LogStart are the answer's, or -1
	// if they were not seen.
	From          int64    `json:"from,omitempty"`
	Records       []Record `json:"recs,omitempty"`
	HighWatermark int64    `json:"hw,omitempty"`
	LogStart      int64    `json:"start,omitempty"`
	// Session numbers the consumer's assignments: as long as it stays the same
	// for one process and partition, each fetch goes on where the last ended.
	Session int64 `json:"sess,omitempty"`

	// Delete: records below To are deleted; -1 means the high watermark.
	To int64 `json:"to,omitempty"`
}

// String describes the operation in one line.
func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "p%d ", o.Process)
	switch o.Kind {
	case Produce:
		fmt.Fprintf(&b, "produce(%s", values(o.Values))
		if o.Acks != All {
			fmt.Fprintf(&b, ", acks=%d", o.Acks)
		}
		b.WriteString(")")
	case Fetch:
		fmt.Fprintf(&b, "fetch(%d)", o.From)
	case Latest:
		b.WriteString("latest()")
	case Earliest:
		b.WriteString("earliest()")
	case Delete:
		fmt.Fprintf(&b, "delete(%d)", o.To)
	default:
		fmt.Fprintf(&b, "kind%d()", o.Kind)
	}
	b.WriteString(" → ")
	b.WriteString(o.result())
	if o.Note != "" {
		b.WriteString(" (" + o.Note + ")")
	}
	fmt.Fprintf(&b, " [%s, %s]", instant(o.Invoke), instant(o.Return))
	return b.String()
}

func (o *Op) result() string {
	switch o.Outcome {
	case Unknown:
		return "unknown"
	case Failed:
		return "failed"
	case OutOfRange:
		return "out of range"
	}
	if o.Kind != Fetch {
		return strconv.FormatInt(o.Offset, 10)
	}
	return o.fetched()
}

func (o *Op) fetched() string {
	var b strings.Builder
	switch n := len(o.Records); n {
	case 0:
		b.WriteString("nothing")
	case 1, 2, 3:
		for i, r := range o.Records {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%d:%s", r.Offset, show(r.Value))
		}
	default:
		first, last := o.Records[0], o.Records[n-1]
		fmt.Fprintf(&b, "%d:%s … %d:%s", first.Offset, show(first.Value), last.Offset, show(last.Value))
	}
	if o.HighWatermark >= 0 {
		fmt.Fprintf(&b, ", high watermark %d", o.HighWatermark)
	}
	if o.LogStart >= 0 {
		fmt.Fprintf(&b, ", start %d", o.LogStart)
	}
	return b.String()
}

func show(v int64) string {
	if v == NoValue {
		return "unreadable"
	}
	return "v" + strconv.FormatInt(v, 10)
}

func values(vs []int64) string {
	if len(vs) == 0 {
		return ""
	}
	if len(vs) <= 3 {
		s := make([]string, len(vs))
		for i, v := range vs {
			s[i] = show(v)
		}
		return strings.Join(s, " ")
	}
	return show(vs[0]) + " … " + show(vs[len(vs)-1])
}

// instant prints nanoseconds as seconds, exactly.
func instant(ns int64) string {
	switch ns {
	case Open:
		return "∞"
	case math.MinInt64:
		return "-∞"
	}
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return fmt.Sprintf("%s%d.%09ds", sign, ns/1e9, ns%1e9)
}

// History is what clients saw, in no particular order. An operation's index in
// Ops is its name in reports.
type History struct {
	Ops []Op
	// Truth, where the caller can tell, is what each log holds in the end: it
	// resolves unknown outcomes, and acknowledged records must be in it. A
	// partition that is not in it is judged by what clients saw alone.
	Truth map[Key]Truth
}

// Key names a partition.
type Key struct {
	Topic     string
	Partition int32
}

// String returns topic-partition.
func (k Key) String() string { return k.Topic + "-" + strconv.Itoa(int(k.Partition)) }

func compareKeys(a, b Key) int {
	if c := cmp.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// Truth is one log as it is in the end: its records by ascending offset, and
// both its ends. What is below Start was deleted; records there may be
// included where they are remembered.
type Truth struct {
	Start, End int64
	Records    []Record
}

// partitions returns the operations' indexes of each partition, by ascending
// invocation, and the partitions in order.
func (h *History) partitions() ([]Key, map[Key][]int) {
	ops := map[Key][]int{}
	for i := range h.Ops {
		k := Key{h.Ops[i].Topic, h.Ops[i].Partition}
		ops[k] = append(ops[k], i)
	}
	for k := range h.Truth {
		if _, ok := ops[k]; !ok {
			ops[k] = nil
		}
	}
	keys := make([]Key, 0, len(ops))
	for k, list := range ops {
		keys = append(keys, k)
		byInvoke := func(a, b int) int {
			return cmp.Or(cmp.Compare(h.Ops[a].Invoke, h.Ops[b].Invoke), cmp.Compare(a, b))
		}
		if !slices.IsSortedFunc(list, byInvoke) {
			slices.SortFunc(list, byInvoke)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys, ops
}

// Recorder collects a history; it may be used by several goroutines at once.
type Recorder struct {
	mu sync.Mutex
	h  History
}

// Begin notes that an operation is called; op.Invoke is its instant. Until End
// it has not returned and its outcome is unknown. The result names it.
func (r *Recorder) Begin(op Op) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Return, op.Outcome = Open, Unknown
	if op.Kind != Fetch {
		op.Offset = -1
	}
	r.h.Ops = append(r.h.Ops, op)
	return len(r.h.Ops) - 1
}

// End notes that operation id returned at now with what fill writes into it.
func (r *Recorder) End(id int, now int64, fill func(*Op)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op := &r.h.Ops[id]
	fill(op)
	op.Return = now
}

// SetTruth notes what a log holds in the end.
func (r *Recorder) SetTruth(k Key, t Truth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.h.Truth == nil {
		r.h.Truth = map[Key]Truth{}
	}
	r.h.Truth[k] = t
}

// History returns a copy of what was recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Ops: slices.Clone(r.h.Ops)}
	if r.h.Truth != nil {
		h.Truth = make(map[Key]Truth, len(r.h.Truth))
		for k, t := range r.h.Truth {
			h.Truth[k] = t
		}
	}
	return h
}
