// Package cleaner is what a host decides about runs of compaction: what a run is begun with, what the core is told when it is over,
// and how the bytes of all runs are spread over time. It runs nothing, waits for nothing and knows no clock, so that the production
// host, with goroutines, and the simulator, with events, do the same. It imports core, core/broker and disk/segment.
package cleaner

import (
	"errors"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/disk/segment"
)

// ErrStopping is what the pace of a run returns to end it because the host stops.
var ErrStopping = errors.New("the node stops")

// Options are those of the run that an effect asks for. Pace is segment.CompactOptions.Pace.
func Options(e *broker.Compact, pace func(bytes int) error) segment.CompactOptions {
	return segment.CompactOptions{Limit: e.Limit, Covered: e.Covered, Wall: e.Wall, Producers: e.Producers, Buffer: e.Buffer, Pace: pace}
}

// Answers is what the core is told of a run that is over, in this order; nothing if the host has ended it.
func Answers(id core.Partition, stats *segment.CompactStats, err error) []broker.Input {
	if errors.Is(err, ErrStopping) || errors.Is(err, segment.ErrClosed) {
		return nil
	}
	var told []broker.Input
	switch {
	case errors.Is(err, segment.ErrDiskFailed):
		told = append(told, broker.DiskFailed{Err: err})
	case errors.Is(err, segment.ErrCorrupt):
		told = append(told, broker.LogFailed{Log: id, Err: err})
	}
	return append(told, broker.Compacted{Log: id, Due: stats.Due, From: stats.From, To: stats.To, Keys: stats.Keys,
		Before: stats.BytesBefore, After: stats.BytesAfter, More: stats.Full, Err: err})
}

// Pacer spreads bytes over time, for all runs together (log.cleaner.io.max.bytes.per.second).
type Pacer struct {
	perSec float64
	free   time.Duration // when what was taken so far is paid for
}

// Limit sets the bytes that may be taken in a second; 0 is no bound.
func (p *Pacer) Limit(perSec float64) { p.perSec = perSec }

// Take takes bytes at an instant of any monotonic clock, and says how long to wait for them. What was not used is not saved up.
func (p *Pacer) Take(now time.Duration, bytes int) (wait time.Duration) {
	p.free = max(p.free, now)
	if p.perSec > 0 {
		p.free += time.Duration(min(float64(bytes)/p.perSec, 3600) * float64(time.Second))
	}
	return p.free - now
}
