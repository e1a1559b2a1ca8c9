package node

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/compress"
	"lockstep/core/broker"
	"lockstep/core/config"
	"lockstep/disk"
	"lockstep/disk/file"
	"lockstep/disk/segment"
	"lockstep/disk/snapshot"
	"lockstep/net/kafka"
	"lockstep/net/tcp"
)

// Node is one running broker.
type Node struct {
	cfg       Config
	settings  config.BrokerConfig
	began     time.Time
	fs        disk.FS
	closeFS   func() error
	store     *segment.Store
	snapshots *snapshot.Store
	inbox     *inbox
	storage   *storage
	syncer    *syncer
	compactor *compactor
	peers     *peers
	metrics   *metrics
	clients   []*tcp.Server
	maxConns  int         // of clients, for which there are descriptors
	peerSrv   *tcp.Server // nil if there is none
	budget    *tcp.Budget // nil if unbounded
	who       identity
	http      *httpServer // nil if there is none

	serving   sync.Once
	ready     chan struct{} // closed when clients are served
	stopping  chan struct{} // closed when the core is done
	stopOnce  sync.Once
	quit      chan struct{} // closed when everything is to end
	work      sync.WaitGroup
	done      chan struct{} // closed when everything has ended
	err       error         // why, valid then
	coreErr   error         // of the core's Stop, valid once stopping is closed
	isReady   atomic.Bool
	complains complaints
	unread    complaints
}

// Start starts a node and returns once it is at work: its listeners are bound
// and its core is being stepped. Ready tells when it serves.
func Start(cfg Config) (*Node, error) {
	settings, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, settings: settings, began: time.Now(), metrics: newMetrics(), inbox: newInbox(inboxLimit),
		complains: complaints{rest: "more connections closed"}, unread: complaints{rest: "more reads of logs failed"},
		ready: make(chan struct{}), stopping: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{}),
	}
	if err := n.start(); err != nil {
		n.release()
		return nil, err
	}
	return n, nil
}

// inboxLimit is how many inputs may wait for the core before requests have to.
const inboxLimit = 4096

func (n *Node) start() error {
	boot, err := n.openDirectory()
	if err != nil {
		return fmt.Errorf("data directory %s: %w", n.settings.LogDir, err)
	}
	if err := n.listen(); err != nil {
		return err
	}
	coreConfig := broker.Config{
		NodeID:     n.settings.NodeID,
		Static:     n.cfg.Settings,
		Advertised: advertised(&n.settings, n.ports()),
		Voters:     voters(&n.settings),
		Versions:   kafka.Advertised(false),
		LogDir:     n.who.directory,
	}
	if n.peerSrv != nil {
		if coreConfig.Peer, err = peerEndpoint(&n.settings, n.cfg.PeerListen, n.peerSrv.Addr().Port()); err != nil {
			return err
		}
	}
	var seed [32]byte
	crand.Read(seed[:])
	crand.Read(coreConfig.Incarnation[:])
	coreConfig.Rand = rand.NewChaCha8(seed)
	n.begin(n.cfg.NewCore(coreConfig, boot))
	return nil
}

// lockPatience is how long a start waits for a directory that another process has. One that was killed has it until the kernel has
// closed all of its files, which takes a while if they are thousands; who starts brokers again does not wait for that.
const lockPatience = 3 * time.Second

