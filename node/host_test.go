package node

import (
	"bytes"
	"errors"
	"fmt"
	gonet "net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/record"
	"lockstep/disk"
	"lockstep/disk/segment"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func errorsAs(err error, target *gonet.Error) bool { return errors.As(err, target) }

func respond(r broker.Request, msg kmsg.Response) broker.Respond {
	return broker.Respond{Conn: r.Conn, Seq: r.Seq, Msg: msg}
}

// TestAnswersKeepTheOrderOfRequests: whatever the order in which the core makes them, and whatever it never sees.
func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	var held []broker.Request
	f := &fakeCore{on: func(_ core.Time, in broker.Input, out *broker.Effects) {
		r, ok := in.(broker.Request)
		if !ok {
			return
		}
		held = append(held, r)
		if len(held) < 20 {
			return
		}
		for i := range held {
			r := held[(i*7)%len(held)]
			out.Add(respond(r, r.Msg.ResponseKind()))
		}
		held = nil
	}}
	n := startFake(t, f, nil)
	w := dialNode(t, n)
	req := produceRequest(t, 1, "value")
	old := produceRequest(t, 1, "value")
	old.Version = 2 // answered before the core
	var sent []kmsg.Request
	for range 20 {
		w.send(req)
		w.send(old)
		sent = append(sent, req, old)
	}
	for i, r := range sent {
		w.take(int32(i+1), r)
	}
}

// TestRequestsCarryWhatIsKnownOfTheClient, and are numbered without gaps.
func TestRequestsCarryWhatIsKnownOfTheClient(t *testing.T) {
	requests := make(chan broker.Request, 10)
	f := &fakeCore{on: func(_ core.Time, in broker.Input, out *broker.Effects) {
		if r, ok := in.(broker.Request); ok {
			requests <- r
			out.Add(respond(r, r.Msg.ResponseKind()))
		}
	}}
	w := dialNode(t, startFake(t, f, nil))
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 4, "client", "1.2"
	old := produceRequest(t, 1, "value")
	old.Version = 0
	for _, req := range []kmsg.Request{versions, old, kmsg.NewPtrMetadataRequest()} {
		w.call(req)
	}
	for i := range uint64(2) {
		r := <-requests
		require.Equal(t, i, r.Seq)
		require.Equal(t, broker.Client{ID: "wire", Software: "client 1.2", Host: "127.0.0.1"}, r.Client)
		require.False(t, r.Peer)
		require.InDelta(t, time.Now().UnixMilli(), int64(r.Wall), 60000)
	}
}

// appendAll makes a core that appends every batch of a Produce and answers at once, before anything is written.
func appendAll(next *int64) func(core.Time, broker.Input, *broker.Effects) {
	return func(_ core.Time, in broker.Input, out *broker.Effects) {
		r, ok := in.(broker.Request)
		if !ok {
			return
		}
		if p, ok := r.Msg.(*kmsg.ProduceRequest); ok {
			if p.Acks == 0 {
				out.Add(broker.Respond{Conn: r.Conn, Seq: r.Seq})
			} else {
				out.Add(respond(r, r.Msg.ResponseKind()))
			}
			for _, b := range r.Batches {
				b.Batch.Assign(*next, 0)
				*next += int64(b.Batch.Count())
				out.Add(broker.Append{Log: testLog, Batches: []record.Batch{b.Batch}, Sync: true})
			}
			return
		}
		out.Add(respond(r, r.Msg.ResponseKind()))
	}
}

