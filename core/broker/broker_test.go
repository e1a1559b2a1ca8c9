package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"lockstep/core"
	"lockstep/core/record"
	"lockstep/core/replica"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func createTopic(h *host, name string, partitions int32) {
	h.t.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, -1
	r.Topics = append(r.Topics, t)
	resp := ask[*kmsg.CreateTopicsResponse](h, r)
	require.Zero(h.t, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
}

func batch(values ...string) record.Checked {
	b := record.NewBuilder()
	for _, v := range values {
		b.Add(record.Record{Timestamp: int64(wall), Value: []byte(v)})
	}
	built, err := b.Build()
	if err != nil {
		panic(err)
	}
	return record.Check(built.Bytes(), nil, record.Limits{})
}

func produceRequest(topic string, partition int32, acks int16) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = partition
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func produced(r *kmsg.ProduceResponse) kmsg.ProduceResponseTopicPartition {
	return r.Topics[0].Partitions[0]
}

func fetchRequest(topic string, partition int32, offset int64, wait, minBytes int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = 12, wait, minBytes, 1<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func TestProduceThenFetch(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 2)

	p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 1, -1), batch("a", "b")))
	require.Zero(t, p.ErrorCode)
	require.Equal(t, int64(0), p.BaseOffset)
	p = produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 1, 1), batch("c")))
	require.Equal(t, int64(2), p.BaseOffset)

	r := h.answer(h.send(fetchRequest("orders", 1, 0, 0, 1)))
	f := r.Msg.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.Zero(t, f.ErrorCode)
	require.Equal(t, int64(3), f.HighWatermark)
	require.Len(t, r.Reads, 1)
	require.Equal(t, int64(0), r.Reads[0].From)
	require.Equal(t, int64(3), r.Reads[0].Limit)
}

func TestProduceWaitsForTheSync(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.holdSync = true
	seq := h.send(produceRequest("orders", 0, -1), batch("a"))
	require.NotContains(t, h.answers, seq, "acks=all is answered when the batch is durable, not before")

	f := h.answer(h.send(fetchRequest("orders", 0, 0, 0, 1)))
	require.Empty(t, f.Reads, "what is not durable is not read")

	id := h.b.image.Topic("orders").ID
	h.step(Durable{Log: core.Partition{Topic: id}, End: 1})
	require.Zero(t, produced(h.answers[seq].Msg.(*kmsg.ProduceResponse)).ErrorCode)
}

func TestFetchWaitsForBytes(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	seq := h.send(fetchRequest("orders", 0, 0, 500, 1))
	require.NotContains(t, h.answers, seq)
	ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("a"))
	require.Contains(t, h.answers, seq, "a write wakes the reader")
	require.Len(t, h.answers[seq].Reads, 1)

	seq = h.send(fetchRequest("orders", 0, 1, 500, 1))
	start := h.now
	r := h.answer(seq)
	require.Empty(t, r.Reads)
	require.GreaterOrEqual(t, h.now.Sub(start).Milliseconds(), int64(500))
}

func TestClosedConnectionLeavesNothingBehind(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.holdSync = true
	h.send(fetchRequest("orders", 0, 0, 500, 1))
	h.send(produceRequest("orders", 0, -1), batch("a"))
	h.step(ConnClosed{Conn: 1})
	for range 20 {
		h.pass()
	}
	require.Empty(t, h.b.conns)
	require.Empty(t, h.b.producing)
	for _, p := range h.b.parts {
		require.Empty(t, p.fetches)
	}
}

func TestAppendFailureIsAnErrorAndCostsNoOffset(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("a"))
	h.fail = errors.New("no space left on device")
	p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("b")))
	require.Equal(t, errStorage, p.ErrorCode)

	h.fail = nil
	p = produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("c")))
	require.Zero(t, p.ErrorCode)
	require.Equal(t, int64(1), p.BaseOffset)
}

// TestTransactionalBatchesAreRefused: nobody would end their transaction.
func TestTransactionalBatchesAreRefused(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	raw := slices.Clone(batch("a").Batch.Bytes())
	raw[22] |= byte(record.AttributeTransactional)
	for i := 43; i < 57; i++ { // producer 0, epoch 0, sequence 0
		raw[i] = 0
	}
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	checked := record.Check(raw, nil, record.Limits{})
	require.NoError(t, checked.Err)
	require.Equal(t, errInvalidTxnState, produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), checked)).ErrorCode)
	p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("b")))
	require.Zero(t, p.ErrorCode)
	require.Zero(t, p.BaseOffset)
}

