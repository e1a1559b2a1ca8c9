// Command limit measures how near the broker comes to what the machine can do.
// For requests of 16 KB, 128 KB and 1 MB of 1 KB messages it sends the same
// bytes, from prebuilt and pipelined requests, to a plain program that only
// reads, checks and appends (server.go) and to the broker, in turn, and divides.
// Fetch is measured against a plain sendfile in the same way, and produce with
// sync before ack against a loop of write and fdatasync.
//
// Machines are noisy: a ratio is the median over the rounds, each of which runs
// both sides within seconds; CPU seconds per GB are those of the server process alone.
//
//	go run ./bench/limit [-mb 512] [-rounds 5] [-dir DIR]
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"lockstep/bench/process"
)

func main() {
	serveWhat := flag.String("serve", "", "internal: run a plain program, produce or fetch")
	file := flag.String("file", "", "internal: its file")
	mb := flag.Int("mb", 512, "megabytes that each side moves in each round")
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	dir := flag.String("dir", "", "where to put files (default: a temporary directory, removed at the end)")
	flag.Parse()
	var err error
	if *serveWhat != "" {
		err = serve(*serveWhat, *file)
	} else {
		err = run(*dir, *mb<<20, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

func run(dir string, bytes, rounds int) error {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "lockstep-limit-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	b, err := newBench(dir, bytes, rounds)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("%-14s %9s %12s %12s %8s %14s %15s %8s\n", "what", "request", "limit MB/s", "broker MB/s", "ratio", "limit cpu s/GB", "broker cpu s/GB", "ratio")
	var last struct{ produce, fetch, sync result }
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20} {
		if last.produce, err = b.produce(size); err != nil {
			return fmt.Errorf("produce, %d bytes: %w", size, err)
		}
		if last.fetch, err = b.fetch(size); err != nil {
			return fmt.Errorf("fetch, %d bytes: %w", size, err)
		}
		if last.sync, err = b.produceSync(size); err != nil {
			return fmt.Errorf("produce with sync, %d bytes: %w", size, err)
		}
	}
	fmt.Printf("sync_ratio=%.2f\n", last.sync.ratio)
	fmt.Printf("produce_ratio=%.2f fetch_ratio=%.2f produce_cpu_ratio=%.2f fetch_cpu_ratio=%.2f\n",
		last.produce.ratio, last.fetch.ratio, last.produce.cpuRatio, last.fetch.cpuRatio)
	return nil
}

// result is what the rounds of one comparison come to.
type result struct{ ratio, cpuRatio float64 }

// compare alternates the two sides and prints and returns the medians.
func (b *bench) compare(what string, size int, limit, broker func() (process.Measure, error)) (result, error) {
	var limits, brokers []process.Measure
	for i := range b.rounds + 1 { // the first warms up
		l, err := limit()
		if err != nil {
			return result{}, fmt.Errorf("limit: %w", err)
		}
		k, err := broker()
		if err != nil {
			return result{}, fmt.Errorf("broker: %w", err)
		}
		if i > 0 {
			limits, brokers = append(limits, l), append(brokers, k)
		}
	}
	var r result
	r.ratio, r.cpuRatio = process.Ratios(limits, brokers)
	fmt.Printf("%-14s %9d %12.0f %12.0f %8.2f", what, size, process.Rate(b.bytes, limits), process.Rate(b.bytes, brokers), r.ratio)
	if limits[0].CPU == 0 { // the loop of write and sync runs in this process, whose CPU time is not its own
		fmt.Printf(" %14s %15.2f %8s\n", "-", process.CPUPerGB(b.bytes, brokers), "-")
	} else {
		fmt.Printf(" %14.2f %15.2f %8.2f\n", process.CPUPerGB(b.bytes, limits), process.CPUPerGB(b.bytes, brokers), r.cpuRatio)
	}
	return r, nil
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// prefixed puts a length before the words, as every frame has it.
func prefixed(words ...uint32) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(4*len(words)))
	for _, w := range words {
		f = binary.BigEndian.AppendUint32(f, w)
	}
	return f
}
