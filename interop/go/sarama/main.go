// Command sarama drives github.com/IBM/sarama for the matrix.
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

	"github.com/IBM/sarama"
)

type client struct {
	bootstrap []string
	member    *member
}

func main() {
	agent.Serve(&client{bootstrap: strings.Split(os.Args[1], ",")}, code)
}

func code(err error) int {
	var e sarama.KError
	var many sarama.ProducerErrors
	if errors.As(err, &many) && len(many) > 0 {
		err = many[0].Err
	}
	if errors.As(err, &e) {
		return int(e)
	}
	return -1
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.MaxMessageBytes = 4_000_000
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Metadata.Retry.Max, c.Producer.Retry.Max = 1, 1
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

func (c *client) Do(q agent.Request) (r agent.Response, err error) {
	switch q.Op {
	case "hello":
		return agent.Response{Client: "sarama " + version("github.com/IBM/sarama")}, nil
	case "produce":
		return c.produce(q)
	case "read":
		return c.read(q)
	case "offset":
		cl, err := sarama.NewClient(c.bootstrap, config())
		if err != nil {
			return r, err
		}
		defer cl.Close()
		r.Offset, err = cl.GetOffset(q.Topic, q.Partition, q.Time)
		return r, err
	case "commit":
		return r, c.commit(q)
	case "join":
		return c.join(q)
	case "status":
		return c.member.status(), nil
	case "leave":
		return r, c.member.leave()
	}
	return c.admin(q)
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

var codecs = map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}

func (c *client) produce(q agent.Request) (r agent.Response, err error) {
	conf := config()
	if q.Pause > 0 {
		conf.Metadata.Retry.Max, conf.Producer.Retry.Max, conf.Producer.Retry.Backoff = 20, 40, 250*time.Millisecond
	}
	conf.Producer.Compression = codecs[q.Codec]
	if q.Idempotent {
		conf.Producer.Idempotent, conf.Net.MaxOpenRequests = true, 1
	}
	p, err := sarama.NewSyncProducer(c.bootstrap, conf)
	if err != nil {
		return r, err
	}
	defer p.Close()
	var msgs []*sarama.ProducerMessage
	for _, rec := range q.Records {
		m := &sarama.ProducerMessage{Topic: q.Topic, Partition: rec.Partition}
		if rec.Key != nil {
			m.Key = sarama.ByteEncoder(rec.Key)
		}
		if rec.Value != nil {
			m.Value = sarama.ByteEncoder(rec.Value)
		}
		if rec.Timestamp != 0 {
			m.Timestamp = time.UnixMilli(rec.Timestamp)
		}
		for _, h := range rec.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		msgs = append(msgs, m)
	}
	if q.Pause == 0 {
		err = p.SendMessages(msgs)
	} else {
		for i := 0; i < len(msgs) && err == nil; i++ {
			_, _, err = p.SendMessage(msgs[i])
			time.Sleep(time.Duration(q.Pause) * time.Millisecond)
		}
	}
	if err != nil {
		return r, err
	}
	for _, m := range msgs {
		r.Offsets = append(r.Offsets, m.Offset)
	}
	return r, nil
}

func (c *client) read(q agent.Request) (r agent.Response, err error) {
	conf := config()
	conf.Consumer.Return.Errors = true
	cons, err := sarama.NewConsumer(c.bootstrap, conf)
	if err != nil {
		return r, err
	}
	defer cons.Close()
	p, err := cons.ConsumePartition(q.Topic, q.Partition, q.Offset)
	if err != nil {
		return r, err
	}
	defer p.Close()
	timeout := time.After(40 * time.Second)
	for len(r.Records) < q.Count {
		select {
		case m := <-p.Messages():
			rec := agent.Record{Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				rec.Headers = append(rec.Headers, agent.Header{Key: string(h.Key), Value: h.Value})
			}
			r.Records = append(r.Records, rec)
		case err := <-p.Errors():
			return r, err.Err
		case <-timeout:
			return r, errors.New("nothing came for 40 s")
		}
	}
	return r, nil
}

func (c *client) admin(q agent.Request) (r agent.Response, err error) {
	a, err := sarama.NewClusterAdmin(c.bootstrap, config())
	if err != nil {
		return r, err
	}
	defer a.Close()
	settings := map[string]*string{}
	for k, v := range q.Config {
		settings[k] = &v
	}
	switch q.Op {
	case "create":
		return r, a.CreateTopic(q.Topic, &sarama.TopicDetail{NumPartitions: q.Partitions, ReplicationFactor: -1, ConfigEntries: settings}, false)
	case "describe":
		ts, err := a.DescribeTopics([]string{q.Topic})
		if err != nil {
			return r, err
		}
		if ts[0].Err != sarama.ErrNoError {
			return r, ts[0].Err
		}
		r.Partitions = int32(len(ts[0].Partitions))
	case "configs":
		entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: q.Topic})
		if err != nil {
			return r, err
		}
		r.Config = map[string]string{}
		for _, e := range entries {
			r.Config[e.Name] = e.Value
		}
	case "alter":
		ops := map[string]sarama.IncrementalAlterConfigsEntry{}
		for k, v := range settings {
			ops[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: v}
		}
		return r, a.IncrementalAlterConfig(sarama.TopicResource, q.Topic, ops, false)
	case "grow":
		return r, a.CreatePartitions(q.Topic, q.Partitions, nil, false)
	case "trim":
		if err := a.DeleteRecords(q.Topic, map[int32]int64{q.Partition: q.Offset}); err != nil {
			return r, err
		}
		return c.Do(agent.Request{Op: "offset", Topic: q.Topic, Partition: q.Partition, Time: -2})
	case "delete":
		return r, a.DeleteTopic(q.Topic)
	case "committed":
		rs, err := a.ListConsumerGroupOffsets(q.Group, map[string][]int32{q.Topic: {q.Partition}})
		if err != nil {
			return r, err
		}
		b := rs.GetBlock(q.Topic, q.Partition)
		r.Offset, r.Metadata = b.Offset, b.Metadata
	case "groups":
		gs, err := a.DescribeConsumerGroups([]string{q.Group})
		if err != nil {
			return r, err
		}
		r.State, r.Members = gs[0].State, len(gs[0].Members)
	}
	return r, nil
}

