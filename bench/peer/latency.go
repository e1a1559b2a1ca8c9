package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"lockstep/bench/load"
	"lockstep/bench/process"
)

// latencySeconds is how long each side is written to in each round.
const latencySeconds = 5

// delay is what a producer saw at a rate that both sides can take: from the instant at which a record of 1 KB was due until it was
// acknowledged, in ms.
type delay struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// latencies alternates the sides under a producer of so many records a second, and prints the medians.
func (b *bench) latencies(rate int) error {
	fmt.Printf("%-15s %8s %12s %12s %12s %12s\n", "latency", "rate /s", "Kafka p50 ms", "here p50 ms", "Kafka p99 ms", "here p99 ms")
	for _, sync := range []bool{false, true} {
		of := make([][]delay, 2)
		for i := range b.rounds + 1 { // the first warms up
			for j, s := range b.sides {
				d, err := b.delay(s, rate, sync)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				if i > 0 {
					of[j] = append(of[j], d)
				}
			}
		}
		what := "produce"
		if sync {
			what = "produce, synced"
		}
		p50 := func(d []delay) float64 { return process.Median(len(d), func(i int) float64 { return d[i].P50 }) }
		p99 := func(d []delay) float64 { return process.Median(len(d), func(i int) float64 { return d[i].P99 }) }
		fmt.Printf("%-15s %8d %12.2f %12.2f %12.2f %12.2f\n", what, rate, p50(of[0]), p50(of[1]), p99(of[0]), p99(of[1]))
	}
	return nil
}

// delay runs the command line's own load, an ordinary client, against a side.
func (b *bench) delay(s *load.Side, rate int, sync bool) (d delay, err error) {
	t, err := s.Topic(b.partitions, sync)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, t.Drop()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*latencySeconds*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, "bench", "produce", t.Name, "--bootstrap", s.Servers[0].Addr, "--json",
		"--rate", fmt.Sprint(rate), "-n", fmt.Sprint(rate*latencySeconds))
	out, err := cmd.Output()
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(out, &d)
}
