package sim

import (
	"bufio"
	"fmt"
	"io"
)

// Trace is what happened in a world, for people and for the picture. It is
// kept only if somebody asked for it; the hash does not depend on it.
type Trace struct {
	Lanes   []string // names of brokers and clients
	Entries []Entry
	sends   uint64
}

// Entry is one thing that happened.
type Entry struct {
	At   Time
	Lane int    // index into Lanes; -1 is the world itself
	Kind string // send, receive, drop, fault, crash, start, ready, effect, input, op, log, failure
	// Msg pairs a send with its receive, or with what became of it; 0 is none.
	Msg  uint64
	To   int // of a send: the lane that it goes to
	Text string
	// Of entries about one partition: its name, where its log ends or what the high watermark is (kind watermark).
	Log string
	End int64
}

func (t *Trace) lane(name string) int {
	t.Lanes = append(t.Lanes, name)
	return len(t.Lanes) - 1
}

func (t *Trace) add(e Entry) { t.Entries = append(t.Entries, e) }

// message returns a number for a message that is being sent.
func (t *Trace) message() uint64 {
	t.sends++
	return t.sends
}

// Write writes the trace as text, one line for each entry.
func (t *Trace) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i := range t.Entries {
		e := &t.Entries[i]
		lane := "world"
		if e.Lane >= 0 && e.Lane < len(t.Lanes) {
			lane = t.Lanes[e.Lane]
		}
		fmt.Fprintf(b, "%12.6f %-12s %-8s %s", float64(e.At)/1e9, lane, e.Kind, e.Text)
		if e.Msg != 0 {
			fmt.Fprintf(b, " #%d", e.Msg)
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}
