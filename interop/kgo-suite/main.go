// Command kgo-suite runs the tests that franz-go has of its client (package kgo) against Lockstep: real processes, one broker
// and a cluster of three, at default settings. The tests come with the module in the version that go.mod names; they are copied
// out of the module cache, and not changed.
//
//	go run ./interop/kgo-suite                  one broker, then three
//	go run ./interop/kgo-suite -brokers 3 -run TestGroupETL -records 500000
//	go run ./interop/kgo-suite -update          writes what passed into docs/protocol.md
//
// What is left out stands in omitted (suite.go), with the reason. A test that skips itself and does not stand there is a
// failure, so that the suite does not shrink unseen; so is one that stands there and no longer exists.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	brokers string
	records int
	run     string
	limit   time.Duration
	chaos   bool
	update  bool
	keep    bool
}

func main() {
	var o options
	flag.StringVar(&o.brokers, "brokers", "1,3", "sizes of the clusters, one after the other")
	flag.IntVar(&o.records, "records", 50_000, "records that go through each chain of groups; franz-go's own default is 500000")
	flag.StringVar(&o.run, "run", "", "only the tests that match, as go test -run")
	flag.DurationVar(&o.limit, "limit", 20*time.Minute, "time for the tests against one cluster")
	flag.BoolVar(&o.chaos, "chaos", false, "cut each connection of the chains of groups after 0.5 to 1.5 s, as the suite's KGO_TEST_CHAOS does")
	flag.BoolVar(&o.update, "update", false, "write the result into docs/protocol.md")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with the brokers' logs and the tests' output also when all passed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kgo-suite:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "lockstep-kgo-suite-")
	if err != nil {
		return false, err
	}
	defer func() {
		if ok && err == nil && !o.keep {
			os.RemoveAll(dir)
			return
		}
		fmt.Println("kept:", dir)
	}()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "lockstep"), "./cmd/lockstep")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return false, fmt.Errorf("building the broker: %w", err)
	}
	s := &suite{o: o, dir: dir}
	if err := s.prepare(ctx); err != nil {
		return false, err
	}
	ok = true
	var all []*outcome
	for size := range strings.SplitSeq(o.brokers, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			return false, fmt.Errorf("-brokers: %q is no number of brokers", size)
		}
		out, err := s.against(ctx, n)
		if err != nil {
			return false, fmt.Errorf("against %d: %w", n, err)
		}
		out.print()
		all = append(all, out)
		ok = ok && out.ok()
	}
	if o.update && ok {
		err = updateDocs("docs/protocol.md", s.version, all)
	}
	return ok, err
}
