package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	gonet "net"
	"syscall"
	"testing"
	"time"

	"lockstep/core/config"
	"lockstep/disk"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// settingsFor are those of a broker on free ports, with its data in dir.
func settingsFor(dir string, more ...string) config.Values {
	m := map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": dir}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return config.NewValues(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// startNode starts a broker and waits until it serves. It is stopped with the test.
func startNode(t testing.TB, cfg Config) *Node {
	if cfg.Log == nil {
		cfg.Log = quiet
	}
	n, err := Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n.Stop(ctx)
	})
	select {
	case <-n.Ready():
	case <-n.Done():
		require.NoError(t, n.Err(), "the broker ended")
		t.Fatal("the broker ended")
	case <-time.After(20 * time.Second):
		t.Fatal("the broker is not ready")
	}
	return n
}

func clientOf(t testing.TB, n *Node, opts ...kgo.Opt) *kgo.Client {
	opts = append([]kgo.Opt{kgo.SeedBrokers(n.Addr().String()), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)
	c, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func stop(t testing.TB, n *Node) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, n.Stop(ctx))
}

func createTopic(t testing.TB, c *kgo.Client, topic string, partitions int32) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, topic)
	require.NoError(t, err)
}

func produce(t testing.TB, c *kgo.Client, topic string, from, to int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i % 3), Key: fmt.Append(nil, "key", i), Value: fmt.Append(nil, "value", i)}
		c.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, c.Flush(ctx))
}

// consume reads n records of a topic from its start, and checks that each partition has what produce wrote, in order.
func consume(t testing.TB, node *Node, topic string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := clientOf(t, node, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next := map[int32]int{}
	for got := 0; got < n; {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			i := next[r.Partition]*3 + int(r.Partition)
			require.Equal(t, int64(next[r.Partition]), r.Offset)
			require.Equal(t, fmt.Sprint("key", i), string(r.Key))
			require.Equal(t, fmt.Sprint("value", i), string(r.Value))
			next[r.Partition]++
			got++
		})
	}
}

// TestProduceStopConsume: an unmodified client writes, the broker stops cleanly and starts again, and all is there.
func TestProduceStopConsume(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Settings: settingsFor(dir)})
	c := clientOf(t, n)
	createTopic(t, c, "topic", 3)
	produce(t, c, "topic", 0, 3000)
	consume(t, n, "topic", 3000)
	stop(t, n)

	n = startNode(t, Config{Settings: settingsFor(dir)})
	require.True(t, n.store.Clean())
	consume(t, n, "topic", 3000)
}

// TestKilledInMidLoad: what was acknowledged at acks=all is there after a crash, each once and in order.
func TestKilledInMidLoad(t *testing.T) {
	dir := t.TempDir()
	total := 0
	for round := range 5 {
		n := startNode(t, Config{Settings: settingsFor(dir)})
		if round > 0 {
			require.False(t, n.store.Clean())
			consume(t, n, "topic", total)
		}
		c := clientOf(t, n, kgo.RequiredAcks(kgo.AllISRAcks()))
		if round == 0 {
			createTopic(t, c, "topic", 3)
		}
		produce(t, c, "topic", total, total+600)
		total += 600
		n.Kill()
		require.ErrorIs(t, n.Err(), errKilled)
	}
}

// TestHostileConnectionsHurtNobody: garbage, claims, half frames, idle and slow
// connections beside a client that works.
func TestHostileConnectionsHurtNobody(t *testing.T) {
	n := startNode(t, Config{Settings: settingsFor(t.TempDir())})
	c := clientOf(t, n)
	createTopic(t, c, "topic", 3)
	var idle []*wire
	for range 300 {
		idle = append(idle, dialNode(t, n))
	}
	for _, bytes := range []string{
		"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n", "\x7f\xff\xff\xff\x00\x00", "\xff\xff\xff\xff", "\x00\x00\x00\x00",
		"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", // unknown key
		"\x00\x00\x00\x0a\x00\x12\x00\x63\x00\x00\x00\x01\xff",     // half an ApiVersions
	} {
		w := dialNode(t, n)
		_, err := w.c.Write([]byte(bytes))
		require.NoError(t, err)
		if bytes[0] == 0 && len(bytes) == 13 {
			w.c.Close()
			continue
		}
		w.ended()
	}
	produce(t, c, "topic", 0, 300)
	for _, w := range idle[:20] { // ask for much and take nothing
		for range 50 {
			w.send(kmsg.NewPtrApiVersionsRequest())
		}
	}
	consume(t, n, "topic", 300)
	versions := kmsg.NewPtrApiVersionsRequest()
	for _, w := range idle {
		require.NotEmpty(t, w.call2(versions))
	}
}

// call2 sends a request and takes the answer to the first one sent.
func (w *wire) call2(req *kmsg.ApiVersionsRequest) []kmsg.ApiVersionsResponseApiKey {
	w.send(req)
	return w.take(1, req).(*kmsg.ApiVersionsResponse).ApiKeys
}

