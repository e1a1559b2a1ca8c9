package sim

import (
	"encoding/binary"
	"fmt"
	"strings"

	"lockstep/compress"
	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/quorum"
	"lockstep/core/record"
	"lockstep/disk/segment"
	"lockstep/disk/snapshot"
	"lockstep/net/kafka"
	"lockstep/sim/seed"
	"lockstep/sim/simdisk"
)

// host is one machine with one broker process on it, the simulator's counterpart of package node.
type host struct {
	w                    *world
	index                int
	lane                 int
	plan                 *BrokerPlan
	disk                 *simdisk.Disk
	chance               seed.Stream // delays of its disk and scheduler
	decoder, peerDecoder kafka.Decoder
	values               config.Values

	powered    bool
	up         bool   // a process is running
	ready      bool   // the broker is unfenced
	serving    bool   // connections are accepted
	life       uint64 // goes up when a process begins and when it ends; events of another life are void
	lives      uint64
	paused     Time // the process does not run before
	wallOff    int64
	blackedOut bool    // its machine has lost power
	deaf       Time    // nothing of the metadata log arrives until then
	sways      *seeSaw // a fault that keeps elections from it
	reign      reign
	hearing    hearing
	origin     Time // of this life's monotonic clock
	restart    *event

	store     *segment.Store
	cluster   string // that the data directory is known to belong to
	core      *broker.Broker
	out       broker.Effects
	tick      *event
	tickAt    core.Time
	logs      map[core.Partition]*logQueue
	order     []*logQueue // as they were opened
	special   [3]logQueue // for SaveState, snapshots, MeasureLogs
	snapshots *snapshot.Store
	sync      syncState
	passes    compactions
	conns     map[broker.ConnID]*hostConn
	accepted  []*hostConn
	nextConn  broker.ConnID
	bootErr   error
	jobs      jobs
	listening bool // other brokers are accepted
	wires     map[peerLane]*peerWire
	silent    []*conn // connections that a power loss has cut
	lost      bool    // it does not come back
}

// Kinds of events for hosts.
const (
	evStart     uint8 = iota + 64 // the process begins
	evBooted                      // its data directory is open
	evTick                        // the broker's deadline
	evDone                        // a log's effect is carried out
	evSyncRun                     // a round of sync goes to the disk
	evSyncDone                    // and is over
	evSyncAgain                   // one that found no room is tried again
	evFlush                       // flush.ms is over
	evInput                       // an input that comes a little later
	evRead                        // a connection is read on
	evHouse                       // recovery points are due
	evPatience                    // clients are served though the broker is not ready
	evPeer                        // the oldest call to a peer is due
	evClean                       // a compaction may begin
	evCleanOn                     // one goes on
	evCleaned                     // one is over
)

func newHost(w *world, index int, plan *BrokerPlan) *host {
	h := &host{w: w, index: index, plan: plan, powered: true}
	h.lane = w.newLane("broker-" + itoa(index+1))
	s := seed.New(w.plan.luck(), seed.Label("disk"), uint64(index))
	h.disk = simdisk.New(s.Uint64(), simdisk.Options{Capacity: plan.DiskBytes, Costs: simdisk.DefaultCosts.Times(max(1, plan.DiskSlowness))})
	h.chance = seed.New(w.plan.luck(), seed.Label("host"), uint64(index))
	h.decoder.Check = func(p []byte) record.Checked { return record.Check(p, &w.codecs, record.Limits{}) }
	h.peerDecoder = kafka.Decoder{Peer: true, Check: h.decoder.Check}
	settings := map[string]string{"node.id": itoa(index + 1)}
	for _, x := range plan.Settings {
		settings[x.Name] = x.Value
	}
	h.values = config.NewValues(settings)
	h.jobs.init(h)
	h.reign.heard = make([]Time, len(w.plan.Brokers))
	return h
}

// nodeID is the broker's id; that of host 0 is 1.
func (h *host) nodeID() int32 { return int32(h.index) + 1 }

