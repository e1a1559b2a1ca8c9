package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// storedBatch is what the head of a batch in the broker says, past all client libraries.
type storedBatch struct {
	base, last int64
	records    int
	codec      string
	producer   int64
	sequence   int32
	appendTime bool
}

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// stored fetches a partition's batches from an offset on, as the broker keeps them.
func (w *world) stored(topic string, partition int32, from int64) ([]storedBatch, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(w.ref).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	p, ok := topics[topic].Partitions[partition]
	if !ok {
		return nil, fmt.Errorf("%s has no partition %d", topic, partition)
	}
	q := kmsg.NewPtrFetchRequest()
	q.MaxBytes, q.MinBytes, q.MaxWaitMillis, q.SessionEpoch = 64<<20, 1, 1000, -1
	qt := kmsg.NewFetchRequestTopic()
	qt.Topic, qt.TopicID = topic, topics[topic].ID
	qp := kmsg.NewFetchRequestTopicPartition()
	qp.Partition, qp.FetchOffset, qp.PartitionMaxBytes = partition, from, 64<<20
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	resp, err := w.ref.Broker(int(p.Leader)).Request(ctx, q)
	if err != nil {
		return nil, err
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, err
	}
	return parseBatches(got.RecordBatches)
}

func parseBatches(b []byte) (out []storedBatch, err error) {
	for len(b) > 61 {
		var rb kmsg.RecordBatch
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) {
			break
		}
		if err := rb.ReadFrom(b[:size]); err != nil {
			return nil, err
		}
		codec := int(rb.Attributes & 7)
		if codec >= len(codecNames) {
			return nil, fmt.Errorf("codec %d in the batch at %d", codec, rb.FirstOffset)
		}
		out = append(out, storedBatch{base: rb.FirstOffset, last: rb.FirstOffset + int64(rb.LastOffsetDelta), records: int(rb.NumRecords), codec: codecNames[codec],
			producer: rb.ProducerID, sequence: rb.FirstSequence, appendTime: rb.Attributes&8 != 0})
		b = b[size:]
	}
	return out, nil
}
