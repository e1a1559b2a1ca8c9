// Command kafkago drives github.com/segmentio/kafka-go for the matrix.
package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"lockstep/interop/agent"

	"github.com/segmentio/kafka-go"
)

type client struct {
	brokers []string
	cl      *kafka.Client
	member  *member
}

func main() {
	brokers := strings.Split(os.Args[1], ",")
	agent.Serve(&client{brokers: brokers, cl: &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second}}, code)
}

func code(err error) int {
	var many kafka.WriteErrors
	if errors.As(err, &many) {
		for _, e := range many {
			if e != nil {
				err = e
				break
			}
		}
	}
	var large kafka.MessageTooLargeError
	if errors.As(err, &large) {
		return int(kafka.MessageSizeTooLarge)
	}
	var e kafka.Error
	if errors.As(err, &e) {
		return int(e)
	}
	return -1
}

func (c *client) Do(q agent.Request) (r agent.Response, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch q.Op {
	case "hello":
		return agent.Response{Client: "kafka-go " + version("github.com/segmentio/kafka-go")}, nil
	case "produce":
		return c.produce(ctx, q)
	case "read":
		return c.read(ctx, q)
	case "join":
		return c.join(q)
	case "status":
		return c.member.status(), nil
	case "leave":
		return r, c.member.leave()
	case "commit", "committed", "groups":
		return c.groups(ctx, q)
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

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

func (c *client) produce(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	if q.Idempotent {
		return agent.Gap("it has no idempotent producer")
	}
	offsets := make([]int64, len(q.Records))
	w := &kafka.Writer{Addr: c.cl.Addr, Topic: q.Topic, RequiredAcks: kafka.RequireAll, Compression: codecs[q.Codec],
		BatchBytes: 4_000_000, BatchTimeout: 20 * time.Millisecond, MaxAttempts: 2,
		Transport: &kafka.Transport{}, // with the topics of now, not those it saw seconds ago
		Balancer:  kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return int(q.Records[m.WriterData.(int)].Partition) }),
		Completion: func(ms []kafka.Message, _ error) {
			for _, m := range ms {
				offsets[m.WriterData.(int)] = m.Offset
			}
		}}
	var ms []kafka.Message
	for i, rec := range q.Records {
		m := kafka.Message{Key: rec.Key, Value: rec.Value, WriterData: i}
		if rec.Timestamp != 0 {
			m.Time = time.UnixMilli(rec.Timestamp)
		}
		for _, h := range rec.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		ms = append(ms, m)
	}
	if q.Pause == 0 {
		err = w.WriteMessages(ctx, ms...)
	} else {
		w.MaxAttempts, w.BatchTimeout = 60, time.Millisecond
		for i := 0; i < len(ms) && err == nil; i++ {
			err = w.WriteMessages(ctx, ms[i])
			time.Sleep(time.Duration(q.Pause) * time.Millisecond)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return r, err
	}
	r.Offsets = offsets
	return r, nil
}

func (c *client) read(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	rd := kafka.NewReader(kafka.ReaderConfig{Brokers: c.brokers, Topic: q.Topic, Partition: int(q.Partition),
		MaxWait: 500 * time.Millisecond, MaxBytes: 10 << 20, OffsetOutOfRangeError: true})
	defer rd.Close()
	if err := rd.SetOffset(q.Offset); err != nil {
		return r, err
	}
	for len(r.Records) < q.Count {
		m, err := rd.ReadMessage(ctx)
		if err != nil {
			return r, err
		}
		rec := agent.Record{Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			rec.Headers = append(rec.Headers, agent.Header{Key: h.Key, Value: h.Value})
		}
		r.Records = append(r.Records, rec)
	}
	return r, nil
}

func (c *client) admin(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "create":
		t := kafka.TopicConfig{Topic: q.Topic, NumPartitions: int(q.Partitions), ReplicationFactor: -1}
		for k, v := range q.Config {
			t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
		}
		rs, err := c.cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}})
		if err != nil {
			return r, err
		}
		return r, rs.Errors[q.Topic]
	case "describe":
		rs, err := c.cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{q.Topic}})
		if err != nil {
			return r, err
		}
		r.Partitions = int32(len(rs.Topics[0].Partitions))
		return r, rs.Topics[0].Error
	case "configs":
		rs, err := c.cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: q.Topic}}})
		if err != nil {
			return r, err
		}
		r.Config = map[string]string{}
		for _, e := range rs.Resources[0].ConfigEntries {
			r.Config[e.ConfigName] = e.ConfigValue
		}
		return r, rs.Resources[0].Error
	case "alter":
		res := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: q.Topic}
		for k, v := range q.Config {
			res.Configs = append(res.Configs, kafka.IncrementalAlterConfigsRequestConfig{Name: k, Value: v, ConfigOperation: kafka.ConfigOperationSet})
		}
		rs, err := c.cl.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{res}})
		if err != nil {
			return r, err
		}
		return r, rs.Resources[0].Error
	case "grow":
		rs, err := c.cl.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: q.Topic, Count: q.Partitions}}})
		if err != nil {
			return r, err
		}
		return r, rs.Errors[q.Topic]
	case "delete":
		rs, err := c.cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{q.Topic}})
		if err != nil {
			return r, err
		}
		return r, rs.Errors[q.Topic]
	case "offset":
		return c.offset(ctx, q)
	}
	return agent.Gap("its library has no call for this")
}

