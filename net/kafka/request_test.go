package kafka

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"lockstep/core/record"
	"lockstep/net"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var decoder = &Decoder{Check: func(b []byte) record.Checked { return record.Check(b, nil, record.Limits{}) }}

// frameOf encodes a request and strips the length prefix.
func frameOf(req kmsg.Request) []byte { return AppendRequest(nil, 7, "client", req)[4:] }

// batchOf builds a batch of one record.
func batchOf(t require.TestingT, value string) record.Batch {
	b, err := record.NewBuilder().Add(record.Record{Value: []byte(value)}).Build()
	require.NoError(t, err)
	return b
}

func produceOf(version, acks int16, records ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = version, acks
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "topic", [16]byte{9}
	for i, r := range records {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), r
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// TestDecodeEveryServedVersion: each row of the table decodes, in each version, what kmsg encodes.
func TestDecodeEveryServedVersion(t *testing.T) {
	peers := Decoder{Peer: true, Check: decoder.Check} // their listener takes all of them
	for _, a := range APIs() {
		for v := a.Served; v <= a.Max; v++ {
			req := a.Key.Request()
			req.SetVersion(v)
			got, err := peers.Decode(frameOf(req))
			require.NoError(t, err, "%s %d", a.Key.Name(), v)
			require.Equal(t, Header{Key: a.Key.Int16(), Version: v, Correlation: 7, ClientID: "client"}, got.Header)
			require.Equal(t, v, got.Msg.GetVersion())
			require.False(t, got.Answered)
			require.Equal(t, frameOf(req), frameOf(got.Msg))
		}
	}
}

// TestUnknownApiVersionsIsAnsweredInVersion0 is trap 1 of the protocol: the connection goes on.
func TestUnknownApiVersionsIsAnsweredInVersion0(t *testing.T) {
	frame := []byte{0, 18, 0, 99, 0, 0, 0, 7, 0xde, 0xad} // what follows the head is not looked at
	got, err := decoder.Decode(frame)
	require.NoError(t, err)
	require.True(t, got.Answered)
	require.Nil(t, got.Msg)
	resp := AppendResponse(nil, got.Header, got.Reply)
	require.Equal(t, []byte{
		0, 0, 0, 16, 0, 0, 0, 7, // length, correlation id, no tags
		0, 35, // UNSUPPORTED_VERSION
		0, 0, 0, 1, 0, 18, 0, 0, 0, 4, // one key: ApiVersions 0 to 4
	}, resp)
	again, err := DecodeResponse(resp[4:], 18, 99)
	require.NoError(t, err)
	require.Equal(t, kerr.UnsupportedVersion.Code, again.(*kmsg.ApiVersionsResponse).ErrorCode)
}

// TestApiVersionsResponseHeaderHasNoTags: also in flexible versions.
func TestApiVersionsResponseHeaderHasNoTags(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ApiKeys = Advertised(false)
	h := Header{Key: 18, Version: 4, Correlation: 7}
	frame := AppendResponse(nil, h, resp)
	require.Equal(t, resp.AppendTo(nil), frame[8:])
	got, err := DecodeResponse(frame[4:], 18, 4)
	require.NoError(t, err)
	require.Equal(t, resp.ApiKeys, got.(*kmsg.ApiVersionsResponse).ApiKeys)
}

// TestProduceBelowServedIsAnswered: an advertised version that is not served gets its error in its own encoding.
func TestProduceBelowServedIsAnswered(t *testing.T) {
	for version := int16(0); version < 3; version++ {
		got, err := decoder.Decode(frameOf(produceOf(version, -1, []byte("old"), []byte("older"))))
		require.NoError(t, err)
		require.True(t, got.Answered)
		resp, err := DecodeResponse(AppendResponse(nil, got.Header, got.Reply)[4:], 0, version)
		require.NoError(t, err)
		topics := resp.(*kmsg.ProduceResponse).Topics
		require.Len(t, topics, 1)
		require.Len(t, topics[0].Partitions, 2)
		for _, p := range topics[0].Partitions {
			require.Equal(t, kerr.UnsupportedVersion.Code, p.ErrorCode)
		}
		got, err = decoder.Decode(frameOf(produceOf(version, 0, []byte("old"))))
		require.NoError(t, err)
		require.True(t, got.Answered)
		require.Nil(t, got.Reply, "acks=0 gets no answer")
	}
}

func TestDecodeRefuses(t *testing.T) {
	vote := kmsg.NewPtrVoteRequest()
	produce14 := frameOf(produceOf(13, 1))
	produce14[3] = 14
	fetch3 := frameOf(&kmsg.FetchRequest{Version: 3})
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"empty":             {nil, ErrMalformed},
		"half a head":       {[]byte{0, 18, 0}, ErrMalformed},
		"no client id":      {[]byte{0, 18, 0, 0, 0, 0, 0, 7}, ErrMalformed},
		"client id cut off": {[]byte{0, 3, 0, 0, 0, 0, 0, 7, 0, 99, 'x'}, ErrMalformed},
		"unknown key":       {[]byte{9, 9, 0, 0, 0, 0, 0, 7, 0xff, 0xff}, ErrNotServed},
		"negative key":      {[]byte{0xff, 0xff, 0, 0, 0, 0, 0, 7, 0xff, 0xff}, ErrNotServed},
		"not served":        {frameOf(vote), ErrNotServed},
		"version too new":   {produce14, ErrNotServed},
		"version too old":   {fetch3, ErrNotServed},
		"negative version":  {[]byte{0, 18, 0xff, 0xff, 0, 0, 0, 7, 0xff, 0xff}, ErrNotServed},
		"body cut off":      {frameOf(produceOf(9, 1, []byte("x")))[:30], ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decoder.Decode(c.frame)
			require.ErrorIs(t, err, c.want)
			if c.want == ErrNotServed {
				_, err = decoder.Admit(c.frame[:net.HeadSize], len(c.frame))
				require.ErrorIs(t, err, c.want, "it is known before the body is read")
			}
		})
	}
}

