// Package wire holds tests of what clients rely on in the protocol itself, frame by frame, against a whole broker in this
// process: cases that no client library shows, or that each shows differently. It holds no other code.
package wire

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	gonet "net"
	"testing"
	"time"

	"lockstep/core/config"
	"lockstep/node"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is a broker and a client that sends it single requests.
type world struct {
	t    *testing.T
	ctx  context.Context
	addr string
	cl   *kgo.Client
	adm  *kadm.Client
}

func start(t *testing.T) *world {
	settings := config.NewValues(map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": t.TempDir()})
	n, err := node.Start(node.Config{Settings: settings, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		stopped, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		require.NoError(t, n.Stop(stopped))
	})
	<-n.Ready()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr().String()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &world{t: t, ctx: ctx, addr: n.Addr().String(), cl: cl, adm: kadm.NewClient(cl)}
}

// create makes a topic of one partition and returns its id.
func (w *world) create(topic string, settings ...string) [16]byte {
	configs := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	_, err := w.adm.CreateTopic(w.ctx, 1, 1, configs, topic)
	require.NoError(w.t, err)
	topics, err := w.adm.ListTopics(w.ctx, topic)
	require.NoError(w.t, err)
	return topics[topic].ID
}

// call sends one request to the broker as it is, without a client's retries.
func (w *world) call(req kmsg.Request) kmsg.Response {
	resp, err := w.cl.Broker(1).Request(w.ctx, req)
	require.NoError(w.t, err)
	return resp
}

// rec is a record of a batch that a test writes by hand.
type rec struct {
	key, value []byte
	time       int64
}

// batch encodes records as a producer does; the sequence counts only with a producer id.
func batch(producer int64, sequence int32, rs ...rec) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(rs) - 1), FirstTimestamp: rs[0].time,
		ProducerID: producer, ProducerEpoch: -1, FirstSequence: sequence, NumRecords: int32(len(rs))}
	if producer >= 0 {
		b.ProducerEpoch = 0
	}
	for i, r := range rs {
		k := kmsg.Record{TimestampDelta64: r.time - rs[0].time, OffsetDelta: int32(i), Key: r.key, Value: r.value}
		k.Length = int32(len(k.AppendTo(nil)) - 1) // less the length field, of one byte while it says 0
		b.Records = k.AppendTo(b.Records)
		b.MaxTimestamp = max(b.MaxTimestamp, r.time)
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// produce sends one batch to each of the topics and returns the answers in their order.
func (w *world) produce(batches [][]byte, topics ...string) []kmsg.ProduceResponseTopicPartition {
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = -1, 10_000
	listed, err := w.adm.ListTopics(w.ctx, topics...)
	require.NoError(w.t, err)
	for i, topic := range topics {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = topic, listed[topic].ID
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = batches[i]
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
	}
	var out []kmsg.ProduceResponseTopicPartition
	for _, t := range w.call(q).(*kmsg.ProduceResponse).Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// fetch returns the batches of a topic's partition from an offset on.
func (w *world) fetch(id [16]byte, topic string, offset int64) []byte {
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.SessionEpoch = 5000, 1, 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	got := w.call(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.NoError(w.t, kerr.ErrorForCode(got.ErrorCode))
	return got.RecordBatches
}

// parse checks a batch's CRC and decodes its head.
func parse(t *testing.T, raw []byte) kmsg.RecordBatch {
	require.Greater(t, len(raw), 61)
	raw = raw[:12+binary.BigEndian.Uint32(raw[8:])]
	require.Equal(t, crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)), binary.BigEndian.Uint32(raw[17:]), "CRC")
	var b kmsg.RecordBatch
	require.NoError(t, b.ReadFrom(raw))
	return b
}

// TestApiVersionsOfTheFuture: an unknown version is answered with error 35 in the encoding of version 0 with the range of
// ApiVersions itself, and the connection goes on; version 4 on it has no tags in its header.
func TestApiVersionsOfTheFuture(t *testing.T) {
	w := start(t)
	c, err := gonet.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	ask := func(version int16, correlation int32) []byte {
		f := binary.BigEndian.AppendUint16(nil, 18)
		f = binary.BigEndian.AppendUint16(f, uint16(version))
		f = binary.BigEndian.AppendUint32(f, uint32(correlation))
		f = append(f, 0xff, 0xff, 0)         // no client id, no tags
		f = append(f, 5, 't', 'e', 's', 't') // software name, compact
		f = append(f, 4, '1', '.', '0', 0)   // version, no tags
		_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...))
		require.NoError(t, err)
		head := make([]byte, 8)
		_, err = io.ReadFull(c, head)
		require.NoError(t, err)
		require.Equal(t, uint32(correlation), binary.BigEndian.Uint32(head[4:]))
		body := make([]byte, binary.BigEndian.Uint32(head)-4)
		_, err = io.ReadFull(c, body)
		require.NoError(t, err)
		return body
	}
	old := kmsg.NewPtrApiVersionsResponse()
	require.NoError(t, old.ReadFrom(ask(99, 1)))
	require.Equal(t, kerr.UnsupportedVersion.Code, old.ErrorCode)
	require.Len(t, old.ApiKeys, 1)
	require.Equal(t, []int16{18, 0, 4}, []int16{old.ApiKeys[0].ApiKey, old.ApiKeys[0].MinVersion, old.ApiKeys[0].MaxVersion})
	now := kmsg.NewPtrApiVersionsResponse()
	now.Version = 4
	require.NoError(t, now.ReadFrom(ask(4, 2)))
	require.Zero(t, now.ErrorCode)
	require.Greater(t, len(now.ApiKeys), 20)
}