func (n *Node) openStore() (*segment.Store, error) {
	began := time.Now()
	for {
		s, err := segment.Open(n.fs, segment.Options{MaxOpenFiles: maxOpenFiles(), Decompressor: compress.Codecs{}, Compressor: compress.Codecs{}, ForEach: inParallel})
		if !errors.Is(err, disk.ErrLocked) || time.Since(began) > lockPatience {
			return s, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// openDirectory opens the data directory and checks that it is this broker's.
func (n *Node) openDirectory() (broker.Boot, error) {
	fs, err := file.Open(n.settings.LogDir)
	if err != nil {
		return broker.Boot{}, err
	}
	n.fs, n.closeFS = fs, fs.Close
	if n.cfg.wrapFS != nil {
		n.fs = n.cfg.wrapFS(fs)
	}
	if n.store, err = n.openStore(); err != nil {
		return broker.Boot{}, err
	}
	for _, line := range n.store.Notices() {
		if !strings.HasPrefix(line, snapshot.Dir+":") { // the store does not know it
			n.cfg.Log.Warn("data directory: " + line)
		}
	}
	if n.who, err = n.identify(); err != nil {
		return broker.Boot{}, err
	}
	if n.snapshots, err = snapshot.Open(n.fs); err != nil {
		return broker.Boot{}, err
	}
	boot, err := bootOf(n.store, n.snapshots)
	boot.ClusterID = n.who.cluster
	return boot, err
}

// identify reads whose directory it is, and makes a new one this node's.
func (n *Node) identify() (identity, error) {
	if meta := n.store.Meta(); meta != nil {
		who, err := decodeIdentity(meta)
		if err == nil && who.node != n.settings.NodeID {
			err = fmt.Errorf("it belongs to node %d, and this is node %d", who.node, n.settings.NodeID)
		}
		return who, err
	}
	if found := n.store.Found(); len(found) > 0 {
		return identity{}, fmt.Errorf("meta is missing, and there are %d logs: nobody knows whose they are", len(found))
	}
	who := identity{node: n.settings.NodeID}
	crand.Read(who.directory[:])
	return who, n.store.SaveMeta(who.encode())
}

// listen binds all addresses. Nothing is accepted yet: who connects waits in the system's backlog.
func (n *Node) listen() error {
	limits := limits(&n.settings, n.cfg.Log)
	n.budget = limits.Budget
	for _, l := range n.settings.Listeners {
		s, err := tcp.Listen(hostPort(l), n.listener(false), limits)
		if err != nil {
			return err
		}
		n.clients = append(n.clients, s)
	}
	var peers int
	n.maxConns, peers = connectionsThatFit()
	n.limitConns(int(n.settings.MaxConnections), int(n.settings.MaxConnectionsPerIP))
	if n.cfg.PeerListen != "" {
		s, err := tcp.Listen(n.cfg.PeerListen, n.listener(true), peerLimits(&n.settings, n.cfg.Log))
		if err != nil {
			return err
		}
		s.SetLimits(peers, peers)
		n.peerSrv = s
	}
	if n.cfg.HTTP != "" {
		return n.listenHTTP(n.cfg.HTTP)
	}
	return nil
}

// listener makes what takes the connections of a listener.
func (n *Node) listener(peer bool) *listener {
	return &listener{node: n, decoder: &kafka.Decoder{Peer: peer, Check: checker(decompressing)}}
}

// begin steps the core and does what it asks for.
func (n *Node) begin(c Core) {
	n.syncer = newSyncer(n.store, n.inbox, n.cfg.Log, n.metrics)
	n.peers = newPeers(n.settings.NodeID, voters(&n.settings), n.inbox, n.cfg.Log)
	x := &executor{
		store: n.store, fs: n.fs, in: n.inbox, syncer: n.syncer, snapshots: n.snapshots,
		log: n.cfg.Log, unread: &n.unread, metrics: n.metrics, quit: n.quit, device: func() (int64, error) { return deviceSize(n.settings.LogDir) },
	}
	n.storage = newStorage(x.run)
	x.storage = n.storage
	x.deleter = &deleter{store: n.store, storage: n.storage, in: n.inbox, log: n.cfg.Log}
	n.compactor = newCompactor(int(n.settings.CleanerThreads), n.inbox, n.metrics, n.cfg.Log)
	x.compactor = n.compactor
	n.registerGauges()
	l := &loop{
		core: c, in: n.inbox, start: n.began, log: n.cfg.Log, storage: n.storage, peers: n.peers, metrics: n.metrics,
		open: map[broker.ConnID]*openRequests{}, ready: n.becameReady, limit: n.limitConns, stopped: n.coreStopped,
	}
	if n.peerSrv != nil {
		n.peerSrv.Serve()
	}
	n.work.Go(func() { l.run(n.quit) })
	n.work.Go(n.keepHouse)
	go n.finish()
}

// housekeeping is how often recovery points are noted: what was appended since
// is what recovery can not tell damage from a torn end in (rule 15).
const housekeeping = time.Second

// servePatience is how long clients wait in the backlog for a broker that is not ready.
const servePatience = 3 * time.Second

// waitingAgain is how often a broker that is not ready says so.
const waitingAgain = 30 * time.Second

func (n *Node) keepHouse() {
	t := time.NewTicker(housekeeping)
	defer t.Stop()
	patience := time.NewTimer(servePatience)
	defer patience.Stop()
	for {
		select {
		case <-n.quit:
			return
		case <-patience.C:
			n.serve() // the core tells them what it knows
			patience.Reset(n.stillWaiting())
		case <-t.C:
			if err := n.store.Checkpoint(nil); err != nil && !errors.Is(err, segment.ErrClosed) {
				n.cfg.Log.Warn("noting recovery points failed", "err", err)
				if errors.Is(err, segment.ErrDiskFailed) {
					n.inbox.put(broker.DiskFailed{Err: err})
					return
				}
			}
			n.complains.report(n.cfg.Log)
			n.unread.report(n.cfg.Log)
		}
	}
}

// stillWaiting tells the operator, first soon and then from time to time, why a broker is not ready: without that a wrong address in
// the list of voters looks like a broker that hangs. It returns when to look again.
func (n *Node) stillWaiting() time.Duration {
	if !n.isReady.Load() {
		n.cfg.Log.Warn("not ready yet: this broker is not in its cluster, or logs are still being opened",
			"voters", n.settings.Voters, "unreachable", n.peers.unreachable())
	}
	return waitingAgain
}

// becameReady is the core's Ready.
func (n *Node) becameReady(cluster string) {
	if n.who.cluster == "" {
		n.who.cluster = cluster
		if err := n.store.SaveMeta(n.who.encode()); err != nil {
			n.cfg.Log.Warn("the cluster of the data directory could not be noted", "err", err)
		}
	}
	n.isReady.Store(true)
	n.serve()
	defer close(n.ready)
	took := time.Since(n.began).Round(time.Millisecond)
	n.cfg.Log.Info("ready", "addr", n.Addr().String(), "took", took.String())
	if n.cfg.Output != nil {
		line := fmt.Sprintf("lockstep broker %d ready: clients on %s", n.settings.NodeID, n.Addr())
		if a, ok := n.PeerAddr(); ok {
			line += fmt.Sprintf(", peers on %s", a)
		}
		if n.http != nil {
			line += fmt.Sprintf(", http on %s", n.http.addr())
		}
		fmt.Fprintf(n.cfg.Output, "%s (%s)\n", line, took)
	}
}

func (n *Node) serve() {
	n.serving.Do(func() {
		for _, s := range n.clients {
			s.Serve()
		}
	})
}

// limitConns is the core's LimitConns. There are never more connections than descriptors allow, whatever is configured.
func (n *Node) limitConns(conns, perHost int) {
	for _, s := range n.clients {
		s.SetLimits(min(conns, n.maxConns/len(n.clients)), perHost)
	}
}

// coreStopped is the core's Stop.
func (n *Node) coreStopped(err error) {
	n.stopOnce.Do(func() {
		n.coreErr = err
		close(n.stopping)
	})
}

// Ready is closed when the broker serves clients.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when the node has ended; Err tells why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why a node that is Done has ended; nil for a clean stop.
func (n *Node) Err() error { return n.err }

// Addr is where clients reach the node.
func (n *Node) Addr() netip.AddrPort { return n.clients[0].Addr() }

// PeerAddr is where peers reach the node, if they do.
func (n *Node) PeerAddr() (addr netip.AddrPort, ok bool) {
	if n.peerSrv == nil {
		return netip.AddrPort{}, false
	}
	return n.peerSrv.Addr(), true
}

func (n *Node) ports() []uint16 {
	ports := make([]uint16, len(n.clients))
	for i, s := range n.clients {
		ports[i] = s.Addr().Port()
	}
	return ports
}

// Stop stops the node cleanly: leadership is handed over, what was acknowledged
// is durable, and the mark of a clean stop is left. When ctx is done it no
// longer waits for the hand-over. It returns what Err does.
func (n *Node) Stop(ctx context.Context) error {
	n.inbox.put(broker.StopRequested{})
	select {
	case <-n.stopping:
	case <-n.done:
	case <-ctx.Done():
		n.coreStopped(nil)
	}
	<-n.done
	return n.err
}

// Kill ends the node as a crash would, as far as that can be done inside a
// process: nothing more is synced, and there is no mark of a clean stop.
func (n *Node) Kill() {
	n.coreStopped(errKilled)
	<-n.done
}

var errKilled = errors.New("killed")

// drainPatience is how long answers that are made may take to leave at the end.
const drainPatience = time.Second

// finish waits for the core's end and ends everything else, in the order that loses nothing.
func (n *Node) finish() {
	<-n.stopping
	err := n.coreErr
	n.inbox.close()
	close(n.quit)
	n.work.Wait()
	if err == nil {
		n.storage.wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	for _, s := range append(n.clients, n.peerSrv) {
		if s != nil {
			s.Finish(ctx)
		}
	}
	n.peers.close()
	n.compactor.stop()
	n.syncer.stop()
	if n.http != nil {
		n.http.close()
	}
	n.storage.wait()
	n.storage.close()
	if err == nil {
		err = n.store.Close()
	} else {
		n.store.Abandon()
	}
	n.err = errors.Join(err, n.closeFS())
	if err == nil {
		n.cfg.Log.Info("stopped cleanly")
	} else {
		n.cfg.Log.Error("stopped", "err", err)
	}
	close(n.done)
}

// release gives back what a start that failed had taken.
func (n *Node) release() {
	for _, s := range append(n.clients, n.peerSrv) {
		if s != nil {
			s.Close()
		}
	}
	if n.http != nil {
		n.http.close()
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.closeFS != nil {
		n.closeFS()
	}
}