// TestDecodeChecksRecordsInOrder: Batches has one entry a partition, right or wrong.
func TestDecodeChecksRecordsInOrder(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		first, third := batchOf(t, "first"), batchOf(t, "third")
		damaged := append([]byte(nil), batchOf(t, "second").Bytes()...)
		damaged[len(damaged)-1] ^= 1
		frame := frameOf(produceOf(version, -1, first.Bytes(), damaged, third.Bytes(), nil))
		got, err := decoder.Decode(frame)
		require.NoError(t, err)
		require.Len(t, got.Batches, 4)
		require.Equal(t, first.Bytes(), got.Batches[0].Batch.Bytes())
		require.ErrorIs(t, got.Batches[1].Err, record.ErrCRC)
		require.Equal(t, third.Bytes(), got.Batches[2].Batch.Bytes())
		require.ErrorIs(t, got.Batches[3].Err, record.ErrOneBatch)

		// The batch is the frame's bytes, not a copy: what the core assigns is what is written.
		got.Batches[0].Batch.Assign(77, 5)
		require.Contains(t, string(frame), string(got.Batches[0].Batch.Bytes()))
	}
}

// TestClaimsAllocateNothing: arrays that claim more than is there, or whose
// elements take far more memory than bytes, do not get it.
func TestClaimsAllocateNothing(t *testing.T) {
	metadata := []byte{0, 3, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}
	emptyTopics := frameOf(produceOf(3, 1))
	emptyTopics = emptyTopics[:len(emptyTopics)-4-2-5-4] // before the array of topics
	const n = 4 << 20
	emptyTopics = binary.BigEndian.AppendUint32(emptyTopics, n)
	emptyTopics = append(emptyTopics, make([]byte, n*6)...)
	flexible := append([]byte{0, 0, 0, 9, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff, 0x07)
	flexible = append(flexible, make([]byte, 1<<20)...)
	for name, frame := range map[string][]byte{"claimed": metadata, "empty topics": emptyTopics, "flexible": flexible} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decoder.Decode(frame)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrMalformed)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		})
	}
}

func TestAdmit(t *testing.T) {
	head := func(key, version byte) []byte { return []byte{0, key, 0, version, 0, 0, 0, 7} }
	adm, err := decoder.Admit(head(0, 9), 50<<20)
	require.NoError(t, err)
	require.Equal(t, net.Admission{Cost: 50 << 20, Pipelined: true, Reuse: true}, adm)
	adm, err = decoder.Admit(head(3, 9), 100)
	require.NoError(t, err)
	require.Equal(t, net.Admission{Cost: 100}, adm)
	adm, err = decoder.Admit(head(3, 9), 1<<20)
	require.NoError(t, err)
	require.Greater(t, adm.Cost, int64(8<<20), "a large request without records may be much larger in memory")
	_, err = decoder.Admit(head(3, 9), MaxOtherBytes+1)
	require.ErrorIs(t, err, ErrMalformed)
}