// clock is the process's monotonic clock. Its origin differs in every life, as a real one's may.
// It runs faster or slower than true time by what the plan says.
func (h *host) clock() core.Time { return core.Time(drift(h.w.now, h.plan.DriftPPM) + h.origin) }

func drift(t Time, ppm int64) Time {
	const million = 1_000_000
	return t + t/million*ppm + t%million*ppm/million
}

// untilClock is how long it takes, in true time, until the process's clock shows an instant.
func (h *host) untilClock(at core.Time) Time {
	d := int64(at) - int64(h.clock())
	if d <= 0 || h.plan.DriftPPM == 0 {
		return max(0, d)
	}
	return int64(float64(d)/(1+float64(h.plan.DriftPPM)/1e6)) + 1
}

func (h *host) wall() core.WallMillis { return core.WallMillis(h.w.wall() + h.wallOff) }

// later lets an event happen to this life of the process.
func (h *host) later(d Time, kind uint8) *event {
	e := h.w.after(d, h, kind)
	e.n = h.life
	return e
}

func (h *host) fire(e *event) {
	if e.kind == evStart {
		h.restart = nil
		h.boot()
		return
	}
	if e.n != h.life {
		return
	}
	if h.w.now < h.paused { // a process that is stopped sees the world later, in the same order
		h.w.stats.fault("pause").Mattered++
		x := h.w.queue.add(h.paused, h, e.kind)
		if e == h.tick {
			h.tick = x
		}
		x.n, x.data, x.more = e.n, e.data, e.more
		return
	}
	switch e.kind {
	case evBooted:
		h.booted()
	case evPatience:
		h.serving = true
	case evPeer:
		e.more.(*peerWire).due()
	case evTick:
		h.tick = nil
		if h.core.Deadline() <= h.clock() {
			h.step(broker.Tick{Wall: h.wall()})
		} else {
			h.rearm()
		}
	case evInput:
		h.step(e.more.(broker.Input))
	case evRead:
		if hc := e.more.(*hostConn); h.conns[hc.id] == hc {
			hc.read()
		}
	default:
		h.fireDisk(e)
	}
}

// boot begins a process.
func (h *host) boot() {
	if h.up {
		return
	}
	h.powered = true
	h.up, h.ready, h.serving, h.listening = true, false, false, false
	h.wires = map[peerLane]*peerWire{}
	for _, c := range h.silent { // who still sends on them learns that nobody knows them
		c.refuse()
	}
	h.silent = nil
	h.life++
	h.lives++
	h.origin = Time(seed.Mix(h.w.plan.luck()^h.lives<<32^uint64(h.index)) >> 20)
	h.logs, h.order = map[core.Partition]*logQueue{}, nil
	h.special = [3]logQueue{}
	h.sync = syncState{}
	h.conns, h.accepted = map[broker.ConnID]*hostConn{}, nil
	h.out.Reset()
	h.w.event(h.lane, "start", "")
	fs := h.disk.Mount()
	h.store, h.bootErr = nil, nil
	var boot broker.Boot
	if !h.do(func() { h.store, boot, h.bootErr = h.open(fs) }) {
		return
	}
	e := h.later(h.cost()+h.chance.Skewed(100*microsecond, 20*millisecond), evBooted)
	e.more = boot
	if h.bootErr == nil {
		h.core = h.newBroker(boot)
		h.passes.init(h)
	}
}

