package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/core/config"
	"lockstep/node"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cli runs commands against a broker of its own.
type cli struct {
	t    *testing.T
	addr string
}

func startBroker(t *testing.T, data string, settings ...string) (*node.Node, cli) {
	t.Helper()
	values := map[string]string{"node.id": "1", "log.dirs": data, "listeners": "PLAINTEXT://127.0.0.1:0"}
	for i := 0; i < len(settings); i += 2 {
		values[settings[i]] = settings[i+1]
	}
	n, err := node.Start(node.Config{
		Settings: config.NewValues(values),
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	select {
	case <-n.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the broker does not become ready")
	}
	return n, cli{t, n.Addr().String()}
}

// try runs one command line with the given standard input.
func (c cli) try(stdin string, args ...string) (string, error) {
	root := rootCommand()
	var out bytes.Buffer
	root.SetArgs(append([]string{"--bootstrap", c.addr}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

func (c cli) run(args ...string) string {
	c.t.Helper()
	out, err := c.try("", args...)
	require.NoError(c.t, err, args)
	return out
}

func TestCommandsAgainstABroker(t *testing.T) {
	data := t.TempDir()
	n, c := startBroker(t, data)

	require.Contains(t, c.run("topic", "create", "orders", "-p", "2", "-c", "retention.ms=1000000000"), "orders")
	require.Contains(t, c.run("topic", "list"), "orders")
	_, err := c.try("k1:a\nk2:b\nk1:c\n", "produce", "orders", "-k", ":", "-z", "zstd")
	require.NoError(t, err)
	out := c.run("consume", "orders", "-e", "-f", "%k=%v\n")
	require.ElementsMatch(t, []string{"k1=a", "k2=b", "k1=c"}, strings.Fields(out))
	require.Less(t, strings.Index(out, "k1=a"), strings.Index(out, "k1=c"), "order holds by key")
	require.Equal(t, 2, strings.Count(c.run("consume", "orders", "-n", "2"), "\n"))
	require.Empty(t, c.run("consume", "orders", "--from", "end", "-e"))
	line := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(c.run("consume", "orders", "-n", "1", "--json")), &line))
	require.Equal(t, []any{"orders", 0.0}, []any{line["topic"], line["offset"]})
	require.Contains(t, out, line["key"].(string)+"="+line["value"].(string))

	c.run("topic", "alter", "orders", "-p", "3", "-c", "segment.bytes=2000000", "--unset", "retention.ms")
	var described []topicDescription
	require.NoError(t, json.Unmarshal([]byte(c.run("topic", "describe", "orders", "--json")), &described))
	require.Len(t, described[0].Partitions, 3)
	require.Equal(t, map[string]string{"segment.bytes": "2000000"}, described[0].Configs)

	var state clusterState
	require.NoError(t, json.Unmarshal([]byte(c.run("cluster", "status", "--json")), &state))
	require.Equal(t, int32(1), state.Controller)
	require.Equal(t, 3, state.Partitions)

	require.Contains(t, c.run("bench", "produce", "load", "-n", "500", "--size", "100"), "500 records")
	require.Contains(t, c.run("bench", "consume", "load"), "500 records")
	c.run("topic", "delete", "load")
	var topics []topicSummary
	require.NoError(t, json.Unmarshal([]byte(c.run("topic", "list", "--json")), &topics))
	require.Equal(t, []topicSummary{{"orders", described[0].ID, 3, 1}}, topics)
	require.Len(t, described[0].ID, 22, "as Kafka's tools write it")
	require.NotContains(t, c.run("topic", "list"), "load")

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, n.Stop(ctx))
	dumped := ""
	segments, err := filepath.Glob(filepath.Join(data, "orders-*", "*.log")) // of partitions that were written to
	require.NoError(t, err)
	for _, s := range segments {
		dumped += c.run("log", "dump", "-r", s)
	}
	require.Contains(t, dumped, `key "k1" value "c"`)
	require.Contains(t, dumped, "codec")
	metadata, err := filepath.Glob(filepath.Join(data, "__cluster_metadata-0", "*.log"))
	require.NoError(t, err)
	require.Contains(t, c.run("log", "dump", metadata[0]), "orders")
}

func TestRecordsAsJSON(t *testing.T) {
	r := &kgo.Record{Topic: "t", Partition: 1, Offset: 2, Timestamp: time.UnixMilli(3), Value: []byte("\xff\x00"),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("<ü>")}}}
	require.JSONEq(t, `{"topic":"t","partition":1,"offset":2,"timestamp":3,"key":null,"value":{"base64":"/wA="},"headers":[{"key":"h","value":"<ü>"}]}`,
		string(appendJSON(nil, r)))
}

