package record_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeBroker answers just enough for a producer to send its records, and keeps
// them: batches that another implementation encoded.
type fakeBroker struct {
	mu       sync.Mutex
	produced [][]byte
}

const fakeTopic = "golden"

// dial returns the client's end of a connection to the broker.
func (f *fakeBroker) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for f.serveOne(server) == nil {
		}
	}()
	return client, nil
}

// serveOne reads one request and answers it.
func (f *fakeBroker) serveOne(conn io.ReadWriter) error {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	correlation := frame[4:8]
	body := frame[10:]
	if n := int16(binary.BigEndian.Uint16(frame[8:])); n > 0 { // client id
		body = body[n:]
	}
	req := kmsg.RequestForKey(key)
	if req == nil {
		return errors.New("unknown key")
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	if err := req.ReadFrom(body); err != nil {
		return err
	}
	resp := f.answer(req)
	if resp == nil {
		return errors.New("not served")
	}
	resp.SetVersion(version)
	out := append(make([]byte, 4), correlation...)
	if resp.IsFlexible() && key != int16(kmsg.ApiVersions) {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	_, err := conn.Write(out)
	return err
}

func (f *fakeBroker) answer(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := kmsg.NewPtrApiVersionsResponse()
		for key, most := range map[kmsg.Key]int16{
			kmsg.Produce: 9, kmsg.Metadata: 9, kmsg.ApiVersions: 3, kmsg.InitProducerID: 4,
		} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = int16(key), most
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		return resp
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "broker", Port: 9092}}
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr(fakeTopic)
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader, partition.Replicas, partition.ISR = 1, []int32{1}, []int32{1}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp
	case *kmsg.InitProducerIDRequest:
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID, resp.ProducerEpoch = 4711, 3
		return resp
	case *kmsg.ProduceRequest:
		return f.produce(req)
	}
	return nil
}

func (f *fakeBroker) produce(req *kmsg.ProduceRequest) kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			f.mu.Lock()
			f.produced = append(f.produced, append([]byte(nil), p.Records...))
			f.mu.Unlock()
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition = p.Partition
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// produceWithKgo sends the records with franz-go's client and returns what it
// put on the wire: one batch, or a few if it began to send before all were there.
func produceWithKgo(t *testing.T, records []*kgo.Record, opts ...kgo.Opt) [][]byte {
	t.Helper()
	var f fakeBroker
	cl, err := kgo.NewClient(append(opts,
		kgo.SeedBrokers("broker:9092"), kgo.Dialer(f.dial), kgo.DefaultProduceTopic(fakeTopic),
		kgo.ManualFlushing(), kgo.MaxBufferedRecords(len(records)+1), kgo.ProducerBatchMaxBytes(4<<20))...)
	require.NoError(t, err)
	defer cl.Close()
	for _, r := range records {
		cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	require.NoError(t, cl.Flush(context.Background()))
	require.NotEmpty(t, f.produced)
	return f.produced
}
