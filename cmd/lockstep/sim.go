package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockstep/sim"

	"github.com/spf13/cobra"
)

func simCommand() *cobra.Command {
	c := &cobra.Command{Use: "sim", Short: "Run the deterministic simulator"}
	c.AddCommand(simRun(), simSwarm())
	return c
}

func simRun() *cobra.Command {
	var o sim.RunOptions
	var trace, html string
	c := &cobra.Command{Use: "run", Short: "Run one simulated world; the same seed is the same world", Args: noArgs}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "the seed that decides everything")
	c.Flags().DurationVar(&o.Duration, "duration", 0, "virtual time of work; 0 is what the seed draws")
	c.Flags().StringVar(&o.Cut, "cut", "", "what to leave out of the world, as printed for a failure that was shrunk")
	c.Flags().StringVar(&trace, "trace", "", "write every event to this file")
	c.Flags().StringVar(&html, "html", "", "write the space-time diagram to this file")
	brokers := brokersFlag(c)
	c.Flags().BoolVar(&o.Plan, "plan", false, "print what the seed draws")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		endAtSignals()
		if o.Cut, err = withBrokers(o.Cut, *brokers); err != nil {
			return err
		}
		if o.Duration < 0 {
			return fmt.Errorf("--duration is not negative, as %s is", o.Duration)
		}
		for _, f := range []struct {
			name string
			to   *io.Writer
		}{{trace, &o.Trace}, {html, &o.HTML}} {
			if f.name == "" {
				continue
			}
			file, err := os.Create(f.name)
			if err != nil {
				return err
			}
			defer file.Close()
			*f.to = file
		}
		return sim.RunCommand(cmd.OutOrStdout(), o)
	}
	return c
}

func simSwarm() *cobra.Command {
	var o sim.SwarmCommandOptions
	var seeds string
	c := &cobra.Command{Use: "swarm", Short: "Run many worlds, each seed twice with equal hashes", Args: noArgs}
	c.Flags().StringVar(&seeds, "seeds", "", "seeds A-B, both included")
	c.Flags().DurationVar(&o.For, "for", 0, "as many seeds as fit into this time")
	c.Flags().IntVar(&o.Workers, "workers", runtime.NumCPU(), "worlds at a time")
	c.Flags().IntVar(&o.Shrink, "shrink", 0, "runs to spend on making each kind of failure small; 0 is 2000, negative is none")
	brokers := brokersFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		endAtSignals()
		if o.CutText, err = withBrokers("", *brokers); err != nil {
			return err
		}
		if (seeds == "") == (o.For == 0) {
			return fmt.Errorf("give --seeds A-B or --for DURATION")
		}
		if o.For < 0 {
			return fmt.Errorf("--for is above 0, not %s", o.For)
		}
		if o.Workers < 1 {
			return fmt.Errorf("--workers is at least 1, not %d", o.Workers)
		}
		if seeds != "" {
			if o.From, o.To, err = seedRange(seeds); err != nil {
				return err
			}
		} else {
			o.From = uint64(time.Now().UnixNano()) >> 10 // new worlds each time; a failure names its seed
			o.To = o.From + 1<<40
		}
		return sim.SwarmCommand(cmd.OutOrStdout(), o)
	}
	return c
}

// endAtSignals lets a signal end the process at once: a simulated world has nothing to bring to an end.
func endAtSignals() { signal.Reset(os.Interrupt, syscall.SIGTERM) }

func brokersFlag(c *cobra.Command) *int {
	return c.Flags().Int("brokers", 0, "draw worlds of so many brokers, 1 to 7; 0 leaves that to the seed")
}

// withBrokers adds a number of brokers to what is cut.
func withBrokers(cut string, n int) (string, error) {
	switch {
	case n == 0:
		return cut, nil
	case n < 0 || n > sim.MaxBrokers:
		return "", fmt.Errorf("--brokers is 1 to %d, not %d", sim.MaxBrokers, n)
	case cut == "":
		return fmt.Sprintf("b%d", n), nil
	}
	return fmt.Sprintf("b%d.%s", n, cut), nil
}

func seedRange(s string) (from, to uint64, err error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || from > to {
		return 0, 0, fmt.Errorf("--seeds is A-B, not %q", s)
	}
	return from, to, nil
}
