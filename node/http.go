package node

import (
	"fmt"
	"log/slog"
	gonet "net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpServer serves what operators and their tools ask.
type httpServer struct {
	listener gonet.Listener
	server   *http.Server
}

// listenHTTP binds the address and serves:
//
//	/metrics  Prometheus
//	/healthz  200 while the core takes its inputs
//	/readyz   200 once clients are served, until the broker stops
func (n *Node) listenHTTP(addr string) error {
	l, err := gonet.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", n.answerHealth)
	mux.HandleFunc("GET /readyz", n.answerReady)
	n.http = &httpServer{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelWarn)}}
	go n.http.server.Serve(&boundedListener{Listener: l, max: int64(max(16, descriptors()/16))})
	return nil
}

// boundedListener closes connections at once while max of them are open.
type boundedListener struct {
	gonet.Listener
	max  int64
	open atomic.Int64
}

// boundedConn counts until it is closed, which the server may do twice.
type boundedConn struct {
	gonet.Conn
	release func()
}

func (l *boundedListener) Accept() (gonet.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &boundedConn{c, sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		c.Close()
	}
}

func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

func (h *httpServer) addr() string { return h.listener.Addr().String() }

func (h *httpServer) close() { h.server.Close() }

// stuckAfter is how long the core may take no input, while there is one, and count as healthy.
const stuckAfter = 10 * time.Second

func (n *Node) answerHealth(w http.ResponseWriter, _ *http.Request) {
	if idle := n.inbox.stuck(); idle > stuckAfter {
		http.Error(w, fmt.Sprintf("the core has taken no input for %s", idle.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (n *Node) answerReady(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-n.stopping:
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	default:
	}
	if !n.isReady.Load() {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
