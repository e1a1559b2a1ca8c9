package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"lockstep/interop/agent"
)

// row is one check that a client is put through.
type row struct {
	name string
	run  func(*world, *column) error
}

// phase is a stretch of rows; every client goes through a phase before any goes through the next.
type phase struct {
	name string
	// brokers is how many it has; a phase with as many as the phase before has the same.
	brokers int
	rows    []row
	// library says that only libraries are put through it.
	library bool
	// frameworks says that the Java frameworks are put through it, and nobody else.
	frameworks bool
	always     bool // whatever rows were asked for, because others need it
}

// Kafka's error codes that rows ask for.
const (
	offsetOutOfRange        = 1
	unknownTopicOrPartition = 3
	messageTooLarge         = 10
	topicAlreadyExists      = 36
	invalidPartitions       = 37
	invalidConfig           = 40
)

var phases = []phase{
	{name: "writing", brokers: 1, always: true, rows: append([]row{{"create", create}, {"describe", describe}}, produceRows()...)},
	{name: "reading", brokers: 1, rows: []row{
		{"reads what all wrote", readAllTopics},
		{"seek by offset and time", seek},
		{"configs: describe, alter", configs},
		{"create partitions", grow},
		{"delete records", trim},
		{"delete topic", deleteTopic},
		{"compacted topic", compacted},
		{"error: unknown topic", func(_ *world, c *column) error {
			return c.refused(agent.Request{Op: "describe", Topic: c.topic("is-not-there")}, unknownTopicOrPartition)
		}},
		{"error: topic exists", topicExists},
		{"error: bad config", badConfig},
		{"error: too large", tooLarge},
		{"error: offset out of range", outOfRange},
	}},
	{name: "groups", library: true, brokers: 1, rows: groupRows},
	{name: "frameworks", frameworks: true, brokers: 1, rows: frameworkRows},
	{name: "cluster", library: true, brokers: 3, rows: clusterRows},
	{name: "frameworks in the cluster", frameworks: true, brokers: 3, rows: frameworkClusterRows},
}

func create(w *world, c *column) error {
	q := agent.Request{Op: "create", Topic: c.topic("written"), Partitions: 2, Config: map[string]string{"retention.ms": "-1"}}
	_, err := c.must(q)
	return errors.Join(err, w.create(q)) // whatever came of it, others need the topic
}

func describe(w *world, c *column) error {
	r, err := c.must(agent.Request{Op: "describe", Topic: c.topic("written")})
	if err == nil && r.Partitions != 2 {
		err = fmt.Errorf("describe: %d partitions in place of 2", r.Partitions)
	}
	return err
}

// produceRows write the test records once with each codec, and once more as an idempotent producer.
func produceRows() (rs []row) {
	for _, codec := range codecNames {
		rs = append(rs, row{"produce " + codec, func(w *world, c *column) error { return produce(w, c, codec, false) }})
	}
	return append(rs, row{"idempotent produce", func(w *world, c *column) error { return produce(w, c, "none", true) }})
}