// TestOffsetsAreAskedForAgain: while a partition is between two leaders, and no longer than there is time.
func TestOffsetsAreAskedForAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	calls := 0
	answers := []error{
		&kadm.ShardErrors{Errs: []kadm.ShardError{{Err: kerr.LeaderNotAvailable}}}, kerr.OffsetNotAvailable, nil, kerr.UnknownTopicOrPartition,
	}
	list := func() (kadm.ListedOffsets, error) {
		calls++
		return nil, answers[calls-1]
	}
	_, err := retrying(ctx, list)
	require.NoError(t, err)
	require.Equal(t, 3, calls)
	_, err = retrying(ctx, list)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	cancel()
	calls = 0
	_, err = retrying(ctx, list)
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
}

func TestCommandsFailWithOneClearLine(t *testing.T) {
	_, c := startBroker(t, t.TempDir())
	c.run("topic", "create", "orders")
	for _, x := range []struct{ want, line string }{
		{"already exists", "topic create orders"},
		{"no.such.setting", "topic create other -c no.such.setting=1"},
		{"key=value", "topic create other -c wrong"},
		{"nowhere", "topic describe nowhere"},
		{"nowhere", "topic delete nowhere"},
		{"nothing to alter", "topic alter orders"},
		{"at least 1, not -2", "topic alter orders -p -2"},
		{"not \"many\"", "produce orders --acks many"},
		{"not \"rar\"", "produce orders -z rar"},
		{"needs --key-separator", "produce orders --tombstones"},
		{"no partition 7", "consume orders -p 7"},
		{"not -2", "consume orders -e -p -2"},
		{"not -2", "produce orders -p -2"},
		{"not -1", "consume orders -e -n -1"},
		{"at least 1, not -5", "bench produce load -n -5"},
		{"--size is from 0", "bench produce load -n 1 --size -1"},
		{"--rate is not negative", "bench produce load -n 1 --rate -1"},
		{"--records is not negative", "bench consume orders -n -1"},
		{"not \"middle\"", "consume orders --from middle"},
		{"neither a segment", "log dump main.go"},
		{"no such file", "log dump README.log"},
		{"no such file", "log dump README"},
		{`unknown command "bogus" for "lockstep topic"`, "topic bogus"},
		{`unknown command "bogus" for "lockstep cluster"`, "cluster bogus --json"},
		{`unknown command "bogus"`, "bogus"},
		{`takes flags only, not "extra"`, "topic list extra"},
		{"--timeout is above 0", "topic list --timeout 0"},
		{"--timeout is above 0", "consume orders -e --timeout -1s"},
		{"--workers is at least 1", "sim swarm --seeds 1-1 --workers 0"},
		{"--for is above 0", "sim swarm --for -1s"},
		{"--duration is not negative", "sim run --duration -1s"},
		{"not \"x-y\"", "sim swarm --seeds x-y"},
		{"--seeds", "sim swarm"},
	} {
		_, err := c.try("", strings.Fields(x.line)...)
		require.Error(t, err, x.line)
		require.Contains(t, err.Error(), x.want, x.line)
		require.NotContains(t, err.Error(), "\n", x.line)
	}
	for _, line := range []string{"topic", "sim", "log --help"} {
		require.Contains(t, c.run(strings.Fields(line)...), "Available Commands")
	}
	c.addr = "127.0.0.1:1"
	_, err := c.try("", "topic", "list", "--timeout", "300ms")
	require.ErrorContains(t, err, "no broker answers at 127.0.0.1:1")
}