func TestAcksZeroGetsNoAnswer(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	r := h.answer(h.send(produceRequest("orders", 0, 0), batch("a")))
	require.Nil(t, r.Msg)
	h.send(produceRequest("nowhere", 0, 0), batch("a"))
	require.Contains(t, h.closed, ConnID(1), "an error can only be told by closing the connection")
}

func TestMetadataCreatesTopics(t *testing.T) {
	h := newHost(t, map[string]string{"num.partitions": "3"})
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.AllowAutoTopicCreation = 12, true
	name := "new"
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	r.Topics = append(r.Topics, topic)
	resp := ask[*kmsg.MetadataResponse](h, r)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Len(t, resp.Topics[0].Partitions, 3)
	require.Equal(t, int32(1), resp.Topics[0].Partitions[0].Leader)
	require.NotZero(t, resp.Topics[0].TopicID)
	require.NotEmpty(t, *resp.ClusterID)
	require.Len(t, resp.Brokers, 1)
}

func TestDeleteTopicWhileClientsWait(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.holdSync = true
	waitFetch := h.send(fetchRequest("orders", 0, 0, 100_000, 1))
	waitProduce := h.send(produceRequest("orders", 0, -1), batch("a"))
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version = 6
	dt := kmsg.NewDeleteTopicsRequestTopic()
	name := "orders"
	dt.Topic = &name
	r.Topics = append(r.Topics, dt)
	require.Zero(t, ask[*kmsg.DeleteTopicsResponse](h, r).Topics[0].ErrorCode)
	require.Contains(t, h.answers, waitFetch)
	require.Contains(t, h.answers, waitProduce)
	require.NotZero(t, produced(h.answers[waitProduce].Msg.(*kmsg.ProduceResponse)).ErrorCode)
	require.Len(t, h.logs, 1, "only the metadata log is left")
}

func TestIdempotentProducer(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 4
	first := ask[*kmsg.InitProducerIDResponse](h, init)
	require.Zero(t, first.ErrorCode)
	second := ask[*kmsg.InitProducerIDResponse](h, init)
	require.NotEqual(t, first.ProducerID, second.ProducerID)

	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = first.ProducerID, 0, 0
	b.Add(record.Record{Value: []byte("x")})
	built, err := b.Build()
	require.NoError(t, err)
	for range 2 { // the second is a retry
		again := append([]byte(nil), built.Bytes()...)
		p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), record.Check(again, nil, record.Limits{})))
		require.Zero(t, p.ErrorCode)
		require.Equal(t, int64(0), p.BaseOffset)
	}
	require.Equal(t, int64(1), h.logs[core.Partition{Topic: h.b.image.Topic("orders").ID}].end)

	ask1 := kmsg.NewPtrDescribeProducersRequest()
	ask1.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "orders", Partitions: []int32{0, 1}}}
	parts := ask[*kmsg.DescribeProducersResponse](h, ask1).Topics[0].Partitions
	require.Len(t, parts[0].ActiveProducers, 1)
	require.Equal(t, first.ProducerID, parts[0].ActiveProducers[0].ProducerID)
	require.Equal(t, int32(0), parts[0].ActiveProducers[0].LastSequence)
	require.Equal(t, int64(-1), parts[0].ActiveProducers[0].CurrentTxnStartOffset)
	require.Equal(t, errUnknownTopicOrPartition, parts[1].ErrorCode)
}