// open is what a process does before its broker lives.
func (h *host) open(fs *simdisk.FS) (*segment.Store, broker.Boot, error) {
	store, err := segment.Open(fs, segment.Options{MaxOpenFiles: h.plan.MaxOpenFiles, SyncAllAbove: h.plan.SyncAllAbove,
		Decompressor: &h.w.codecs, Compressor: compress.Codecs{}})
	if err != nil {
		return nil, broker.Boot{}, err
	}
	if h.cluster, err = h.identify(store); err != nil {
		return nil, broker.Boot{}, err
	}
	if h.snapshots, err = snapshot.Open(fs); err != nil {
		return nil, broker.Boot{}, err
	}
	state, err := store.LoadState()
	if err != nil {
		return nil, broker.Boot{}, err
	}
	h.reign.saved = state
	boot := broker.Boot{State: state, Clean: store.Clean(), ClusterID: h.cluster}
	for _, f := range store.Found() {
		boot.Logs = append(boot.Logs, f.Partition)
	}
	id, content, ok, err := h.snapshots.Newest()
	if err != nil {
		return nil, broker.Boot{}, err
	}
	if ok {
		boot.Snapshot = &quorum.Snapshot{SnapshotID: quorum.SnapshotID(id), Bytes: content}
	}
	for _, line := range store.Notices() {
		h.w.event(h.lane, "log", line)
	}
	return store, boot, nil
}

// identify reads whose data directory it is, and of which cluster, empty if that is not known yet.
func (h *host) identify(store *segment.Store) (cluster string, err error) {
	if store.Meta() == nil {
		return "", store.SaveMeta([]byte(h.name()))
	}
	owner, cluster, _ := strings.Cut(string(store.Meta()), " ")
	if owner != h.name() {
		err = fmt.Errorf("the directory belongs to %q", owner)
	}
	return cluster, err
}

// becameReady notes of which cluster the data directory is.
func (h *host) becameReady(cluster string) {
	h.ready, h.serving = true, true
	h.w.event(h.lane, "ready", "")
	if h.cluster == "" {
		h.cluster = cluster
		h.do(func() {
			if err := h.store.SaveMeta([]byte(h.name() + " " + cluster)); err != nil {
				h.w.event(h.lane, "log", "noting the cluster: "+err.Error())
			}
		})
	}
}

func (h *host) newBroker(boot broker.Boot) *broker.Broker {
	chance := seed.New(h.w.plan.luck(), seed.Label("core"), uint64(h.index), h.lives)
	var incarnation, dir [16]byte
	binary.BigEndian.PutUint64(incarnation[:], chance.Uint64())
	binary.BigEndian.PutUint64(incarnation[8:], chance.Uint64()|1)
	binary.BigEndian.PutUint64(dir[8:], uint64(h.index)+0x100)
	return broker.New(broker.Config{
		NodeID:      h.nodeID(),
		Static:      h.values,
		Advertised:  controller.Endpoint{Name: "PLAINTEXT", Host: "broker-" + itoa(h.index+1), Port: 9092},
		Versions:    kafka.Advertised(false),
		Peer:        h.peerEndpoint(),
		Voters:      h.w.voters(),
		Incarnation: incarnation,
		LogDir:      dir,
		Rand:        &chance,
	}, boot)
}

func (h *host) booted() {
	if h.bootErr != nil {
		h.w.event(h.lane, "log", "the data directory cannot be opened: "+h.bootErr.Error())
		h.ended(h.bootErr)
		return
	}
	h.tick = nil
	h.later(housekeeping, evHouse)
	h.later(servePatience, evPatience)
	h.listening = true
	h.step(broker.Start{Wall: h.wall()})
}

// servePatience is how long clients are kept waiting for a broker that is not ready: then they hear what it knows.
const servePatience = 3 * second

// step gives the broker one input and carries out what it wants.
func (h *host) step(in broker.Input) {
	if h.w.trace != nil {
		h.traceInput(in)
	}
	h.out.Reset()
	h.core.Step(h.clock(), in, &h.out)
	h.w.oracle.observe(h)
	h.views(in)
	life := h.life
	for _, e := range h.out.List {
		h.carry(e)
		if h.life != life {
			return
		}
	}
	h.rearm()
}

// rearm keeps one event for the broker's deadline.
func (h *host) rearm() {
	d := h.core.Deadline()
	if h.tick != nil {
		if h.tickAt <= d {
			return // it will look again when it fires
		}
		h.w.queue.cancel(h.tick)
		h.tick = nil
	}
	if d == core.Never {
		return
	}
	h.tickAt = d
	h.tick = h.later(h.untilClock(d), evTick)
}

