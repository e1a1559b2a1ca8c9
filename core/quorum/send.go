package quorum

import (
	"lockstep/core"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is what is remembered of a Call until its Answer.
type call struct {
	token uint64
	era   uint64
	peer  int32
	sent  core.Time
}

// heldMessage is a message that may go out when hard state seq is durable.
type heldMessage struct {
	seq     uint64
	call    *Call // one of the two
	respond *Respond
}

// send emits a message, or holds it back until the hard state that it may depend on is durable (rule 11, museum B01).
func (q *Quorum) send(m heldMessage, out *Out) {
	if m.seq = q.saveSeq; m.seq > q.savedSeq {
		q.held = append(q.held, m)
		return
	}
	q.emit(m, out)
}

// release emits what has waited for the hard states that are durable now.
func (q *Quorum) release(out *Out) {
	for len(q.held) > 0 && q.held[0].seq <= q.savedSeq {
		m := q.held[0]
		q.held[0] = heldMessage{}
		q.held = q.held[1:]
		if m.call != nil && q.calls[m.call.Token].era != q.era {
			delete(q.calls, m.call.Token) // nobody wants the answer any more
			continue
		}
		q.emit(m, out)
	}
}

func (q *Quorum) emit(m heldMessage, out *Out) {
	if m.call != nil {
		out.Calls = append(out.Calls, *m.call)
		return
	}
	out.Responds = append(out.Responds, *m.respond)
}

// call sends a request to a peer, to be answered in the current era.
func (q *Quorum) call(now core.Time, peer int32, msg kmsg.Request, out *Out) (token uint64) {
	q.callToken++
	q.calls[q.callToken] = call{token: q.callToken, era: q.era, peer: peer, sent: now}
	q.send(heldMessage{call: &Call{Token: q.callToken, Peer: peer, Msg: msg}}, out)
	return q.callToken
}

// respond answers a request.
func (q *Quorum) respond(token uint64, msg kmsg.Response, read *Read, out *Out) {
	q.send(heldMessage{respond: &Respond{Token: token, Msg: msg, Read: read}}, out)
}

// Answer brings a peer's response to the Call with token, or err. For a FetchResponse batches are its parsed records.
func (q *Quorum) Answer(now core.Time, token uint64, msg kmsg.Response, batches []record.Batch, err error, out *Out) {
	c, ok := q.calls[token]
	delete(q.calls, token)
	if !ok || c.era != q.era {
		return // an answer belongs to the role and term in which it was asked (rule 4; museum B10, A05)
	}
	if err != nil {
		msg = nil
	}
	switch m := msg.(type) {
	case *kmsg.VoteResponse:
		q.onVoteResponse(now, c, m, out)
	case *kmsg.BeginQuorumEpochResponse:
		q.onBeginResponse(now, c, m, out)
	case *kmsg.FetchResponse:
		q.onFetchResponse(now, c, m, batches, out)
	case *kmsg.FetchSnapshotResponse:
		q.onFetchSnapshotResponse(now, c, m, out)
	case *kmsg.EndQuorumEpochResponse:
	default:
		q.onNoAnswer(now, c, err, out)
	}
}

// onNoAnswer deals with a call that failed on the way. Votes not cast are asked for again at the next election, and
// a leader's BeginQuorumEpoch at its next pulse; a fetch is repeated after a pause.
func (q *Quorum) onNoAnswer(now core.Time, c call, err error, out *Out) {
	switch {
	case q.role == leader:
		q.replica(now, c.peer).calling = false
	case c.token == q.fetch.token:
		q.fetchFailed(now, c.peer, out, "err", err)
	}
}

// Handle takes a peer's request (Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, or a Fetch of the
// metadata topic by a replica), to be answered by exactly one Respond with token. It returns false, and does nothing, for any other.
func (q *Quorum) Handle(now core.Time, token uint64, msg kmsg.Request, out *Out) bool {
	switch m := msg.(type) {
	case *kmsg.VoteRequest:
		q.onVote(now, token, m, out)
	case *kmsg.BeginQuorumEpochRequest:
		q.onBeginEpoch(now, token, m, out)
	case *kmsg.EndQuorumEpochRequest:
		q.onEndEpoch(now, token, m, out)
	case *kmsg.FetchRequest:
		if !isReplicaFetch(m) {
			return false
		}
		q.onFetch(now, token, m, out)
	case *kmsg.FetchSnapshotRequest:
		q.onFetchSnapshot(now, token, m, out)
	default:
		return false
	}
	return true
}
