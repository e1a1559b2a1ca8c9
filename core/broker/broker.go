package broker

import (
	"lockstep/core"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/group"
	"lockstep/core/quorum"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config is what a broker is told at birth.
type Config struct {
	NodeID     int32
	Static     config.Values // its settings, checked (server.properties)
	Advertised controller.Endpoint
	// Peer is where other brokers reach this one. Voters are the metadata quorum; empty: this broker alone.
	Peer   controller.Endpoint
	Voters []quorum.Voter
	// Versions is the table of served API versions, for ApiVersions.
	Versions []kmsg.ApiVersionsResponseApiKey
	// Incarnation is unique to this life of the process; LogDir is the id that the data directory keeps.
	Incarnation, LogDir [16]byte
	Rand                core.Rand
}

// Boot is what the host found in the data directory.
type Boot struct {
	State    []byte           // of the last SaveState, nil if none
	Snapshot *quorum.Snapshot // newest of the metadata, nil if none
	Clean    bool             // the process that used the directory last stopped cleanly: nothing that it had written is missing

	ClusterID string           // of the Ready that an earlier life ended its start with, empty if there was none
	Logs      []core.Partition // that are in the directory
}

// Broker is one broker: it routes inputs to the machines below it and collects what they want done.
type Broker struct {
	cfg      Config
	boot     Boot
	now      core.Time
	wall     core.WallMillis
	out      *Effects
	stopping bool // a clean stop was asked for
	stopped  bool // Stop was emitted

	image      *controller.Image
	settings   config.BrokerConfig
	layers     config.Layers
	quorum     *quorum.Quorum // nil until the metadata log is open
	controller *controller.Controller
	membership membership

	answersOfController map[controller.Token]func(kmsg.Response, error)
	controllerToken     controller.Token
	lease               *replica.Lease

	parts    map[core.Partition]*partition
	touched  []core.Partition // by this step: see Touched
	deadline deadlines

	conns    map[ConnID]*conn
	sessions *fetchSessions
	timers   *timers
	tokens   Token
	answers  map[Token]func(Input)
	fetchers map[int32]*fetcher // by leader
	// parkedFollowers are followers' fetches that wait, by replica, in the order in which they came.
	parkedFollowers map[int32][]*parkedFetch
	peerRequests    map[uint64]*request // of the quorum, unanswered
	waiters         replica.Waiter
	producing       map[replica.Waiter]*pendingProduce
	deleting        map[replica.Waiter]*pendingDelete
	creations       []*creationWait
	groups          *group.Coordinator
	groupClock      groupClock
	groupRequests   map[group.Token]*request  // unanswered
	groupWrites     map[replica.Waiter]uint64 // the coordinator's, by the replica's waiter
	producers       producerIDs
	retention       *timer
	compaction      *timer
	rout            replica.Out // scratch: what the replica last called wants done
}

// New returns a broker that waits for Start.
func New(cfg Config, boot Boot) *Broker {
	b := &Broker{
		cfg:                 cfg,
		boot:                boot,
		image:               controller.NewImage(),
		lease:               &replica.Lease{},
		membership:          membership{epoch: -1, boss: quorum.None, former: quorum.None},
		answersOfController: map[controller.Token]func(kmsg.Response, error){},
		parts:               map[core.Partition]*partition{},
		fetchers:            map[int32]*fetcher{},
		parkedFollowers:     map[int32][]*parkedFetch{},
		conns:               map[ConnID]*conn{},
		timers:              newTimers(),
		answers:             map[Token]func(Input){},
		peerRequests:        map[uint64]*request{},
		producing:           map[replica.Waiter]*pendingProduce{},
		deleting:            map[replica.Waiter]*pendingDelete{},
		groupRequests:       map[group.Token]*request{},
		groupWrites:         map[replica.Waiter]uint64{},
	}
	b.deadline.init()
	b.configure()
	b.groups = group.New(b.groupConfig(), topicsOf{b}, cfg.Rand)
	b.sessions = newFetchSessions(int(b.settings.FetchSessionCacheSlots), cfg.Rand)
	return b
}

// configure resolves the broker's settings anew from the static file and the image.
func (b *Broker) configure() {
	before := b.connLimits()
	b.layers = b.image.Layers(b.cfg.NodeID, b.cfg.Static)
	b.settings = b.layers.Broker()
	if now := b.connLimits(); b.out != nil && now != before {
		b.out.Add(now)
	}
	if b.groups != nil {
		b.groups.Configure(b.groupConfig())
	}
}

func (b *Broker) connLimits() LimitConns {
	return LimitConns{Max: b.settings.MaxConnections, PerHost: b.settings.MaxConnectionsPerIP}
}

// Step advances the broker by one input that happened at now. It never blocks and never fails: what goes wrong is an effect.
func (b *Broker) Step(now core.Time, in Input, out *Effects) {
	if b.stopped {
		return
	}
	b.now, b.out, b.touched = now, out, b.touched[:0]
	b.timers.run(now)
	b.dispatch(in)
	b.timers.run(now)
	b.out = nil
}

// Deadline says when the broker next wants a Tick.
func (b *Broker) Deadline() core.Time {
	if b.stopped {
		return core.Never
	}
	d := core.Earlier(b.timers.next(), b.deadline.next())
	d = core.Earlier(d, b.groupDeadline())
	if b.quorum != nil {
		d = core.Earlier(d, b.quorum.Deadline())
	}
	if b.controller != nil {
		d = core.Earlier(d, b.controller.Deadline())
	}
	return d
}

func (b *Broker) dispatch(in Input) {
	switch in := in.(type) {
	case Request:
		b.wall = in.Wall
		b.onRequest(in)
	case Tick:
		b.wall = in.Wall
		b.tick()
	case Start:
		b.wall = in.Wall
		b.start()
	case ConnClosed:
		b.onConnClosed(in.Conn)
	case StopRequested:
		b.beginStop()
	case DiskFailed:
		b.fatal("the data directory cannot be synced", in.Err)
	case PeerClosed:
		b.onPeerClosed(in.Peer)
	case TimeFound:
		b.answered(in.Token, in)
	case LogRead:
		b.answered(in.Token, in)
	case LogsMeasured:
		b.answered(in.Token, in)
	case StateSaved:
		b.answered(in.Token, in)
	case SnapshotSaved:
		b.answered(in.Token, in)
	case Answer:
		b.answered(in.Token, in)
	default:
		b.dispatchLog(in)
	}
}

// dispatchLog routes what happened to a log.
func (b *Broker) dispatchLog(in Input) {
	switch in := in.(type) {
	case LogOpened:
		b.onLogOpened(in)
	case Written:
		b.onWritten(in)
	case Durable:
		b.onDurable(in)
	case AppendFailed:
		b.onAppendFailed(in)
	case Truncated:
		b.onTruncated(in)
	case StartMoved:
		b.onStartMoved(in)
	case Compacted:
		b.onCompacted(in)
	case LogDeleted: // nothing waits for it
	case LogFailed:
		b.onLogFailed(in)
	}
}

// ask draws a token and remembers who takes the answer.
func (b *Broker) ask(then func(Input)) Token {
	b.tokens++
	b.answers[b.tokens] = then
	return b.tokens
}

func (b *Broker) answered(t Token, in Input) {
	if then := b.answers[t]; then != nil {
		delete(b.answers, t)
		then(in)
	}
}

func (b *Broker) tick() {
	if b.quorum != nil && b.quorum.Deadline() <= b.now {
		var out quorum.Out
		b.quorum.Tick(b.now, &out)
		b.carryQuorum(&out)
	}
	if b.controller != nil && b.controller.Deadline() <= b.now {
		var out controller.Out
		b.controller.Tick(b.now, &out)
		b.carryController(&out)
	}
	if b.groupDeadline() <= b.now {
		b.stepGroups(func(c *groupCall) { c.Tick(b.groupNow(), b.wall, c.out) })
	}
	b.deadline.run(b.now, func(p *partition) {
		p.replica.Tick(b.now, b.wall, &b.rout)
		b.carryOut(p)
	})
}

// fatal ends the process: the broker must not go on.
func (b *Broker) fatal(msg string, err error) {
	b.log(Error, msg, "error", err)
	b.stop(err)
}

func (b *Broker) stop(err error) {
	if !b.stopped {
		b.stopped = true
		b.out.Add(Stop{Err: err})
	}
}

func (b *Broker) log(level Level, msg string, attrs ...any) {
	b.out.Add(Log{Level: level, Msg: msg, Attrs: attrs})
}
