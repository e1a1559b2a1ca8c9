package main

import (
	"context"
	"fmt"
	"time"

	"lockstep/interop/agent"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// aMoment bounds what is there at once on an idle machine.
const aMoment = 10 * time.Second

func (w *world) adm() (*kadm.Client, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	return kadm.NewClient(w.ref), ctx, cancel
}

// create creates a topic beside the client under test, unless it is there.
func (w *world) create(q agent.Request) error {
	adm, ctx, cancel := w.adm()
	defer cancel()
	configs := map[string]*string{}
	for k, v := range q.Config {
		configs[k] = &v
	}
	_, err := adm.CreateTopic(ctx, q.Partitions, -1, configs, q.Topic)
	if err == kerr.TopicAlreadyExists {
		err = nil
	}
	return err
}

// fill creates a topic with records of these times in partition 0.
func (w *world) fill(topic string, partitions int32, times []int64) error {
	if err := w.create(agent.Request{Topic: topic, Partitions: partitions}); err != nil {
		return err
	}
	_, ctx, cancel := w.adm()
	defer cancel()
	var rs []*kgo.Record
	for _, t := range times {
		rs = append(rs, &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(t), Value: []byte(fmt.Sprint("time ", t))})
	}
	return w.ref.ProduceSync(ctx, rs...).FirstErr()
}

// write produces n records to each of a topic's partitions.
func (w *world) write(topic string, partitions int32, n int) error {
	_, ctx, cancel := w.adm()
	defer cancel()
	var rs []*kgo.Record
	for i := range n {
		for p := range partitions {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: []byte(fmt.Sprint("record ", i))})
		}
	}
	return w.ref.ProduceSync(ctx, rs...).FirstErr()
}

// writeBeside produces one record to partition 0, in a batch of its own, as an idempotent producer.
func (w *world) writeBeside(topic, key, value string) error {
	_, ctx, cancel := w.adm()
	defer cancel()
	return w.ref.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr()
}

func (w *world) ends(topic string) (map[int32]int64, error) {
	adm, ctx, cancel := w.adm()
	defer cancel()
	ls, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	ls.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset; err = l.Err })
	return ends, err
}

// gone checks that a topic is deleted.
func (w *world) gone(topic string) error {
	adm, ctx, cancel := w.adm()
	defer cancel()
	topics, err := adm.ListTopics(ctx, topic)
	if err == nil && topics[topic].Err != kerr.UnknownTopicOrPartition {
		err = fmt.Errorf("the topic is still there: %v", topics[topic].Err)
	}
	return err
}
