package broker

import (
	"lockstep/core"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handlePeerFetch serves another broker's fetch: of the metadata log by the quorum, of partitions by their replicas.
func handlePeerFetch(b *Broker, q *request) {
	m := q.Msg.(*kmsg.FetchRequest)
	if len(m.Topics) == 1 && core.TopicID(m.Topics[0].TopicID) == core.MetadataPartition.Topic {
		handleQuorum(b, q)
		return
	}
	if m.ReplicaState.ID < 0 {
		b.closeConn(q, "a fetch between brokers names its replica")
		return
	}
	if len(m.Topics) == 0 {
		b.nudged(m.ReplicaState.ID)
	}
	f := fetch{q: q, m: m, parts: requestParts(m), replica: true}
	b.serveFetch(f, b.takeProgress(&f))
}

// nudged answers all that is parked of a follower: it has more to ask than it has calls.
func (b *Broker) nudged(replica int32) {
	parked := b.parkedFollowers[replica]
	delete(b.parkedFollowers, replica)
	for _, pf := range parked {
		b.unparkFetch(pf)
		b.answerFetch(&pf.fetch, b.decideFetch(&pf.fetch))
	}
}

// takeProgress moves the follower's progress by what it asks (rule 6), and decides what it may read.
func (b *Broker) takeProgress(f *fetch) fetchDecisions {
	d := fetchDecisions{each: make([]partDecision, len(f.parts))}
	for i, p := range f.parts {
		e := &d.each[i]
		if !b.locate(f, p, e) {
			d.urgent = true
			continue
		}
		e.FetchDecision = e.part.replica.FollowerFetch(b.now, f.m.ReplicaState.ID, f.m.ReplicaState.Epoch, followerAsk(p), &b.rout)
		d.count(p, e)
		b.carryOut(e.part)
	}
	return d
}

func followerAsk(p *fetchPart) replica.FetchAsk {
	return replica.FetchAsk{LeaderEpoch: p.leaderEpoch, Offset: p.offset, LastFetchedEpoch: p.lastFetchedEpoch, LogStart: p.logStart}
}