// TestFramesStayUntilWritten: a request is answered before its batches are
// written, yet what is written is what was sent. (Released frames are poisoned.)
func TestFramesStayUntilWritten(t *testing.T) {
	var next int64
	f := &fakeCore{on: appendAll(&next)}
	n := startFake(t, f, nil)
	const requests, each = 200, 5
	for _, acks := range []int16{0, 1} {
		w := dialNode(t, n)
		for i := range requests {
			values := make([]string, each)
			for j := range values {
				values[j] = testValue(fmt.Sprint(acks), i, j)
			}
			req := produceRequest(t, acks, values...)
			w.send(req)
			if acks != 0 && i%20 == 19 {
				for k := i - 18; k <= i+1; k++ {
					w.take(int32(k), req)
				}
			}
		}
	}
	f.saw(t, func(in broker.Input) bool {
		d, ok := in.(broker.Durable)
		return ok && d.End == 2*requests*each
	})
	checkProduced(t, n.store.Log(testLog), requests, each)
	require.Zero(t, n.budget.Used())
}

func testValue(acks string, request, part int) string {
	return strings.Repeat(fmt.Sprintf("%s:%d:%d ", acks, request, part), 200)
}

// checkProduced reads the log back and checks that each request's values are in it, in order.
func checkProduced(t *testing.T, l *segment.Log, requests, each int) {
	var got []string
	for from := int64(0); ; {
		batches, err := l.ReadBatches(from, 1<<40, 1<<20)
		require.NoError(t, err)
		if len(batches) == 0 {
			break
		}
		for _, b := range batches {
			for r, err := range b.Records(nil, record.Limits{}) {
				require.NoError(t, err)
				got = append(got, string(r.Value))
			}
			from = b.NextOffset()
		}
	}
	require.Len(t, got, 2*requests*each)
	at := map[string]int{} // where each connection is
	for _, v := range got {
		acks := v[:1]
		i := at[acks]
		require.Equal(t, testValue(acks, i/each, i%each), v)
		at[acks]++
	}
}

// TestFetchSendsSpans: the reads of an answer are filled in from the segment
// files; a read that fails is that partition's error.
func TestFetchSendsSpans(t *testing.T) {
	var next int64
	produce := appendAll(&next)
	f := &fakeCore{}
	f.on = func(now core.Time, in broker.Input, out *broker.Effects) {
		r, ok := in.(broker.Request)
		fetch, isFetch := r.Msg.(*kmsg.FetchRequest)
		if !ok || !isFetch {
			produce(now, in, out)
			return
		}
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		e := respond(r, resp)
		e.MaxBytes = fetch.MaxBytes
		for i, p := range fetch.Topics[0].Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition = p.Partition
			topic.Partitions = append(topic.Partitions, rp)
			log := testLog
			log.Index = p.Partition
			read := broker.Read{Topic: 0, Partition: i, Log: log, From: p.FetchOffset, Limit: next, MaxBytes: p.PartitionMaxBytes}
			e.Reads = slices.Insert(e.Reads, 0, read) // in another order than the response's
		}
		resp.Topics = append(resp.Topics, topic)
		out.Add(e)
	}
	n := startFake(t, f, nil)
	w := dialNode(t, n)
	values := make([]string, 50)
	for i := range values {
		values[i] = strings.Repeat(fmt.Sprint("value", i), 1000)
	}
	w.call(produceRequest(t, 1, values...))
	f.saw(t, func(in broker.Input) bool { d, ok := in.(broker.Durable); return ok && d.End == 50 })
	for _, version := range []int16{4, 11, 12} {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxBytes = version, 1<<30
		topic := kmsg.NewFetchRequestTopic()
		for _, p := range []struct {
			index  int32
			offset int64
		}{{0, 0}, {0, 40}, {9, 0}, {0, 50}, {0, 60}} {
			fp := kmsg.NewFetchRequestTopicPartition()
			fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.index, p.offset, 1<<20
			topic.Partitions = append(topic.Partitions, fp)
		}
		req.Topics = append(req.Topics, topic)
		parts := w.call(req).(*kmsg.FetchResponse).Topics[0].Partitions
		require.Equal(t, []int16{0, 0, kerr.NotLeaderForPartition.Code, 0, 0}, // the last: its log is being cut, which the core will hear of
			[]int16{parts[0].ErrorCode, parts[1].ErrorCode, parts[2].ErrorCode, parts[3].ErrorCode, parts[4].ErrorCode})
		require.Equal(t, values, valuesOf(t, parts[0].RecordBatches))
		require.Equal(t, values[40:], valuesOf(t, parts[1].RecordBatches))
		for _, i := range []int{2, 3, 4} {
			require.Empty(t, parts[i].RecordBatches)
		}
	}
}

