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
	dir := flag.String("dir", "", "where to put files (default: a temporary directory, removed at the end)")
	flag.Parse()
	if err := run(*dir, *mb<<20, *rounds, *partitions); err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
}

func run(dir string, bytes, rounds, partitions int) (err error) {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "lockstep-replicas-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
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
	s.client, err = kgo.NewClient(kgo.SeedBrokers(members[0].Addr))
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

// measure is one side of one round.
type measure struct{ wall, cpu time.Duration }

// compare alternates the two sides and prints the medians.
func compare(sides []*side, size, partitions, bytes, rounds int) error {
	batch, _, err := load.Batch(size, 1)
	if err != nil {
		return err
	}
	got := make([][]measure, len(sides))
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
	rate := func(of []measure) float64 {
		return median(rounds, func(i int) float64 { return float64(bytes) / 1e6 / of[i].wall.Seconds() })
	}
	cpu := func(of []measure) float64 {
		return median(rounds, func(i int) float64 { return of[i].cpu.Seconds() / float64(bytes) * 1e9 })
	}
	fmt.Printf("%-9d %10d %12.0f %12.0f %7.2f %14.2f %14.2f %7.2f\n", size, partitions, rate(one), rate(three),
		median(rounds, func(i int) float64 { return one[i].wall.Seconds() / three[i].wall.Seconds() }), cpu(one), cpu(three),
		median(rounds, func(i int) float64 { return three[i].cpu.Seconds() / max(one[i].cpu.Seconds(), 0.01) }))
	return nil
}

// produce writes about so many bytes into a fresh topic, to each partition at its leader over a connection of its own.
func (s *side) produce(batch []byte, partitions, bytes int) (m measure, err error) {
	s.topics++
	name := fmt.Sprintf("replicas-%d", s.topics)
	leaders, err := s.create(name, partitions)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.drop(name)) }()
	before, err := s.cpu()
	if err != nil {
		return m, err
	}
	begin := time.Now()
	errs := make([]error, partitions)
	var all sync.WaitGroup
	for p, addr := range leaders {
		all.Go(func() {
			frame := load.ProduceFrame(name, int32(p), -1, batch)
			run := load.Run{Addr: addr, Requests: max(1, bytes/len(batch)/partitions), Window: min(64, max(4, 4<<20/len(batch))),
				Check: load.CheckProduced, Frame: func(int) []byte { return frame }}
			_, errs[p] = run.Do()
		})
	}
	all.Wait()
	m.wall = time.Since(begin)
	after, err := s.cpu()
	m.cpu = after - before
	return m, errors.Join(append(errs, err)...)
}

func (s *side) cpu() (sum time.Duration, err error) {
	for _, p := range s.brokers {
		used, err := p.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
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
	for ctx.Err() == nil {
		if leaders, err = s.leaders(ctx, a, name); len(leaders) == partitions || err != nil {
			return leaders, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("topic %s is not in sync everywhere", name)
}

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

func median(n int, of func(i int) float64) float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = of(i)
	}
	slices.Sort(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
