package controller

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// world is a cluster under random operations and faults, with a model of what each replica's log holds, so
// that a leader that lacks something committed is found out.
//
// What it does not model: a broker applies committed metadata at once, so the races between a replica's view and the
// controller's are left to the simulator.
type world struct {
	*cluster
	rt      *rapid.T
	brokers map[int32]*testBroker
	parts   map[core.Partition]*testPartition
	waits   map[Token]func(kmsg.Response) // requests in flight
	created map[core.TopicID]bool         // and committed, once
	held    []func()                      // proposals on their way
	nextID  int
	wiped   bool // some disk was wiped
	counts  map[string]int
}

type testBroker struct {
	up, stopping bool
	registered   bool // in this life
	clean        bool // stopped cleanly, at lastEpoch, and did not start since
	claims       bool // says in this life that it stopped cleanly before
	lastEpoch    int64
	life, dir    byte
	lease        core.Time // until when it may believe in its lease
}

type testPartition struct {
	logs      map[int32][]int // record ids
	committed []int
	proposed  []int32 // members of an in-sync set that is asked for
}

var brokerIDs = []int32{1, 2, 3, 4}

func newWorld(rt *rapid.T) *world {
	w := &world{cluster: newCluster(rt, 2, nil), rt: rt, brokers: map[int32]*testBroker{}, parts: map[core.Partition]*testPartition{},
		waits: map[Token]func(kmsg.Response){}, counts: map[string]int{}, created: map[core.TopicID]bool{}}
	w.onApply = w.applied
	for _, id := range brokerIDs {
		w.brokers[id] = &testBroker{}
		w.startBroker(id)
		w.commit()
	}
	w.beatAll()
	w.settle()
	return w
}

// in sends a request; then is called with the answer, whenever it comes.
func (w *world) in(req kmsg.Request, then func(kmsg.Response)) {
	token := w.send(req)
	w.waits[token] = then
	w.deliver()
}

// deliver hands answers that came to those who wait for them.
func (w *world) deliver() {
	for _, token := range slices.Sorted(maps.Keys(w.waits)) {
		if resp, ok := w.answers[token]; ok {
			then := w.waits[token]
			delete(w.waits, token)
			then(resp)
		}
	}
}

// settle commits everything.
func (w *world) settle() { w.commit(); w.deliver() }

func (w *world) applied(d Delta) {
	switch d.Kind {
	case TopicCreated:
		w.created[d.Topic.ID] = true
	case TopicDeleted:
		for _, p := range d.Removed {
			delete(w.parts, p.Partition)
		}
	case PartitionChanged:
		if d.Old == nil {
			w.parts[d.New.Partition] = &testPartition{logs: map[int32][]int{}}
			return
		}
		w.leaderChanged(d.Old, d.New)
	case BrokerChanged:
		w.brokerChanged(d.OldBroker, d.NewBroker)
	}
}

// brokerChanged checks that nobody is fenced who may believe in a lease, unless it asked for that.
func (w *world) brokerChanged(old, now *Broker) {
	if old == nil || old.Fenced || !now.Fenced || old.Stopping {
		return
	}
	b := w.brokers[now.ID]
	require.LessOrEqual(w.rt, b.lease, w.now, "broker %d is fenced while it holds a lease", now.ID)
	w.counts["fenced"]++
}

func (w *world) leaderChanged(old, p *Partition) {
	m := w.parts[p.Partition]
	if p.Leader == old.Leader || p.Leader == NoLeader {
		return
	}
	m.proposed = nil
	switch {
	case p.Recovering && !slices.Contains(old.ISR, p.Leader) && !slices.Contains(old.ELR, p.Leader):
		w.counts["unclean"]++
		layers := w.image().Layers(1, nil)
		tc := w.image().TopicConfig(w.image().topicName(p.Topic), &layers)
		require.True(w.rt, !tc.SyncBeforeAck() || tc.UncleanElection || w.wiped, "unclean election though nobody allowed it")
		n := 0 // what is lost is lost
		for n < len(m.committed) && n < len(m.logs[p.Leader]) && m.committed[n] == m.logs[p.Leader][n] {
			n++
		}
		m.committed = m.committed[:n]
	case slices.Contains(old.ISR, p.Leader):
		w.counts["from isr"]++
	default:
		require.Contains(w.rt, old.ELR, p.Leader, "a leader from nowhere")
		w.counts["from elr"]++
	}
}