func valuesOf(t *testing.T, raw []byte) (values []string) {
	batches, _, err := record.ParseAll(raw)
	require.NoError(t, err)
	for _, b := range batches {
		for r, err := range b.Records(nil, record.Limits{}) {
			require.NoError(t, err)
			values = append(values, string(r.Value))
		}
	}
	return values
}

// TestClosedConnectionsAreTold: by the client, by the core, by garbage; the others go on.
func TestClosedConnectionsAreTold(t *testing.T) {
	var closing atomic.Bool
	f := &fakeCore{on: func(_ core.Time, in broker.Input, out *broker.Effects) {
		if r, ok := in.(broker.Request); ok {
			if _, ok := r.Msg.(*kmsg.MetadataRequest); ok && closing.Load() {
				out.Add(broker.CloseConn{Conn: r.Conn, Reason: "a test wants it"})
				return
			}
			out.Add(respond(r, r.Msg.ResponseKind()))
		}
	}}
	n := startFake(t, f, nil)
	good := dialNode(t, n)
	good.call(produceRequest(t, 1, "value"))
	closed := func(want int) {
		require.Eventually(t, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			seen := 0
			for _, in := range f.inputs {
				if _, ok := in.(broker.ConnClosed); ok {
					seen++
				}
			}
			return seen == want
		}, 20*time.Second, time.Millisecond)
	}
	leaves := dialNode(t, n)
	leaves.call(produceRequest(t, 1, "value"))
	leaves.c.Close()
	closed(1)

	closing.Store(true)
	refused := dialNode(t, n)
	refused.send(kmsg.NewPtrMetadataRequest())
	refused.ended()
	closed(2)

	garbage := dialNode(t, n)
	garbage.call(produceRequest(t, 1, "value"))
	_, err := garbage.c.Write([]byte("\x00\x00\x00\x20GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"))
	require.NoError(t, err)
	garbage.ended()
	closed(3)
	good.call(produceRequest(t, 1, "value"))
}

// TestTicksComeWhenWanted: at the deadline, again and again, also under load.
func TestTicksComeWhenWanted(t *testing.T) {
	ticks := make(chan core.Time, 1000)
	f := &fakeCore{}
	f.on = func(now core.Time, in broker.Input, out *broker.Effects) {
		switch in := in.(type) {
		case broker.LogOpened:
			f.deadline = now.Add(5 * time.Millisecond)
		case broker.Tick:
			ticks <- now
			if now < f.deadline {
				panic("a tick before its time")
			}
			f.deadline = now.Add(5 * time.Millisecond)
		case broker.Request:
			out.Add(respond(in, in.Msg.ResponseKind()))
		}
	}
	w := dialNode(t, startFake(t, f, nil))
	for len(ticks) < 10 {
		w.call(kmsg.NewPtrApiVersionsRequest())
	}
	for i, last := 0, core.Time(0); i < 10; i++ {
		now := <-ticks
		require.Greater(t, now, last)
		last = now
	}
}

