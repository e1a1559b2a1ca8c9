package node

import (
	"errors"
	"log/slog"
	"sync"

	"lockstep/core"
	"lockstep/net/tcp"
)

// complaints logs why connections broke or logs could not be read, but not each
// time: somebody who connects and sends garbage for hours, or asks for what cannot
// be read, must not fill the disk with lines.
type complaints struct {
	rest   string // the line that counts those that were not logged
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
	if c.allow() {
		lg.Warn("connection closed", "host", host, "err", err)
	}
}

// unreadable tells of a read that failed for a reason that is not the log's own, as that a file may not be opened.
func (c *complaints) unreadable(lg *slog.Logger, id core.Partition, err error) {
	if c.allow() {
		lg.Error("a log could not be read", "log", id.String(), "err", err)
	}
}

// allow says whether a line may be logged, and counts it.
func (c *complaints) allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logged >= maxComplaints {
		c.more++
		return false
	}
	c.logged++
	return true
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
		lg.Warn(c.rest, "count", c.more)
	}
	c.logged, c.more = 0, 0
}
