package node

import (
	"context"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/quorum"
	"lockstep/core/record"
	"lockstep/net"
	"lockstep/net/kafka"
	"lockstep/net/tcp"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakePeer answers Vote with the correlation's number, and Fetch with a batch; holds FetchSnapshot for ever.
type fakePeer struct{ decoder kafka.Decoder }

type fakePeerConn struct {
	*fakePeer
	c net.Conn
}

type frameAnswer []byte

func (a frameAnswer) Write(w net.Writer) error { _, err := w.Write(a); return err }
func (frameAnswer) Done()                      {}

func (p *fakePeer) Opened(c net.Conn) net.Handler { return &fakePeerConn{p, c} }

func (p *fakePeerConn) Admit(head []byte, size int) (net.Admission, error) {
	adm, err := p.decoder.Admit(head, size)
	adm.Pipelined = true
	return adm, err
}

func (p *fakePeerConn) Frame(seq uint64, f net.Frame) error {
	defer f.Release()
	r, err := p.decoder.Decode(f.Bytes())
	if err != nil {
		return err
	}
	resp := r.Msg.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.VoteResponse:
		resp.ErrorCode = int16(r.Correlation)
	case *kmsg.FetchResponse:
		if r.Msg.(*kmsg.FetchRequest).MaxWaitMillis == parked {
			return nil
		}
		b, err := record.NewBuilder().Add(record.Record{Value: []byte("x")}).Build()
		if err != nil {
			return err
		}
		resp.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: b.Bytes()}, {}}}}
	case *kmsg.FetchSnapshotResponse:
		return nil
	}
	p.c.Answer(seq, frameAnswer(kafka.AppendResponse(nil, r.Header, resp)), false)
	return nil
}

func (p *fakePeerConn) Closed(error) {}

func startPeer(t *testing.T, addr string) *tcp.Server {
	p := &fakePeer{decoder: kafka.Decoder{Peer: true}}
	var s *tcp.Server
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = tcp.Listen(addr, p, tcp.Config{Log: quiet})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	s.Serve()
	return s
}

func shutdown(s *tcp.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
}

// parked is the MaxWaitMillis of a fetch that the fake peer never answers.
const parked = 1234

func fetchOf(maxWaitMillis int32) kmsg.Request {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis = 17, maxWaitMillis
	r.Topics = []kmsg.FetchRequestTopic{{TopicID: [16]byte{15: 9}}}
	return r
}

func vote() kmsg.Request {
	r := kmsg.NewPtrVoteRequest()
	r.Version = 2
	return r
}

// nextInput waits for the next input.
func nextInput(t *testing.T, in *inbox) broker.Input {
	var got []event
	require.Eventually(t, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		if len(in.events) > 0 {
			got = append(got, in.events[0])
			in.events = in.events[1:]
		}
		return len(got) > 0
	}, 10*time.Second, time.Millisecond)
	return got[0].in
}

// TestEveryCallIsAnswered: in order on one connection, by an error when the peer
// is gone, and again when it is back.
func TestEveryCallIsAnswered(t *testing.T) {
	s := startPeer(t, "127.0.0.1:0")
	addr := s.Addr()
	in := newInbox(100)
	voters := []quorum.Voter{{ID: 2, Host: addr.Addr().String(), Port: addr.Port()}}
	p := newPeers(1, voters, in, quiet)
	defer p.close()
	const calls = 50
	for i := range calls {
		p.call(broker.Call{Token: broker.Token(i), Peer: 2, Msg: vote()})
	}
	for i := range calls {
		a := nextInput(t, in).(broker.Answer)
		require.NoError(t, a.Err)
		require.Equal(t, broker.Token(i), a.Token)
		require.Equal(t, int16(i+1), a.Msg.(*kmsg.VoteResponse).ErrorCode)
	}
	for i := range broker.FetcherCalls - 1 {
		p.call(broker.Call{Token: broker.Token(200 + i), Peer: 2, Msg: fetchOf(parked)})
	}
	p.call(broker.Call{Token: 99, Peer: 2, Msg: fetchOf(0)})
	a := nextInput(t, in).(broker.Answer)
	require.Equal(t, broker.Token(99), a.Token, "a fetch does not wait for the answers of those that are parked")
	require.NoError(t, a.Err)
	require.Len(t, a.Batches, 2)
	require.Len(t, a.Batches[0], 1)

	p.call(broker.Call{Token: 100, Peer: 7, Msg: vote()})
	require.ErrorIs(t, nextInput(t, in).(broker.Answer).Err, errUnknownPeer)

	// The peer goes while a call is open.
	held := kmsg.NewPtrFetchSnapshotRequest()
	held.Version = 1
	p.call(broker.Call{Token: 101, Peer: 2, Msg: held})
	require.Eventually(t, func() bool { return s.Conns() == 2+broker.FetcherCalls }, 10*time.Second, time.Millisecond)
	shutdown(s)
	gone := map[broker.Token]bool{}
	for len(gone) < broker.FetcherCalls { // the parked fetches, and this one
		switch x := nextInput(t, in).(type) {
		case broker.Answer:
			require.Error(t, x.Err)
			gone[x.Token] = true
		case broker.PeerClosed:
			require.Equal(t, int32(2), x.Peer)
		}
	}
	require.True(t, gone[101])
	for in.len() > 0 { // one for each lane
		require.IsType(t, broker.PeerClosed{}, nextInput(t, in))
	}

	// It comes back.
	s = startPeer(t, addr.String())
	defer shutdown(s)
	require.Eventually(t, func() bool {
		p.call(broker.Call{Token: 103, Peer: 2, Msg: vote()})
		a, ok := nextInput(t, in).(broker.Answer)
		return ok && a.Err == nil && a.Token == 103
	}, 10*time.Second, time.Millisecond)
}

func TestLanes(t *testing.T) {
	metadata, data := kmsg.NewPtrFetchRequest(), kmsg.NewPtrFetchRequest()
	metadata.Topics = []kmsg.FetchRequestTopic{{TopicID: core.MetadataPartition.Topic}}
	data.Topics = []kmsg.FetchRequestTopic{{TopicID: [16]byte{1, 2}}}
	require.Equal(t, broker.MetadataLane, broker.LaneOf(metadata))
	require.Equal(t, broker.MetadataLane, broker.LaneOf(kmsg.NewPtrFetchSnapshotRequest()))
	require.Equal(t, broker.FetchLane, broker.LaneOf(data))
	require.Equal(t, broker.ControlLane, broker.LaneOf(vote()))
}

func TestPeerOf(t *testing.T) {
	id, ok := peerOf(peerClientID + "12")
	require.True(t, ok)
	require.Equal(t, int32(12), id)
	for _, bad := range []string{"", "12", peerClientID, peerClientID + "x", "client"} {
		_, ok := peerOf(bad)
		require.False(t, ok, bad)
	}
}