// produce has the client write the test records and compares what the broker then holds with what was sent.
func produce(w *world, c *column, codec string, idempotent bool) error {
	topic := c.topic("written")
	sent := testRecords(c.limits)
	ends, err := w.ends(topic)
	if err != nil {
		return err
	}
	r, err := c.must(agent.Request{Op: "produce", Topic: topic, Codec: codec, Idempotent: idempotent, Records: sent})
	if err != nil {
		return err
	}
	for p := range int32(2) {
		var want []agent.Record
		for i, s := range sent {
			if s.Partition == p {
				s.Offset = ends[p] + int64(len(want))
				if r.Offsets != nil && r.Offsets[i] != s.Offset {
					return fmt.Errorf("record %d was acknowledged at offset %d, %d was due", i, r.Offsets[i], s.Offset)
				}
				want = append(want, s)
			}
		}
		if err := w.holds(c, topic, p, want, codec, idempotent); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}

// holds compares a partition with the records that were sent to it, and their batches with how they were sent.
func (w *world) holds(c *column, topic string, p int32, want []agent.Record, codec string, idempotent bool) error {
	from := want[0].Offset
	got, err := w.readAll(topic, p, from, len(want))
	if err != nil {
		return err
	}
	for i := range want {
		if c.limits.noTimestamps {
			want[i].Timestamp = got[i].Timestamp
		}
		if d := sameRecord(want[i], got[i], c.limits); d != "" {
			return errors.New("stored: " + d)
		}
	}
	batches, err := w.stored(topic, p, from)
	if err != nil {
		return err
	}
	compressed := false
	for _, b := range batches {
		compressed = compressed || b.codec == codec
		if b.codec != codec && b.codec != "none" {
			return fmt.Errorf("the batch at %d is stored with %s", b.base, b.codec)
		}
		if idempotent != (b.producer >= 0) {
			return fmt.Errorf("the batch at %d has producer id %d", b.base, b.producer)
		}
	}
	if !compressed {
		return fmt.Errorf("no batch is stored with %s", codec)
	}
	w.remember(c.name, topic, p, got)
	return nil
}

func (w *world) remember(by, topic string, p int32, rs []agent.Record) {
	for i := range w.written {
		if w.written[i].topic == topic {
			w.written[i].records[p] = append(w.written[i].records[p], rs...)
			return
		}
	}
	w.written = append(w.written, writtenTopic{by, topic, map[int32][]agent.Record{p: rs}})
}

// readAllTopics has the client read what every client wrote, with every codec.
func readAllTopics(w *world, c *column) error {
	if len(w.written) == 0 {
		return errors.New("nothing was written")
	}
	for _, t := range w.written {
		for p, want := range t.records {
			// What a failed row left in between is not remembered: the whole partition is read and compared by offset.
			count := int(want[len(want)-1].Offset) + 1
			r, err := c.must(agent.Request{Op: "read", Topic: t.topic, Partition: p, Offset: 0, Count: count})
			if err != nil {
				return fmt.Errorf("written by %s: %w", t.by, err)
			}
			if len(r.Records) < count {
				return fmt.Errorf("written by %s: %d records in place of %d", t.by, len(r.Records), count)
			}
			for _, x := range want {
				if d := sameRecord(x, r.Records[x.Offset], c.limits); d != "" {
					return fmt.Errorf("written by %s, partition %d: %s", t.by, p, d)
				}
			}
		}
	}
	return nil
}

// seek asks for offsets by time where records have the times 2, 4, 6 and 8, and reads from the middle of a batch.
func seek(w *world, c *column) error {
	topic := c.topic("times")
	if err := w.fill(topic, 1, []int64{2, 4, 6, 8}); err != nil {
		return err
	}
	for _, x := range []struct {
		time int64
		want []int64
	}{{-2, []int64{0}}, {-1, []int64{4}}, {3, []int64{1}}, {8, []int64{3}}, {9, []int64{-1, 4}}} {
		r, err := c.must(agent.Request{Op: "offset", Topic: topic, Time: x.time})
		if err != nil {
			return fmt.Errorf("time %d: %w", x.time, err)
		}
		// Where no record is that late, some clients say so and others give the end.
		if r.Offset != x.want[0] && r.Offset != x.want[len(x.want)-1] {
			return fmt.Errorf("offset by time %d is %d, %v was due", x.time, r.Offset, x.want)
		}
	}
	r, err := c.must(agent.Request{Op: "read", Topic: topic, Offset: 2, Count: 2})
	if err != nil {
		return err
	}
	if len(r.Records) != 2 || r.Records[0].Offset != 2 || r.Records[0].Timestamp != 6 || r.Records[1].Offset != 3 {
		return fmt.Errorf("read from offset 2 gave %+v", r.Records)
	}
	return nil
}

func configs(w *world, c *column) error {
	topic := c.topic("configs")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1, Config: map[string]string{"segment.bytes": "1048577"}}); err != nil {
		return err
	}
	if err := c.hasConfig(topic, map[string]string{"segment.bytes": "1048577", "cleanup.policy": "delete"}); err != nil {
		return err
	}
	if _, err := c.must(agent.Request{Op: "alter", Topic: topic, Config: map[string]string{"retention.ms": "123456"}}); err != nil {
		return err
	}
	return w.await(aMoment, func() error { return c.hasConfig(topic, map[string]string{"retention.ms": "123456"}) })
}

