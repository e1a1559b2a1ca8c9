package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// outcome is what came of the suite against one cluster.
type outcome struct {
	brokers int
	took    time.Duration
	results map[string]string   // by test or subtest: pass, fail, skip, or that it did not end
	output  map[string][]string // what it printed
	failed  bool                // the test process said so
	log     string
}

// wrong lists what failed, did not end, or skipped itself for a reason that nobody knew of.
func (out *outcome) wrong() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(out.results)) {
		top, _, _ := strings.Cut(name, "/")
		_, known := omitted[top]
		if r := out.results[name]; r != "pass" && !(r == "skip" && known) {
			names = append(names, name)
		}
	}
	return names
}

func (out *outcome) ok() bool { return !out.failed && len(out.wrong()) == 0 && out.passed() > 0 }

// passed counts the tests that passed, subtests not counted.
func (out *outcome) passed() (n int) {
	for name, r := range out.results {
		if r == "pass" && !strings.Contains(name, "/") {
			n++
		}
	}
	return n
}

// subtests counts the subtests that passed.
func (out *outcome) subtests() (n int) {
	for name, r := range out.results {
		if r == "pass" && strings.Contains(name, "/") {
			n++
		}
	}
	return n
}

// lastWords is how many lines of a failed test's output are shown.
const lastWords = 30

func (out *outcome) print() {
	wrong := out.wrong()
	fmt.Printf("brokers=%d passed=%d subtests=%d wrong=%d left_out=%d seconds=%.0f\n", out.brokers, out.passed(), out.subtests(), len(wrong), len(omitted), out.took.Seconds())
	for _, name := range wrong {
		lines := out.output[name]
		fmt.Printf("%s: %s\n%s", name, out.results[name], strings.Join(lines[max(0, len(lines)-lastWords):], ""))
	}
	if out.failed && len(wrong) == 0 {
		fmt.Println("the tests' process failed, see", out.log)
	}
}

const (
	beginMark = "<!-- kgo-suite:begin (made by go run ./interop/kgo-suite -update) -->\n"
	endMark   = "<!-- kgo-suite:end -->"
)

// updateDocs writes the result between its marks.
func updateDocs(path, version string, all []*outcome) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the result", path)
	}
	return os.WriteFile(path, slices.Concat(before, []byte(beginMark+markdown(version, all)+endMark), after), 0o644)
}

func markdown(version string, all []*outcome) string {
	var b strings.Builder
	b.WriteString("| brokers | tests passed | subtests passed | failed |\n|---|---|---|---|\n")
	for _, out := range all {
		fmt.Fprintf(&b, "| %d | %d | %d | %d |\n", out.brokers, out.passed(), out.subtests(), len(out.wrong()))
	}
	b.WriteString("\n| left out | it is of |\n|---|---|\n")
	byReason := map[string][]string{}
	for name, o := range omitted {
		byReason[o.why] = append(byReason[o.why], name)
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		slices.Sort(byReason[why])
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(byReason[why], ", "), why)
	}
	fmt.Fprintf(&b, "\nRun with franz-go %s.\n", version)
	return b.String()
}
