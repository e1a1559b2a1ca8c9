package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
