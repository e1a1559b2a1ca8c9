// Command peer measures the broker beside Apache Kafka: both get the same requests in turn, prebuilt and pipelined, over connections to the
// leaders of the same number of partitions, on the same disk. Kafka is fetched by Maven, started as its own script starts it, and left
// at its defaults. Either side's topics have the same settings: acknowledged in memory as Kafka has it by default, and synced before the
// acknowledgement as is the default here.
//
// A ratio is the median over the rounds, each of which runs both sides within seconds; CPU seconds per GB are those of all servers of a side
// together, per GB that clients sent or received. It needs java and mvn.
//
//	go run ./bench/peer [-brokers 1] [-mb 256] [-rounds 3] [-partitions 6] [-rate 5000] [-dir DIR]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lockstep/bench/load"
	"lockstep/bench/process"
)

func main() {
	brokers := flag.Int("brokers", 1, "brokers of each side, all on this machine")
	mb := flag.Int("mb", 256, "megabytes that each side moves in each round")
	rounds := flag.Int("rounds", 3, "rounds, of which the median counts")
	partitions := flag.Int("partitions", 6, "partitions of the topics, each with a connection of its own")
	rate := flag.Int("rate", 5000, "records of 1 KB a second with which latency is measured")
	dir := flag.String("dir", "", "where to put files, which are removed at the end (default: the directory for temporary files)")
	flag.Parse()
	if err := run(*dir, *brokers, *mb<<20, *rounds, *partitions, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(dir string, brokers, bytes, rounds, partitions, rate int) (fail error) {
	k, err := install()
	if err != nil {
		return err
	}
	if dir, err = os.MkdirTemp(dir, "lockstep-peer-"); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := bench{bytes: bytes, rounds: rounds, partitions: partitions}
	if b.binary, err = process.Build(dir); err != nil {
		return err
	}
	theirs, err := b.begin(filepath.Join(dir, "their"), brokers, k.start)
	if theirs != nil {
		defer theirs.Kill() // what it holds is thrown away, and three of them take minutes to stop
	}
	if err != nil {
		return err
	}
	ours, err := b.begin(filepath.Join(dir, "our"), brokers, b.start)
	if ours != nil {
		defer func() { fail = errors.Join(fail, ours.Close()) }()
	}
	if err != nil {
		return err
	}
	if err := b.table(); err != nil {
		return err
	}
	if err := b.latencies(rate); err != nil {
		return err
	}
	return b.memory()
}

// begin starts a side, and says how long that took.
func (b *bench) begin(dir string, n int, start func(string, int) (*load.Side, error)) (*load.Side, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := start(dir, n)
	if err != nil {
		return s, err
	}
	fmt.Printf("%s: %d brokers serve after %.1f s\n", s.Name, n, time.Since(began).Seconds())
	b.sides = append(b.sides, s)
	return s, nil
}

// start starts a cluster of n of our brokers under dir.
func (b *bench) start(dir string, n int) (*load.Side, error) {
	members, err := process.Cluster(dir, n)
	if err != nil {
		return nil, err
	}
	servers, err := process.LaunchAll(b.binary, members)
	if err != nil {
		return nil, err
	}
	return load.NewSide("Lockstep", servers)
}

// bench is what is compared: Kafka first.
type bench struct {
	binary                    string // ours
	sides                     []*load.Side
	bytes, rounds, partitions int
}

func (b *bench) table() error {
	fmt.Printf("%-15s %8s %11s %11s %7s %14s %14s %7s\n", "what", "request", "Kafka MB/s", "here MB/s", "ratio", "Kafka cpu s/GB", "here cpu s/GB", "ratio")
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20} {
		batch, records, err := load.Batch(size, 1)
		if err != nil {
			return err
		}
		for _, sync := range []bool{false, true} {
			if err := b.compare(batch, records, sync); err != nil {
				return fmt.Errorf("requests of %d bytes, sync %t: %w", size, sync, err)
			}
		}
	}
	return nil
}

// compare alternates the sides and prints the medians of producing and, where that is not synced, of reading it back.
func (b *bench) compare(batch []byte, records int, sync bool) error {
	produced, fetched := make([][]process.Measure, 2), make([][]process.Measure, 2)
	for i := range b.rounds + 1 { // the first warms up
		for j, s := range b.sides {
			p, f, err := b.round(s, batch, records, sync)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			if i > 0 {
				produced[j], fetched[j] = append(produced[j], p), append(fetched[j], f)
			}
		}
	}
	if sync {
		b.row("produce, synced", len(batch), produced)
		return nil
	}
	b.row("produce", len(batch), produced)
	b.row("fetch", len(batch), fetched)
	return nil
}

func (b *bench) round(s *load.Side, batch []byte, records int, sync bool) (p, f process.Measure, err error) {
	t, err := s.Topic(b.partitions, sync)
	if err != nil {
		return p, f, err
	}
	defer func() { err = errors.Join(err, t.Drop()) }()
	if p, err = t.Produce(batch, b.bytes); err != nil || sync {
		return p, f, err
	}
	f, err = t.Fetch(batch, records, b.bytes)
	return p, f, err
}

func (b *bench) row(what string, size int, of [][]process.Measure) {
	speed, cpu := process.Ratios(of[0], of[1])
	fmt.Printf("%-15s %8d %11.0f %11.0f %7.2f %14.2f %14.2f %7.2f\n", what, size, process.Rate(b.bytes, of[0]), process.Rate(b.bytes, of[1]), speed,
		process.CPUPerGB(b.bytes, of[0]), process.CPUPerGB(b.bytes, of[1]), cpu)
}

// memory prints how much each side's servers hold after the load.
func (b *bench) memory() error {
	for _, s := range b.sides {
		var sum int64
		for _, p := range s.Servers {
			n, err := p.ResidentBytes()
			if err != nil {
				return err
			}
			sum += n
		}
		fmt.Printf("%s: a broker has %d MB resident after the load\n", s.Name, sum/int64(len(s.Servers))>>20)
	}
	return nil
}
