package node

import (
	"context"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	gometrics "runtime/metrics"
	"syscall"
	"time"
)

// stopPatience is how long a clean stop may hand over leadership.
const stopPatience = 30 * time.Second

// Run runs one node as the whole process: until ctx is done or a SIGTERM or
// SIGINT comes, upon which it stops cleanly; a second signal ends the process at
// once. It returns nil after a clean stop.
func Run(ctx context.Context, cfg Config) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	n, err := Start(cfg)
	if err != nil {
		return err
	}
	go paceCollector(n.Done())
	select {
	case <-n.Done():
		return n.Err()
	case <-ctx.Done():
	case s := <-signals:
		n.cfg.Log.Info("stopping", "signal", s.String())
	}
	go func() {
		if s, ok := <-signals; ok {
			os.Exit(128 + int(s.(syscall.Signal)))
		}
	}()
	patience, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	return n.Stop(patience)
}

// heapFloor is about how much is allocated between two garbage collections at
// least. The produce path allocates little and keeps next to nothing, so that
// with Go's default the heap would be tiny and collected many times a second,
// and the pools of request memory emptied with it.
const heapFloor = 32 << 20

// paceCollector keeps the collector at that pace while the heap is small.
// Whoever sets GOGC has his way.
func paceCollector(done <-chan struct{}) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []gometrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 0
	for t := time.NewTicker(10 * time.Second); ; {
		gometrics.Read(live)
		if p := gcPercent(live[0].Value.Uint64()); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
		select {
		case <-done:
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// gcPercent is the GOGC at which heapFloor is allocated between collections,
// for a heap of which live bytes are in use. It is never below Go's default.
func gcPercent(live uint64) int {
	return max(100, int(math.Round(heapFloor/float64(max(live, 2<<20))*100)))
}