// serving returns the partitions that a live leader serves, in order.
func (w *world) serving() []*Partition {
	return w.image().partitionsOf(func(p *Partition) bool {
		b := w.image().Broker(p.Leader)
		return b != nil && w.brokers[p.Leader].up && w.brokers[p.Leader].registered && b.Epoch == w.epochs[p.Leader] && b.Active()
	})
}

// checkLeader is the point of it all: a leader that serves holds all that is committed (rule 8).
func (w *world) checkLeader(p *Partition) {
	m := w.parts[p.Partition]
	log := m.logs[p.Leader]
	require.True(w.rt, len(log) >= len(m.committed) && slices.Equal(log[:len(m.committed)], m.committed),
		"partition %s: leader %d holds %v, committed is %v", p.Partition, p.Leader, log, m.committed)
}

func (w *world) minISR(p *Partition) int {
	layers := w.image().Layers(1, nil)
	tc := w.image().TopicConfig(w.image().topicName(p.Topic), &layers)
	return tc.EffectiveMinISR(len(p.Replicas))
}

func (w *world) startBroker(id int32) {
	b := w.brokers[id]
	b.up, b.registered, b.stopping = true, false, false
	b.claims, b.clean = b.clean, false // as the clean-stop marker is removed before anything else is done (A14)
	b.life++
	w.registerBroker(id)
}

func (w *world) registerBroker(id int32) {
	b := w.brokers[id]
	req := registrationOf(id, b.life)
	req.LogDirs[0][1] = b.dir
	if b.claims {
		req.PreviousBrokerEpoch = b.lastEpoch
	}
	life := b.life
	w.in(req, func(resp kmsg.Response) {
		r := resp.(*kmsg.BrokerRegistrationResponse)
		if r.ErrorCode == 0 && b.up && b.life == life {
			w.epochs[id], b.registered, b.lastEpoch = r.BrokerEpoch, true, r.BrokerEpoch
		}
	})
}

// crash loses power: what was not synced is lost, partly.
func (w *world) crash(id int32, wipe bool) {
	b := w.brokers[id]
	b.up, b.registered, b.lease = false, false, 0
	if wipe {
		b.dir++
		w.wiped = true
	}
	for _, key := range w.sortedParts() {
		m := w.parts[key]
		keep := len(m.logs[id])
		if !w.syncs(key) {
			keep = min(keep, rapid.IntRange(0, keep).Draw(w.rt, "kept"))
		}
		if wipe {
			keep = 0
		}
		m.logs[id] = m.logs[id][:keep]
	}
}

func (w *world) syncs(p core.Partition) bool {
	layers := w.image().Layers(1, nil)
	tc := w.image().TopicConfig(w.image().topicName(p.Topic), &layers)
	return tc.SyncBeforeAck()
}

func (w *world) sortedParts() []core.Partition {
	return slices.SortedFunc(maps.Keys(w.parts), core.Partition.Compare)
}

// heartbeatOf sends a broker's heartbeat, which left it a while ago.
func (w *world) heartbeatOf(id int32, ago time.Duration) {
	b := w.brokers[id]
	if !b.up {
		return
	}
	if !b.registered {
		w.registerBroker(id)
		return
	}
	req := w.beat(id)
	req.WantShutdown = b.stopping
	sent, life := w.now.Add(-ago), b.life
	w.in(req, func(resp kmsg.Response) {
		r := resp.(*kmsg.BrokerHeartbeatResponse)
		switch {
		case b.life != life || !b.up:
		case r.ErrorCode == codeStaleBrokerEpoch || r.ErrorCode == codeBrokerIDNotRegistered:
			b.registered = false
		case r.ErrorCode != 0:
		case r.ShouldShutdown:
			b.up, b.registered, b.clean, b.lease = false, false, true, 0
			w.counts["stopped"]++
		case !r.IsFenced:
			b.lease = max(b.lease, sent.Add(w.active().broker.Lease))
		}
	})
}

func (w *world) beatAll() {
	for _, id := range brokerIDs {
		w.heartbeatOf(id, 0)
	}
}

