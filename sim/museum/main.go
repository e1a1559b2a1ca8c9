package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"lockstep/sim/museum/internal/hints"
)

func main() {
	var c curator
	run := flag.String("run", "", "ids of exhibits, separated by commas; empty is all")
	flag.DurationVar(&c.budget, "for", time.Minute, "processor time for each exhibit")
	flag.IntVar(&c.shrink, "shrink", 3000, "runs at most to shrink each failure; 0 is none")
	flag.Uint64Var(&c.first, "first", 1, "the first seed")
	flag.BoolVar(&c.control, "control", true, "run the product as it is over the same seeds")
	flag.StringVar(&c.keep, "keep", "", "directory to leave the programs in: ID.exe runs worlds, see its -help")
	build := flag.Bool("build", false, "only compile")
	list := flag.Bool("list", false, "only list")
	verbose := flag.Bool("v", false, "print the reason of each kill, and the seed")
	flag.Parse()
	c.verbose = *verbose
	if err := c.open(*run, *list, *build); err != nil {
		fmt.Fprintln(os.Stderr, "museum:", err)
		os.Exit(1)
	}
}

// curator shows exhibits.
type curator struct {
	budget           time.Duration
	shrink           int
	first            uint64
	control, verbose bool
	keep             string

	shop  *workshop
	plain string // the worker without bugs
}

func (c *curator) open(ids string, list, build bool) error {
	entries, err := Entries()
	if err != nil {
		return err
	}
	if entries, err = choose(entries, ids); err != nil {
		return err
	}
	if list {
		for _, e := range entries {
			fmt.Printf("%-4s %s (%s)\n     breaks: %s\n     schedule: %s\n", e.ID, e.Title, e.Where, e.Breaks, e.Schedule)
		}
		return nil
	}
	if c.shop, err = newWorkshop(c.keep); err != nil {
		return err
	}
	defer c.shop.close()
	if build {
		return c.compile(entries)
	}
	return c.show(entries)
}

