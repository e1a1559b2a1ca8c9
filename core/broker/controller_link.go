package broker

import (
	"errors"
	"time"

	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/quorum"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errNoController: at this moment no active controller is known.
var errNoController = errors.New("no active controller")

// controllerCall is the controller during one call, with what the call wants done.
type controllerCall struct {
	*controller.Controller
	out *controller.Out
}

func (b *Broker) stepController(call func(*controllerCall)) {
	if b.soleVoter() {
		b.controller.HearsMajority(core.Never)
	} else if heard, leads := b.quorum.MajorityHeard(b.now); leads {
		b.controller.HearsMajority(heard)
	}
	var out controller.Out
	call(&controllerCall{b.controller, &out})
	b.carryController(&out)
}

// soleVoter reports whether this broker alone is the metadata quorum.
func (b *Broker) soleVoter() bool {
	return len(b.cfg.Voters) == 0 || len(b.cfg.Voters) == 1 && b.cfg.Voters[0].ID == b.cfg.NodeID
}

func (b *Broker) carryController(out *controller.Out) {
	for _, l := range out.Log {
		b.log(Level(l.Level), l.Msg, l.Attrs...)
	}
	if len(out.Records) > 0 {
		b.propose(out.Records)
	}
	for _, a := range out.Answers {
		if then := b.answersOfController[a.Token]; then != nil {
			delete(b.answersOfController, a.Token)
			then(a.Msg, nil)
		}
	}
}

func (b *Broker) propose(records [][]byte) {
	var qout quorum.Out
	last, err := b.quorum.Propose(b.now, b.wall, records, &qout)
	if err == nil {
		b.controller.Proposed(last)
	} else {
		b.log(Warn, "metadata records could not be proposed", "error", err)
		b.stepController(func(c *controllerCall) { c.Refused(b.now, c.out) })
	}
	b.carryQuorum(&qout)
}

const (
	// clientPatience is how long a client's request waits for a controller on another broker.
	clientPatience = 30 * time.Second
	// brokerPatience is how long one of the broker's own does. A controller that is frozen, not dead, answers nothing
	// and breaks no connection; its successor must be asked soon after it is known.
	brokerPatience = 500 * time.Millisecond
)

// askController sends a request to the active controller, here or on another broker, and hands on its answer, or the
// error if none comes within the patience.
func (b *Broker) askController(patience time.Duration, req kmsg.Request, then func(kmsg.Response, error)) {
	if b.quorum == nil || b.controller == nil {
		then(nil, errNoController)
		return
	}
	leader, _ := b.quorum.Leader()
	switch {
	case leader == quorum.None:
		then(nil, errNoController)
	case leader != b.cfg.NodeID:
		b.callController(leader, patience, req, then)
	case !b.controller.Active():
		then(nil, errNoController)
	default:
		b.controllerToken++
		token := b.controllerToken
		b.answersOfController[token] = then
		b.stepController(func(c *controllerCall) { c.Handle(b.now, req, token, c.out) })
	}
}

func (b *Broker) callController(leader int32, patience time.Duration, req kmsg.Request, then func(kmsg.Response, error)) {
	var late *timer
	token := b.ask(func(in Input) {
		b.timers.cancel(late)
		a := in.(Answer)
		then(a.Msg, a.Err)
	})
	late = b.timers.set(b.now.Add(patience), func() {
		delete(b.answers, token) // an answer that comes now finds nobody
		then(nil, errNoController)
	})
	b.out.Add(Call{Peer: leader, Msg: req, Token: token})
}

// handleByController answers a client's administrative request with what the controller says.
func handleByController(b *Broker, q *request) {
	b.askController(clientPatience, q.Msg, func(resp kmsg.Response, err error) {
		if err != nil {
			resp = controller.ErrorResponse(q.Msg, errNotController)
		}
		b.respond(q, resp)
	})
}

// callPeer sends a request of the quorum to another voter.
func (b *Broker) callPeer(c quorum.Call) {
	b.out.Add(Call{Peer: c.Peer, Msg: c.Msg, Token: b.ask(func(in Input) {
		a := in.(Answer)
		b.stepQuorum(func(q *quorumCall) { q.Answer(b.now, c.Token, a.Msg, flatten(a.Batches), a.Err, q.out) })
	})})
}

func (b *Broker) onPeerClosed(peer int32) {
	b.stepQuorum(func(q *quorumCall) { q.PeerClosed(b.now, peer, q.out) })
	if b.controller != nil {
		b.stepController(func(c *controllerCall) { c.PeerClosed(b.now, peer, c.out) })
	}
}