// TestListOffsetsByTime: the first record that is as late, with its own time and epoch; nothing is -1 in all three.
func TestListOffsetsByTime(t *testing.T) {
	w := start(t)
	w.create("t")
	require.Zero(t, w.produce([][]byte{batch(-1, -1, rec{value: []byte("a"), time: 2}, rec{value: []byte("b"), time: 4},
		rec{value: []byte("c"), time: 6}, rec{value: []byte("d"), time: 8})}, "t")[0].ErrorCode)
	for _, x := range []struct{ ask, offset, time int64 }{{3, 1, 4}, {8, 3, 8}, {9, -1, -1}, {-2, 0, -1}, {-1, 4, -1}, {-3, 3, 8}} {
		q := kmsg.NewPtrListOffsetsRequest()
		qt := kmsg.NewListOffsetsRequestTopic()
		qt.Topic = "t"
		qp := kmsg.NewListOffsetsRequestTopicPartition()
		qp.Timestamp = x.ask
		qt.Partitions = append(qt.Partitions, qp)
		q.Topics = append(q.Topics, qt)
		got := w.call(q).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		require.NoError(t, kerr.ErrorForCode(got.ErrorCode))
		require.Equal(t, []int64{x.offset, x.time}, []int64{got.Offset, got.Timestamp}, "at %d", x.ask)
		require.Equal(t, x.offset < 0, got.LeaderEpoch < 0, "the epoch at %d", x.ask)
	}
}