// TestAppendsAreDroppedAfterOneFailed, until the core has truncated; then the log goes on.
func TestAppendsAreDroppedAfterOneFailed(t *testing.T) {
	fs := &faultyFS{}
	var next int64
	f := &fakeCore{}
	produce := appendAll(&next)
	f.on = func(now core.Time, in broker.Input, out *broker.Effects) {
		if failed, ok := in.(broker.AppendFailed); ok {
			next = failed.End
			out.Add(broker.Truncate{Log: testLog, To: failed.End})
		}
		produce(now, in, out)
	}
	n := startFake(t, f, func(inner disk.FS) disk.FS { fs.FS = inner; return fs })
	w := dialNode(t, n)
	w.call(produceRequest(t, 1, "before"))
	f.saw(t, func(in broker.Input) bool { d, ok := in.(broker.Durable); return ok && d.End == 1 })
	full := fmt.Errorf("a test: %w", disk.ErrNoSpace)
	fs.write.Store(&full)
	for range 10 {
		w.call(produceRequest(t, 1, "lost"))
	}
	f.saw(t, func(in broker.Input) bool {
		x, ok := in.(broker.AppendFailed)
		return ok && x.End == 1 && errors.Is(x.Err, disk.ErrNoSpace)
	})
	f.saw(t, func(in broker.Input) bool { x, ok := in.(broker.Truncated); return ok && x.End == 1 })
	for quietFor := 0; quietFor < 5; quietFor++ { // until all that was sent has failed
		time.Sleep(2 * time.Millisecond)
		if n.storage.backlog() > 0 || n.inbox.len() > 0 {
			quietFor = 0
		}
	}
	fs.write.Store(nil)
	require.Eventually(t, func() bool { // what was in flight may still be refused
		w.call(produceRequest(t, 1, "after"))
		f.mu.Lock()
		defer f.mu.Unlock()
		last := f.inputs[len(f.inputs)-1]
		d, ok := last.(broker.Durable)
		return ok && d.End == next && next > 1
	}, 20*time.Second, time.Millisecond)
	batches, err := n.store.Log(testLog).ReadBatches(0, 1<<40, 1<<20)
	require.NoError(t, err)
	for i, b := range batches {
		require.Equal(t, int64(i), b.BaseOffset())
		require.False(t, bytes.Contains(b.Bytes(), []byte("lost")))
	}
}

// TestFailedSyncIsTheEnd (rule 13): it is not tried again, nothing is reported
// durable any more, and no mark of a clean stop is left.
func TestFailedSyncIsTheEnd(t *testing.T) {
	fs := &faultyFS{}
	var next int64
	f := &fakeCore{on: appendAll(&next)}
	n := startFake(t, f, func(inner disk.FS) disk.FS { fs.FS = inner; return fs })
	w := dialNode(t, n)
	eio := fmt.Errorf("a test: %w", disk.ErrIO)
	fs.sync.Store(&eio)
	w.send(produceRequest(t, 1, "value"))
	<-n.Done()
	require.ErrorIs(t, n.Err(), segment.ErrDiskFailed)
	for _, in := range f.inputs {
		_, durable := in.(broker.Durable)
		require.False(t, durable)
	}
	again := startNode(t, Config{Settings: n.cfg.Settings, NewCore: n.cfg.NewCore})
	require.False(t, again.store.Clean())
}

