// Command franzgo drives franz-go (kgo, kadm) for the matrix.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"lockstep/interop/agent"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type client struct {
	bootstrap string
	cl        *kgo.Client
	adm       *kadm.Client

	mu     sync.Mutex
	member *member
}

func main() {
	c := &client{bootstrap: os.Args[1]}
	var err error
	if c.cl, err = c.open(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.adm = kadm.NewClient(c.cl)
	agent.Serve(c, func(err error) int {
		var e *kerr.Error
		if errors.As(err, &e) {
			return int(e.Code)
		}
		return -1
	})
}

func (c *client) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(3)}, opts...)...)
}

func (c *client) Do(q agent.Request) (r agent.Response, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch q.Op {
	case "hello":
		return agent.Response{Client: "franz-go " + version("github.com/twmb/franz-go")}, nil
	case "produce":
		return c.produce(ctx, q)
	case "read":
		return c.read(ctx, q)
	case "join":
		return r, c.join(q)
	case "status":
		return c.member.status(), nil
	case "leave":
		c.member.leave()
		return r, nil
	}
	return c.admin(ctx, q)
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return ""
}

var codecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

func (c *client) produce(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[q.Codec]), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(4 << 20)}
	if !q.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := c.open(opts...)
	if err != nil {
		return r, err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for _, rec := range q.Records {
		k := &kgo.Record{Topic: q.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value}
		if rec.Timestamp != 0 {
			k.Timestamp = time.UnixMilli(rec.Timestamp)
		}
		for _, h := range rec.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		recs = append(recs, k)
	}
	for step := recs; len(step) > 0; {
		n := len(step)
		if q.Pause > 0 {
			n = 1
		}
		if err := cl.ProduceSync(ctx, step[:n]...).FirstErr(); err != nil {
			return r, err
		}
		step = step[n:]
		time.Sleep(time.Duration(q.Pause) * time.Millisecond)
	}
	for _, k := range recs {
		r.Offsets = append(r.Offsets, k.Offset)
	}
	return r, nil
}

func (c *client) read(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	cl, err := c.open(kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{q.Topic: {q.Partition: kgo.NewOffset().At(q.Offset)}}))
	if err != nil {
		return r, err
	}
	defer cl.Close()
	for len(r.Records) < q.Count {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return r, err
		}
		f.EachRecord(func(k *kgo.Record) { r.Records = append(r.Records, record(k)) })
	}
	return r, nil
}

func record(k *kgo.Record) agent.Record {
	rec := agent.Record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
	for _, h := range k.Headers {
		rec.Headers = append(rec.Headers, agent.Header{Key: h.Key, Value: h.Value})
	}
	return rec
}

func (c *client) admin(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "create":
		configs := map[string]*string{}
		for k, v := range q.Config {
			configs[k] = &v
		}
		_, err = c.adm.CreateTopic(ctx, q.Partitions, -1, configs, q.Topic)
		return r, err
	case "describe":
		topics, err := c.adm.ListTopics(ctx, q.Topic)
		if err == nil {
			err = topics[q.Topic].Err
		}
		r.Partitions = int32(len(topics[q.Topic].Partitions))
		return r, err
	case "configs":
		rs, err := c.adm.DescribeTopicConfigs(ctx, q.Topic)
		if err != nil {
			return r, err
		}
		r.Config = map[string]string{}
		for _, cfg := range rs[0].Configs {
			r.Config[cfg.Key] = cfg.MaybeValue()
		}
		return r, rs[0].Err
	case "alter":
		var as []kadm.AlterConfig
		for k, v := range q.Config {
			as = append(as, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
		}
		rs, err := c.adm.AlterTopicConfigs(ctx, as, q.Topic)
		if err != nil {
			return r, err
		}
		return r, rs[0].Err
	case "grow":
		rs, err := c.adm.UpdatePartitions(ctx, int(q.Partitions), q.Topic)
		if err != nil {
			return r, err
		}
		return r, rs[q.Topic].Err
	case "trim":
		var os kadm.Offsets
		os.AddOffset(q.Topic, q.Partition, q.Offset, -1)
		rs, err := c.adm.DeleteRecords(ctx, os)
		if err != nil {
			return r, err
		}
		d, _ := rs.Lookup(q.Topic, q.Partition)
		r.Offset = d.LowWatermark
		return r, d.Err
	case "delete":
		rs, err := c.adm.DeleteTopics(ctx, q.Topic)
		if err != nil {
			return r, err
		}
		return r, rs[q.Topic].Err
	case "offset":
		return c.offset(ctx, q)
	}
	return c.groups(ctx, q)
}

