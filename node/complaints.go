package node

import (
	"errors"
	"log/slog"
	"sync"

	"lockstep/net/tcp"
)

// complaints logs why connections broke, but not each time: somebody who
// connects and sends garbage for hours must not fill the disk with lines.
type complaints struct {
	mu     sync.Mutex
	logged int // since the last report
	more   int // not logged since
}

// maxComplaints is how many are logged between two reports.
const maxComplaints = 10

func (c *complaints) add(lg *slog.Logger, host string, err error) {
	if harmless(err) {
		lg.Debug("connection ended", "host", host, "err", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logged >= maxComplaints {
		c.more++
		return
	}
	c.logged++
	lg.Warn("connection closed", "host", host, "err", err)
}

// harmless reports whether a connection ended as many do: its client went away
// without ado, or said nothing for long.
func harmless(err error) bool {
	return errors.Is(err, tcp.ErrIdle) || dropReason(err) == networkReason
}

// report says how many were not logged, and allows new ones.
func (c *complaints) report(lg *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more > 0 {
		lg.Warn("more connections closed", "connections", c.more)
	}
	c.logged, c.more = 0, 0
}
