package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader sends single requests, so that each operation has exactly the window in which it was answered.
type reader struct {
	r          *recorder
	process    int
	client     *kgo.Client
	partitions int
	deletes    bool
	rng        *rand.Rand
	at         []int64 // position in each partition
	session    []int64
	topicID    [16]byte
	truth      *linearizability.Truth // collects what is fetched, if there is one
}

func newReader(r *recorder, process int, o options, seeds []string, topicID [16]byte) (*reader, error) {
	client, err := kgo.NewClient(append(clientOptions(seeds), kgo.RequestRetries(0))...)
	return &reader{r: r, process: process, client: client, partitions: o.partitions, deletes: o.deletes, topicID: topicID,
		rng: rand.New(rand.NewPCG(o.seed, uint64(process))), at: make([]int64, o.partitions), session: make([]int64, o.partitions)}, err
}

// backoff is how long a reader waits after an error.
const backoff = 10 * time.Millisecond

// run reads until ctx ends: mostly on from where it is, at times from elsewhere, and the ends of the log.
func (c *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p := int32(c.rng.IntN(c.partitions))
		var err error
		switch n := c.rng.IntN(100); {
		case n < 8:
			_, err = c.list(ctx, p, linearizability.Latest)
		case n < 12:
			_, err = c.list(ctx, p, linearizability.Earliest)
		case n < 14 && c.deletes:
			err = c.delete(ctx, p)
		case n < 18:
			c.at[p], c.session[p] = c.rng.Int64N(c.at[p]+1), c.session[p]+1
		default:
			_, err = c.fetch(ctx, p)
		}
		if bad := (*badRead)(nil); errors.As(err, &bad) {
			return err
		}
		if err != nil {
			time.Sleep(backoff)
		}
	}
	return nil
}

// badRead is an answer that no broker may give.
type badRead struct{ err error }

func (b *badRead) Error() string { return b.err.Error() }

// ask sends a request to the leader of a partition, once.
func (c *reader) ask(ctx context.Context, p int32, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return c.client.Request(ctx, req)
}

// fetch fetches from where the reader is in a partition and returns the high watermark.
func (c *reader) fetch(ctx context.Context, p int32) (hw int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 20, 1, 256<<10
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = c.r.topic, c.topicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, c.at[p], 128<<10
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	id := c.r.begin(c.process, linearizability.Op{Kind: linearizability.Fetch, From: c.at[p], HighWatermark: -1, LogStart: -1,
		Session: c.session[p]}, p)
	resp, err := c.ask(ctx, p, req)
	if err != nil {
		c.r.failed(id, err)
		return 0, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		c.r.failed(id, err)
		return 0, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		err := &badRead{fmt.Errorf("fetch of one partition: answered with %d topics", len(answer.Topics))}
		c.r.failed(id, err)
		return 0, err
	}
	return c.fetched(id, p, &answer.Topics[0].Partitions[0])
}

func (c *reader) fetched(id int, p int32, a *kmsg.FetchResponseTopicPartition) (int64, error) {
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		if errors.Is(err, kerr.OffsetOutOfRange) {
			c.r.end(id, func(op *linearizability.Op) { op.Outcome = linearizability.OutOfRange })
			c.at[p], c.session[p] = max(0, a.LogStartOffset), c.session[p]+1
		} else {
			c.r.failed(id, err)
		}
		return 0, err
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: c.at[p], Topic: c.r.topic, Partition: p}
	fp, _ := kgo.ProcessFetchPartition(opts, a, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		err := &badRead{fmt.Errorf("partition %d at offset %d: records that cannot be read: %w", p, c.at[p], fp.Err)}
		c.r.failed(id, err)
		return 0, err
	}
	records := recordsOf(fp.Records)
	c.r.end(id, func(op *linearizability.Op) {
		op.Outcome, op.Records, op.HighWatermark, op.LogStart = linearizability.OK, records, a.HighWatermark, a.LogStartOffset
	})
	if c.truth != nil {
		c.truth.Records = append(c.truth.Records, records...)
	}
	if n := len(records); n > 0 {
		c.at[p] = records[n-1].Offset + 1
	}
	return a.HighWatermark, nil
}

func recordsOf(list []*kgo.Record) []linearizability.Record {
	records := make([]linearizability.Record, len(list))
	for i, r := range list {
		records[i] = linearizability.Record{Offset: r.Offset, Value: number(r.Value)}
	}
	return records
}