func (c *client) offset(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	var ls kadm.ListedOffsets
	switch q.Time {
	case -1:
		ls, err = c.adm.ListEndOffsets(ctx, q.Topic)
	case -2:
		ls, err = c.adm.ListStartOffsets(ctx, q.Topic)
	default:
		ls, err = c.adm.ListOffsetsAfterMilli(ctx, q.Time, q.Topic)
	}
	if err != nil {
		return r, err
	}
	l, _ := ls.Lookup(q.Topic, q.Partition)
	r.Offset = l.Offset
	return r, l.Err
}

func (c *client) groups(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "commit":
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: q.Topic, Partition: q.Partition, At: q.Offset, LeaderEpoch: -1, Metadata: q.Metadata})
		return r, c.adm.CommitAllOffsets(ctx, q.Group, os)
	case "committed":
		rs, err := c.adm.FetchOffsets(ctx, q.Group)
		if err != nil {
			return r, err
		}
		o, _ := rs.Lookup(q.Topic, q.Partition)
		r.Offset, r.Metadata = o.At, o.Metadata
		return r, o.Err
	case "groups":
		if q.Protocol == "consumer" {
			rs, err := c.adm.DescribeConsumerGroups(ctx, q.Group)
			if err != nil {
				return r, err
			}
			r.State, r.Members = rs[q.Group].State, len(rs[q.Group].Members)
			return r, rs[q.Group].Err
		}
		rs, err := c.adm.DescribeGroups(ctx, q.Group)
		if err != nil {
			return r, err
		}
		r.State, r.Members = rs[q.Group].State, len(rs[q.Group].Members)
		return r, rs[q.Group].Err
	}
	return agent.Gap("not asked of this client: " + q.Op)
}

// member is a member of a group that reads and commits in the background.
type member struct {
	cl       *kgo.Client
	ctx      context.Context
	stop     context.CancelFunc
	done     chan struct{}
	mu       sync.Mutex
	assigned map[int32]bool
	consumed map[int32][]int64
}

func (c *client) join(q agent.Request) error {
	m := &member{done: make(chan struct{}), assigned: map[int32]bool{}, consumed: map[int32][]int64{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	change := func(on bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range ps[q.Topic] {
				if delete(m.assigned, p); on {
					m.assigned[p] = true
				}
			}
		}
	}
	if q.Protocol == "consumer" {
		m.ctx = context.WithValue(m.ctx, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck // the library's own key
	}
	cl, err := kgo.NewClient(kgo.WithContext(m.ctx), kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...), kgo.ConsumerGroup(q.Group), kgo.ConsumeTopics(q.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsLost(change(false)), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, ps map[string][]int32) {
			// Who sets this callback has to commit in it.
			_ = cl.CommitUncommittedOffsets(ctx)
			change(false)(ctx, cl, ps)
		}),
		kgo.AutoCommitInterval(200*time.Millisecond))
	if err != nil {
		return err
	}
	m.cl, c.member = cl, m
	go func() {
		defer close(m.done)
		for m.ctx.Err() == nil {
			f := cl.PollFetches(m.ctx)
			m.mu.Lock()
			f.EachRecord(func(k *kgo.Record) { m.consumed[k.Partition] = append(m.consumed[k.Partition], k.Offset) })
			m.mu.Unlock()
		}
	}()
	return nil
}

func (m *member) status() (r agent.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.assigned {
		r.Assigned = append(r.Assigned, p)
	}
	sort.Slice(r.Assigned, func(i, j int) bool { return r.Assigned[i] < r.Assigned[j] })
	r.Consumed = map[int32][]int64{}
	for p, os := range m.consumed {
		r.Consumed[p] = append([]int64(nil), os...)
	}
	return r
}

func (m *member) leave() {
	m.cl.Close()
	m.stop()
	<-m.done
}
