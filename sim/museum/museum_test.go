package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"lockstep/sim/museum/internal/hints"

	"github.com/stretchr/testify/require"
)

// Every exhibit fits today's source: each of its changes matches exactly once and leaves Go that parses and is formatted.
// That it compiles, too, `go run ./sim/museum -build` tells.
func TestExhibitsMatchTheSource(t *testing.T) {
	entries, err := Entries()
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	root, err := moduleRoot()
	require.NoError(t, err)
	for _, e := range entries {
		files, err := e.apply(root)
		require.NoError(t, err)
		for _, c := range e.Changes {
			require.Contains(t, files, c.File)
			require.True(t, strings.HasPrefix(c.File, "core/") || strings.HasPrefix(c.File, "disk/") || strings.HasPrefix(c.File, "net/"),
				"%s changes %s, which no simulated world runs", e.ID, c.File)
			require.False(t, strings.HasSuffix(c.File, "_test.go"), e.ID)
		}
	}
}

func TestHintsAreKnown(t *testing.T) {
	entries, err := Entries()
	require.NoError(t, err)
	for _, e := range entries {
		for _, h := range e.Hints {
			require.True(t, hints.Known(h), "%s: hint %q", e.ID, h)
		}
	}
}

const sample = `id: Z01
title: off by one
where: here
breaks: sums
schedule: any
hints: kill power-loss

@ toy.go
 func sum(a, b int) int {
-	return a + b
+	return a + b + 1
 }
@@
-const name = "toy"
+const name = "broken toy"
`

func TestParseEntry(t *testing.T) {
	e, err := parseEntry(sample)
	require.NoError(t, err)
	require.Equal(t, Entry{ID: "Z01", Title: "off by one", Where: "here", Breaks: "sums", Schedule: "any",
		Hints: []string{"kill", "power-loss"}, Changes: []Change{
			{"toy.go", "func sum(a, b int) int {\n\treturn a + b\n}\n", "func sum(a, b int) int {\n\treturn a + b + 1\n}\n"},
			{"toy.go", "const name = \"toy\"\n", "const name = \"broken toy\"\n"},
		}}, e)
	for want, text := range map[string]string{
		"no id":           strings.Replace(sample, "Z01", "Z", 1),
		"wanted":          strings.Replace(sample, "schedule: any\n", "", 1),
		"no such field":   "colour: red\n" + sample,
		"no changes":      sample[:strings.Index(sample, "@ toy")],
		"changes nothing": strings.Replace(sample, " + 1", "", 1),
		"begins with":     strings.Replace(sample, "-\treturn", "?\treturn", 1),
		"begins no":       strings.Replace(sample, "@@", "@@ toy.go", 1),
	} {
		_, err := parseEntry(text)
		require.ErrorContains(t, err, want)
	}
	_, err = readEntries(fstest.MapFS{"e/Z02.txt": {Data: []byte(sample)}}, "e")
	require.ErrorContains(t, err, "holds the entry Z01")
}

func TestChangesMatchExactlyOnce(t *testing.T) {
	const text = "a\nb\nab\nb\n"
	got, err := replaceOnce(text, "a\n", "c\n")
	require.NoError(t, err)
	require.Equal(t, "c\nb\nab\nb\n", got, "whole lines only")
	_, err = replaceOnce(text, "b\n", "c\n")
	require.ErrorContains(t, err, "2 times")
	_, err = replaceOnce(text, "d\n", "c\n")
	require.ErrorContains(t, err, "no longer")
}

// The overlay builds a program that has the bug, from a tree that does not.
func TestOverlayPlantsTheBug(t *testing.T) {
	root, err := filepath.Abs("testdata/toy")
	require.NoError(t, err)
	e, err := parseEntry(sample)
	require.NoError(t, err)
	w := &workshop{root: root, dir: t.TempDir()}
	require.NoError(t, w.compile(&e))
	before, err := os.ReadFile(filepath.Join(root, "toy.go"))
	require.NoError(t, err)
	for entry, want := range map[*Entry]string{nil: "toy says 3", &e: "broken toy says 4"} {
		program, err := w.build(entry, ".")
		require.NoError(t, err)
		out, err := exec.Command(program).Output()
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(string(out)))
	}
	after, err := os.ReadFile(filepath.Join(root, "toy.go"))
	require.NoError(t, err)
	require.Equal(t, before, after)

	e.Changes[0].Old = "func sum(a, b float64)\n"
	_, err = w.build(&e, ".")
	require.ErrorContains(t, err, "no longer has these lines")
	e.Changes = e.Changes[1:]
	e.Changes[0].New = "const  name = \"broken toy\"\n"
	_, err = w.build(&e, ".")
	require.ErrorContains(t, err, "not formatted")
}

func TestChoose(t *testing.T) {
	all := []Entry{{ID: "A01"}, {ID: "B02"}}
	chosen, err := choose(all, "B02, A01")
	require.NoError(t, err)
	require.Equal(t, []Entry{{ID: "B02"}, {ID: "A01"}}, chosen)
	_, err = choose(all, "C03")
	require.ErrorContains(t, err, "no exhibit C03")
}
