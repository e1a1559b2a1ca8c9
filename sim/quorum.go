package sim

import (
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