// choose returns the entries with the ids, all if there are none.
func choose(entries []Entry, ids string) ([]Entry, error) {
	if ids == "" {
		return entries, nil
	}
	var chosen []Entry
	for _, id := range strings.Split(ids, ",") {
		found := false
		for _, e := range entries {
			if e.ID == strings.TrimSpace(id) {
				chosen, found = append(chosen, e), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no exhibit %s", id)
		}
	}
	return chosen, nil
}

func (c *curator) compile(entries []Entry) error {
	for _, e := range entries {
		if err := c.shop.compile(&e); err != nil {
			return err
		}
		fmt.Println(e.ID, "compiles")
	}
	return nil
}

const row = "%-4s  %-44s  %-22s  %7s  %8s  %9s  %s\n"

// show plants each exhibit and prints the table.
func (c *curator) show(entries []Entry) (err error) {
	if c.control {
		if c.plain, err = c.shop.build(nil, workerPackage); err != nil {
			return err
		}
	}
	fmt.Printf(row, "id", "violated property", "killed by", "seeds", "seconds", "shrunk to", "the product")
	var alive []string
	for _, e := range entries {
		ok, err := c.showOne(&e)
		if err != nil {
			return fmt.Errorf("%s: %w", e.ID, err)
		}
		if !ok {
			alive = append(alive, e.ID)
		}
	}
	if len(alive) > 0 {
		return errors.New("not as it should be: " + strings.Join(alive, ", "))
	}
	return nil
}

// showOne plants one exhibit; false means that it survived, or that the product failed the same seeds.
func (c *curator) showOne(e *Entry) (bool, error) {
	if e.Test != "" {
		return c.showTest(e)
	}
	if _, ok := hints.Next(c.first, e.Hints); !ok {
		fmt.Printf(row, e.ID, clip(e.Breaks, 44), "-", "0", "", "", "waits for worlds with "+strings.Join(e.Hints, ", "))
		return true, nil
	}
	program, err := c.shop.build(e, workerPackage)
	if err != nil {
		return false, err
	}
	defer c.shop.discard(program)
	v, product, err := c.hunt(e, program)
	if err != nil {
		return false, err
	}
	killer, length := "SURVIVED", ""
	if v.Killed {
		killer, length = v.Oracle, fmt.Sprintf("%d of %d", v.Shrunk, v.Plan)
	}
	verdict := ""
	switch {
	case product.Killed:
		verdict = fmt.Sprintf("FAILS seed %d: %s: %s", product.Seed, product.Oracle, product.Reason)
	case c.control:
		verdict = fmt.Sprintf("passes %d", product.Seeds)
	}
	fmt.Printf(row, e.ID, clip(e.Breaks, 44), killer, fmt.Sprint(v.Seeds), fmt.Sprintf("%.1f", v.Seconds), length, verdict)
	if c.verbose && v.Killed {
		fmt.Printf("      seed %d, cut %q (%d runs, %.1f s): %s\n", v.Seed, v.Repeat, v.Runs, v.ShrinkSeconds, v.Reason)
	}
	return v.Killed && !product.Killed, nil
}

// showTest plants an exhibit that no world shows, and runs the test that does; false means that it passed, or failed without the bug, too.
func (c *curator) showTest(e *Entry) (bool, error) {
	began := time.Now()
	killed, output, err := c.shop.test(e)
	if err != nil {
		return false, err
	}
	seconds := time.Since(began).Seconds()
	verdict, passes := "", true
	if c.control {
		failed, _, err := c.shop.test(&Entry{Test: e.Test})
		if err != nil {
			return false, err
		}
		verdict = "passes"
		if passes = !failed; failed {
			verdict = "FAILS"
		}
	}
	name := strings.Fields(e.Test)[1]
	killer := clip(name, 22)
	if !killed {
		killer = "SURVIVED"
	}
	fmt.Printf(row, e.ID, clip(e.Breaks, 44), killer, "-", fmt.Sprintf("%.1f", seconds), "", verdict)
	if c.verbose {
		fmt.Printf("      hidden from worlds: %s\n      %s: %s\n", e.Hidden, name, reasonOf(output))
	}
	return killed && passes, nil
}

// reasonOf finds the line of a test's output that says what was wrong.
func reasonOf(output string) string {
	for _, mark := range []string{"Error:", "panic:", "--- FAIL"} {
		for _, line := range strings.Split(output, "\n") {
			if _, why, ok := strings.Cut(line, mark); ok {
				return strings.TrimSpace(why)
			}
		}
	}
	return ""
}

// hunt runs worlds with the bug until one fails that does not fail without it,
// and then, for the control, the product over all of those seeds.
func (c *curator) hunt(e *Entry, program string) (v, product Verdict, err error) {
	var seeds int
	var seconds float64
	first := c.first
	for {
		left := c.budget - time.Duration(seconds*float64(time.Second))
		v, err = c.shop.run(program, order{Hints: e.Hints, First: first, For: max(left, time.Second), Shrink: c.shrink})
		if err != nil {
			return v, product, err
		}
		seeds, seconds = seeds+v.Seeds, seconds+v.Seconds
		v.Seeds, v.Seconds = seeds, seconds
		if !v.Killed || !c.control {
			break
		}
		same, err := c.shop.run(c.plain, order{Hints: e.Hints, First: v.Seed, Count: 1, For: c.budget})
		if err != nil {
			return v, product, err
		}
		if !same.Killed {
			break
		}
		product, first = same, v.Seed+1 // not the bug's doing
		if v.Killed = seconds < c.budget.Seconds(); !v.Killed {
			break
		}
	}
	if c.control && !product.Killed && v.Seeds > 0 {
		product, err = c.shop.run(c.plain, order{Hints: e.Hints, First: c.first, Count: v.Seeds, For: 4 * c.budget})
	}
	return v, product, err
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// workerPackage is the program that is built with each bug in it.
const workerPackage = "./sim/museum/internal/worker"
