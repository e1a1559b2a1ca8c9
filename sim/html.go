package sim

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// page is the space-time diagram without its data: one file that needs nothing else.
//
//go:embed page.html
var page string

// picture is what page.html draws. Names are short because there is one for each event.
type picture struct {
	Title   string         `json:"title"`
	Failure string         `json:"failure,omitempty"`
	At      float64        `json:"at,omitempty"` // of the failure, seconds
	Lanes   []string       `json:"lanes"`
	Brokers int            `json:"brokers"`
	Events  []pictureEvent `json:"events"`
}

type pictureEvent struct {
	At   float64 `json:"t"` // seconds
	Lane int     `json:"l"`
	Kind string  `json:"k"`
	Msg  uint64  `json:"m,omitempty"`
	To   int     `json:"o,omitempty"`
	Text string  `json:"x,omitempty"`
	Log  string  `json:"g,omitempty"`
	End  int64   `json:"e,omitempty"`
}

// WriteHTML writes the trace as a space-time diagram: a lane for each broker and client, messages as arrows,
// faults, crashes and the violated property marked, with zoom and search. The run must have kept a trace.
func (r *Result) WriteHTML(w io.Writer) error {
	if r.Trace == nil {
		return errors.New("the run kept no trace")
	}
	p := picture{Title: fmt.Sprintf("seed %d", r.Seed), Lanes: r.Trace.Lanes, Brokers: len(r.Plan.Brokers)}
	if r.Failure != nil {
		p.Failure, p.At = r.Failure.Error(), float64(r.Failure.At)/1e9
	}
	p.Events = make([]pictureEvent, len(r.Trace.Entries))
	for i := range r.Trace.Entries {
		e := &r.Trace.Entries[i]
		p.Events[i] = pictureEvent{float64(e.At) / 1e9, e.Lane, e.Kind, e.Msg, e.To, e.Text, e.Log, e.End}
	}
	data, err := json.Marshal(p) // it escapes what could end the script
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(page, "/*DATA*/")
	for _, s := range []string{before, string(data), after} {
		if _, err := io.WriteString(w, s); err != nil {
			return err
		}
	}
	return nil
}
