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
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lockstep/bench/load"
	"lockstep/bench/process"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

func run(dir string, bytes, rounds, partitions int) (err error) {
	if dir, err = os.MkdirTemp(dir, "lockstep-replicas-"); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := process.Build(dir)
	if err != nil {
		return err
	}
	var sides []*side
	for _, n := range []int{1, 3} {
		s, err := start(binary, filepath.Join(dir, fmt.Sprint(n)), n)
		sides = append(sides, s)
		defer s.close()
		if err != nil {
			return err
		}
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

// side is a cluster under load.
type side struct {
	brokers []*process.Process
	client  *kgo.Client
	topics  int
}

func start(binary, dir string, n int) (s *side, err error) {
	s = &side{}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, err
	}
	members, err := process.Cluster(dir, n)
	if err != nil {
		return s, err
	}
	if s.brokers, err = process.LaunchAll(binary, members); err != nil {
		return s, err
	}
	s.client, err = kgo.NewClient(kgo.SeedBrokers(members[0].Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return s, err
}

func (s *side) close() {
	if s.client != nil {
		s.client.Close()
	}
	for _, p := range s.brokers {
		if err := p.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "replicas:", err)
		}
	}
}

// compare alternates the two sides and prints the medians.
func compare(sides []*side, size, partitions, bytes, rounds int) error {
	batch, _, err := load.Batch(size, 1)
	if err != nil {
		return err
	}
	got := make([][]process.Measure, len(sides))
	for i := range rounds + 1 { // the first warms up
		for j, s := range sides {
			m, err := s.produce(batch, partitions, bytes)
			if err != nil {
				return fmt.Errorf("%d brokers: %w", len(s.brokers), err)
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

// produce writes about so many bytes into a fresh topic, to each partition at its leader over a connection of its own.
func (s *side) produce(batch []byte, partitions, bytes int) (m process.Measure, err error) {
	s.topics++
	name := fmt.Sprintf("replicas-%d", s.topics)
	leaders, err := s.create(name, partitions)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.drop(name)) }()
	return process.Timed(func() error {
		errs := make([]error, partitions)
		var all sync.WaitGroup
		for p, addr := range leaders {
			all.Go(func() {
				frame := load.ProduceFrame(name, int32(p), -1, batch)
				run := load.Run{Addr: addr, Requests: max(1, bytes/len(batch)/partitions), Window: load.Window(len(batch)),
					Check: load.CheckProduced, Frame: func(int) []byte { return frame }}
				_, errs[p] = run.Do()
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}, s.brokers...)
}

// create makes a topic with a replica on each broker, waits until all are in sync, and returns the addresses of the leaders.
func (s *side) create(name string, partitions int) (leaders []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	a := kadm.NewClient(s.client)
	minimum := fmt.Sprint((len(s.brokers) + 1) / 2)
	if _, err := a.CreateTopic(ctx, int32(partitions), int16(len(s.brokers)), map[string]*string{"min.insync.replicas": &minimum}, name); err != nil {
		return nil, err
	}
	for p := range partitions { // a client that tries again knows when a leader has begun to lead
		r := s.client.ProduceSync(ctx, &kgo.Record{Topic: name, Partition: int32(p), Value: []byte("first")})
		if err := r.FirstErr(); err != nil {
			return nil, err
		}
	}
	for len(leaders) < partitions {
		if leaders, err = s.leaders(ctx, a, name); err != nil {
			return nil, fmt.Errorf("topic %s is not in sync everywhere: %w", name, err)
		}
	}
	return leaders, nil
}

// leaders returns the addresses of the leaders of partitions that are in sync everywhere.
func (s *side) leaders(ctx context.Context, a *kadm.Client, name string) (addrs []string, err error) {
	m, err := a.Metadata(ctx, name)
	if err != nil {
		return nil, err
	}
	at := map[int32]string{}
	for _, b := range m.Brokers {
		at[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	for _, p := range m.Topics[name].Partitions.Sorted() {
		if len(p.ISR) == len(s.brokers) && at[p.Leader] != "" {
			addrs = append(addrs, at[p.Leader])
		}
	}
	return addrs, nil
}

func (s *side) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := kadm.NewClient(s.client).DeleteTopics(ctx, name)
	return err
}