func TestAcks0GetsNoAnswerAndTheNextRequestDoes(t *testing.T) {
	n := startNode(t, Config{Settings: settingsFor(t.TempDir())})
	createTopic(t, clientOf(t, n), "topic", 1)
	w := dialNode(t, n)
	first := produceRequest(t, 1, "value")
	require.Eventually(t, func() bool { // a new partition takes a moment to have a leader
		return w.call(first).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode == 0
	}, 20*time.Second, time.Millisecond)
	req := produceRequest(t, 0, "value")
	w.send(req)
	w.send(req)
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version = 9
	resp := w.call(meta).(*kmsg.MetadataResponse)
	require.Equal(t, n.Addr().Port(), uint16(resp.Brokers[0].Port))
	require.Eventually(t, func() bool {
		for _, id := range n.storage.logs() {
			if l := n.store.Log(id); l != nil && l.Topic() == "topic" {
				_, end := l.Bounds()
				return end == 3
			}
		}
		return false
	}, 20*time.Second, time.Millisecond)
}

// TestFetchOfOneLargeBatch: a fetch returns at least the first batch, whole, however small its limits are.
func TestFetchOfOneLargeBatch(t *testing.T) {
	n := startNode(t, Config{Settings: settingsFor(t.TempDir(), "message.max.bytes", "4000000")})
	c := clientOf(t, n, kgo.ProducerBatchMaxBytes(3_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "topic", 1)
	value := make([]byte, 2_000_000)
	for i := range value {
		value[i] = byte(i * i >> 7)
	}
	require.NoError(t, c.ProduceSync(context.Background(), &kgo.Record{Topic: "topic", Value: value}).FirstErr())
	consumer := clientOf(t, n, kgo.ConsumeTopics("topic"), kgo.FetchMaxPartitionBytes(1024), kgo.FetchMaxBytes(1024),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := consumer.PollFetches(context.Background())
	require.NoError(t, fetches.Err())
	require.Equal(t, value, fetches.Records()[0].Value)
}

// TestFullDisk: writes are refused with the precise error, reads go on, and writing does when there is room again.
func TestFullDisk(t *testing.T) {
	fs := &faultyFS{}
	n := startNode(t, Config{Settings: settingsFor(t.TempDir()), wrapFS: func(inner disk.FS) disk.FS { fs.FS = inner; return fs }})
	c := clientOf(t, n)
	createTopic(t, c, "topic", 3)
	produce(t, c, "topic", 0, 300)
	full := fmt.Errorf("a test: %w", disk.ErrNoSpace)
	fs.write.Store(&full)
	w := dialNode(t, n)
	req := produceRequest(t, -1, "no room for this")
	for range 3 {
		part := w.call(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		require.Equal(t, kerr.KafkaStorageError.Code, part.ErrorCode)
	}
	consume(t, n, "topic", 300)
	fs.write.Store(nil)
	produce(t, c, "topic", 300, 600)
	consume(t, n, "topic", 600)
}

// TestConnectionLimitsChangeAtRunTime: max.connections is a dynamic setting.
// TestConnectionsLeaveDescriptorsForFiles: without a bound in the settings, silent connections of clients and on the peers'
// listener took all of them, and the broker ended when it could not open a log.
func TestConnectionsLeaveDescriptorsForFiles(t *testing.T) {
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = 200
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	n := func() *Node {
		defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old) // this process has the other ends, too
		return startNode(t, Config{Settings: settingsFor(t.TempDir()), PeerListen: "127.0.0.1:0"})
	}()
	fill := func(addr string, room int) {
		ends := make(chan error)
		for range room + 5 {
			conn, err := gonet.Dial("tcp", addr)
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close() })
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			go func() {
				_, err := conn.Read(make([]byte, 1))
				ends <- err
			}()
		}
		for range 5 {
			err := <-ends
			require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "not refused: %v", err)
		}
		go func() {
			for range room {
				<-ends
			}
		}()
	}
	fill(n.peerSrv.Addr().String(), 25)
	fill(n.Addr().String(), 100)
	require.Equal(t, 25, n.peerSrv.Conns())
	require.Equal(t, 100, n.clients[0].Conns())
	n.limitConns(1000, 1000)
	fill(n.Addr().String(), 0)
	require.Equal(t, 100, n.clients[0].Conns())
}

func TestBoundedListener(t *testing.T) {
	l, err := gonet.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	bounded := &boundedListener{Listener: l, max: 2}
	accept := func() gonet.Conn {
		end, err := gonet.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { end.Close() })
		c, err := bounded.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	first, _ := accept(), accept()
	refused, err := gonet.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer refused.Close()
	took := make(chan gonet.Conn)
	go func() {
		c, _ := bounded.Accept()
		took <- c
	}()
	refused.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = refused.Read(make([]byte, 1))
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "not refused: %v", err)
	first.Close()
	first.Close() // counts once
	require.EqualValues(t, 1, bounded.open.Load())
	next, err := gonet.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer next.Close()
	c := <-took
	require.NotNil(t, c)
	defer c.Close()
	require.Equal(t, next.LocalAddr().String(), c.RemoteAddr().String())
}

func TestConnectionLimitsChangeAtRunTime(t *testing.T) {
	n := startNode(t, Config{Settings: settingsFor(t.TempDir())})
	first := dialNode(t, n)
	first.call(kmsg.NewPtrApiVersionsRequest())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := clientOf(t, n)
	limit := "1"
	_, err := kadm.NewClient(c).AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.connections", Value: &limit}}, 1)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		conn, err := gonet.Dial("tcp", n.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1))
		return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	}, 20*time.Second, 10*time.Millisecond)
	first.call(kmsg.NewPtrApiVersionsRequest())
}
