package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var quickCleaner = []string{"log.cleaner.backoff.ms", "20", "log.cleaner.min.cleanable.ratio", "0.01", "log.cleaner.delete.retention.ms", "0",
	"offsets.topic.num.partitions", "1", "offsets.topic.segment.bytes", "4000"}

// readTopic reads a whole partition: the last value of each key, "" where the last record is a tombstone, and how many records there were.
func readTopic(t testing.TB, n *Node, topic string) (last map[string]string, records, tombstones int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := clientOf(t, n, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	end, _ := ends.Lookup(topic, 0)
	last = map[string]string{}
	at := int64(-1)
	for at < end.Offset-1 {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Greater(t, r.Offset, at, "offsets ascend")
			at = r.Offset
			records++
			if r.Value == nil {
				tombstones++
			}
			last[string(r.Key)] = string(r.Value)
		})
	}
	return last, records, tombstones
}

// TestCompactedTopic: under constant writes and reads a compacted topic comes to hold little more than the last record of each
// key, its readers see every last value, deleted keys go, and a crash changes none of it.
func TestCompactedTopic(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Settings: settingsFor(dir, quickCleaner...)})
	c := clientOf(t, n, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	policy, segment := "compact", "20000"
	_, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &policy, "segment.bytes": &segment}, "table")
	require.NoError(t, err)
	want := map[string]string{}
	rnd := rand.New(rand.NewPCG(1, 2))
	put := func(key, value string) {
		r := &kgo.Record{Topic: "table", Key: []byte(key)}
		if value != "" {
			r.Value = []byte(value)
		}
		want[key] = value
		require.NoError(t, c.ProduceSync(ctx, r).FirstErr())
	}
	for i := range 50 {
		put(fmt.Sprint("deleted", i), strings.Repeat("x", 100))
	}
	for i := range 50 {
		put(fmt.Sprint("deleted", i), "")
	}
	total := 100
	compacted := func() bool {
		for range 20 {
			put(fmt.Sprint("key", rnd.IntN(30)), fmt.Sprint(rnd.Int64(), strings.Repeat(".", rnd.IntN(1000))))
			total++
		}
		got, records, tombstones := readTopic(t, n, "table")
		for key, value := range want {
			require.Equal(t, value, got[key])
		}
		return total > 1000 && records < total/5 && tombstones == 0
	}
	require.Eventually(t, compacted, 50*time.Second, time.Millisecond, "nothing is compacted")
	n.Kill()
	n = startNode(t, Config{Settings: settingsFor(dir, quickCleaner...)})
	got, _, _ := readTopic(t, n, "table")
	for key, value := range want {
		require.Equal(t, value, got[key])
	}
	err = clientOf(t, n).ProduceSync(ctx, &kgo.Record{Topic: "table", Value: []byte("no key")}).FirstErr()
	require.ErrorIs(t, err, kerr.InvalidRecord)
}

// TestOffsetsTopicIsCompacted: what groups commit is found again after a restart, of a log that holds little else.
func TestOffsetsTopicIsCompacted(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Settings: settingsFor(dir, quickCleaner...)})
	c := clientOf(t, n)
	adm := kadm.NewClient(c)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	createTopic(t, c, "topic", 1)
	commits := int64(0)
	size := func() (bytes int64) {
		for _, l := range n.storage.logs() {
			if x := n.store.Log(l); x != nil && x.Topic() == "__consumer_offsets" {
				bytes += x.Size()
			}
		}
		return bytes
	}
	require.Eventually(t, func() bool {
		for range 10 {
			commits++
			for _, group := range []string{"one", "two"} {
				var offsets kadm.Offsets
				offsets.Add(kadm.Offset{Topic: "topic", Partition: 0, At: commits, Metadata: strings.Repeat("m", 50)})
				require.NoError(t, adm.CommitAllOffsets(ctx, group, offsets))
			}
		}
		return commits > 200 && size() < 8000
	}, 50*time.Second, time.Millisecond, "the offsets topic is not compacted")
	configs, err := adm.DescribeTopicConfigs(ctx, "__consumer_offsets")
	require.NoError(t, err)
	for _, x := range configs[0].Configs {
		if x.Key == "cleanup.policy" {
			require.Equal(t, "compact", x.MaybeValue())
		}
	}
	for _, clean := range []bool{true, false} {
		if clean {
			stop(t, n)
		} else {
			n.Kill()
		}
		n = startNode(t, Config{Settings: settingsFor(dir, quickCleaner...)})
		for _, group := range []string{"one", "two"} {
			require.Eventually(t, func() bool {
				got, err := kadm.NewClient(clientOf(t, n)).FetchOffsets(ctx, group)
				if err != nil {
					return false
				}
				o, ok := got.Lookup("topic", 0)
				return ok && o.At == commits
			}, 20*time.Second, 10*time.Millisecond, "the offset of group %s is lost", group)
		}
	}
}

