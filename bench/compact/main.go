// Command compact measures compaction in a real broker: how fast a large compacted topic is compacted while it is written to, what
// memory and CPU that takes, and what reads beside it notice.
//
// A reader goes through another topic again and again, in turn alone with the writer, and until a run of compaction is
// over. Reads are by real clients (kgo) in this process; CPU and memory are the broker's alone.
//
//	go run ./bench/compact [-mb 5120] [-tables 1] [-keys 1000000] [-value 500] [-writes 5] [-limit 0] [-alone 20s] [-dir DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lockstep/bench/process"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// options are the flags.
type options struct {
	megabytes, keys, value int
	tables                 int
	writes                 float64
	limit                  float64
	read                   float64
	alone                  time.Duration
	dir                    string
}

const (
	plain      = "plain"
	plainBytes = 256 << 20
)

func tableName(i int) string { return fmt.Sprintf("table-%d", i) }

func main() {
	var o options
	flag.IntVar(&o.megabytes, "mb", 5120, "size of a topic that is compacted")
	flag.IntVar(&o.tables, "tables", 1, "how many of them, compacted one after another with the reader alone in between")
	flag.IntVar(&o.keys, "keys", 1_000_000, "its keys")
	flag.IntVar(&o.value, "value", 500, "bytes of a value")
	flag.Float64Var(&o.writes, "writes", 5, "MB/s that are written to it all the time")
	flag.Float64Var(&o.limit, "limit", 0, "MB/s that compaction may read and write; 0 is no bound")
	flag.Float64Var(&o.read, "read", 0, "MB/s that the reader wants; 0 is all it can get")
	flag.DurationVar(&o.alone, "alone", 20*time.Second, "how long the reader is measured without compaction")
	flag.StringVar(&o.dir, "dir", "", "where to put files (default: a temporary directory, removed at the end)")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "compact:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	dir, err := os.MkdirTemp(o.dir, "lockstep-compact-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	flags := []string{"-o", "log.cleaner.backoff.ms=200"}
	if o.limit > 0 {
		flags = append(flags, "-o", fmt.Sprintf("log.cleaner.io.max.bytes.per.second=%f", o.limit*1e6))
	}
	p, err := process.StartBroker(dir, flags)
	if err != nil {
		return err
	}
	defer p.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(p.Addr), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	var tables []string
	for i := range o.tables {
		tables = append(tables, tableName(i))
	}
	text := func(s string) *string { return &s }
	created, err := adm.CreateTopics(ctx, 1, 1, map[string]*string{"cleanup.policy": text("compact"), "segment.bytes": text("134217728"),
		"min.cleanable.dirty.ratio": text("1")}, tables...)
	if err = errors.Join(err, created.Error()); err != nil {
		return err
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, plain); err != nil {
		return err
	}
	w := newWriter(o, c)
	if err := w.fill(ctx, plain, plainBytes); err != nil {
		return err
	}
	for _, t := range tables {
		if err := w.fill(ctx, t, int64(o.megabytes)<<20); err != nil {
			return err
		}
	}
	return measure(ctx, o, p, adm, w)
}

// measure is the part after the topics are filled. The reader is alone before the first compaction, between any two and after the
// last one, so that what it gets beside one is compared with what it gets right before and after.
func measure(ctx context.Context, o *options, p *process.Process, adm *kadm.Client, w *writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var read atomic.Int64
	failed := make(chan error, 2)
	go func() { failed <- w.constant(ctx) }()
	go func() { failed <- readAgain(ctx, p.Addr, o.read, &read) }()
	alone := func() (phase, error) {
		return watch(ctx, p, &read, failed, func(took time.Duration) (bool, error) { return took > o.alone, nil })
	}
	before, err := alone()
	if err != nil {
		return err
	}
	var ratios []float64
	for i := range o.tables {
		w.table.Store(int64(i))
		r := round{before: before}
		if err := r.compact(ctx, p, adm, tableName(i), func(over func(time.Duration) (bool, error)) (phase, error) {
			return watch(ctx, p, &read, failed, over)
		}); err != nil {
			return err
		}
		if before, err = alone(); err != nil {
			return err
		}
		r.after = before
		r.print()
		ratios = append(ratios, r.ratio())
	}
	slices.Sort(ratios)
	fmt.Printf("reads beside it: ratio %.2f, from %.2f to %.2f\n", process.Median(len(ratios), func(i int) float64 { return ratios[i] }),
		ratios[0], ratios[len(ratios)-1])
	return nil
}

// round is one compaction, and the reader before, beside and after it.
type round struct {
	before, beside, after phase
	full, compacted       int64   // bytes of the topic
	moved                 float64 // bytes read and written
	resident              int64
}

// compact lets a topic be compacted once.
func (r *round) compact(ctx context.Context, p *process.Process, adm *kadm.Client, topic string, watch func(func(time.Duration) (bool, error)) (phase, error)) (err error) {
	if r.full, err = sizeOf(ctx, adm, topic); err != nil {
		return err
	}
	ran, err := metric(p, "lockstep_compactions_total")
	if err != nil {
		return err
	}
	moved, err := metric(p, "lockstep_compaction_io_bytes_total")
	if err != nil {
		return err
	}
	if err := setRatio(ctx, adm, topic, "0.01"); err != nil {
		return err
	}
	r.beside, err = watch(func(time.Duration) (bool, error) {
		if n, err := p.ResidentBytes(); err == nil {
			r.resident = max(r.resident, n)
		}
		runs, err := metric(p, "lockstep_compactions_total")
		return runs > ran, err
	})
	if err != nil {
		return err
	}
	if err := setRatio(ctx, adm, topic, "1"); err != nil {
		return err
	}
	if r.moved, err = metric(p, "lockstep_compaction_io_bytes_total"); err != nil {
		return err
	}
	r.moved -= moved
	r.compacted, err = sizeOf(ctx, adm, topic)
	return err
}

