package linearizability

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Mode says how fresh reads must be.
type Mode uint8

// Modes.
const (
	// Linearizable: every operation takes effect at one instant between its call and its return.
	Linearizable Mode = iota
	// Kafka: writes as in Linearizable, but a read (Fetch, Latest, Earliest) may show the log as it was at any
	// instant before the read returned, as a deposed leader's or a follower's answer does.
	Kafka
)

// Options say what the system under test promises. The zero value is what Lockstep promises for acks=all.
type Options struct {
	Mode Mode
	// Gaps: offsets may be taken by what no reader sees (transaction markers, aborted records).
	Gaps bool
	// Retention: the log start offset may rise by itself, up to the high watermark.
	Retention bool
	// Sends: fail if a process's records got offsets in another order than it sent them.
	// Only for producers that have one request in flight or are idempotent.
	Sends bool
	// Unseen: fail if an acknowledged record was never fetched. For histories whose consumers read to the end.
	Unseen bool
	// PorcupineTimeout bounds the search where the near-linear checker cannot decide; 0 is ten seconds.
	PorcupineTimeout time.Duration
}

// Verdict is the result of a check.
type Verdict uint8

// Verdicts.
const (
	Valid     Verdict = iota
	Undecided         // no violation found, but the search did not finish
	Violated
)

// String returns the verdict in one word.
func (v Verdict) String() string { return [...]string{"valid", "undecided", "violated"}[v] }

// Report is what a check found.
type Report struct {
	Verdict   Verdict
	Anomalies []Anomaly // by partition, the gravest first; at most 100 of each partition
	Ops       int       // operations checked

	history *History
	opts    Options
}

// Anomaly is one violation.
type Anomaly struct {
	Kind Name
	Key  Key
	Line string // what is wrong, with the offending operations, in one line
	Ops  []int  // the offending operations, as indexes into History.Ops
}

// String is the anomaly in one line.
func (a Anomaly) String() string { return fmt.Sprintf("%s on %s: %s", a.Kind, a.Key, a.Line) }

// Name is the name of an anomaly.
type Name string

// Valid says that nothing was found and the search finished.
func (r Report) Valid() bool { return r.Verdict == Valid }

// String is the verdict with its first reason, in one line.
func (r Report) String() string {
	switch r.Verdict {
	case Valid:
		return fmt.Sprintf("valid: %d operations", r.Ops)
	case Undecided:
		return fmt.Sprintf("undecided: %d operations, search not finished", r.Ops)
	}
	more := ""
	if n := len(r.Anomalies) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("violated: %s%s", r.Anomalies[0], more)
}

// most anomalies reported of one partition.
const most = 100

// Check judges a history. It does not change it, and refers to it in the report.
func Check(h *History, opts Options) Report {
	r := Report{history: h, opts: opts, Ops: len(h.Ops)}
	keys, ops := h.partitions()
	for _, key := range keys {
		verdict, found := newPart(h, key, ops[key], opts).check()
		r.Verdict = max(r.Verdict, verdict)
		r.Anomalies = append(r.Anomalies, found...)
	}
	return r
}

// check judges one partition.
func (p *part) check() (Verdict, []Anomaly) {
	l := newLayout(p)
	found := slices.Clone(l.anomalies)
	if len(found) > 0 && found[0].Kind == Malformed {
		return Violated, found
	}
	found = append(found, l.lostWrites()...)
	found = append(found, l.polls()...)
	if p.opts.Sends {
		found = append(found, l.nonmonotonicSends()...)
	}
	if p.opts.Unseen {
		found = append(found, l.unseen()...)
	}
	verdict := Valid
	if len(l.anomalies) == 0 {
		var a *Anomaly
		if verdict, a = p.linearizable(l); a != nil {
			found = append(found, *a)
		}
	}
	if len(found) > 0 {
		slices.SortStableFunc(found, func(a, b Anomaly) int { return cmp.Compare(a.Kind.rank(), b.Kind.rank()) })
		return Violated, found[:min(len(found), most)]
	}
	return verdict, nil
}

// linearizable judges the order of a laid out partition.
func (p *part) linearizable(l *layout) (Verdict, *Anomaly) {
	a, certain := l.order()
	if a != nil {
		return Violated, a
	}
	if certain {
		return Valid, nil
	}
	switch p.porcupine(l) {
	case porcupine.Ok:
		return Valid, nil
	case porcupine.Illegal:
		a := p.anomaly(NotLinearizable, nil, "no order of its %d operations fits, though no two of them contradict each other", len(p.ops))
		return Violated, &a
	}
	return Undecided, nil
}

// modelled bounds the offsets of a log that the model can hold where offsets may have gaps.
const modelled = 1 << 22

// porcupine searches for an order.
func (p *part) porcupine(l *layout) porcupine.CheckResult {
	if p.opts.Gaps && (len(l.groups) > 0 || l.end > modelled) {
		return porcupine.Unknown // the model would have to guess places, or to hold them all
	}
	timeout := p.opts.PorcupineTimeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	return porcupine.CheckOperationsTimeout(model(p.opts), p.operations(l.known()), timeout)
}

// known returns the places of all values, if they are known: every offset up
// to the end of the truth is, and nothing was sent twice.
func (l *layout) known() map[int64]int64 {
	if !l.p.opts.Gaps {
		if l.p.truth == nil || l.groups != nil {
			return nil
		}
		for at := range l.p.truth.End {
			if !l.cells.get(at).set {
				return nil
			}
		}
	}
	at := map[int64]int64{}
	for i, op := range l.p.ops {
		if op.Kind == Produce && l.place[i] >= 0 {
			at[op.Values[0]] = l.place[i]
		}
	}
	return at
}

// ranks orders the names by gravity.
var ranks = []Name{Malformed, LostWrite, InconsistentOffsets, CorruptRecord, PhantomRecord, AbortedRead, Duplicate, TornBatch,
	OffsetGap, IntNonmonotonicSend, IntSendSkip, IntPollSkip, IntNonmonotonicPoll, BeyondEnd, StartMismatch,
	StaleRead, FutureRead, Reordered, Contradiction, NotLinearizable, PollSkip, NonmonotonicPoll, NonmonotonicSend, Unseen}

func (n Name) rank() int { return slices.Index(ranks, n) }
