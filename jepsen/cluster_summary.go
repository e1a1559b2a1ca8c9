package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lockstep/linearizability"
)

// struck is one fault and what it cost.
type struck struct {
	fault     string
	at, until int64         // on the history's clock: from the fault until all replicas were in sync again
	busy      bool          // records were under way
	healed    time.Duration // from the last broker's being ready until all replicas were in sync
	pause     time.Duration // the longest time in which some partition took no write
	silence   time.Duration // the longest time in which no partition did
}

// clusterSummary is what came of a run.
type clusterSummary struct {
	strikes                []struck
	stops                  []time.Duration // from SIGTERM to the end of the process
	took, checking         time.Duration
	acked, unknown, failed int
	records, committed     int
	errors                 int // of idempotent producers
	firstError             string
	report                 linearizability.Report
}

// count takes the figures out of the history.
func (s *clusterSummary) count(h *linearizability.History, o options) {
	var one summary
	one.count(h)
	s.acked, s.unknown, s.failed, s.records = one.acked, one.unknown, one.failed, one.records
	acks := make([][]int64, o.partitions)
	var any []int64
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind != linearizability.Produce {
			continue
		}
		if op.Outcome == linearizability.OK {
			acks[op.Partition] = append(acks[op.Partition], op.Return)
			any = append(any, op.Return)
		} else if op.Process < o.producers && producerKind(op.Process, o) == idempotent {
			if s.errors++; s.firstError == "" {
				s.firstError = op.String()
			}
		}
	}
	for p := range acks {
		slices.Sort(acks[p])
	}
	slices.Sort(any)
	for i := range s.strikes {
		k := &s.strikes[i]
		for _, of := range acks {
			k.pause = max(k.pause, longestGap(of, k.at, k.until))
		}
		k.silence = longestGap(any, k.at, k.until)
	}
}

// longestGap is the longest time between two instants that follow each other, if it overlaps the time from at until until.
func longestGap(instants []int64, at, until int64) (longest time.Duration) {
	from, _ := slices.BinarySearch(instants, at)
	for i := max(1, from); i < len(instants) && instants[i-1] < until; i++ {
		longest = max(longest, time.Duration(instants[i]-instants[i-1]))
	}
	return longest
}

// String is the summary in one line. Times are median/99th percentile/longest, over the faults of a kind.
func (s clusterSummary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rounds=%d", len(s.strikes))
	faults := map[string][]struck{}
	busy := 0
	for _, k := range s.strikes {
		faults[k.fault] = append(faults[k.fault], k)
		if k.busy {
			busy++
		}
	}
	fmt.Fprintf(&b, " in_flight=%d", busy)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for f := range faults {
			if !yield(f) {
				return
			}
		}
	}) {
		of := faults[name]
		fmt.Fprintf(&b, " %s[n=%d no_write %s healed %s]", name, len(of), quantiles(of, func(k struck) time.Duration { return k.pause }),
			quantiles(of, func(k struck) time.Duration { return k.healed }))
	}
	failovers := slices.Concat(faults["kill-leader"], faults["kill-controller"])
	fmt.Fprintf(&b, " one_killed[no_write %s] silence %s", quantiles(failovers, func(k struck) time.Duration { return k.pause }),
		quantiles(s.strikes, func(k struck) time.Duration { return k.silence }))
	if len(s.stops) > 0 {
		fmt.Fprintf(&b, " sigterm_max=%s", slices.Max(s.stops).Round(time.Millisecond))
	}
	fmt.Fprintf(&b, " acked=%d unknown=%d refused=%d errors=%d read=%d commits=%d seconds=%.1f check=%s load=%s history: %s", s.acked, s.unknown,
		s.failed, s.errors, s.records, s.committed, s.took.Seconds(), s.checking.Round(time.Millisecond), loadAverage(), s.report)
	return b.String()
}

// quantiles prints the median, the 99th percentile and the longest.
func quantiles(all []struck, of func(struck) time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	var ds []time.Duration
	for _, k := range all {
		ds = append(ds, of(k))
	}
	slices.Sort(ds)
	at := func(q float64) string { return fmt.Sprintf("%.2fs", ds[int(q*float64(len(ds)-1)+0.5)].Seconds()) }
	return at(0.5) + "/" + at(0.99) + "/" + at(1)
}

// loadAverage is the machine's, over a minute, for the times mean little without it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