// check verifies what must hold in every state.
func (w *world) check() {
	im := w.image()
	require.Equal(w.rt, w.images[0].Snapshot(), w.images[1].Snapshot(), "two brokers' images differ")
	for p := range im.AllPartitions() {
		require.NoError(w.rt, p.check())
		require.Same(w.rt, p, im.Partition(p.Partition))
		for _, id := range p.ISR {
			require.False(w.rt, im.Broker(id).Fenced, "a fenced broker is in sync: %v", p)
		}
		if p.Leader != NoLeader {
			require.True(w.rt, im.Broker(p.Leader).Active(), "a stopping or fenced broker leads: %v", p)
		}
		if len(p.ISR) >= w.minISR(p) {
			require.Empty(w.rt, p.ELR, "the high watermark moves without the eligible: %v", p)
		}
	}
	for _, p := range w.serving() {
		w.checkLeader(p)
	}
	if w.done == len(w.log) {
		require.Equal(w.rt, snapshotWithoutOffsets(im), snapshotWithoutOffsets(w.active().spec), "nothing is in flight, yet the two differ")
		require.Empty(w.rt, w.waits, "nothing is in flight, yet somebody waits")
	}
	again := NewImage()
	for _, r := range im.Snapshot() {
		_, err := again.Apply(0, r)
		require.NoError(w.rt, err)
	}
	require.Equal(w.rt, im.Snapshot(), again.Snapshot(), "a snapshot builds another image")
	require.Equal(w.rt, im.lastEpoch, again.lastEpoch)
}

func snapshotWithoutOffsets(im *Image) []string {
	var out []string
	for _, b := range im.Snapshot() {
		r, err := Decode(b)
		if err != nil {
			panic(err)
		}
		if x, ok := r.(*RegisterBrokerRecord); ok {
			x.Offset = 0
		}
		out = append(out, fmt.Sprintf("%T %s", r, Describe(Encode(r))))
	}
	return out
}

func (w *world) pick(label string) *Partition {
	all := w.serving()
	if len(all) == 0 {
		w.rt.Skip("nobody serves anything")
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(w.rt, label)]
}

func (w *world) topic() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.rt, "topic") }

// actions is everything that can happen.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": func(*rapid.T) { w.check() },
		"time": func(t *rapid.T) {
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				w.now = w.now.Add(time.Duration(rapid.IntRange(10, 150).Draw(t, "ms")) * time.Millisecond)
				for _, id := range brokerIDs {
					if rapid.IntRange(0, 9).Draw(t, "beats") > 1 {
						w.heartbeatOf(id, time.Duration(rapid.IntRange(0, 80).Draw(t, "delay"))*time.Millisecond)
					}
				}
				w.run(func(c *Controller, out *Out) { c.Tick(w.now, out) })
				w.commitSome(t)
			}
		},
		"silence": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			for range 25 {
				w.now = w.now.Add(100 * time.Millisecond)
				for _, other := range brokerIDs {
					if other != id {
						w.heartbeatOf(other, 0)
					}
				}
				w.run(func(c *Controller, out *Out) { c.Tick(w.now, out) })
				w.settle()
			}
		},
		"crash": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			if !w.brokers[id].up {
				t.Skip("down")
			}
			w.crash(id, rapid.IntRange(0, 9).Draw(t, "wipe") == 0)
			if rapid.Bool().Draw(t, "noticed") {
				w.run(func(c *Controller, out *Out) { c.PeerClosed(w.now, id, out) })
			}
			w.counts["crash"]++
		},
		"start": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			if w.brokers[id].up {
				t.Skip("up")
			}
			w.startBroker(id)
		},
		"stop": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			w.brokers[id].stopping = w.brokers[id].up
			w.heartbeatOf(id, 0)
		},
		"create": func(t *rapid.T) {
			opts := []topicOption{numbered(int32(rapid.IntRange(1, 2).Draw(t, "partitions")), int16(rapid.IntRange(1, 4).Draw(t, "replicas")))}
			if rapid.Bool().Draw(t, "min") {
				opts = append(opts, configured("min.insync.replicas", fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "min isr"))))
			}
			if rapid.Bool().Draw(t, "unsynced") {
				opts = append(opts, configured("flush.messages", "1000"))
			}
			name := w.topic()
			w.in(createRequest(name, opts...), func(resp kmsg.Response) {
				if resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode == 0 {
					require.True(t, w.created[resp.(*kmsg.CreateTopicsResponse).Topics[0].TopicID], "answered before it is committed")
				}
			})
		},
		"delete": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
				t.Skip()
			}
			r := kmsg.NewPtrDeleteTopicsRequest()
			r.Version, r.TopicNames = 5, []string{w.topic()}
			w.in(r, func(kmsg.Response) {})
		},
		"grow": func(t *rapid.T) {
			w.in(growRequest(w.topic(), int32(rapid.IntRange(1, 4).Draw(t, "count"))), func(kmsg.Response) {})
		},
		"config": func(t *rapid.T) {
			r := rapid.SampledFrom([]Resource{allBrokers, TopicResource("a"), TopicResource("b"), TopicResource("c")}).Draw(t, "resource")
			w.in(alterRequest(r, "min.insync.replicas", fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "min isr"))), func(kmsg.Response) {})
		},
		"allow unclean": func(t *rapid.T) {
			value := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "yes") == 0)
			w.in(alterRequest(TopicResource("a"), "unclean.leader.election.enable", value), func(kmsg.Response) {})
		},
		"elect": func(t *rapid.T) {
			r := kmsg.NewPtrElectLeadersRequest()
			r.Version = 2
			w.in(r, func(kmsg.Response) {})
		},
		"produce": func(t *rapid.T) { w.produce(t) },
		"produce and expand": func(t *rapid.T) {
			w.produce(t)
			for _, p := range w.serving() {
				if w.parts[p.Partition].proposed == nil {
					w.expand(p)
				}
			}
		},
		"shrink": func(t *rapid.T) { w.shrink(t, w.pick("partition")) },
		"expand": func(t *rapid.T) { w.expand(w.pick("partition")) },
		"arrive": func(*rapid.T) {
			held := w.held
			w.held = nil
			for _, send := range held {
				send()
			}
		},
		"connection breaks": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			w.run(func(c *Controller, out *Out) { c.PeerClosed(w.now, id, out) })
		},
		"restart": func(t *rapid.T) {
			id := rapid.SampledFrom(brokerIDs).Draw(t, "broker")
			if !w.brokers[id].up {
				t.Skip("down")
			}
			w.crash(id, false)
			w.startBroker(id)
			for range 14 {
				w.now = w.now.Add(50 * time.Millisecond)
				w.beatAll()
				w.settle()
			}
		},
		"commit some": func(t *rapid.T) { w.commitSome(t) },
		"settle":      func(t *rapid.T) { w.settle() },
		"depose": func(t *rapid.T) {
			keep := w.boundary(t)
			w.depose(1-w.leader, keep-w.done)
			w.deliver()
			w.counts["deposed"]++
		},
		"drop": func(t *rapid.T) {
			from := w.boundary(t)
			var out Out
			w.truncate(from)
			w.active().Dropped(w.now, int64(from), &out)
			w.collect(&out)
			w.deliver()
		},
	}
}

