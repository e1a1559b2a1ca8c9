package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	gometrics "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/config"
	"lockstep/core/log"
	"lockstep/disk"
	"lockstep/disk/file"
	"lockstep/disk/segment"

	"github.com/stretchr/testify/require"
)

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	running := startNode(t, Config{Settings: settingsFor(dir)})
	mine := t.TempDir()
	stop(t, startNode(t, Config{Settings: settingsFor(mine, "node.id", "2")}))
	damaged := t.TempDir()
	stop(t, startNode(t, Config{Settings: settingsFor(damaged)}))
	for _, name := range []string{"metadata-snapshots"} {
		require.NoError(t, os.WriteFile(filepath.Join(damaged, name, "00000000000000000005-0000000001.snapshot"), []byte("junk"), 0o600))
	}
	nameless := t.TempDir()
	stop(t, startNode(t, Config{Settings: settingsFor(nameless)}))
	require.NoError(t, os.Remove(filepath.Join(nameless, "meta")))
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"unknown setting":  {Config{Settings: settingsFor(t.TempDir(), "no.such.setting", "1")}, `"no.such.setting"`},
		"bad value":        {Config{Settings: settingsFor(t.TempDir(), "num.partitions", "many")}, "num.partitions"},
		"directory in use": {Config{Settings: settingsFor(dir)}, disk.ErrLocked.Error()},
		"another's":        {Config{Settings: settingsFor(mine, "node.id", "3")}, "belongs to node 2"},
		"nobody's":         {Config{Settings: settingsFor(nameless)}, "nobody knows whose"},
		"damaged snapshot": {Config{Settings: settingsFor(damaged)}, "snapshot is damaged"},
		"address in use": {Config{Settings: settingsFor(t.TempDir(), "listeners", "PLAINTEXT://"+running.Addr().String())},
			"address already in use"},
		"voters without a listener": {Config{Settings: settingsFor(t.TempDir(), "controller.quorum.voters", "1@127.0.0.1:9093")}, "listener for peers"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = quiet
			_, err := Start(c.cfg)
			require.ErrorContains(t, err, c.want)
			// What a failed start took it gave back.
			if name == "damaged snapshot" {
				_, err := Start(c.cfg)
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// TestDirectoryThatIsGivenBack: a start waits for the last moments of the process before it.
func TestDirectoryThatIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	first := startNode(t, Config{Settings: settingsFor(dir)})
	went := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() {
		defer close(went)
		stop(t, first)
	})
	startNode(t, Config{Settings: settingsFor(dir)})
	<-went
}

// TestDirectoryOfAnotherCluster: with its metadata gone a broker would begin a new cluster, in which all its logs are nobody's.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Settings: settingsFor(dir)})
	createTopic(t, clientOf(t, n), "kept", 1)
	stop(t, n)
	for _, name := range []string{"__cluster_metadata-0", "checkpoints"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	for range 2 {
		n, err := Start(Config{Settings: settingsFor(dir), Log: quiet})
		require.NoError(t, err)
		<-n.Done()
		require.ErrorContains(t, n.Err(), "it belongs to cluster")
	}
	require.DirExists(t, filepath.Join(dir, "kept-0"))
}

// TestStrayLogsAreRemoved: a log of a topic that the metadata does not know any more.
func TestStrayLogsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Settings: settingsFor(dir)})
	createTopic(t, clientOf(t, n), "kept", 1)
	stop(t, n)
	fs, err := file.Open(dir)
	require.NoError(t, err)
	defer fs.Close()
	s, err := segment.Open(fs, segment.Options{})
	require.NoError(t, err)
	_, _, err = s.OpenLog(core.Partition{Topic: core.TopicID{9}}, "gone", log.Config{SegmentBytes: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.DirExists(t, filepath.Join(dir, "gone-0"))
	startNode(t, Config{Settings: settingsFor(dir)})
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "gone-0"))
		return errors.Is(err, os.ErrNotExist)
	}, 10*time.Second, time.Millisecond)
	require.DirExists(t, filepath.Join(dir, "kept-0"))
}

