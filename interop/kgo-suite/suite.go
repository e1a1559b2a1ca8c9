package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/bench/process"
)

const module = "github.com/twmb/franz-go"

// omission is a test that is not run, or that skips itself.
type omission struct {
	never bool // it is not even started: it would fail
	why   string
}

const (
	noTransactions = "transactions"
	noShareGroups  = "share groups (KIP-932)"
	noSASL         = "SASL"
)

// omitted is every test that does not count, by name.
var omitted = map[string]omission{
	"TestTxnEtl":                               {true, noTransactions},
	"TestShareGroup":                           {false, noShareGroups},
	"TestShareGroupETL":                        {false, noShareGroups},
	"TestShareGroupAckOnClose":                 {false, noShareGroups},
	"TestShareGroupOffsetsAdmin":               {false, noShareGroups},
	"TestConsumeRegexShareSkipsInternal":       {false, noShareGroups},
	"TestSCRAMAuth":                            {false, noSASL},
	"TestSCRAMAuthBadCredentials":              {false, noSASL},
	"TestOAuthAuth":                            {false, noSASL},
	"TestIssueProduceBrokerTooOldFailsRecords": {false, "a broker that does not advertise Produce version 2 (see Departures)"},
}

// suite is the copied tests.
type suite struct {
	o       options
	dir     string
	version string // of franz-go
	pkg     string // the copied package's directory
	tests   map[string]bool
}

// prepare has the go command fetch the module, copies it, and builds its tests.
func (s *suite) prepare(ctx context.Context) error {
	text, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return fmt.Errorf("fetching %s: %w", module, withStderr(err))
	}
	var m struct{ Version, Dir string }
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	to := filepath.Join(s.dir, "franz-go")
	if err := copyTree(to, m.Dir); err != nil {
		return fmt.Errorf("copying %s: %w", module, err)
	}
	s.version, s.pkg, s.tests = m.Version, filepath.Join(to, "pkg", "kgo"), map[string]bool{}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary(), ".")
	build.Dir, build.Stderr = s.pkg, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the tests of %s/pkg/kgo: %w", module, err)
	}
	list := exec.CommandContext(ctx, s.binary(), "-test.list", "^Test")
	list.Dir = s.pkg
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the tests: %w", withStderr(err))
	}
	for name := range strings.FieldsSeq(string(names)) {
		s.tests[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(omitted)) {
		if !s.tests[name] {
			return fmt.Errorf("the suite has no test %s, which is to be left out", name)
		}
	}
	return nil
}

func (s *suite) binary() string { return filepath.Join(s.dir, "kgo.test") }

func withStderr(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return err
}

// copyTree copies a directory of the module cache, whose files must not be written.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

// against runs the suite against a fresh cluster of n.
func (s *suite) against(ctx context.Context, n int) (out *outcome, err error) {
	members, err := process.Cluster(s.dir, n)
	if err != nil {
		return nil, err
	}
	brokers, err := process.LaunchAll(filepath.Join(s.dir, "lockstep"), members)
	defer func() {
		for _, b := range brokers {
			err = errors.Join(err, b.Stop())
		}
	}()
	if err != nil {
		return nil, err
	}
	var seeds, never []string
	for _, b := range brokers {
		seeds = append(seeds, b.Addr)
	}
	for name, o := range omitted {
		if o.never {
			never = append(never, name)
		}
	}
	slices.Sort(never)
	ctx, cancel := context.WithTimeout(ctx, s.o.limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", s.binary(), "-test.v=test2json", "-test.timeout", s.o.limit.String(),
		"-test.run", s.o.run, "-test.skip", "^("+strings.Join(never, "|")+")$")
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+strings.Join(seeds, ","), fmt.Sprintf("KGO_TEST_RF=%d", min(3, n)),
		fmt.Sprintf("KGO_TEST_RECORDS=%d", s.o.records), "KGO_LOG_LEVEL=none")
	if s.o.chaos {
		cmd.Env = append(cmd.Env, "KGO_TEST_CHAOS=1")
	}
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("tests-%d.log", n)))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out = &outcome{brokers: n, results: map[string]string{}, output: map[string][]string{}, log: log.Name()}
	err = out.read(events, log)
	exit := cmd.Wait()
	out.took, out.failed = time.Since(began), exit != nil
	return out, err
}

// read takes the events of test2json; what tests print goes into the log.
func (out *outcome) read(events io.Reader, log io.Writer) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e struct{ Action, Test, Output string }
		if len(line) > 0 {
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("test2json: %w", err)
			}
			switch {
			case e.Action == "output":
				io.WriteString(log, e.Output)
				out.output[e.Test] = append(out.output[e.Test], e.Output)
			case e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
				out.results[e.Test] = e.Action
			case e.Test != "" && e.Action == "run":
				out.results[e.Test] = "did not end"
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
