package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"lockstep/bench/load"
	"lockstep/bench/process"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bench holds both sides and what they share.
type bench struct {
	dir                              string
	bytes, rounds                    int
	produceLimit, fetchLimit, broker *process.Process
	client                           *kgo.Client
	topics                           int
}

func newBench(dir string, bytes, rounds int) (b *bench, err error) {
	b = &bench{dir: dir, bytes: bytes, rounds: rounds}
	if b.produceLimit, err = startPlain("produce", b.path("produce.limit")); err != nil {
		return nil, err
	}
	if b.fetchLimit, err = startPlain("fetch", b.path("fetch.limit")); err != nil {
		return nil, err
	}
	if b.broker, err = process.StartBroker(dir, nil); err != nil {
		return nil, err
	}
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.broker.Addr))
	return b, err
}

func (b *bench) close() {
	b.client.Close()
	for _, p := range []*process.Process{b.produceLimit, b.fetchLimit, b.broker} {
		p.Stop()
	}
}

// topic makes a fresh topic and returns what deletes it.
func (b *bench) topic(sync bool) (name string, drop func(), err error) {
	b.topics++
	name = fmt.Sprintf("limit-%d", b.topics)
	flush := strconv.FormatInt(math.MaxInt64, 10)
	if sync {
		flush = "1"
	}
	a := kadm.NewClient(b.client)
	_, err = a.CreateTopic(context.Background(), 1, 1, map[string]*string{"flush.messages": &flush}, name)
	return name, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, _ = a.DeleteTopics(ctx, name)
	}, err
}

func (b *bench) produce(size int) (result, error) {
	batch, _, err := load.Batch(size, 1)
	if err != nil {
		return result{}, err
	}
	n := b.bytes / len(batch)
	frame := load.ProduceFrame("limit-x", 0, 1, batch)
	limit := func() (process.Measure, error) {
		at := bytes.Index(frame, batch) - 4
		return process.Timed(func() error {
			return b.plain(b.produceLimit, n, size, prefixed(uint32(at), uint32(len(batch))), frame)
		}, b.produceLimit)
	}
	broker := func() (process.Measure, error) { return b.produceTo(n, size, batch, false) }
	return b.compare("produce", size, limit, broker)
}

// plain sends n frames to a plain program, after the one that says how.
func (b *bench) plain(p *process.Process, n, size int, hello, frame []byte) error {
	run := load.Run{Addr: p.Addr, Requests: n, Window: load.Window(size), Check: func([]byte, int) error { return nil }}
	run.Frame = func(i int) []byte {
		if i == 0 {
			return append(hello[:len(hello):len(hello)], frame...)
		}
		return frame
	}
	_, err := run.Do()
	return err
}

func (b *bench) produceTo(n, size int, batch []byte, sync bool) (m process.Measure, err error) {
	topic, drop, err := b.topic(sync)
	if err != nil {
		return m, err
	}
	defer drop()
	frame := load.ProduceFrame(topic, 0, -1, batch)
	run := load.Run{Addr: b.broker.Addr, Requests: n, Window: load.Window(size), Check: load.CheckProduced,
		Frame: func(int) []byte { return frame }}
	return process.Timed(func() error {
		_, err := run.Do()
		return err
	}, b.broker)
}

func (b *bench) produceSync(size int) (result, error) {
	batch, _, err := load.Batch(size, 1)
	if err != nil {
		return result{}, err
	}
	whole := b.bytes
	defer func() { b.bytes = whole }()
	b.bytes = min(whole, 4000*len(batch)) // a sync costs the same however little it covers
	n := b.bytes / len(batch)
	limit := func() (process.Measure, error) {
		return process.Timed(func() error { return syncLoop(b.path("sync.limit"), batch, n) })
	}
	broker := func() (process.Measure, error) { return b.produceTo(n, size, batch, true) }
	return b.compare("produce, sync", size, limit, broker)
}

// fetch fills a topic and a file with the same batches, and has both read.
func (b *bench) fetch(size int) (result, error) {
	batch, records, err := load.Batch(size, 1)
	if err != nil {
		return result{}, err
	}
	n := b.bytes / len(batch)
	topic, drop, err := b.topic(false)
	if err != nil {
		return result{}, err
	}
	defer drop()
	produce := load.ProduceFrame(topic, 0, 1, batch)
	fill := load.Run{Addr: b.broker.Addr, Requests: n, Window: load.Window(size), Check: load.CheckProduced, Frame: func(int) []byte { return produce }}
	if _, err := fill.Do(); err != nil {
		return result{}, fmt.Errorf("fill: %w", err)
	}
	if err := os.WriteFile(b.path("fetch.limit"), bytes.Repeat(batch, n), 0o644); err != nil {
		return result{}, err
	}
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = load.FetchFrame(topic, 0, int64(i*records), int32(len(batch)))
	}
	limit := func() (process.Measure, error) {
		return process.Timed(func() error {
			return b.plain(b.fetchLimit, n, size, prefixed(0, uint32(len(batch))), frames[0])
		}, b.fetchLimit)
	}
	broker := func() (process.Measure, error) { return b.fetchFrom(frames, size, len(batch)) }
	return b.compare("fetch", size, limit, broker)
}

func (b *bench) fetchFrom(frames [][]byte, size, batch int) (process.Measure, error) {
	run := load.Run{Addr: b.broker.Addr, Requests: len(frames), Window: load.Window(size), Frame: func(i int) []byte { return frames[i] },
		Check: load.CheckFetched(batch)}
	return process.Timed(func() error {
		_, err := run.Do()
		return err
	}, b.broker)
}