func TestFetchSession(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 2)
	full := fetchRequest("orders", 0, 0, 0, 1)
	full.SessionEpoch = 0
	second := full.Topics[0].Partitions[0]
	second.Partition = 1
	full.Topics[0].Partitions = append(full.Topics[0].Partitions, second)
	resp := ask[*kmsg.FetchResponse](h, full)
	require.NotZero(t, resp.SessionID)
	require.Len(t, resp.Topics[0].Partitions, 2, "the first answer names all partitions")

	next := kmsg.NewPtrFetchRequest()
	next.Version, next.SessionID, next.SessionEpoch, next.MaxBytes, next.MinBytes = 12, resp.SessionID, 1, 1<<20, 1
	quiet := ask[*kmsg.FetchResponse](h, next)
	require.Empty(t, quiet.Topics, "nothing is new")

	ask[*kmsg.ProduceResponse](h, produceRequest("orders", 1, -1), batch("a"))
	next.SessionEpoch = 2
	r := h.answer(h.send(next))
	require.Len(t, r.Msg.(*kmsg.FetchResponse).Topics[0].Partitions, 1)
	require.Equal(t, int32(1), r.Msg.(*kmsg.FetchResponse).Topics[0].Partitions[0].Partition)
	require.Len(t, r.Reads, 1)

	require.Equal(t, errInvalidFetchSessionEpoch, ask[*kmsg.FetchResponse](h, next).ErrorCode, "an epoch is used once")
	next.SessionID++
	require.Equal(t, errFetchSessionIDNotFound, ask[*kmsg.FetchResponse](h, next).ErrorCode)
	full.SessionID = next.SessionID // a client closes the session that it had, and wants another
	resp = ask[*kmsg.FetchResponse](h, full)
	require.Zero(t, resp.ErrorCode, "whether it is there still or not")
	require.NotZero(t, resp.SessionID)
	require.NotEqual(t, full.SessionID, resp.SessionID)
}

// A leader that does not know yet how far the high watermark is says so in what the client's version knows as an error to try again.
func TestUnsettledLeaderAndOldClients(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.holdSync = true
	h.send(produceRequest("orders", 0, -1), batch("a"))
	p := h.b.parts[core.Partition{Topic: h.b.image.Topic("orders").ID}]
	var out Effects
	h.b.out = &out
	p.replica.Apply(h.b.now, replica.PartitionState{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []replica.Member{{ID: 1}}, ISR: []int32{1}}, &h.b.rout)
	h.b.carryOut(p)
	for version, code := range map[int16]int16{4: errLeaderNotAvailable, 5: errOffsetNotAvailable} {
		r := kmsg.NewPtrListOffsetsRequest()
		r.Version, r.ReplicaID = version, -1
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = "orders"
		latest := kmsg.NewListOffsetsRequestTopicPartition()
		latest.Timestamp = -1
		topic.Partitions = append(topic.Partitions, latest)
		r.Topics = append(r.Topics, topic)
		require.Equal(t, code, ask[*kmsg.ListOffsetsResponse](h, r).Topics[0].Partitions[0].ErrorCode)
	}
	for version, code := range map[int16]int16{10: errNotLeaderOrFollower, 11: errOffsetNotAvailable} {
		r := fetchRequest("orders", 0, 0, 0, 1)
		r.Version = version
		require.Equal(t, code, ask[*kmsg.FetchResponse](h, r).Topics[0].Partitions[0].ErrorCode)
	}
}

func TestCleanStop(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.step(StopRequested{})
	require.NotNil(t, h.stop)
	require.NoError(t, h.stop.Err)
	h.send(fetchRequest("orders", 0, 0, 0, 1))
	require.Equal(t, core.Never, h.b.Deadline())
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "a", 2)
	createTopic(h, "b", 3)
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit = 2
	var seen []string
	for pages := 0; ; pages++ {
		require.Less(t, pages, 5)
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](h, r)
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				require.NotNil(t, p.EligibleLeaderReplicas)
				require.NotNil(t, p.LastKnownELR)
				seen = append(seen, fmt.Sprint(*topic.Topic, p.Partition))
			}
		}
		if resp.NextCursor == nil {
			break
		}
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		r.Cursor = &c
	}
	require.Equal(t, []string{"a0", "a1", "b0", "b1", "b2"}, seen)
}

// A broker passes what a client wants created to the controller on the connection of its heartbeats, whose answers must not wait until
// the controller has opened its logs of the new topic.
func TestATopicMadeForAPeerIsAnsweredAtOnce(t *testing.T) {
	h := newHost(t, nil)
	h.holdOpen = true
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "orders", 1, -1
	r.Topics = append(r.Topics, topic)
	h.step(Request{Conn: 2, Seq: 77, Wall: wall, Peer: true, Msg: r})
	require.Contains(t, h.answers, uint64(77))
	require.Zero(t, h.answers[77].Msg.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	require.NotNil(t, h.b.image.Topic("orders"))
}

func TestOpeningNewLogsDoesNotFence(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	h.holdOpen = true
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "large", 100, -1
	r.Topics = append(r.Topics, topic)
	h.send(r)
	for range 10 {
		h.pass()
		p := produced(ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, -1), batch("a")))
		require.Zero(t, p.ErrorCode)
	}
}
