package node

import (
	"context"
	"os"
	"os/signal"
	"runtime"
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
	makeRoom(int(n.settings.CleanerThreads))
	pace := paceCollector()
	defer runtime.KeepAlive(pace)
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

// paceCollector keeps the collector at that pace while the heap is small, as long as what it returns is reachable. It is
// memory that is never touched, so that none of it is resident, but counts for the collector's goal. A higher GOGC would
// do the same to an idle heap, and let one that grows at once become many times as large before it is collected.
func paceCollector() []byte {
	if os.Getenv("GOGC") != "" {
		return nil // who sets it has his way
	}
	return make([]byte, heapFloor)
}
