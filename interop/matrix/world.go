package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	servers "lockstep/bench/process"
	"lockstep/interop/agent"

	"github.com/twmb/franz-go/pkg/kgo"
)

// world is one run: the brokers, the clients, and what has been written.
type world struct {
	o       options
	dir     string // of this run: binary, data, logs
	install *installer
	columns []*column
	addr    string // what clients are told
	brokers []*broker
	failed  bool
	ref     *kgo.Client     // asks and writes beside the clients
	ctx     context.Context // of the row that runs, over when its time is up

	written []writtenTopic
}

// writtenTopic is a topic of the row "produce", with what it holds by the reference client's reading.
type writtenTopic struct {
	by      string
	topic   string
	records map[int32][]agent.Record
}

func newWorld(o options) (*world, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	cache, err := filepath.Abs(o.cache)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(cache, "go"), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(cache, "install.log"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockstep-interop-")
	if err != nil {
		return nil, err
	}
	agents, err := os.Create(filepath.Join(dir, "clients.log"))
	if err != nil {
		return nil, err
	}
	agentLog, agentTemp = agents, filepath.Join(dir, "tmp")
	if err := os.Mkdir(agentTemp, 0o755); err != nil {
		return nil, err
	}
	w := &world{o: o, ctx: context.Background(), dir: dir, install: &installer{cache: cache, root: root, once: map[string]func() error{}, log: log}}
	_, err = servers.Build(dir)
	return w, err
}

func (w *world) close() {
	w.stopBrokers()
	if w.o.keep || w.failed {
		fmt.Println("kept:", w.dir)
		return
	}
	os.RemoveAll(w.dir)
}

// broker is one broker process.
type broker struct {
	servers.Member
	proc *servers.Process // nil: it never started
}

// ensureBrokers has n fresh brokers run in place of those that do, unless there are n already.
func (w *world) ensureBrokers(n int) error {
	if n == len(w.brokers) {
		return nil
	}
	w.stopBrokers()
	return w.startBrokers(n)
}

func (w *world) stopBrokers() {
	if w.ref != nil {
		w.ref.Close()
	}
	for _, b := range w.brokers {
		b.stop()
	}
	w.ref, w.brokers = nil, nil
}

func (w *world) startBrokers(n int) error {
	members, err := servers.Cluster(w.dir, n, "-o", "auto.create.topics.enable=false", "-o", "group.initial.rebalance.delay.ms=0",
		"-o", "group.consumer.session.timeout.ms=6000", "-o", "group.consumer.heartbeat.interval.ms=500",
		"-o", "log.cleaner.backoff.ms=500")
	if err != nil {
		return err
	}
	var addrs []string
	for _, m := range members {
		w.brokers = append(w.brokers, &broker{Member: m})
		addrs = append(addrs, m.Addr)
	}
	w.addr = strings.Join(addrs, ",")
	// All start before any is waited for: a quorum needs its majority.
	var waits []func() error
	for _, b := range w.brokers {
		wait, err := w.startBroker(b)
		if err != nil {
			return err
		}
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			return err
		}
	}
	w.ref, err = kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50*time.Millisecond),  // else it answers for seconds from what it saw before
		kgo.AllowIdempotentProduceCancellation()) // without it a context does not end a Produce that nobody answers
	return err
}

// startBroker starts a broker's process and returns what waits for its word that it is ready.
func (w *world) startBroker(b *broker) (wait func() error, err error) {
	b.proc, wait, err = b.Launch(filepath.Join(w.dir, "lockstep"))
	return wait, err
}

// kill ends a broker as kill -9 does.
func (b *broker) kill() { b.proc.Kill() }

// printStacks has the brokers that run print to their logs where every goroutine is, which ends them, and starts them again.
func (w *world) printStacks() {
	for _, b := range w.brokers {
		if !b.proc.Signal(syscall.SIGQUIT) {
			continue // killed by the row
		}
		b.stop()
		wait, err := w.startBroker(b)
		if err == nil {
			err = wait()
		}
		if err != nil {
			fmt.Printf("broker %d did not come back: %v\n", b.ID, err)
		}
	}
}

func (b *broker) stop() {
	if b.proc != nil {
		_ = b.proc.Stop() // of one that a row has killed, that says so
	}
}

// readAll is the reference's reading of count records of a partition, from an offset.
func (w *world) readAll(topic string, partition int32, from int64, count int) ([]agent.Record, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.addr, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var rs []agent.Record
	for len(rs) < count {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return rs, fmt.Errorf("%s-%d: %d of %d records: %w", topic, partition, len(rs), count, err)
		}
		f.EachRecord(func(k *kgo.Record) {
			r := agent.Record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, agent.Header{Key: h.Key, Value: h.Value})
			}
			rs = append(rs, r)
		})
	}
	return rs, nil
}

// await repeats a check until it holds, or until the time is up and its last error is returned.
func (w *world) await(limit time.Duration, check func() error) error {
	until := time.Now().Add(limit)
	for {
		err := check()
		var g gap
		var lost *lostError
		if err == nil || errors.As(err, &g) || errors.As(err, &lost) || w.ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