// boundary draws the end of a batch that is not committed, or the end of what is.
func (w *world) boundary(t *rapid.T) int {
	ends := []int{w.done}
	for _, e := range w.ends {
		if e > w.done {
			ends = append(ends, e)
		}
	}
	return rapid.SampledFrom(ends).Draw(t, "boundary")
}

func (w *world) commitSome(t *rapid.T) { w.commitTo(w.boundary(t)); w.deliver() }

// heal brings everything back and expects every partition that can have a leader to have one.
func (w *world) heal() {
	w.settle()
	for range 60 {
		for _, id := range brokerIDs {
			b := w.brokers[id]
			b.stopping = b.stopping && b.up
			if !b.up {
				w.startBroker(id)
			}
			w.heartbeatOf(id, 0)
		}
		w.now = w.now.Add(100 * time.Millisecond)
		w.run(func(c *Controller, out *Out) { c.Tick(w.now, out) })
		w.settle()
	}
	w.check()
	for b := range w.image().Brokers() {
		require.True(w.rt, b.Active(), "broker %d did not come back", b.ID)
	}
	for p := range w.image().AllPartitions() {
		if p.Leader == NoLeader {
			require.True(w.rt, len(p.ISR) == 0 && len(p.ELR) == 0, "%+v could have a leader", p)
			require.True(w.rt, w.wiped || !w.syncs(p.Partition), "%+v lost its leader for no reason", p)
		}
	}
	require.Empty(w.rt, w.waits)
}

func TestRandomCluster(t *testing.T) {
	total := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.in(createRequest("b", numbered(1, 3), configured("min.insync.replicas", "2")), func(kmsg.Response) {})
		w.in(createRequest("c", numbered(1, 2), configured("flush.messages", "1000")), func(kmsg.Response) {})
		w.settle()
		rt.Repeat(w.actions())
		w.heal()
		for k, n := range w.counts {
			total[k] += n
		}
	})
	t.Log(total)
	for _, k := range []string{"fenced", "stopped", "crash", "deposed", "from isr", "from elr", "unclean", "committed", "altered"} {
		require.NotZero(t, total[k], "%s never happened, so nothing was shown about it", k)
	}
}
