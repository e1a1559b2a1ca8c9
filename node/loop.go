package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
)

// errCore is why a connection is closed that the core does not want.
var errCore = errors.New("refused")

// stepBatch is how many inputs are stepped before the effects on logs are handed
// to the workers: many enough to share the hand-over, few enough not to delay it.
const stepBatch = 64

// loop steps the core. All its fields belong to its goroutine.
type loop struct {
	core    Core
	in      *inbox
	start   time.Time
	log     *slog.Logger
	storage *storage
	peers   *peers
	metrics *metrics
	ready   func(cluster string)
	limit   func(conns, perHost int)
	stopped func(error)

	effects broker.Effects
	open    map[broker.ConnID]*openRequests
	jobs    []job // effects on the disk, not handed over yet
	timer   *time.Timer
	timerAt core.Time
	over    bool
}

// openRequests are the requests of one connection that the core has not answered.
type openRequests struct {
	conn *client
	list []*request
}

// take finds and removes the request with the core's sequence number.
func (o *openRequests) take(seq uint64) *request {
	for i, r := range o.list {
		if r.coreSeq == seq {
			o.list = append(o.list[:i], o.list[i+1:]...)
			return r
		}
	}
	return nil
}

func (l *loop) now() core.Time { return core.Time(time.Since(l.start)) }

func wallNow() core.WallMillis { return core.WallMillis(time.Now().UnixMilli()) }

// run steps the core until quit is closed.
func (l *loop) run(quit <-chan struct{}) {
	l.timer = time.NewTimer(time.Hour)
	l.timerAt = core.Never
	l.step(event{in: broker.Start{Wall: wallNow()}}, l.now())
	l.handOver()
	var spare []event
	for {
		events := l.in.take(spare)
		if events == nil && !l.sleep(quit) {
			return
		}
		mark("step")
		now := l.now()
		for i := range events {
			l.step(events[i], now)
			events[i] = event{}
			if i%stepBatch == stepBatch-1 {
				l.handOver()
				l.metrics.stepped(stepBatch, time.Duration(l.now()-now))
				now = l.now()
			}
		}
		if l.core.Deadline() <= now {
			l.step(event{in: broker.Tick{Wall: wallNow()}}, now)
		}
		l.handOver()
		if l.over {
			return
		}
		if n := len(events) % stepBatch; n > 0 {
			l.metrics.stepped(n, time.Duration(l.now()-now))
		}
		spare = events
	}
}

// sleep waits until there is an input or the core wants a tick. It reports false if the loop is to end.
func (l *loop) sleep(quit <-chan struct{}) bool {
	deadline := l.core.Deadline()
	wait := deadline.Sub(l.now())
	if wait <= 0 {
		l.in.awake()
		return true
	}
	if deadline != l.timerAt {
		l.timerAt = deadline
		l.timer.Reset(wait)
	}
	select {
	case <-l.in.wake:
	case <-l.timer.C:
		l.timerAt = core.Never
		l.in.awake()
	case <-quit:
		return false
	}
	return true
}

// step gives the core one input and carries out what it wants done.
func (l *loop) step(ev event, now core.Time) {
	switch in := ev.in.(type) {
	case broker.Request:
		l.opened(ev.req, in.Conn)
		// Its answer may be out, and the frame released, before its appends are looked at.
		ev.req.frame.Retain()
		defer ev.req.frame.Release()
	case broker.ConnClosed:
		defer l.closed(in.Conn)
	}
	l.core.Step(now, ev.in, &l.effects)
	for _, e := range l.effects.List {
		l.carryOut(e, ev.req)
	}
	l.effects.Reset()
}

// handOver gives the effects on the disk of the steps so far to the workers.
func (l *loop) handOver() {
	if len(l.jobs) > 0 {
		l.storage.submit(l.jobs)
		clear(l.jobs)
		l.jobs = l.jobs[:0]
	}
}

func (l *loop) opened(r *request, id broker.ConnID) {
	o := l.open[id]
	if o == nil {
		o = &openRequests{conn: r.client}
		l.open[id] = o
	}
	o.list = append(o.list, r)
}

// closed drops what a connection had asked; the core has dropped it too.
func (l *loop) closed(id broker.ConnID) {
	o := l.open[id]
	if o == nil {
		return
	}
	delete(l.open, id)
	for _, r := range o.list {
		r.frame.Release()
	}
}

// carryOut carries out one effect. from is the request in whose step it came, if any.
func (l *loop) carryOut(e broker.Effect, from *request) {
	switch e := e.(type) {
	case broker.Respond:
		l.respond(e)
	case broker.CloseConn:
		if o := l.open[e.Conn]; o != nil {
			o.conn.conn.Close(fmt.Errorf("%w: %s", errCore, e.Reason))
		}
	case broker.Call:
		l.peers.call(e)
	case broker.KnowPeer:
		l.peers.know(e)
	case broker.Log:
		l.log.Log(context.Background(), slog.Level(e.Level), e.Msg, e.Attrs...)
	case broker.LimitConns:
		l.limit(int(e.Max), int(e.PerHost))
	case broker.Ready:
		l.ready(e.ClusterID)
	case broker.Stop:
		if !l.over {
			l.over = true
			l.stopped(e.Err)
		}
	case broker.Append:
		j := job{effect: e}
		// The batches lie in the frame of the request that brought them. It may be
		// answered before they are written, so the append holds the frame too.
		if from != nil {
			j.frame = from.frame
			j.frame.Retain()
		}
		l.jobs = append(l.jobs, j)
	default:
		l.jobs = append(l.jobs, job{effect: e})
	}
}

// respond hands an answer to its connection.
func (l *loop) respond(e broker.Respond) {
	o := l.open[e.Conn]
	if o == nil {
		return
	}
	r := o.take(e.Seq)
	if r == nil {
		l.log.Error("the core answered a request that is not open", "connection", e.Conn, "request", e.Seq)
		return
	}
	r.answer(e)
}