// TestReadyLineAndHTTP: one line says where; the endpoints tell the state.
func TestReadyLineAndHTTP(t *testing.T) {
	var out bytes.Buffer
	n := startNode(t, Config{Settings: settingsFor(t.TempDir()), Output: &out, HTTP: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	peer, ok := n.PeerAddr()
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "lockstep broker 1 ready: clients on "+n.Addr().String()+", peers on "+peer.String()+", http on "+n.http.addr())
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + n.http.addr() + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	code, _ := get("/readyz")
	require.Equal(t, 200, code)
	code, _ = get("/healthz")
	require.Equal(t, 200, code)

	c := clientOf(t, n)
	createTopic(t, c, "topic", 3)
	produce(t, c, "topic", 0, 30)
	consume(t, n, "topic", 30)
	code, body := get("/metrics")
	require.Equal(t, 200, code)
	for _, line := range []string{
		"lockstep_produced_records_total 30", `lockstep_request_seconds_count{api="Produce"}`, "lockstep_sync_seconds_count",
		"lockstep_log_end_offsets", "lockstep_connections ", "lockstep_request_memory_bytes", "go_goroutines", "process_resident_memory_bytes",
	} {
		require.Contains(t, body, line)
	}
}

// TestUnreadyBrokerSaysSo: a voter without its quorum answers, and is not ready; its log says whom it cannot reach.
func TestUnreadyBrokerSaysSo(t *testing.T) {
	var lines lockedBuffer
	cfg := Config{Settings: settingsFor(t.TempDir(), "controller.quorum.voters", "1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"),
		PeerListen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&lines, nil))}
	n, err := Start(cfg)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(n.peers.unreachable()) == 2 }, time.Minute, time.Millisecond)
	n.stillWaiting()
	require.Contains(t, lines.String(), "not ready yet")
	require.Contains(t, lines.String(), "3@127.0.0.1:3: dial tcp 127.0.0.1:3: connect: connection refused")
	resp, err := http.Get("http://" + n.http.addr() + "/readyz")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	stop(t, n)
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestRunStopsWithItsContext.
func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan error)
	go func() { done <- Run(ctx, Config{Settings: settingsFor(t.TempDir()), Output: w, Log: quiet}) }()
	buf := make([]byte, 1000)
	_, err := r.Read(buf)
	require.NoError(t, err)
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("it does not stop")
	}
}

func TestIdentityRoundTrips(t *testing.T) {
	for _, cluster := range []string{"", "ksjT7CQOFhakWVoe96D5GQ"} {
		identityRoundTrips(t, identity{node: 5, directory: [16]byte{1, 2, 3, 255}, cluster: cluster})
	}
}

func identityRoundTrips(t *testing.T, want identity) {
	got, err := decodeIdentity(want.encode())
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, bad := range []string{"", "junk", "lockstep-directory v2 node=5 directory=00\n", "lockstep-directory v1 node=5 directory=0102\n"} {
		_, err := decodeIdentity([]byte(bad))
		require.Error(t, err)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	resolve := func(more ...string) config.BrokerConfig {
		l := config.Layers{Static: settingsFor("d", more...)}
		return l.Broker()
	}
	b := resolve()
	e := advertised(&b, []uint16{1234})
	require.Equal(t, []any{"127.0.0.1", uint16(1234)}, []any{e.Host, e.Port})
	b = resolve("advertised.listeners", "PLAINTEXT://broker.example:9999")
	e = advertised(&b, []uint16{1234})
	require.Equal(t, []any{"broker.example", uint16(9999)}, []any{e.Host, e.Port})
	host, err := os.Hostname()
	require.NoError(t, err)
	b = resolve("listeners", "PLAINTEXT://0.0.0.0:9092")
	e = advertised(&b, []uint16{9092})
	require.Equal(t, []any{host, uint16(9092)}, []any{e.Host, e.Port})
}

// TestCollectorsPace: a small heap is not collected all the time, and a heap that grew is no more than about doubled.
func TestCollectorsPace(t *testing.T) {
	t.Setenv("GOGC", "")
	pace := paceCollector()
	runtime.GC()
	live, goal := heap()
	require.GreaterOrEqual(t, goal, live+heapFloor)
	burst := make([]byte, 64<<20)
	runtime.GC()
	live, goal = heap()
	require.GreaterOrEqual(t, live, uint64(heapFloor+64<<20))
	require.Less(t, goal, 3*live)
	runtime.KeepAlive(burst)
	runtime.KeepAlive(pace)
	t.Setenv("GOGC", "50")
	require.Nil(t, paceCollector())
}

// heap returns what is in use and how much may be before the next collection.
func heap() (live, goal uint64) {
	s := []gometrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	gometrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}