func (c *client) offset(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	rs, err := c.cl.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		q.Topic: {{Partition: int(q.Partition), Timestamp: q.Time}}}})
	if err != nil {
		return r, err
	}
	p := rs.Topics[q.Topic][0]
	switch q.Time {
	case -1:
		r.Offset = p.LastOffset
	case -2:
		r.Offset = p.FirstOffset
	default:
		r.Offset = -1
		for o := range p.Offsets {
			r.Offset = o
		}
	}
	return r, p.Error
}

func (c *client) groups(ctx context.Context, q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "commit":
		rs, err := c.cl.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: q.Group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{
			q.Topic: {{Partition: int(q.Partition), Offset: q.Offset, Metadata: q.Metadata}}}})
		if err != nil {
			return r, err
		}
		return r, rs.Topics[q.Topic][0].Error
	case "committed":
		rs, err := c.cl.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: q.Group, Topics: map[string][]int{q.Topic: {int(q.Partition)}}})
		if err != nil {
			return r, err
		}
		p := rs.Topics[q.Topic][0]
		r.Offset, r.Metadata = p.CommittedOffset, p.Metadata
		return r, errors.Join(rs.Error, p.Error)
	}
	rs, err := c.cl.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{q.Group}})
	if err != nil {
		return r, err
	}
	r.State, r.Members = rs.Groups[0].GroupState, len(rs.Groups[0].Members)
	return r, rs.Groups[0].Error
}

// member is a member of a group that reads and commits in the background. The library's Reader hides which partitions it
// has; its generations (ConsumerGroup) show them.
type member struct {
	group    *kafka.ConsumerGroup
	brokers  []string
	topic    string
	stop     context.CancelFunc
	done     chan struct{}
	mu       sync.Mutex
	assigned map[int32]bool
	consumed map[int32][]int64
}

func (c *client) join(q agent.Request) (r agent.Response, err error) {
	if q.Protocol == "consumer" {
		return agent.Gap("it has the classic protocol only")
	}
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: q.Group, Brokers: c.brokers, Topics: []string{q.Topic},
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, StartOffset: kafka.FirstOffset})
	if err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: g, brokers: c.brokers, topic: q.Topic, stop: stop, done: make(chan struct{}),
		assigned: map[int32]bool{}, consumed: map[int32][]int64{}}
	c.member = m
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if gen, err := g.Next(ctx); err == nil {
				m.generation(gen)
			}
		}
	}()
	return r, nil
}

// generation reads what one generation of the group assigns to this member, until the next.
func (m *member) generation(gen *kafka.Generation) {
	for _, a := range gen.Assignments[m.topic] {
		m.own(int32(a.ID), true)
		gen.Start(func(ctx context.Context) {
			defer m.own(int32(a.ID), false)
			rd := kafka.NewReader(kafka.ReaderConfig{Brokers: m.brokers, Topic: m.topic, Partition: a.ID, MaxWait: 200 * time.Millisecond})
			defer rd.Close()
			_ = rd.SetOffset(a.Offset)
			for {
				msg, err := rd.ReadMessage(ctx)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				m.mu.Lock()
				m.consumed[int32(a.ID)] = append(m.consumed[int32(a.ID)], msg.Offset)
				m.mu.Unlock()
				_ = gen.CommitOffsets(map[string]map[int]int64{m.topic: {a.ID: msg.Offset + 1}})
			}
		})
	}
}

func (m *member) own(p int32, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.assigned, p); on {
		m.assigned[p] = true
	}
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

func (m *member) leave() error {
	err := m.group.Close()
	m.stop()
	<-m.done
	return err
}