// setRatio sets how much of a topic must be new until it is compacted; at 1 it never is.
func setRatio(ctx context.Context, adm *kadm.Client, topic, ratio string) error {
	_, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "min.cleanable.dirty.ratio", Value: &ratio}}, topic)
	return err
}

func (r *round) alone() float64 { return (r.before.rate + r.after.rate) / 2 }

func (r *round) ratio() float64 { return r.beside.rate / r.alone() }

func (r *round) print() {
	took := r.beside.took.Seconds()
	fmt.Printf("topic: %.0f MB, compacted to %.0f MB in %.1f s: %.0f MB/s of the topic, %.0f MB/s read and written\n",
		float64(r.full)/1e6, float64(r.compacted)/1e6, took, float64(r.full)/1e6/took, r.moved/1e6/took)
	fmt.Printf("broker: at most %d MB resident, CPU %.2f of a core without and %.2f with compaction\n", r.resident>>20,
		(r.before.cores+r.after.cores)/2, r.beside.cores)
	fmt.Printf("reads beside it: %.0f MB/s without, %.0f MB/s with: ratio %.2f\n", r.alone()/1e6, r.beside.rate/1e6, r.ratio())
}

// phase is what was seen for a while.
type phase struct {
	took  time.Duration
	rate  float64 // bytes that were read in a second
	cores float64 // that the broker used
}

// watch measures what is read in a second, and the broker's CPU, until it is over.
func watch(ctx context.Context, p *process.Process, read *atomic.Int64, failed chan error, over func(time.Duration) (bool, error)) (x phase, err error) {
	began, from := time.Now(), read.Load()
	cpu, err := p.CPU()
	if err != nil {
		return x, err
	}
	for {
		select {
		case err := <-failed:
			return x, err
		case <-ctx.Done():
			return x, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		x.took = time.Since(began)
		done, err := over(x.took)
		if err != nil {
			return x, err
		}
		if done {
			now, err := p.CPU()
			x.rate, x.cores = float64(read.Load()-from)/x.took.Seconds(), (now-cpu).Seconds()/x.took.Seconds()
			return x, err
		}
	}
}

// writer writes records of random keys.
type writer struct {
	o      *options
	c      *kgo.Client
	rnd    *rand.Rand
	table  atomic.Int64 // which one is written to all the time
	failed atomic.Pointer[error]
}

func newWriter(o *options, c *kgo.Client) *writer {
	return &writer{o: o, c: c, rnd: rand.New(rand.NewPCG(1, 2))}
}

// put writes one record, and returns its size as it counts here.
func (w *writer) put(ctx context.Context, topic string) int64 {
	value := make([]byte, w.o.value)
	for i := 0; i+8 <= len(value); i += 8 {
		for n, x := 0, w.rnd.Uint64(); n < 8; n, x = n+1, x>>8 {
			value[i+n] = byte(x)
		}
	}
	key := fmt.Appendf(nil, "key-%09d", w.rnd.IntN(w.o.keys))
	w.c.Produce(ctx, &kgo.Record{Topic: topic, Key: key, Value: value}, func(_ *kgo.Record, err error) {
		if err != nil && ctx.Err() == nil {
			w.failed.Store(&err)
		}
	})
	return int64(len(key) + len(value))
}

func (w *writer) err() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fill writes until a topic has some size.
func (w *writer) fill(ctx context.Context, topic string, bytes int64) error {
	for n := int64(0); n < bytes && w.err() == nil; {
		n += w.put(ctx, topic)
	}
	if err := w.c.Flush(ctx); err != nil {
		return err
	}
	return w.err()
}

// constant writes at the wanted rate until it is stopped.
func (w *writer) constant(ctx context.Context) error {
	began, n := time.Now(), int64(0)
	for ctx.Err() == nil && w.err() == nil {
		for float64(n) < time.Since(began).Seconds()*w.o.writes*1e6 {
			n += w.put(ctx, tableName(int(w.table.Load())))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return w.err()
}

// readAgain reads the plain topic from its start to its end, again and again, at the wanted rate at most.
func readAgain(ctx context.Context, addr string, rate float64, read *atomic.Int64) error {
	began := time.Now()
	for ctx.Err() == nil {
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(plain), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		for n := int64(0); n < plainBytes && ctx.Err() == nil; {
			fetches := c.PollFetches(ctx)
			if err := fetches.Err(); err != nil && ctx.Err() == nil {
				c.Close()
				return err
			}
			fetches.EachRecord(func(r *kgo.Record) { n += int64(len(r.Key) + len(r.Value)); read.Add(int64(len(r.Key) + len(r.Value))) })
			for rate > 0 && float64(read.Load()) > time.Since(began).Seconds()*rate*1e6 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		}
		c.Close()
	}
	return nil
}

func sizeOf(ctx context.Context, adm *kadm.Client, topic string) (int64, error) {
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == topic {
				sum += p.Size
			}
		})
	})
	return sum, nil
}

// metric returns a counter of the broker.
func metric(p *process.Process, name string) (float64, error) {
	resp, err := http.Get("http://" + p.HTTP + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