func TestSplitFrame(t *testing.T) {
	stream := append(AppendRequest(nil, 1, "", kmsg.NewPtrMetadataRequest()), AppendRequest(nil, 2, "", kmsg.NewPtrMetadataRequest())...)
	for cut := range len(stream) {
		var frames [][]byte
		var buf []byte
		for _, part := range [][]byte{stream[:cut], stream[cut:]} {
			buf = append(buf, part...)
			for {
				frame, rest, ok, err := SplitFrame(buf, 1000)
				require.NoError(t, err)
				if !ok {
					break
				}
				frames, buf = append(frames, frame), rest
			}
		}
		require.Len(t, frames, 2)
		require.Empty(t, buf)
		for i, f := range frames {
			h, err := ParseHead(f)
			require.NoError(t, err)
			require.Equal(t, int32(i+1), h.Correlation)
		}
	}
	for _, prefix := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}} {
		_, _, _, err := SplitFrame(prefix, 100<<20)
		require.ErrorIs(t, err, ErrFrameSize)
	}
}

// TestResponsesRoundTrip: every response of the table, in each version, comes back from the client's side.
func TestResponsesRoundTrip(t *testing.T) {
	for _, a := range APIs() {
		for v := a.Served; v <= a.Max; v++ {
			resp := kmsg.ResponseForKey(a.Key.Int16())
			h := Header{Key: a.Key.Int16(), Version: v, Correlation: -3}
			frame := AppendResponse([]byte("before"), h, resp)[len("before"):]
			require.Equal(t, uint32(len(frame)-4), binary.BigEndian.Uint32(frame))
			correlation, err := ResponseCorrelation(frame[4:])
			require.NoError(t, err)
			require.Equal(t, int32(-3), correlation)
			got, err := DecodeResponse(frame[4:], a.Key.Int16(), v)
			require.NoError(t, err, fmt.Sprint(a.Key.Name(), v))
			require.Equal(t, resp.AppendTo(nil), got.AppendTo(nil))
		}
	}
}

func TestFetchBatches(t *testing.T) {
	one, two := batchOf(t, "one"), batchOf(t, "two")
	two.Assign(1, 0)
	resp := kmsg.NewPtrFetchResponse()
	both := append(append([]byte(nil), one.Bytes()...), two.Bytes()...)
	resp.Topics = []kmsg.FetchResponseTopic{
		{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: both}, {}}},
		{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: both[:len(both)-1]}}},
	}
	require.Equal(t, [][]record.Batch{{one, two}, nil, {one}}, FetchBatches(resp))
	both[len(both)-1] ^= 1
	require.Equal(t, [][]record.Batch{{one}, nil, {one}}, FetchBatches(resp))
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode, "what comes before the damage is right")
	resp.Topics[0].Partitions[0].RecordBatches = both[one.Size():]
	require.Equal(t, [][]record.Batch{nil, nil, {one}}, FetchBatches(resp))
	require.EqualValues(t, 2, resp.Topics[0].Partitions[0].ErrorCode)
	require.Zero(t, resp.Topics[1].Partitions[0].ErrorCode, "nobody else has to do with it")
}

// FuzzDecode: no frame makes decoding panic or take memory out of proportion,
// and what decodes encodes again.
func FuzzDecode(f *testing.F) {
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			req := a.Key.Request()
			req.SetVersion(v)
			f.Add(frameOf(req))
		}
	}
	f.Add(frameOf(produceOf(9, -1, batchOf(f, "value").Bytes())))
	f.Add(frameOf(produceOf(13, -1, batchOf(f, "value").Bytes(), nil)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) >= net.HeadSize {
			decoder.Admit(frame[:net.HeadSize], len(frame))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := decoder.Decode(frame)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(frame))*200+1<<20)
		if err != nil {
			return
		}
		if got.Answered {
			if got.Reply != nil {
				AppendResponse(nil, got.Header, got.Reply)
			}
			return
		}
		again, err := decoder.Decode(AppendRequest(nil, got.Correlation, got.ClientID, got.Msg)[4:])
		require.NoError(t, err)
		require.Equal(t, got.Header, again.Header)
		require.Len(t, again.Batches, len(got.Batches))
	})
}

// FuzzDecodeResponse: nothing that a peer answers makes decoding panic.
func FuzzDecodeResponse(f *testing.F) {
	for _, a := range APIs() {
		h := Header{Key: a.Key.Int16(), Version: a.Max}
		f.Add(h.Key, h.Version, AppendResponse(nil, h, kmsg.ResponseForKey(h.Key))[4:])
	}
	f.Fuzz(func(t *testing.T, key, version int16, frame []byte) {
		resp, err := DecodeResponse(frame, key, version)
		if err != nil {
			return
		}
		if fetch, ok := resp.(*kmsg.FetchResponse); ok {
			FetchBatches(fetch)
		}
	})
}
