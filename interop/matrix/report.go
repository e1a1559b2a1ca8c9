package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// rowNames are the rows that any client was put through, in their order.
func (w *world) rowNames() (names []string) {
	for _, p := range phases {
		for _, r := range p.rows {
			for _, c := range w.columns {
				if _, ran := c.results[r.name]; ran {
					names = append(names, r.name)
					break
				}
			}
		}
	}
	return names
}

// report prints what counts and says whether no row failed.
func (w *world) report() bool {
	passed, gaps, failed := 0, 0, 0
	for _, c := range w.columns {
		for name, r := range c.results {
			switch {
			case r.failure != "":
				failed++
				fmt.Printf("FAILED %s, %s: %s\n", c.name, name, r.failure)
			case r.gap != "":
				gaps++
			default:
				passed++
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, gaps)
	return failed == 0 && passed > 0
}

// markdown is the matrix as a table with numbered notes below.
func (w *world) markdown() string {
	var b strings.Builder
	var notes []string
	note := func(text string) string {
		for i, n := range notes {
			if n == text {
				return fmt.Sprint(i + 1)
			}
		}
		notes = append(notes, text)
		return fmt.Sprint(len(notes))
	}
	b.WriteString("| |")
	for _, c := range w.columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(w.columns)) + "\n")
	for _, name := range w.rowNames() {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range w.columns {
			r, ran := c.results[name]
			switch {
			case !ran:
				b.WriteString(" |")
			case r.failure != "":
				fmt.Fprintf(&b, " **no** [%s] |", note(r.failure))
			case r.gap != "":
				fmt.Fprintf(&b, " – [%s] |", note(r.gap))
			default:
				b.WriteString(" ok |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, n := range notes {
		fmt.Fprintf(&b, "[%d] %s  \n", i+1, n)
	}
	var versions []string
	for _, c := range w.columns {
		if c.missing != "" {
			versions = append(versions, c.name+" was not installed")
		} else if c.version != "" {
			versions = append(versions, c.version)
		}
	}
	fmt.Fprintf(&b, "\nRun with %s.\n", strings.Join(versions, ", "))
	return b.String()
}

const begin, end = "<!-- interop:begin (made by interop/run -update) -->\n", "<!-- interop:end -->"

func (w *world) updateDocs(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, found2 := bytes.Cut(rest, []byte(end))
	if !found || !found2 {
		return fmt.Errorf("%s has no markers for the matrix", path)
	}
	out := string(before) + begin + w.markdown() + end + string(after)
	return os.WriteFile(path, []byte(out), 0o644)
}
