package node

import (
	"bufio"
	"encoding/binary"
	"io"
	gonet "net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/net/kafka"
	"lockstep/net/tcp"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeCore is a core that a test writes: on gets every input. It keeps one log,
// opened at the start.
type fakeCore struct {
	mu       sync.Mutex // of the test against the loop
	on       func(now core.Time, in broker.Input, out *broker.Effects)
	deadline core.Time
	inputs   []broker.Input // all but requests
}

var testLog = core.Partition{Topic: core.TopicID{7}, Index: 0}

func (f *fakeCore) Step(now core.Time, in broker.Input, out *broker.Effects) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch in := in.(type) {
	case broker.Start:
		out.Add(broker.OpenLog{Log: testLog, Topic: "topic", Config: log.Config{SegmentBytes: 1 << 30, FlushMessages: 1}})
	case broker.LogOpened:
		out.Add(broker.Ready{})
	case broker.StopRequested:
		out.Add(broker.Stop{})
	case broker.DiskFailed:
		out.Add(broker.Stop{Err: in.Err})
	}
	if _, ok := in.(broker.Request); !ok {
		f.inputs = append(f.inputs, in)
	}
	if f.on != nil {
		f.on(now, in, out)
	}
}

func (f *fakeCore) Deadline() core.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deadline == 0 {
		return core.Never
	}
	return f.deadline
}

// saw waits for an input that is what the test looks for.
func (f *fakeCore) saw(t testing.TB, what func(broker.Input) bool) {
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, in := range f.inputs {
			if what(in) {
				return true
			}
		}
		return false
	}, 20*time.Second, time.Millisecond)
}

// startFake starts a node around a fake core.
func startFake(t testing.TB, f *fakeCore, wrap func(disk.FS) disk.FS, more ...string) *Node {
	tcp.PoisonFrames(true)
	return startNode(t, Config{Settings: settingsFor(t.TempDir(), more...), wrapFS: wrap,
		NewCore: func(broker.Config, broker.Boot) Core { return f }})
}

// wire is a client that sends and takes frames.
type wire struct {
	t testing.TB
	c gonet.Conn
	r *bufio.Reader
	n int32
}

func dialNode(t testing.TB, n *Node) *wire {
	c, err := gonet.Dial("tcp", n.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return &wire{t: t, c: c, r: bufio.NewReader(c)}
}

func (w *wire) send(req kmsg.Request) {
	w.n++
	_, err := w.c.Write(kafka.AppendRequest(nil, w.n, "wire", req))
	require.NoError(w.t, err)
}

func (w *wire) frame() ([]byte, error) {
	w.c.SetReadDeadline(time.Now().Add(20 * time.Second))
	var prefix [4]byte
	if _, err := io.ReadFull(w.r, prefix[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	_, err := io.ReadFull(w.r, frame)
	return frame, err
}

// take reads the answer to the request of that correlation id.
func (w *wire) take(correlation int32, req kmsg.Request) kmsg.Response {
	frame, err := w.frame()
	require.NoError(w.t, err)
	got, err := kafka.ResponseCorrelation(frame)
	require.NoError(w.t, err)
	require.Equal(w.t, correlation, got)
	resp, err := kafka.DecodeResponse(frame, req.Key(), req.GetVersion())
	require.NoError(w.t, err)
	return resp
}

func (w *wire) call(req kmsg.Request) kmsg.Response {
	w.send(req)
	return w.take(w.n, req)
}

// ended requires that the broker closes the connection.
func (w *wire) ended() {
	_, err := w.frame()
	require.Error(w.t, err)
	require.NotErrorIs(w.t, err, gonet.ErrClosed)
	var timeout gonet.Error
	if ok := errorsAs(err, &timeout); ok {
		require.False(w.t, timeout.Timeout(), "the connection was not closed")
	}
}

func produceRequest(t testing.TB, acks int16, values ...string) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 10000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "topic"
	for _, v := range values {
		b, err := record.NewBuilder().Add(record.Record{Value: []byte(v)}).Build()
		require.NoError(t, err)
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = b.Bytes()
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// faultyFS fails writes and syncs of files whose name a test chose.
type faultyFS struct {
	disk.FS
	write, sync atomic.Pointer[error]
}

func (f *faultyFS) Open(name string, flag disk.Flag) (disk.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f}, nil
}

func (f *faultyFS) SyncAll() error {
	if err := f.sync.Load(); err != nil {
		return *err
	}
	return f.FS.SyncAll()
}

type faultyFile struct {
	disk.File
	fs *faultyFS
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.write.Load(); err != nil {
		return 0, *err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) WriteVAt(bufs [][]byte, off int64) (int64, error) {
	if err := f.fs.write.Load(); err != nil {
		return 0, *err
	}
	return f.File.WriteVAt(bufs, off)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.sync.Load(); err != nil {
		return *err
	}
	return f.File.Sync()
}