func (c *column) hasConfig(topic string, want map[string]string) error {
	r, err := c.must(agent.Request{Op: "configs", Topic: topic})
	if err != nil {
		return err
	}
	for k, v := range want {
		if r.Config[k] != v {
			return fmt.Errorf("%s is %q in place of %q (of %d settings)", k, r.Config[k], v, len(r.Config))
		}
	}
	return nil
}

func grow(w *world, c *column) error {
	topic := c.topic("grows")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1}); err != nil {
		return err
	}
	if _, err := c.must(agent.Request{Op: "grow", Topic: topic, Partitions: 3}); err != nil {
		return err
	}
	if err := c.refused(agent.Request{Op: "grow", Topic: topic, Partitions: 2}, invalidPartitions); err != nil {
		return err
	}
	return w.await(aMoment, func() error {
		r, err := c.must(agent.Request{Op: "describe", Topic: topic})
		if err == nil && r.Partitions != 3 {
			err = fmt.Errorf("%d partitions in place of 3", r.Partitions)
		}
		return err
	})
}

func trim(w *world, c *column) error {
	topic := c.topic("trimmed")
	if err := w.fill(topic, 1, []int64{2, 4, 6, 8}); err != nil {
		return err
	}
	r, err := c.must(agent.Request{Op: "trim", Topic: topic, Offset: 3})
	if err != nil {
		return err
	}
	if r.Offset != 3 {
		return fmt.Errorf("the log starts at %d, 3 was due", r.Offset)
	}
	return c.refused(agent.Request{Op: "trim", Topic: topic, Offset: 100}, offsetOutOfRange)
}

func deleteTopic(w *world, c *column) error {
	topic := c.topic("deleted")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1}); err != nil {
		return err
	}
	if _, err := c.must(agent.Request{Op: "delete", Topic: topic}); err != nil {
		return err
	}
	if err := w.gone(topic); err != nil {
		return err
	}
	return c.refused(agent.Request{Op: "delete", Topic: topic}, unknownTopicOrPartition)
}

func topicExists(w *world, c *column) error {
	topic := c.topic("exists")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1}); err != nil {
		return err
	}
	return c.refused(agent.Request{Op: "create", Topic: topic, Partitions: 1}, topicAlreadyExists)
}

func badConfig(_ *world, c *column) error {
	return c.refused(agent.Request{Op: "create", Topic: c.topic("bad"), Partitions: 1, Config: map[string]string{"retention.ms": "soon"}}, invalidConfig)
}

// tooLarge sends a batch that is beyond the topic's limit, and then one that is not.
func tooLarge(w *world, c *column) error {
	topic := c.topic("small")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1, Config: map[string]string{"max.message.bytes": "1000"}}); err != nil {
		return err
	}
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte('a' + rand.IntN(26))
	}
	if err := c.refused(agent.Request{Op: "produce", Topic: topic, Codec: "none", Records: []agent.Record{{Value: noise}}}, messageTooLarge); err != nil {
		return err
	}
	_, err := c.must(agent.Request{Op: "produce", Topic: topic, Codec: "none", Records: []agent.Record{{Value: noise[:500]}}})
	return err
}

func outOfRange(w *world, c *column) error {
	topic := c.topic("range")
	if err := w.fill(topic, 1, []int64{2}); err != nil {
		return err
	}
	return c.refused(agent.Request{Op: "read", Topic: topic, Offset: 1000, Count: 1}, offsetOutOfRange)
}
