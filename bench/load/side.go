package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"lockstep/bench/process"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Side is a cluster under load: one of those that a benchmark compares.
type Side struct {
	Name    string
	Servers []*process.Process
	client  *kgo.Client
	topics  int
}

// NewSide is the side of servers that serve; with an error, too, it is to be closed.
func NewSide(name string, servers []*process.Process) (s *Side, err error) {
	s = &Side{Name: name, Servers: servers}
	s.client, err = kgo.NewClient(kgo.SeedBrokers(servers[0].Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return s, err
}

// Close stops the servers, all at once.
func (s *Side) Close() error {
	s.forget()
	errs := make([]error, len(s.Servers))
	var all sync.WaitGroup
	for i, p := range s.Servers {
		all.Go(func() { errs[i] = p.Stop() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Kill ends the servers as kill -9 does.
func (s *Side) Kill() {
	s.forget()
	for _, p := range s.Servers {
		p.Kill()
	}
}

func (s *Side) forget() {
	if s.client != nil {
		s.client.Close()
	}
}

// Await waits until all servers are brokers of the cluster, as they say themselves.
func (s *Side) Await(ctx context.Context) error {
	for {
		one, cancel := context.WithTimeout(ctx, time.Second)
		m, err := kadm.NewClient(s.client).BrokerMetadata(one)
		cancel()
		if err == nil && len(m.Brokers) == len(s.Servers) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not serve: %d of %d brokers, %w", s.Name, len(m.Brokers), len(s.Servers), errors.Join(err, ctx.Err()))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Topic is one that is written to and read at its leaders.
type Topic struct {
	Name    string
	Leaders []string // by partition: the address
	First   int64    // the offset of what is written next
	s       *Side
}

// adminPatience is how long an administrative request may take.
const adminPatience = 30 * time.Second

// Topic makes a fresh topic with a replica on each broker and a majority of them as its min.insync.replicas, and waits until all are in sync.
// What is acknowledged is on disk, or with sync false in the brokers' memory.
func (s *Side) Topic(partitions int, sync bool) (*Topic, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	s.topics++
	t := &Topic{Name: fmt.Sprintf("bench-%d", s.topics), First: 1, s: s}
	a := kadm.NewClient(s.client)
	minimum, flush := strconv.Itoa((len(s.Servers)+1)/2), strconv.FormatInt(math.MaxInt64, 10)
	if sync {
		flush = "1"
	}
	configs := map[string]*string{"min.insync.replicas": &minimum, "flush.messages": &flush}
	if _, err := a.CreateTopic(ctx, int32(partitions), int16(len(s.Servers)), configs, t.Name); err != nil {
		return nil, err
	}
	for p := range partitions { // a client that tries again knows when a leader has begun to lead
		r := s.client.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Partition: int32(p), Value: []byte("first")})
		if err := r.FirstErr(); err != nil {
			return nil, err
		}
	}
	for len(t.Leaders) < partitions {
		var err error
		if t.Leaders, err = s.leaders(ctx, a, t.Name); err != nil {
			return nil, fmt.Errorf("topic %s is not in sync everywhere: %w", t.Name, err)
		}
	}
	return t, nil
}

// leaders returns the addresses of the leaders of partitions that are in sync everywhere.
func (s *Side) leaders(ctx context.Context, a *kadm.Client, name string) (addrs []string, err error) {
	m, err := a.Metadata(ctx, name)
	if err != nil {
		return nil, err
	}
	at := map[int32]string{}
	for _, b := range m.Brokers {
		at[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	for _, p := range m.Topics[name].Partitions.Sorted() {
		if len(p.ISR) == len(s.Servers) && at[p.Leader] != "" {
			addrs = append(addrs, at[p.Leader])
		}
	}
	return addrs, nil
}

// Drop deletes the topic.
func (t *Topic) Drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	_, err := kadm.NewClient(t.s.client).DeleteTopics(ctx, t.Name)
	return err
}

// Produce writes about so many bytes at acks=all, to each partition at its leader over a connection of its own.
func (t *Topic) Produce(batch []byte, bytes int) (process.Measure, error) {
	return t.each(func(p int, addr string) error {
		frame := ProduceFrame(t.Name, int32(p), -1, batch)
		run := Run{Addr: addr, Requests: max(1, bytes/len(batch)/len(t.Leaders)), Window: Window(len(batch)),
			Check: CheckProduced, Frame: func(int) []byte { return frame }}
		_, err := run.Do()
		return err
	})
}

// Fetch reads about so many bytes of what Produce has written in batches of so many records, each partition over a connection of its own and
// a batch with each request.
func (t *Topic) Fetch(batch []byte, records, bytes int) (process.Measure, error) {
	return t.each(func(p int, addr string) error {
		n := max(1, bytes/len(batch)/len(t.Leaders))
		frames := make([][]byte, n)
		for i := range frames {
			frames[i] = FetchFrame(t.Name, int32(p), t.First+int64(i*records), int32(len(batch)))
		}
		run := Run{Addr: addr, Requests: n, Window: Window(len(batch)), Frame: func(i int) []byte { return frames[i] }, Check: CheckFetched(len(batch))}
		_, err := run.Do()
		return err
	})
}

// each does something with all partitions at once, and measures it.
func (t *Topic) each(do func(partition int, leader string) error) (process.Measure, error) {
	return process.Timed(func() error {
		errs := make([]error, len(t.Leaders))
		var all sync.WaitGroup
		for p, addr := range t.Leaders {
			all.Go(func() { errs[p] = do(p, addr) })
		}
		all.Wait()
		return errors.Join(errs...)
	}, t.s.Servers...)
}