// TestLinesBeforeAWrongOneAreProduced: and the error says which line it is, so that one can go on there.
func TestLinesBeforeAWrongOneAreProduced(t *testing.T) {
	_, c := startBroker(t, t.TempDir())
	c.run("topic", "create", "orders")
	_, err := c.try("a:1\nb:2\nwrong\nc:3\n", "produce", "orders", "-k", ":")
	require.ErrorContains(t, err, `line 3 has no ":": the 2 before it were sent`)
	require.Equal(t, "a=1\nb=2\n", c.run("consume", "orders", "-e", "-f", "%k=%v\n"))
}

// TestProduceSaysWhyNothingWasAcknowledged: not only that it waited.
func TestProduceSaysWhyNothingWasAcknowledged(t *testing.T) {
	_, c := startBroker(t, t.TempDir(), "advertised.listeners", "PLAINTEXT://127.0.0.1:1")
	_, err := c.try("a\n", "produce", "orders", "--timeout", "2s")
	require.ErrorContains(t, err, "nothing was acknowledged for 2s: ")
	require.ErrorContains(t, err, "dial tcp 127.0.0.1:1")

	// What can be said of a topic whose leader cannot be reached is said.
	out, err := c.try("", "topic", "describe", "orders", "--timeout", "5s")
	require.ErrorContains(t, err, "dial tcp 127.0.0.1:1")
	require.Equal(t, []string{"orders", "0", "1", "0", "1", "1", "-", "-"}, strings.Fields(strings.Split(out, "\n")[1]))

	partition := func(p, leader int32, isr ...int32) kadm.PartitionDetail {
		return kadm.PartitionDetail{Partition: p, Leader: leader, Replicas: []int32{1, 2, 3}, ISR: isr}
	}
	d := kadm.TopicDetail{Partitions: kadm.PartitionDetails{0: partition(0, 1, 1, 2), 1: partition(1, 3, 3)}}
	require.Equal(t, "partition 1 has 1 of 3 replicas in sync, and min.insync.replicas is 2", notTaking(d, 2))
	require.Empty(t, notTaking(d, 1))
	d.Partitions[0] = partition(0, -1)
	require.Equal(t, "partition 0 has no leader", notTaking(d, 2))
}

// TestAddressesCanBeUsed: an IPv6 host is in brackets.
func TestAddressesCanBeUsed(t *testing.T) {
	require.Equal(t, "[::1]:9092", address(kadm.BrokerDetail{Host: "::1", Port: 9092}))
}

// TestTombstones: an empty value is a value, unless it is said to delete its key.
func TestTombstones(t *testing.T) {
	_, c := startBroker(t, t.TempDir())
	c.run("topic", "create", "orders")
	for _, args := range [][]string{{}, {"--tombstones"}} {
		_, err := c.try("a:1\na:\n", append([]string{"produce", "orders", "-k", ":"}, args...)...)
		require.NoError(t, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var values [][]byte
	for len(values) < 4 {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, r.Value) })
	}
	require.Equal(t, [][]byte{[]byte("1"), {}, []byte("1"), nil}, values)
}

// TestConsumeGivesUp: an error that a client may try again is no reason to wait for ever.
func TestConsumeGivesUp(t *testing.T) {
	errorsOf := func(err error) kgo.Fetches {
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Partition: 3, Err: err}}}}}}
	}
	r := reader{patience: time.Minute}
	require.ErrorContains(t, r.check(errorsOf(kerr.TopicAuthorizationFailed)), "partition 3")
	require.NoError(t, r.check(errorsOf(kerr.KafkaStorageError)))
	require.False(t, r.failing.IsZero())
	r.failing = r.failing.Add(-time.Hour)
	require.ErrorIs(t, r.check(errorsOf(kerr.KafkaStorageError)), kerr.KafkaStorageError)
	records := kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Records: []*kgo.Record{{}}}}}}}}
	require.NoError(t, r.check(records))
	require.NoError(t, r.check(errorsOf(kerr.KafkaStorageError)))
}
