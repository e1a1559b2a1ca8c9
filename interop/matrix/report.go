package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// rowNames are the rows that any of the columns was put through, in their order.
func rowNames(columns []*column) (names []string) {
	for _, p := range phases {
		for _, r := range p.rows {
			ran := func(c *column) bool { _, ran := c.results[r.name]; return ran }
			if !slices.Contains(names, r.name) && slices.ContainsFunc(columns, ran) {
				names = append(names, r.name)
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

// notes are numbered texts below the tables.
type notes []string

func (ns *notes) number(text string) int {
	i := slices.Index(*ns, text)
	if i < 0 {
		*ns = append(*ns, text)
		i = len(*ns) - 1
	}
	return i + 1
}

// table is the matrix of some columns.
func table(columns []*column, ns *notes) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, name := range rowNames(columns) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range columns {
			r, ran := c.results[name]
			switch {
			case !ran:
				b.WriteString(" |")
			case r.failure != "":
				fmt.Fprintf(&b, " **no** [%d] |", ns.number(r.failure))
			case r.gap != "":
				fmt.Fprintf(&b, " – [%d] |", ns.number(r.gap))
			default:
				b.WriteString(" ok |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// markdown is a table of the clients, one of the frameworks, and the notes of both below.
func (w *world) markdown() string {
	var b strings.Builder
	var ns notes
	isClient := func(c *column) bool { return c.framework == "" }
	clients := slices.DeleteFunc(slices.Clone(w.columns), func(c *column) bool { return !isClient(c) })
	frameworks := slices.DeleteFunc(slices.Clone(w.columns), isClient)
	for _, columns := range [][]*column{clients, frameworks} {
		if len(columns) > 0 {
			b.WriteString(table(columns, &ns) + "\n")
		}
	}
	for i, n := range ns {
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
	fmt.Fprintf(&b, "\nRun with %s.\n", strings.Join(slices.Compact(versions), ", "))
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
