// Command matrix runs real clients of many languages against fresh brokers and tells, for each client and each thing that
// clients do, whether it works. interop/run is its short name; docs/protocol.md holds the last full result.
//
// A client is a program that speaks the lines of package agent, or one of the adapters here for tools of the command line.
// A row is a check that any client can be put through; clients say what they cannot do, and why, and such a gap is no failure.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	cache        string
	only         string
	rows         string
	ci           bool
	update       bool
	allowMissing bool
	keep         bool
}

func main() {
	var o options
	flag.StringVar(&o.cache, "cache", cacheDir(), "where clients are installed (or LOCKSTEP_INTEROP_CACHE)")
	flag.StringVar(&o.only, "only", "", "only these clients, comma separated: "+strings.Join(names(), ", "))
	flag.StringVar(&o.rows, "rows", "", "only the rows whose names contain this")
	flag.BoolVar(&o.ci, "ci", false, "only the clients that CI installs: "+strings.Join(ciClients, ", "))
	flag.BoolVar(&o.update, "update", false, "write the matrix into docs/protocol.md")
	flag.BoolVar(&o.allowMissing, "allow-missing", false, "a client that cannot be installed is no failure")
	flag.BoolVar(&o.keep, "keep", false, "keep the brokers' directories and logs, and say where, also when nothing failed")
	flag.Parse()
	ok, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func cacheDir() string {
	if d := os.Getenv("LOCKSTEP_INTEROP_CACHE"); d != "" {
		return d
	}
	d, err := os.UserCacheDir()
	if err != nil {
		d = os.TempDir()
	}
	return filepath.Join(d, "lockstep-interop")
}

var ciClients = []string{"kcat", "confluent-kafka", "franz-go", "kafkajs", "Java", "Java tools"}

func run(o options) (bool, error) {
	start := time.Now()
	w, err := newWorld(o)
	if err != nil {
		return false, err
	}
	defer w.close()
	for _, d := range slices.Concat(clients, frameworks) {
		if o.ci && !slices.Contains(ciClients, d.name) || o.only != "" && !slices.Contains(strings.Split(o.only, ","), d.name) {
			continue
		}
		w.columns = append(w.columns, &column{driver: d, results: map[string]result{}})
	}
	for _, c := range w.columns {
		if err := c.install(w.install); err != nil {
			c.missing = err.Error()
			fmt.Printf("%-16s not installed: %v\n", c.name, err)
		}
	}
	// A phase is done by all clients before the next begins, so that each reads what all have written.
	for _, phase := range phases {
		if err := w.phase(phase, o.rows); err != nil {
			return false, err
		}
	}
	ok := w.report()
	w.failed = !ok
	for _, c := range w.columns {
		ok = ok && (c.missing == "" || o.allowMissing)
	}
	if o.update {
		if err := w.updateDocs("docs/protocol.md"); err != nil {
			return false, err
		}
	}
	fmt.Printf("%.0f s\n", time.Since(start).Seconds())
	return ok, nil
}

// phase runs the rows of one phase for every client, one client after the other.
func (w *world) phase(p phase, filter string) error {
	var wanted []row
	for _, r := range p.rows {
		if filter == "" || p.always || strings.Contains(r.name, filter) {
			wanted = append(wanted, r)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := w.ensureBrokers(p.brokers); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	for _, c := range w.columns {
		if c.missing != "" || p.frameworks != (c.framework != "") {
			continue
		}
		if !slices.ContainsFunc(wanted, func(r row) bool { return c.gaps[r.name] == "" }) {
			for _, r := range wanted {
				c.results[r.name] = result{gap: c.gaps[r.name]}
			}
			continue
		}
		if err := c.start(w.addr); err != nil {
			c.results[wanted[0].name] = result{failure: "it does not start: " + err.Error()}
			continue
		}
		for _, r := range wanted {
			began := time.Now()
			res := c.check(w, r)
			c.results[r.name] = res
			fmt.Printf("%-16s %-28s %s %.1fs\n", c.name, r.name, res, time.Since(began).Seconds())
		}
		c.stop()
	}
	return nil
}