// TestLogAppendTime: the broker's time is in the answer and in the batch, whose CRC holds.
func TestLogAppendTime(t *testing.T) {
	w := start(t)
	id := w.create("t", "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	p := w.produce([][]byte{batch(-1, -1, rec{value: []byte("v"), time: 5}, rec{value: []byte("w"), time: 6})}, "t")[0]
	require.Zero(t, p.ErrorCode)
	require.InDelta(t, before, p.LogAppendTime, 60_000)
	b := parse(t, w.fetch(id, "t", 0))
	require.EqualValues(t, 8, b.Attributes&8, "the batch says that its time is that of the append")
	require.Equal(t, p.LogAppendTime, b.MaxTimestamp)
}

// TestSequenceWraps: an idempotent producer's sequence goes from 2^31-1 to 0; a repeated batch is the same batch, a gap is refused.
func TestSequenceWraps(t *testing.T) {
	w := start(t)
	id := w.create("t")
	q := kmsg.NewPtrInitProducerIDRequest()
	q.ProducerID, q.ProducerEpoch = -1, -1
	pid := w.call(q).(*kmsg.InitProducerIDResponse).ProducerID
	three := []rec{{value: []byte("a")}, {value: []byte("b")}, {value: []byte("c")}}
	// Any sequence may be a producer's first in a log, as its earlier batches may be deleted there.
	send := func(sequence int32) (int16, int64) {
		p := w.produce([][]byte{batch(pid, sequence, three...)}, "t")[0]
		return p.ErrorCode, p.BaseOffset
	}
	code, base := send(1<<31 - 2) // sequences 2^31-2, 2^31-1, 0
	require.Equal(t, []int64{0, 0}, []int64{int64(code), base})
	code, base = send(1)
	require.Equal(t, []int64{0, 3}, []int64{int64(code), base})
	code, base = send(1<<31 - 2)
	require.Equal(t, []int64{0, 0}, []int64{int64(code), base}, "the duplicate has the offset of the original")
	code, _ = send(1000)
	require.Equal(t, kerr.OutOfOrderSequenceNumber.Code, code)
	require.EqualValues(t, 3, parse(t, w.fetch(id, "t", 3)).FirstOffset)
}

// TestNoKeyOnCompactedTopic: the record is refused and the rest of the request is not.
func TestNoKeyOnCompactedTopic(t *testing.T) {
	w := start(t)
	w.create("compacted", "cleanup.policy", "compact")
	w.create("plain")
	got := w.produce([][]byte{batch(-1, -1, rec{value: []byte("no key")}), batch(-1, -1, rec{value: []byte("no key")})}, "compacted", "plain")
	require.Equal(t, kerr.InvalidRecord.Code, got[0].ErrorCode)
	require.Zero(t, got[1].ErrorCode)
	got = w.produce([][]byte{batch(-1, -1, rec{key: []byte("k"), value: []byte("v")})}, "compacted")
	require.Zero(t, got[0].ErrorCode)
}

// TestFetchInsideABatch: a fetch from the middle of a batch returns the batch that holds the offset, whole.
func TestFetchInsideABatch(t *testing.T) {
	w := start(t)
	id := w.create("t")
	sent := batch(-1, -1, rec{value: []byte("a")}, rec{value: []byte("b")}, rec{value: []byte("c")})
	require.Zero(t, w.produce([][]byte{sent}, "t")[0].ErrorCode)
	b := parse(t, w.fetch(id, "t", 1))
	require.EqualValues(t, 0, b.FirstOffset)
	require.EqualValues(t, 3, b.NumRecords)
}

// TestConfigsAppendAndSubtract: list settings grow and shrink, and describe shows it, with the source of every setting.
func TestConfigsAppendAndSubtract(t *testing.T) {
	w := start(t)
	w.create("t")
	alter := func(op kadm.IncrementalOp, name, value string) {
		rs, err := w.adm.AlterTopicConfigs(w.ctx, []kadm.AlterConfig{{Op: op, Name: name, Value: &value}}, "t")
		require.NoError(t, err)
		require.NoError(t, rs[0].Err)
	}
	policy := func() *kadm.Config {
		rs, err := w.adm.DescribeTopicConfigs(w.ctx, "t")
		require.NoError(t, err)
		require.Greater(t, len(rs[0].Configs), 15)
		for _, c := range rs[0].Configs {
			if require.NotZero(t, c.Source, c.Key); c.Key == "cleanup.policy" {
				return &c
			}
		}
		return nil
	}
	require.Equal(t, "delete", policy().MaybeValue())
	require.Equal(t, kmsg.ConfigSourceDefaultConfig, policy().Source)
	alter(kadm.AppendConfig, "cleanup.policy", "compact")
	require.Equal(t, "delete,compact", policy().MaybeValue())
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, policy().Source)
	alter(kadm.SubtractConfig, "cleanup.policy", "delete")
	require.Equal(t, "compact", policy().MaybeValue())
}

// TestCommittedMetadataIsNeverNull: what was committed without metadata, or never, comes back with an empty text.
func TestCommittedMetadataIsNeverNull(t *testing.T) {
	w := start(t)
	id := w.create("t")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation = "g", -1
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic, ct.TopicID = "t", id
	cp := kmsg.NewOffsetCommitRequestTopicPartition()
	cp.Offset = 0
	ct.Partitions = append(ct.Partitions, cp)
	commit.Topics = append(commit.Topics, ct)
	require.Eventually(t, func() bool { // the coordinator has to load first
		resp, err := w.cl.Request(w.ctx, commit)
		require.NoError(t, err)
		return resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0
	}, 20*time.Second, 20*time.Millisecond)
	q := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = "g", -1
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.TopicID, gt.Partitions = "t", id, []int32{0, 5}
	g.Topics = append(g.Topics, gt)
	q.Groups = append(q.Groups, g)
	got := w.call(q).(*kmsg.OffsetFetchResponse).Groups[0]
	require.Zero(t, got.ErrorCode)
	for i, offset := range []int64{0, -1} {
		p := got.Topics[0].Partitions[i]
		require.Equal(t, offset, p.Offset)
		require.NotNil(t, p.Metadata)
		require.Empty(t, *p.Metadata)
	}
}