// list asks for one end of the log.
func (c *reader) list(ctx context.Context, p int32, kind linearizability.Kind) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = c.r.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = p, -1
	if kind == linearizability.Earliest {
		rp.Timestamp = -2
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	id := c.r.begin(c.process, linearizability.Op{Kind: kind}, p)
	resp, err := c.ask(ctx, p, req)
	if err == nil {
		if a := resp.(*kmsg.ListOffsetsResponse); len(a.Topics) == 1 && len(a.Topics[0].Partitions) == 1 {
			one := a.Topics[0].Partitions[0]
			if err = kerr.ErrorForCode(one.ErrorCode); err == nil {
				c.r.end(id, func(op *linearizability.Op) { op.Outcome, op.Offset = linearizability.OK, one.Offset })
				return one.Offset, nil
			}
		} else {
			err = errors.New("no answer for the partition")
		}
	}
	c.r.failed(id, err)
	return 0, err
}

// delete deletes records, up to somewhere or up to the high watermark.
func (c *reader) delete(ctx context.Context, p int32) error {
	to := c.rng.Int64N(c.at[p] + 1)
	if c.rng.IntN(4) == 0 {
		to = -1
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = c.r.topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = p, to
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	id := c.r.begin(c.process, linearizability.Op{Kind: linearizability.Delete, To: to}, p)
	resp, err := c.ask(ctx, p, req)
	if err == nil {
		if a := resp.(*kmsg.DeleteRecordsResponse); len(a.Topics) == 1 && len(a.Topics[0].Partitions) == 1 {
			one := a.Topics[0].Partitions[0]
			if err = kerr.ErrorForCode(one.ErrorCode); err == nil {
				c.r.end(id, func(op *linearizability.Op) { op.Outcome, op.Offset = linearizability.OK, one.LowWatermark })
				return nil
			}
			if errors.Is(err, kerr.OffsetOutOfRange) {
				c.r.end(id, func(op *linearizability.Op) { op.Outcome = linearizability.OutOfRange })
				return err
			}
		}
	}
	c.r.end(id, func(op *linearizability.Op) { // whether it was done is not known
		if err != nil {
			op.Note = err.Error()
		}
	})
	return err
}

// everything reads a partition from its start to its end: the truth.
func (c *reader) everything(ctx context.Context, p int32) error {
	start, err := c.insist(ctx, func() (int64, error) { return c.list(ctx, p, linearizability.Earliest) })
	if err != nil {
		return err
	}
	end, err := c.insist(ctx, func() (int64, error) { return c.list(ctx, p, linearizability.Latest) })
	if err != nil {
		return err
	}
	c.at[p] = start
	c.session[p]++
	c.truth = &linearizability.Truth{Start: start, End: end}
	for c.at[p] < end {
		if _, err := c.insist(ctx, func() (int64, error) { return c.fetch(ctx, p) }); err != nil {
			return err
		}
	}
	c.r.SetTruth(linearizability.Key{Topic: c.r.topic, Partition: p}, *c.truth)
	return nil
}

// insist tries again until ctx ends.
func (c *reader) insist(ctx context.Context, try func() (int64, error)) (int64, error) {
	for {
		v, err := try()
		if err == nil {
			return v, nil
		}
		if bad := (*badRead)(nil); errors.As(err, &bad) || ctx.Err() != nil {
			return 0, err
		}
		time.Sleep(backoff)
	}
}

// consume is franz-go's own consumer, over all partitions.
func consume(ctx context.Context, r *recorder, process int, o options, seeds []string) error {
	offsets := map[int32]kgo.Offset{}
	for p := range int32(o.partitions) {
		offsets[p] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(append(clientOptions(seeds), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: offsets}),
		kgo.FetchMaxWait(50*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for polled := newPolls(r); ctx.Err() == nil; {
		called := r.now()
		polled.record(process, called, client.PollFetches(ctx), func(int32) int64 { return 0 })
	}
	return nil
}

// polls turns what a client polls into operations. What a poll returns of a partition was asked for after the last
// poll that returned something of it was called, for then that buffer was emptied. (Of other partitions' buffers that
// says nothing: the client has one for each broker.)
type polls struct {
	r      *recorder
	began  int64
	before map[int32]int64
}

func newPolls(r *recorder) *polls { return &polls{r: r, began: r.now(), before: map[int32]int64{}} }

// record notes what a poll returned that was called at an instant; session numbers a partition's assignments.
func (p *polls) record(process int, called int64, fetches kgo.Fetches, session func(partition int32) int64) {
	now := p.r.now()
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		if t.Err != nil || len(t.Records) == 0 {
			return
		}
		invoke, ok := p.before[t.Partition]
		if !ok {
			invoke = p.began
		}
		p.before[t.Partition] = called
		op := linearizability.Op{Process: process, Kind: linearizability.Fetch, Topic: p.r.topic, Partition: t.Partition, Invoke: invoke,
			From: t.Records[0].Offset, HighWatermark: t.HighWatermark, LogStart: t.LogStartOffset, Session: session(t.Partition)}
		p.r.End(p.r.Begin(op), now, func(op *linearizability.Op) {
			op.Outcome, op.Records = linearizability.OK, recordsOf(t.Records)
		})
	})
}
