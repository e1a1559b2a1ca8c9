package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	gonet "net"
	"os"
	"strconv"
	"time"

	"lockstep/core/broker"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/quorum"
	"lockstep/disk"
	"lockstep/net/tcp"
)

// Config is what a node is started with.
type Config struct {
	// Settings are the broker's static settings, under Kafka's names (server.properties).
	Settings config.Values
	// PeerListen is where other brokers reach this one, host:port; port 0 takes a
	// free one. Empty: nowhere, which only a broker alone can afford.
	PeerListen string
	// HTTP is where /metrics, /healthz and /readyz are served, host:port. Empty: nowhere.
	HTTP string
	// Log takes the log; nil is slog.Default.
	Log *slog.Logger
	// Output gets one line when the broker is ready, with the addresses it has. nil: none.
	Output io.Writer
	// NewCore makes the machine that is stepped; nil is broker.New.
	NewCore func(broker.Config, broker.Boot) Core

	wrapFS func(disk.FS) disk.FS // for tests: puts faults between the store and the files
}

// peerListener is the name of the listener for peers in a broker's registration.
const (
	clientListenerName = "PLAINTEXT"
	peerListenerName   = "PEER"
)

// resolve checks the settings and returns what they come to.
func (c *Config) resolve() (config.BrokerConfig, error) {
	if err := config.CheckStatic(c.Settings); err != nil {
		return config.BrokerConfig{}, err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.NewCore == nil {
		c.NewCore = func(cfg broker.Config, boot broker.Boot) Core { return broker.New(cfg, boot) }
	}
	layers := config.Layers{Static: c.Settings}
	b := layers.Broker()
	if len(b.Listeners) == 0 {
		return b, errors.New("listeners is empty")
	}
	if len(b.Voters) > 0 && c.PeerListen == "" {
		return b, errors.New("a quorum of voters needs a listener for peers")
	}
	return b, nil
}

// limits are those of the clients' listeners.
func limits(b *config.BrokerConfig, lg *slog.Logger) tcp.Config {
	c := tcp.Config{
		MaxFrameBytes: int(b.SocketRequestMaxBytes),
		IdleTimeout:   b.ConnectionsMaxIdle,
		Log:           lg,
	}
	if b.QueuedMaxRequestBytes > 0 {
		// A single request must fit.
		c.Budget = tcp.NewBudget(max(b.QueuedMaxRequestBytes, int64(b.SocketRequestMaxBytes)))
	}
	return c
}

// peerLimits are those of the peers' listener, which is trusted: replication must not wait for producers' memory. A peer
// connects when it has something to ask; who says nothing is no peer.
func peerLimits(b *config.BrokerConfig, lg *slog.Logger) tcp.Config {
	return tcp.Config{MaxFrameBytes: int(b.SocketRequestMaxBytes), MaxOutstanding: 1 << 10, IdleTimeout: config.Forever, FirstTimeout: 15 * time.Second, Log: lg}
}

// voters are the quorum as the core knows it.
func voters(b *config.BrokerConfig) []quorum.Voter {
	var vs []quorum.Voter
	for _, v := range b.Voters {
		vs = append(vs, quorum.Voter{ID: v.ID, Host: v.Host, Port: v.Port})
	}
	return vs
}

// advertised is where clients are told to connect: what advertised.listeners
// says, else where this broker listens. Port 0 stands for the one that was got.
func advertised(b *config.BrokerConfig, ports []uint16) controller.Endpoint {
	l := b.Listeners[0]
	if len(b.AdvertisedListeners) > 0 {
		l = b.AdvertisedListeners[0]
	}
	if l.Port == 0 {
		l.Port = ports[0]
	}
	return controller.Endpoint{Name: clientListenerName, Host: reachable(l.Host), Port: l.Port}
}

// reachable makes a host that clients can connect to of one to listen on.
func reachable(host string) string {
	ip := gonet.ParseIP(host)
	if host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "127.0.0.1"
	}
	return name
}

// peerEndpoint is where peers are told to connect.
func peerEndpoint(b *config.BrokerConfig, listen string, port uint16) (controller.Endpoint, error) {
	for _, v := range b.Voters {
		if v.ID == b.NodeID {
			return controller.Endpoint{Name: peerListenerName, Host: v.Host, Port: v.Port}, nil
		}
	}
	host, _, err := gonet.SplitHostPort(listen)
	if err != nil {
		return controller.Endpoint{}, fmt.Errorf("peer listener %q: %w", listen, err)
	}
	return controller.Endpoint{Name: peerListenerName, Host: reachable(host), Port: port}, nil
}

func hostPort(l config.Listener) string {
	return gonet.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
}

// identity is what a data directory says of whose it is.
type identity struct {
	node      int32
	directory [16]byte
	cluster   string // empty until the node was ready for the first time
}

const identityFormat = "lockstep-directory v1 node=%d directory=%x\n"

const clusterFormat = "cluster=%s\n"

func (i identity) encode() []byte {
	b := fmt.Appendf(nil, identityFormat, i.node, i.directory)
	if i.cluster != "" {
		b = fmt.Appendf(b, clusterFormat, i.cluster)
	}
	return b
}

func decodeIdentity(b []byte) (identity, error) {
	var i identity
	var dir []byte
	if _, err := fmt.Sscanf(string(b), identityFormat, &i.node, &dir); err != nil || len(dir) != len(i.directory) {
		return i, fmt.Errorf("identity of the data directory can not be read: %q: %w", b, cmp.Or(err, errors.New("wrong length")))
	}
	copy(i.directory[:], dir)
	if _, rest, _ := bytes.Cut(b, []byte("\n")); len(rest) > 0 {
		if _, err := fmt.Sscanf(string(rest), clusterFormat, &i.cluster); err != nil {
			return i, fmt.Errorf("identity of the data directory can not be read: %q: %w", b, err)
		}
	}
	return i, nil
}