// carry carries out one effect, or puts it where it waits its turn.
func (h *host) carry(e broker.Effect) {
	if h.w.trace != nil {
		h.traceEffect(e)
	}
	switch e := e.(type) {
	case broker.Respond:
		h.w.oracle.votes(h, e.Msg)
		h.respond(&e)
	case broker.CloseConn:
		if hc := h.conns[e.Conn]; hc != nil {
			h.closeConn(hc)
		}
	case broker.Ready:
		h.becameReady(e.ClusterID)
	case broker.Stop:
		h.stop(e.Err)
	case broker.Log:
		h.w.stats.count(e.Level)
	case broker.LimitConns, broker.KnowPeer: // simulated connections have no bound, and find every broker
	case broker.Call:
		h.w.oracle.votes(h, e.Msg)
		h.call(e)
	default:
		h.enqueue(e)
	}
}

// stop is the broker's wish that the process ends.
func (h *host) stop(err error) {
	if err == nil {
		if !h.do(func() { err = h.closeStore() }) {
			return
		}
	}
	h.ended(err)
}

// closeStore carries out what is still to be done for the logs, and closes the data directory.
func (h *host) closeStore() error {
	for _, q := range h.order {
		for len(q.queue) > 0 {
			e := q.queue[0]
			q.queue = q.queue[1:]
			q.perform(h, e)
		}
	}
	h.stopPasses()
	return h.store.Close()
}

// ended takes the process away, which has come to its end by itself; somebody starts it again.
func (h *host) ended(err error) {
	h.w.event(h.lane, "stop", errText(err))
	if err == nil {
		h.gone()
		h.disk.Unmount()
	} else {
		h.w.stats.ErrorStops++
		h.gone()
		h.disk.Kill()
	}
	h.abandonPasses()
	if h.restart == nil && !h.lost {
		h.restart = h.w.after(h.chance.Between(50*millisecond, 500*millisecond), h, evStart)
	}
}

// gone forgets everything of the process. Its connections break.
func (h *host) gone() {
	h.life++
	h.up, h.ready, h.serving, h.listening = false, false, false, false
	h.paused = 0
	if h.tick != nil {
		h.w.queue.cancel(h.tick)
		h.tick = nil
	}
	for _, c := range append([]*conn(nil), h.w.net.conns...) { // those that it accepted, and those that it made
		switch {
		case c.by != h && (c.host != h || c.ends[acceptor] == nil):
		case h.powered:
			c.reset()
		default:
			c.cut(h)
		}
	}
	h.conns, h.accepted, h.wires = nil, nil, nil
	h.store, h.core = nil, nil
}

// kill ends the process at once, if there is one; it begins again after a while.
func (h *host) kill(power bool, down Time) bool {
	was := h.up
	if power {
		h.powered, h.blackedOut = false, true
	}
	if was {
		h.gone()
	}
	if power {
		h.w.event(h.lane, "crash", "power loss")
		h.disk.PowerLoss()
		h.w.oracle.powerLoss(h)
	} else if was {
		h.w.event(h.lane, "crash", "kill -9")
		h.disk.Kill()
	}
	h.abandonPasses()
	if h.restart != nil {
		h.w.queue.cancel(h.restart)
		h.restart = nil
	}
	if !h.lost {
		h.restart = h.w.after(down, h, evStart)
	}
	return was
}

// do runs storage code; false means that the process has died in it.
func (h *host) do(f func()) bool {
	end := h.disk.Run(f)
	if end == simdisk.Returned {
		return true
	}
	h.w.stats.CrashesInside++
	h.kill(end == simdisk.Cut, h.chance.Skewed(millisecond, second))
	return false
}

// cost is the virtual time that the disk calls since the last cost took.
func (h *host) cost() Time { return int64(h.disk.TakeCost()) }

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
