// Command replicas measures what replication costs: one broker alone, and three brokers with three replicas of every partition,
// get the same requests in turn, at acks=all and with the topic's default, a sync before the acknowledgement. All brokers are
// processes of one machine, so three replicas write three times the bytes to one disk with the same processors: a third of a
// single broker's throughput is what such a machine leaves, if the disk or the processors are the limit.
//
// A ratio is the median over the rounds, each of which runs both sides within seconds; CPU seconds per GB are those of all
// brokers' processes together, per GB that clients sent.
//
//	go run ./bench/replicas [-mb 256] [-rounds 3] [-partitions 6] [-dir DIR]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"lockstep/bench/load"
	"lockstep/bench/process"
)

func main() {
	mb := flag.Int("mb", 256, "megabytes that each side takes in each round")
	rounds := flag.Int("rounds", 3, "rounds, of which the median counts")
	partitions := flag.Int("partitions", 6, "partitions of the topic, each written to over a connection of its own")
	dir := flag.String("dir", "", "where to put files, which are removed at the end (default: the directory for temporary files)")
	flag.Parse()
	if err := run(*dir, *mb<<20, *rounds, *partitions); err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
}

func run(dir string, bytes, rounds, partitions int) (fail error) {
	dir, err := os.MkdirTemp(dir, "lockstep-replicas-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := process.Build(dir)
	if err != nil {
		return err
	}
	var sides []*load.Side
	for _, n := range []int{1, 3} {
		members, err := process.Cluster(dir, n)
		if err != nil {
			return err
		}
		servers, err := process.LaunchAll(binary, members)
		if err != nil {
			return err
		}
		s, err := load.NewSide(fmt.Sprintf("%d brokers", n), servers)
		defer func() { fail = errors.Join(fail, s.Close()) }()
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	fmt.Printf("%-9s %10s %12s %12s %7s %14s %14s %7s\n", "request", "partitions", "one, MB/s", "three, MB/s", "ratio", "one, cpu s/GB", "three, s/GB", "ratio")
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20} {
		for _, p := range slices.Compact([]int{1, partitions}) {
			if err := compare(sides, size, p, bytes, rounds); err != nil {
				return fmt.Errorf("requests of %d bytes, %d partitions: %w", size, p, err)
			}
		}
	}
	return nil
}

// compare alternates the two sides and prints the medians.
func compare(sides []*load.Side, size, partitions, bytes, rounds int) error {
	batch, _, err := load.Batch(size, 1)
	if err != nil {
		return err
	}
	got := make([][]process.Measure, len(sides))
	for i := range rounds + 1 { // the first warms up
		for j, s := range sides {
			m, err := produce(s, batch, partitions, bytes)
			if err != nil {
				return fmt.Errorf("%d brokers: %w", len(s.Servers), err)
			}
			if i > 0 {
				got[j] = append(got[j], m)
			}
		}
	}
	one, three := got[0], got[1]
	speed, cpu := process.Ratios(one, three)
	fmt.Printf("%-9d %10d %12.0f %12.0f %7.2f %14.2f %14.2f %7.2f\n", size, partitions, process.Rate(bytes, one), process.Rate(bytes, three), speed,
		process.CPUPerGB(bytes, one), process.CPUPerGB(bytes, three), cpu)
	return nil
}

// produce writes about so many bytes into a fresh topic with the default sync.
func produce(s *load.Side, batch []byte, partitions, bytes int) (m process.Measure, err error) {
	t, err := s.Topic(partitions, true)
	if err != nil {
		return m, err
	}
	m, err = t.Produce(batch, bytes)
	return m, errors.Join(err, t.Drop())
}