// TestCompactedClusterCatchesUp: a replica that was away copies what compaction has left, gaps and all, and has every last value
// when it leads.
func TestCompactedClusterCatchesUp(t *testing.T) {
	nodes := startCluster(t, 3, quickCleaner...)
	var seeds []string
	for _, n := range nodes {
		seeds = append(seeds, n.Addr().String())
	}
	c := clientOf(t, nodes[0], kgo.RequiredAcks(kgo.AllISRAcks()), kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(20*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	policy, segment, insync := "compact", "20000", "1"
	_, err := kadm.NewClient(c).CreateTopic(ctx, 1, 3, map[string]*string{"cleanup.policy": &policy, "segment.bytes": &segment,
		"min.insync.replicas": &insync}, "table")
	require.NoError(t, err)
	want := map[string]string{}
	write := func(n int) {
		for range n {
			key, value := fmt.Sprint("key", len(want)%40), fmt.Sprint(rand.Int64(), strings.Repeat(".", 900))
			if len(want) >= 40 {
				key = fmt.Sprint("key", rand.IntN(40))
			}
			require.NoError(t, c.ProduceSync(ctx, &kgo.Record{Topic: "table", Key: []byte(key), Value: []byte(value)}).FirstErr())
			want[key] = value
		}
	}
	size := func(n *Node) int64 {
		for _, id := range n.storage.logs() {
			if l := n.store.Log(id); l != nil && l.Topic() == "table" {
				return l.Size()
			}
		}
		return 0
	}
	write(60)
	nodes[2].Kill()
	for written := 60; written < 400 || size(nodes[0]) > 80_000; written += 20 {
		write(20)
		require.NoError(t, ctx.Err(), "nothing is compacted")
	}
	back, err := Start(nodes[2].cfg)
	require.NoError(t, err)
	t.Cleanup(back.Kill)
	adm := kadm.NewClient(c)
	inSync := func(n int) func() bool {
		return func() bool {
			topics, err := adm.ListTopics(ctx, "table")
			return err == nil && len(topics["table"].Partitions[0].ISR) == n
		}
	}
	require.Eventually(t, inSync(3), 60*time.Second, 20*time.Millisecond, "the replica does not come back")
	write(20)
	nodes[0].Kill()
	nodes[1].Kill() // no quorum any more: what is read is read from the files
	for _, id := range back.storage.logs() {
		l := back.store.Log(id)
		if l == nil || l.Topic() != "table" {
			continue
		}
		got := map[string]string{}
		at, end := l.Bounds()
		for at < end {
			batches, err := l.ReadBatches(at, end, 1<<20)
			require.NoError(t, err)
			for _, b := range batches {
				for r, err := range b.Records(compress.Codecs{}, record.Limits{}) {
					require.NoError(t, err)
					got[string(r.Key)] = string(r.Value)
				}
				at = b.NextOffset()
			}
		}
		require.Equal(t, want, got)
		require.NoError(t, l.Verify())
	}
}

// TestCompactionStopsWithTheNode: a run that waits for its share of the disk does not hold up the end.
func TestCompactionStopsWithTheNode(t *testing.T) {
	dir := t.TempDir()
	settings := append([]string{"log.cleaner.io.max.bytes.per.second", "1"}, quickCleaner...)
	n := startNode(t, Config{Settings: settingsFor(dir, settings...)})
	c := clientOf(t, n, kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	policy, segment := "compact", "100000"
	_, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &policy, "segment.bytes": &segment}, "table")
	require.NoError(t, err)
	var done atomic.Int32
	for range 100 {
		c.Produce(ctx, &kgo.Record{Topic: "table", Key: []byte("k"), Value: make([]byte, 10_000)}, func(_ *kgo.Record, err error) {
			if err == nil {
				done.Add(1)
			}
		})
	}
	require.NoError(t, c.Flush(ctx))
	require.EqualValues(t, 100, done.Load())
	require.Eventually(t, func() bool {
		return n.compactor.pacer.take(0) > time.Hour/2
	}, 20*time.Second, time.Millisecond, "no run has begun")
	stop(t, n)
	n = startNode(t, Config{Settings: settingsFor(dir, quickCleaner...)})
	require.True(t, n.store.Clean())
	got, _, _ := readTopic(t, n, "table")
	require.Len(t, got["k"], 10_000)
}
