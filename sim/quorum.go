package sim

import (
	"fmt"

	"lockstep/core/broker"
	"lockstep/core/quorum"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What must hold of who leads, and who votes, in the metadata quorum, as it is seen from outside.

// reign is how a broker has led the metadata quorum.
type reign struct {
	term         int32
	since, last  Time   // it has led in the term, as far as it was seen
	heard        []Time // by broker: when it last fetched
	unheard      bool
	saved        []byte // its term and vote, as its disk has them
	unheardSince Time
}

// Bounds on how long who leads the metadata quorum may go on without a majority: many times as long as it is to.
const (
	unheardTime  = 3 * second
	stepDownTime = 3 * second
)

// hearsMajority demands that a leader whom no majority asks for anything steps down (rule 11).
func (o *oracle) hearsMajority(h *host, term int32) {
	r, now := &h.reign, o.w.now
	if r.term != term || now-r.last > second/2 { // it did not run meanwhile
		r.term, r.since, r.unheard = term, now, false
	}
	r.last = now
	n := 1
	for i := range o.w.numVoters() {
		if i != h.index && now-max(r.heard[i], r.since) < unheardTime {
			n++
		}
	}
	switch unheard := 2*n <= o.w.numVoters(); {
	case !unheard:
		r.unheard = false
	case !r.unheard:
		r.unheard, r.unheardSince = true, now
	case now-r.unheardSince > stepDownTime:
		o.w.fail("leads unheard", "%s leads the metadata quorum in term %d, and no majority has asked for anything for %d seconds", h.name(), term, (unheardTime+stepDownTime)/second)
	}
}

// votes demands that term and vote are durable before anything is sent that depends on them (rule 11).
func (o *oracle) votes(h *host, msg any) {
	term, vote := int32(-1), h.nodeID()
	switch m := msg.(type) {
	case *kmsg.VoteRequest:
		h.hearing.since = o.w.now // an answer to a fetch from before counts for nothing any more
		if p := &m.Topics[0].Partitions[0]; !p.PreVote {
			term = p.CandidateEpoch
		}
	case *kmsg.VoteResponse:
		if len(m.Topics) == 1 && len(m.Topics[0].Partitions) == 1 {
			term, vote = m.Topics[0].Partitions[0].LeaderEpoch, quorum.None // whom it votes for, only the request says
		}
	}
	if term < 0 {
		return
	}
	saved, err := quorum.DecodeHardState(h.reign.saved)
	if err != nil || saved.Term < term || vote != quorum.None && saved.Term == term && saved.Vote != vote {
		o.w.fail("vote not durable", "%s speaks for term %d, and its disk has term %d with its vote for %d (%v)", h.name(), term, saved.Term, saved.Vote, err)
	}
}

// hearing is whom a broker takes for the leader of the metadata quorum, and when it last heard it.
type hearing struct {
	life         uint64
	leader, term int32
	since        Time // it has had this view of it, and asked for no votes
	at           Time // an answer came to a fetch that was sent since then; -1 if none did
}

// hearingTime is how long a voter that has heard its leader refuses pre-votes, at the least: something less than
// controller.quorum.election.timeout.ms, for its clock may be fast.
const hearingTime = 400 * millisecond

// views notes, after each step, when a broker's view of the quorum's leader has changed, or the connection to it broke.
func (h *host) views(in broker.Input) {
	q, _ := h.core.Quorum()
	s := &h.hearing
	closed, ok := in.(broker.PeerClosed)
	if ok && closed.Peer == s.leader || s.life != h.life || s.leader != q.Leader || s.term != q.Term {
		*s = hearing{life: h.life, leader: q.Leader, term: q.Term, since: h.w.now, at: -1}
	}
}

// hears notes that the quorum's leader has answered a fetch.
func (h *host) hears(x *peerWire, sent Time, msg kmsg.Response) {
	fetch, ok := msg.(*kmsg.FetchResponse)
	s := &h.hearing
	if !ok || x.lane != broker.MetadataLane || x.to != s.leader || sent <= s.since || s.life != h.life || fetch.ErrorCode != 0 {
		return
	}
	if len(fetch.Topics) == 1 && len(fetch.Topics[0].Partitions) == 1 && fetch.Topics[0].Partitions[0].ErrorCode == 0 {
		s.at = h.w.now
	}
}

// mustRefuse says why a broker may not grant a request that is a pre-vote: it leads the quorum, or hears who does. Empty if it may.
func (h *host) mustRefuse(msg kmsg.Request) string {
	m, ok := msg.(*kmsg.VoteRequest)
	if !ok || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 || !m.Topics[0].Partitions[0].PreVote {
		return ""
	}
	s := &h.hearing
	switch q, _ := h.core.Quorum(); {
	case q.Leads:
		return "which leads the quorum"
	case s.life == h.life && s.at >= 0 && h.w.now-s.at < hearingTime:
		return fmt.Sprintf("which has heard the leader, broker-%d, %d ms before", s.leader, (h.w.now-s.at)/millisecond)
	}
	return ""
}

// refuses demands that a pre-vote is not granted under a leader that is alive (KIP-996, museum B18): who does not hear it could else
// depose it again and again.
func (o *oracle) refuses(h *host, msg kmsg.Response, why string) {
	m, ok := msg.(*kmsg.VoteResponse)
	if ok && len(m.Topics) == 1 && len(m.Topics[0].Partitions) == 1 && m.Topics[0].Partitions[0].VoteGranted {
		o.w.fail("leader disturbed", "%s, %s, grants a pre-vote in term %d", h.name(), why, m.Topics[0].Partitions[0].LeaderEpoch)
	}
}
