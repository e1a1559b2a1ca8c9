package sim

import (
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// RunOptions are the options of `lockstep sim run`.
type RunOptions struct {
	Seed     uint64
	Duration time.Duration // of work; 0 is what the seed draws
	Cut      string        // what to leave out: see Cut
	Trace    io.Writer     // nil: no trace
	HTML     io.Writer     // nil: no picture
	Plan     bool          // print the plan
}

// RunCommand runs one world and says what came of it. The error is the failure, if there is one.
func RunCommand(out io.Writer, o RunOptions) error {
	cut, err := ParseCut(o.Cut)
	if err != nil {
		return err
	}
	p := cut.Plan(o.Seed)
	if o.Duration > 0 {
		p.Duration = o.Duration
	}
	if o.Plan {
		printPlan(out, p)
	}
	start := time.Now()
	r := RunPlan(p, Options{Trace: o.Trace != nil || o.HTML != nil})
	real := time.Since(start)
	if o.Trace != nil {
		if err := r.Trace.Write(o.Trace); err != nil {
			return fmt.Errorf("writing the trace: %w", err)
		}
	}
	if o.HTML != nil {
		if err := r.WriteHTML(o.HTML); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	fmt.Fprintf(out, "seed %d  hash %016x  %d events  %d operations  %.1f s simulated in %.2f s\n",
		o.Seed, r.Hash, r.Stats.Events, r.Stats.Ops, float64(r.Stats.Virtual)/1e9, real.Seconds())
	if r.Failure != nil {
		fmt.Fprintf(out, "FAILED at %.6f s: %s\n", float64(r.Failure.At)/1e9, r.Failure.Error())
		return r.Failure
	}
	fmt.Fprintf(out, "history %s\n", r.Report.String())
	return nil
}

// SwarmCommandOptions are the options of `lockstep sim swarm`.
type SwarmCommandOptions struct {
	SwarmOptions
	CutText string // taken away from every world: see Cut
	Shrink  int    // at most so many runs to make each kind of failure small; 0 is 2000, negative is none
}

// SwarmCommand runs many worlds and prints what came of them. The error says that some failed.
func SwarmCommand(out io.Writer, o SwarmCommandOptions) error {
	if o.Shrink == 0 {
		o.Shrink = 2000
	}
	var err error
	if o.CutText != "" {
		if o.Cut, err = ParseCut(o.CutText); err != nil {
			return err
		}
	}
	found := o.Found
	o.Found = func(r Result) {
		fmt.Fprintf(out, "seed %d failed: %s\n", r.Seed, r.Failure.Error())
		if found != nil {
			found(r)
		}
	}
	o.Late = func(seed uint64, real time.Duration) {
		fmt.Fprintf(os.Stderr, "seed %d has run for %.0f s and has not ended\n", seed, real.Seconds())
	}
	r := Swarm(o.SwarmOptions)
	printFaults(out, &r.Stats)
	printSwarm(out, &r)
	if r.Failed == 0 {
		return nil
	}
	for _, kind := range r.kinds() {
		explain(out, kind, r.Kinds[kind], &o)
	}
	return fmt.Errorf("%d of %d worlds failed", r.Failed, r.Stats.Worlds)
}

// explain shrinks the first world of a kind of failure and prints how to repeat it.
func explain(out io.Writer, kind string, seeds []uint64, o *SwarmCommandOptions) {
	s := slices.Min(seeds)
	fmt.Fprintf(out, "\n%s: %d worlds, the first with seed %d\n", kind, len(seeds), s)
	small := Shrunk{Cut: o.Cut}
	if kind != "not deterministic" && o.Shrink > 0 {
		small = ShrinkFrom(s, o.Cut, kind, o.Shrink)
	}
	p := small.Cut.Plan(s)
	if f := small.Result.Failure; f != nil {
		fmt.Fprintf(out, "  %s\n", f.Line)
	}
	fmt.Fprintf(out, "  shrunk in %d runs to %d steps (requests of clients, faults); of faults there are %d:\n", small.Runs, small.Result.Stats.Steps, len(p.Faults))
	for i := range p.Faults {
		fmt.Fprintf(out, "    %.6f s  %s\n", p.Faults[i].At.Seconds(), p.Faults[i].String())
	}
	arg := ""
	if c := small.Cut.String(); c != "" {
		arg = " --cut " + c
	}
	fmt.Fprintf(out, "  lockstep sim run --seed %d%s\n", s, arg)
}

func printSwarm(out io.Writer, r *SwarmResult) {
	virtual := float64(r.Stats.Virtual) / 1e9
	fmt.Fprintf(out, "compaction: passes=%d left=%d cut=%d records=%d tombstones=%d unseen=%d\n", r.Stats.Passes, r.Stats.PassSteps, r.Stats.PassesCut,
		r.Stats.Compacted, r.Stats.Buried, r.Stats.Holes)
	fmt.Fprintf(out, "worlds=%d simulated=%.0fs real=%.1fs ratio=%.0f events=%d events_per_second=%.0f operations=%d acked=%d undecided=%d undecidable=%d failures=%d\n",
		r.Stats.Worlds, virtual, r.Real.Seconds(), virtual/r.Real.Seconds(), r.Stats.Events,
		float64(r.Stats.Events)/r.Real.Seconds(), r.Stats.Ops, r.Stats.Acked, r.Undecided, r.Stats.Undecidable, r.Failed)
	for _, x := range r.Slowest {
		fmt.Fprintf(out, "slowest: seed %d, %.1f s\n", x.Seed, x.Real.Seconds())
	}
}

func printFaults(out io.Writer, s *Stats) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FAULT\tPLANNED\tHAPPENED\tMATTERED")
	for _, f := range s.Faults {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", f.Name, f.Planned, f.Happened, f.Mattered)
	}
	t.Flush()
}

func printPlan(out io.Writer, p *Plan) {
	fmt.Fprintf(out, "work for %s; latency %s to %s\n", p.Duration, time.Duration(p.Net.Latency), time.Duration(p.Net.Latency+p.Net.Jitter))
	for _, t := range p.Topics {
		fmt.Fprintf(out, "topic %s: %d partitions %v\n", t.Name, t.Partitions, t.Settings)
	}
	for i, c := range p.Clients {
		if !c.Off {
			fmt.Fprintf(out, "c%d %s: think %s to %s, timeout %s, acks %d idempotent %v in flight %d\n", i, c.Kind, c.Think[0], c.Think[1],
				c.Timeout, c.Acks, c.Idempotent, c.InFlight)
		}
	}
	for i := range p.Faults {
		fmt.Fprintf(out, "f%d %.6f s %s\n", i, p.Faults[i].At.Seconds(), p.Faults[i].String())
	}
}
