package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// workshop builds and runs the worker, with and without bugs.
type workshop struct {
	root string // the module's
	dir  string // for what is built
	keep bool   // leave it there
}

// newWorkshop makes a workshop in a directory of its own or, if keep is not empty, in keep.
func newWorkshop(keep string) (*workshop, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	w := &workshop{root: root, dir: keep, keep: keep != ""}
	if w.keep {
		return w, os.MkdirAll(keep, 0o755)
	}
	w.dir, err = os.MkdirTemp("", "museum-")
	return w, err
}

func (w *workshop) close() {
	if !w.keep {
		os.RemoveAll(w.dir)
	}
}

// discard removes a program that is not needed any more.
func (w *workshop) discard(program string) {
	if !w.keep {
		os.Remove(program)
	}
}

// moduleRoot returns the directory of the go.mod that rules here.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for go.mod: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("not inside the module")
	}
	return filepath.Dir(mod), nil
}

// build builds a package with an exhibit's bug in it (without, for nil), and returns the program.
func (w *workshop) build(e *Entry, pkg string) (string, error) {
	name := "plain"
	args := []string{"build", "-ldflags", "-s -w"} // nobody debugs them, and they are many
	if e != nil {
		name = e.ID
		overlay, _, err := w.overlay(e)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	program := filepath.Join(w.dir, name+".exe")
	return program, w.goTool(append(args, "-o", program, pkg)...)
}

// compile builds the packages that an exhibit changes, and nothing else.
func (w *workshop) compile(e *Entry) error {
	overlay, packages, err := w.overlay(e)
	if err != nil {
		return err
	}
	return w.goTool(append([]string{"build", "-overlay", overlay}, packages...)...)
}

// test runs the test that an exhibit names, with its bug in the product if it has changes, and says whether it failed. Only a test
// that ran and failed has found something: what does not compile, or is not there, is an error.
func (w *workshop) test(e *Entry) (failed bool, output string, err error) {
	pkg, name, _ := strings.Cut(e.Test, " ")
	args := []string{"test", "-count=1", "-v", "-run", "^" + strings.TrimSpace(name) + "$"}
	if len(e.Changes) > 0 {
		overlay, _, err := w.overlay(e)
		if err != nil {
			return false, "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = w.root
	out, err := cmd.CombinedOutput()
	switch output = string(out); {
	case !strings.Contains(output, "=== RUN   "+strings.TrimSpace(name)):
		return false, output, fmt.Errorf("%s was not run: %s", e.Test, tail(output, 2000))
	case err == nil:
		return false, output, nil
	}
	return true, output, nil
}

func (w *workshop) overlay(e *Entry) (string, []string, error) {
	dir := filepath.Join(w.dir, e.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	return e.writeOverlay(w.root, dir)
}

func (w *workshop) goTool(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = w.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Verdict is what the worker prints when it ends.
type Verdict struct {
	Seeds         int     // worlds run
	Seconds       float64 // of processor time, until the first kill, or until it gave up
	Events        int64   // simulated
	Killed        bool
	Seed          uint64  // that failed
	Oracle        string  // that found it
	Reason        string  // in one line
	Plan          int     // steps of the failing world: what clients asked for, and faults that struck
	Shrunk        int     // and of the smallest one found that fails by the same oracle
	Runs          int     // of worlds, to find that one
	ShrinkSeconds float64 // and what they took
	Repeat        string  // what that one leaves out, for lockstep sim run --cut
}

// order is what a worker is asked to do.
type order struct {
	Hints  []string
	First  uint64
	Count  int           // seeds at most; 0 is without bound
	For    time.Duration // at most
	Shrink int           // runs at most to shrink a failure
}

// run runs a worker.
func (w *workshop) run(program string, o order) (Verdict, error) {
	cmd := exec.Command(program, "-hints", strings.Join(o.Hints, ","), "-first", fmt.Sprint(o.First), "-count", fmt.Sprint(o.Count),
		"-for", o.For.String(), "-shrink", fmt.Sprint(o.Shrink))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return Verdict{}, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, tail(stderr.String(), 2000))
	}
	var v Verdict
	if err := json.Unmarshal(out, &v); err != nil {
		return Verdict{}, fmt.Errorf("%s printed %q: %w", filepath.Base(program), tail(string(out), 200), err)
	}
	return v, nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