// TestStorageOpsAreAnswered: each effect on a log or beside it has its answer, in order.
func TestStorageOpsAreAnswered(t *testing.T) {
	var next int64
	f := &fakeCore{}
	produce := appendAll(&next)
	f.on = func(now core.Time, in broker.Input, out *broker.Effects) {
		produce(now, in, out)
		if d, ok := in.(broker.Durable); !ok || d.End != 10 || d.Log != testLog {
			return
		}
		out.Add(broker.LookupTime{Token: 1, Log: testLog, Timestamp: -3, Limit: 10})
		out.Add(broker.ReadLog{Token: 2, Log: testLog, From: 3, Limit: 10, MaxBytes: 1 << 20})
		out.Add(broker.SetStart{Log: testLog, Start: 2})
		out.Add(broker.Truncate{Log: testLog, To: 8})
		out.Add(broker.MeasureLogs{Token: 3})
		out.Add(broker.SaveState{Token: 4, State: []byte("state")})
		out.Add(broker.ResetLog{Log: testLog, Start: 5})
		out.Add(broker.ResetLog{Log: testLog, Start: 50})
		out.Add(broker.DeleteLog{Log: testLog})
		out.Add(broker.LookupTime{Token: 5, Log: testLog, Timestamp: 0, Limit: 10})
		out.Add(broker.Append{Log: core.Partition{Index: 99}, Batches: []record.Batch{batchAt(0)}})
	}
	n := startFake(t, f, nil)
	w := dialNode(t, n)
	w.call(produceRequest(t, 1, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"))
	for _, want := range storageAnswers {
		f.saw(t, want)
	}
	var order []string
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.inputs {
		switch in.(type) {
		case broker.LogRead, broker.StartMoved, broker.Truncated, broker.LogDeleted:
			order = append(order, fmt.Sprintf("%T", in))
		}
	}
	require.Equal(t, []string{"broker.LogRead", "broker.StartMoved", "broker.Truncated", "broker.Truncated", "broker.Truncated", "broker.LogDeleted"}, order)
	state, err := n.store.LoadState()
	require.NoError(t, err)
	require.Equal(t, "state", string(state))
}

// storageAnswers are the answers to the effects above.
var storageAnswers = []func(broker.Input) bool{
	func(in broker.Input) bool { x, ok := in.(broker.TimeFound); return ok && x.Token == 1 && x.Err == nil },
	func(in broker.Input) bool {
		x, ok := in.(broker.LogRead)
		return ok && x.Token == 2 && x.Err == nil && x.Batches[0].BaseOffset() == 3
	},
	func(in broker.Input) bool { x, ok := in.(broker.StartMoved); return ok && x.Start == 2 },
	func(in broker.Input) bool { x, ok := in.(broker.Truncated); return ok && x.End == 8 },
	func(in broker.Input) bool { x, ok := in.(broker.Truncated); return ok && x.End == 5 },
	func(in broker.Input) bool { x, ok := in.(broker.Truncated); return ok && x.End == 50 },
	func(in broker.Input) bool { x, ok := in.(broker.LogDeleted); return ok && x.Log == testLog },
	func(in broker.Input) bool {
		x, ok := in.(broker.TimeFound)
		return ok && x.Token == 5 && errors.Is(x.Err, segment.ErrNoLog)
	},
	func(in broker.Input) bool { x, ok := in.(broker.StateSaved); return ok && x.Token == 4 },
	func(in broker.Input) bool {
		x, ok := in.(broker.LogsMeasured)
		return ok && x.Token == 3 && x.Err == nil && x.Free > 0 && x.Total > x.Free
	},
	func(in broker.Input) bool { x, ok := in.(broker.AppendFailed); return ok && x.Log.Index == 99 },
}

func batchAt(offset int64) record.Batch {
	b, err := record.NewBuilder().Add(record.Record{Value: []byte("x")}).Build()
	if err != nil {
		panic(err)
	}
	b.Assign(offset, 0)
	return b
}

// TestStopAnswersWhatIsAnswered: at a clean stop the answers that are made
// leave, what has none loses its connection, and the mark is left.
func TestStopAnswersWhatIsAnswered(t *testing.T) {
	f := &fakeCore{on: func(_ core.Time, in broker.Input, out *broker.Effects) {
		if r, ok := in.(broker.Request); ok {
			if _, ok := r.Msg.(*kmsg.ProduceRequest); ok {
				out.Add(respond(r, r.Msg.ResponseKind()))
			}
		}
	}}
	n := startFake(t, f, nil)
	answered, parked, idle := dialNode(t, n), dialNode(t, n), dialNode(t, n)
	req := produceRequest(t, 1, "value")
	answered.call(req)
	parked.send(kmsg.NewPtrMetadataRequest())
	require.Eventually(t, func() bool { return n.clients[0].Conns() == 3 }, 10*time.Second, time.Millisecond)
	stop(t, n)
	for _, w := range []*wire{answered, parked, idle} {
		w.ended()
	}
	_, err := gonet.Dial("tcp", n.Addr().String())
	require.Error(t, err)
	again := startNode(t, Config{Settings: n.cfg.Settings, NewCore: func(broker.Config, broker.Boot) Core { return &fakeCore{} }})
	require.True(t, again.store.Clean())
}
