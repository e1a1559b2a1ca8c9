package replica

import (
	"fmt"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

var testPartition = core.Partition{Index: 3}

func testConfig() Config {
	return Config{
		MinInsync: 2, Sync: true, LagMax: 10 * time.Second, MaxMessageBytes: 1 << 20,
		TimestampBefore: 1<<63 - 1, TimestampAfter: 1<<63 - 1, ProducerIDExpiry: 24 * time.Hour,
	}
}

// node is one replica over a disk of its own: a file of batches of which the end may not be durable yet, and the
// operations that are on their way to it, in order.
type node struct {
	t    require.TestingT
	id   int32
	cfg  Config
	now  core.Time
	most int // batches in an answer
	r    *Replica
	out  Out

	batches         []record.Batch // in the file
	start           int64
	durable         int64
	epochs, synced  []log.EpochStart // the checkpoint as written, and as it is durable
	queue           []operation
	wantSync, stuck bool // stuck: an append failed, and the following are dropped
	checkpoint      int64

	produced map[Waiter]Produced
	deleted  map[Waiter]Deleted
	proposed []*Proposal
	readable bool
	lines    []Line

	cache          []string // what contents has made of the first known batches
	known, checked int      // checked: offsets compared with what is committed
}

// operation is one thing to do to the file.
type operation struct {
	append   []record.Batch
	sync     bool
	truncate Value
	restart  Value
	setStart Value
	epochs   *[]log.EpochStart
	read     Value
}

func newNode(t require.TestingT, id int32, cfg Config) *node {
	n := &node{t: t, id: id, cfg: cfg, now: core.Time(time.Hour), most: 2}
	n.open()
	return n
}

// open makes the replica from what the file holds.
func (n *node) open() {
	st := log.State{Start: n.start, End: n.end(), HighWatermark: min(n.checkpoint, n.end()), Producers: log.NewProducers(0)}
	e := log.NewEpochs(nil)
	for _, s := range n.epochs {
		if s.Start <= st.End {
			e.Add(s.Epoch, s.Start)
		}
	}
	for _, b := range n.batches {
		e.Add(b.LeaderEpoch(), b.BaseOffset())
		st.Producers.Replay(b.Header())
	}
	st.Epochs = e.List()
	n.durable, n.epochs, n.synced = st.End, st.Epochs, st.Epochs
	n.queue, n.wantSync, n.stuck = nil, false, false
	n.produced, n.deleted, n.proposed, n.out = map[Waiter]Produced{}, map[Waiter]Deleted{}, nil, Out{}
	n.r = New(testPartition, n.id, st, n.cfg, nil)
}

// end is where the file ends.
func (n *node) end() int64 {
	if len(n.batches) == 0 {
		return n.start
	}
	return n.batches[len(n.batches)-1].NextOffset()
}

// carryOut takes what the last call wants done.
func (n *node) carryOut() {
	o := n.out
	n.out = Out{}
	for _, op := range []operation{{truncate: o.Truncate}, {restart: o.Restart}, {setStart: o.SetStart}} {
		if op.truncate.Set || op.restart.Set || op.setStart.Set {
			n.queue = append(n.queue, op)
		}
	}
	if o.SaveEpochs {
		n.queue = append(n.queue, operation{epochs: &o.Epochs})
	}
	if len(o.Append) > 0 {
		n.queue = append(n.queue, operation{append: o.Append, sync: o.Sync})
	}
	if o.ReadLog.Set {
		n.queue = append(n.queue, operation{read: o.ReadLog})
	}
	for _, p := range o.Produced {
		_, twice := n.produced[p.Waiter]
		require.False(n.t, twice, "answered twice")
		n.produced[p.Waiter] = p
	}
	for _, d := range o.Deleted {
		n.deleted[d.Waiter] = d
	}
	if o.Propose != nil {
		n.proposed = append(n.proposed, o.Propose)
	}
	n.readable = n.readable || o.Readable
	n.lines = append(n.lines, o.Lines...)
}

// write carries out the first operation of the queue; fail makes an append fail.
func (n *node) write(fail bool) {
	if len(n.queue) == 0 {
		return
	}
	op := n.queue[0]
	n.queue = n.queue[1:]
	switch {
	case op.truncate.Set:
		n.cut(op.truncate.Offset)
		kept := log.NewEpochs(n.epochs)
		kept.TruncateTail(n.end()) // rule 16: the cut takes them with it, durably
		n.epochs = kept.List()
		n.durable, n.synced, n.stuck = n.end(), n.epochs, false
		n.r.Truncated(n.now, n.end(), &n.out)
	case op.restart.Set:
		n.batches, n.start, n.epochs = nil, op.restart.Offset, nil
		n.durable, n.synced, n.stuck = n.start, nil, false
		n.r.Truncated(n.now, n.start, &n.out)
	case op.setStart.Set:
		n.setStart(op.setStart.Offset)
		n.r.StartMoved(n.now, n.start, &n.out)
	case op.epochs != nil:
		n.epochs = *op.epochs
	case op.read.Set:
		n.r.LogRead(n.now, n.read(op.read.Offset, 1<<60, 3), nil, &n.out)
	case n.stuck:
		return
	case fail:
		n.stuck = true
		n.r.AppendFailed(n.now, n.end(), fmt.Errorf("no space"), &n.out)
	default:
		for _, b := range op.append {
			require.GreaterOrEqual(n.t, b.BaseOffset(), n.end(), "an append below the end")
			n.batches = append(n.batches, b)
		}
		n.wantSync = n.wantSync || op.sync
		n.r.Written(n.now, n.end(), &n.out)
	}
	n.carryOut()
}

func (n *node) sync() {
	if n.durable == n.end() && len(n.epochs) == len(n.synced) {
		return
	}
	n.durable, n.synced, n.wantSync = n.end(), n.epochs, false
	n.r.Durable(n.now, n.durable, &n.out)
	n.carryOut()
}

// settle does all that the disk has to do.
func (n *node) settle() {
	for len(n.queue) > 0 {
		n.write(false)
	}
	if n.wantSync {
		n.sync()
	}
	if len(n.queue) > 0 {
		n.settle()
	}
}

func (n *node) cut(end int64) {
	require.GreaterOrEqual(n.t, n.end(), end, "a cut above the end")
	for len(n.batches) > 0 && n.end() > end { // a batch is cut off whole
		n.batches = n.batches[:len(n.batches)-1]
	}
	n.known = min(n.known, len(n.batches))
	n.cache = n.cache[:min(len(n.cache), int(n.end()))]
	n.checked = min(n.checked, int(n.end()))
}

func (n *node) setStart(start int64) {
	for len(n.batches) > 0 && n.batches[0].NextOffset() <= start {
		n.batches = n.batches[1:]
		n.known = max(0, n.known-1)
	}
	n.start = start
	n.durable = max(n.durable, start)
}

// crash loses what is not durable down to end, and the checkpoint of epochs if older says so.
func (n *node) crash(end int64, older bool) {
	require.GreaterOrEqual(n.t, end, n.durable)
	n.cut(end)
	if older {
		n.epochs = n.synced
	}
	n.open()
}

// read returns up to max batches from the file.
func (n *node) read(from, limit int64, max int) (list []record.Batch) {
	for _, b := range n.batches {
		if b.NextOffset() > from && b.NextOffset() <= limit && len(list) < max {
			list = append(list, b)
		}
	}
	return list
}

func (n *node) apply(st PartitionState) {
	n.r.Apply(n.now, st, &n.out)
	n.carryOut()
}

// produce appends one batch with the given values; id is that of an idempotent producer or -1.
func (n *node) produce(acks int16, w Waiter, id int64, epoch int16, seq int32, values ...string) (Produced, bool) {
	res, pending := n.r.Produce(n.now, 1_700_000_000_000, checked(n.t, id, epoch, seq, values...), acks, w, &n.out)
	n.carryOut()
	return res, pending
}

func checked(t require.TestingT, id int64, epoch int16, seq int32, values ...string) record.Checked {
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = id, epoch, seq
	for _, v := range values {
		b.Add(record.Record{Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte(v)})
	}
	x, err := b.Build()
	require.NoError(t, err)
	c := record.Check(x.Bytes(), nil, record.Limits{})
	require.NoError(t, c.Err)
	return c
}

// values returns the records of the file with their offsets, as "offset=value".
func (n *node) values() (list []string) {
	for _, b := range n.batches {
		for x, err := range b.Records(nil, record.Limits{}) {
			require.NoError(n.t, err)
			list = append(list, fmt.Sprintf("%d=%s", x.Offset, x.Value))
		}
	}
	return list
}

// fetch lets the follower ask the leader once, and its disk settle. It returns the answer.
func (n *node) fetch(leader *node) FetchAnswer {
	n.settle()
	ask, ok := n.r.WantFetch(n.now)
	require.True(n.t, ok, "the follower is not ready")
	ans := leader.answer(n, ask)
	n.fetched(ask, ans)
	n.settle()
	return ans
}

func (n *node) fetched(ask FetchAsk, ans FetchAnswer) {
	n.r.Fetched(n.now, 1_700_000_000_000, ask, ans, &n.out)
	n.carryOut()
}

// answer makes the leader's answer to a follower's ask.
func (n *node) answer(f *node, ask FetchAsk) FetchAnswer {
	d := n.r.FollowerFetch(n.now, f.id, int64(f.id), ask, &n.out)
	n.carryOut()
	return n.answerFor(f, d, ask)
}

func (n *node) answerFor(f *node, d FetchDecision, ask FetchAsk) FetchAnswer {
	if d.Producers {
		return FetchAnswer{Code: d.Code, LogStart: d.LogStart, Producers: n.r.ProducersBelow(d.LogStart)}
	}
	ans := FetchAnswer{Code: d.Code, HighWatermark: d.HighWatermark, LogStart: d.LogStart, Covered: d.Covered, Diverging: d.Diverging}
	if d.Code == 0 && d.Diverging == nil {
		ans.Batches = n.read(ask.Offset, d.Limit, n.most)
		n.r.Told(f.id, d.HighWatermark)
	}
	return ans
}

// state is the partition's state with replicas 1 to n of broker epoch = id, and an in-sync set.
func state(replicas int, leader, leaderEpoch, partitionEpoch int32, isr ...int32) PartitionState {
	st := PartitionState{Leader: leader, LeaderEpoch: leaderEpoch, PartitionEpoch: partitionEpoch, ISR: isr}
	for id := int32(1); id <= int32(replicas); id++ {
		st.Replicas = append(st.Replicas, Member{ID: id, Epoch: int64(id), Eligible: true})
	}
	return st
}

// single returns a node that leads alone.
func single(t *testing.T, change ...func(*Config)) *node {
	cfg := testConfig()
	cfg.MinInsync = 1
	for _, f := range change {
		f(&cfg)
	}
	n := newNode(t, 1, cfg)
	n.apply(state(1, 1, 0, 0, 1))
	n.settle()
	return n
}

// cluster returns nodes 1 to size, all in sync, of which the first leads in epoch 0.
func cluster(t *testing.T, size int) []*node {
	var nodes []*node
	isr := []int32{}
	for id := int32(1); id <= int32(size); id++ {
		nodes = append(nodes, newNode(t, id, testConfig()))
		isr = append(isr, id)
	}
	for _, n := range nodes {
		n.apply(state(size, 1, 0, 0, isr...))
		n.settle()
	}
	return nodes
}

// write produces one record without producer id and replicates it to the followers given.
func (n *node) replicate(value string, followers ...*node) {
	_, pending := n.produce(1, Waiter(1<<40+int64(len(n.produced))), -1, -1, -1, value)
	require.True(n.t, pending)
	n.settle()
	for _, f := range followers {
		f.fetch(n)
	}
	for _, f := range followers { // and tell the leader, and be told the high watermark
		f.fetch(n)
	}
	for _, f := range followers {
		f.fetch(n)
	}
}
