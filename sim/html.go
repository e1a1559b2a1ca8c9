package sim

import (
	"bytes"
	"fmt"
	"html"
	"io"
)

// WriteHTML writes the trace as one self-contained page.
func (r *Result) WriteHTML(w io.Writer) error {
	if r.Trace == nil {
		return fmt.Errorf("the run kept no trace")
	}
	var text bytes.Buffer
	if err := r.Trace.Write(&text); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "<!doctype html><meta charset=utf-8><title>seed %d</title><pre>%s</pre>\n", r.Seed, html.EscapeString(text.String()))
	return err
}