func (c *client) commit(q agent.Request) error {
	conf := config()
	conf.Consumer.Offsets.AutoCommit.Enable, conf.Consumer.Return.Errors = false, true
	cl, err := sarama.NewClient(c.bootstrap, conf)
	if err != nil {
		return err
	}
	defer cl.Close()
	m, err := sarama.NewOffsetManagerFromClient(q.Group, cl)
	if err != nil {
		return err
	}
	p, err := m.ManagePartition(q.Topic, q.Partition)
	if err != nil {
		return err
	}
	p.MarkOffset(q.Offset, q.Metadata)
	m.Commit()
	err = m.Close()
	for e := range p.Errors() {
		err = errors.Join(err, e.Err)
	}
	return err
}

// member is a member of a group that reads and commits in the background.
type member struct {
	group    sarama.ConsumerGroup
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
	conf := config()
	conf.Consumer.Offsets.Initial = sarama.OffsetOldest
	conf.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	conf.Consumer.Group.Session.Timeout, conf.Consumer.Group.Heartbeat.Interval = 6*time.Second, 500*time.Millisecond
	g, err := sarama.NewConsumerGroup(c.bootstrap, q.Group, conf)
	if err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: g, stop: stop, done: make(chan struct{}), consumed: map[int32][]int64{}}
	c.member = m
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			_ = g.Consume(ctx, []string{q.Topic}, m)
		}
	}()
	return r, nil
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = map[int32]bool{}
	for _, ps := range s.Claims() {
		for _, p := range ps {
			m.assigned[p] = true
		}
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = nil
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for msg := range c.Messages() {
		m.mu.Lock()
		m.consumed[msg.Partition] = append(m.consumed[msg.Partition], msg.Offset)
		m.mu.Unlock()
		s.MarkMessage(msg, "")
	}
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

func (m *member) leave() error {
	m.stop()
	<-m.done
	return m.group.Close()
}
