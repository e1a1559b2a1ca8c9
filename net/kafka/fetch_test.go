package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// fetchCase is a Fetch response whose spans hold the records given.
type fetchCase struct {
	resp    *kmsg.FetchResponse
	spans   []Span
	records [][]byte
}

// inline encodes the case as kmsg does when all records are in memory.
func (c fetchCase) inline(h Header) []byte {
	fillRecords(c.resp, nil)
	for i, s := range c.spans {
		c.resp.Topics[s.Topic].Partitions[s.Partition].RecordBatches = c.records[i]
	}
	return AppendResponse(nil, h, c.resp)
}

// spliced encodes the case in pieces and puts the records between them.
func (c fetchCase) spliced(t require.TestingT, prefix []byte, h Header) []byte {
	dst, pieces, err := AppendFetch(bytes.Clone(prefix), nil, h, c.resp, c.spans)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(dst, prefix), "what was there stays")
	var out []byte
	for i, p := range pieces {
		out = append(out, p.Bytes...)
		if p.Span >= 0 {
			require.Equal(t, i, p.Span)
			out = append(out, c.records[p.Span]...)
		}
	}
	require.Equal(t, -1, pieces[len(pieces)-1].Span)
	return out
}

func drawFetchCase(t *rapid.T) fetchCase {
	c := fetchCase{resp: kmsg.NewPtrFetchResponse()}
	c.resp.ThrottleMillis = rapid.Int32().Draw(t, "throttle")
	c.resp.SessionID = rapid.Int32().Draw(t, "session")
	sizes := rapid.SampledFrom([]int{0, 1, 61, 126, 127, 128, 16382, 16383, 16384})
	for i := range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = fmt.Sprint("topic", i)
		topic.TopicID = [16]byte{byte(i + 1)}
		for j := range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark = int32(j), rapid.Int64().Draw(t, "hw")
			if rapid.Bool().Draw(t, "aborted") {
				p.AbortedTransactions = append(p.AbortedTransactions, kmsg.NewFetchResponseTopicPartitionAbortedTransaction())
			}
			if rapid.Bool().Draw(t, "leader") {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 3, 7
			}
			if rapid.Bool().Draw(t, "span") {
				size := sizes.Draw(t, "size")
				c.spans = append(c.spans, Span{Topic: i, Partition: j, Size: size})
				c.records = append(c.records, bytes.Repeat([]byte{byte(len(c.spans))}, size))
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		c.resp.Topics = append(c.resp.Topics, topic)
	}
	if rapid.Bool().Draw(t, "brokers") {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = 3, "host", 9092
		c.resp.Brokers = append(c.resp.Brokers, b)
	}
	return c
}

// TestFetchSpansEqualInlineEncoding: a response spliced around spans is, byte
// for byte, the one that kmsg makes of the same records in memory.
func TestFetchSpansEqualInlineEncoding(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		h := Header{Key: kmsg.Fetch.Int16(), Version: version, Correlation: 42}
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := drawFetchCase(t)
				spliced := c.spliced(t, []byte("before"), h)
				require.True(t, bytes.Equal(c.inline(h), spliced))
			})
		})
	}
}

// TestFetchSpansAroundTwoMegabytes, where a compact length grows to four bytes.
func TestFetchSpansAroundTwoMegabytes(t *testing.T) {
	for _, version := range []int16{11, 18} {
		for _, size := range []int{1<<21 - 2, 1<<21 - 1, 1 << 21} {
			c := fetchCase{resp: kmsg.NewPtrFetchResponse(), spans: []Span{{Size: size}}, records: [][]byte{make([]byte, size)}}
			c.resp.Topics = []kmsg.FetchResponseTopic{{Partitions: make([]kmsg.FetchResponseTopicPartition, 1)}}
			h := Header{Key: kmsg.Fetch.Int16(), Version: version}
			spliced := c.spliced(t, nil, h)
			require.True(t, bytes.Equal(c.inline(h), spliced))
		}
	}
}

// TestFetchWithoutRecordsIsEmptyNotNull: Kafka sends an empty records field.
func TestFetchWithoutRecordsIsEmptyNotNull(t *testing.T) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{kmsg.NewFetchResponseTopicPartition()}}}
	h := Header{Key: kmsg.Fetch.Int16(), Version: 12}
	_, pieces, err := AppendFetch(nil, nil, h, resp, nil)
	require.NoError(t, err)
	require.Len(t, pieces, 1)
	got, err := DecodeResponse(pieces[0].Bytes[4:], h.Key, h.Version)
	require.NoError(t, err)
	require.NotNil(t, got.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
}

func TestFetchRefusesMisorderedAndTooLargeSpans(t *testing.T) {
	h := Header{Key: kmsg.Fetch.Int16(), Version: 12}
	encode := func(spans ...Span) error {
		resp := kmsg.NewPtrFetchResponse()
		resp.Topics = []kmsg.FetchResponseTopic{{Partitions: make([]kmsg.FetchResponseTopicPartition, 2)}}
		_, _, err := AppendFetch(nil, nil, h, resp, spans)
		return err
	}
	require.NoError(t, encode(Span{Size: 1}, Span{Partition: 1, Size: 1}))
	require.ErrorIs(t, encode(Span{Size: 1 << 30}, Span{Partition: 1, Size: 1 << 30}), ErrResponseTooLarge)
	require.Error(t, encode(Span{Partition: 1, Size: 1}, Span{Size: 1}))
	require.Error(t, encode(Span{Size: 1}, Span{Size: 1}))
}
