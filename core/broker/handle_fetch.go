package broker

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// parkedFetch is a fetch that waits for enough to read or for its time to be up.
type parkedFetch struct {
	fetch
	timer *timer
	on    []*partition // that have it in their fetches
}

// fetch is one client's fetch while it is being answered.
type fetch struct {
	q       *request
	m       *kmsg.FetchRequest
	session *fetchSession // nil if there is none
	created bool          // the session was made by this request: all partitions are in the answer
	parts   []*fetchPart
	replica bool // a follower's
}

func handleFetch(b *Broker, q *request) {
	m := q.Msg.(*kmsg.FetchRequest)
	if q.Peer {
		handlePeerFetch(b, q)
		return
	}
	parts, session, code := b.sessions.resolve(b.now, m)
	if code != errNone {
		resp := m.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = code
		b.respond(q, resp)
		return
	}
	f := fetch{q: q, m: m, session: session, parts: parts}
	f.created = session != nil && m.SessionEpoch == 0
	b.serveFetch(f, b.decideFetch(&f))
}

// serveFetch answers now if there is enough to read, or nothing to wait for, and else parks the fetch.
func (b *Broker) serveFetch(f fetch, d fetchDecisions) {
	if f.m.MaxWaitMillis <= 0 || len(f.parts) == 0 || d.enough(&f) {
		b.answerFetch(&f, d)
		return
	}
	b.parkFetch(f)
}

// fetchDecisions is what may be read by a fetch now.
type fetchDecisions struct {
	each   []partDecision
	bytes  int64
	urgent bool // an error, or news that the client must not wait for
}

type partDecision struct {
	replica.FetchDecision
	part *partition // nil where there is none
}

func (d *fetchDecisions) enough(f *fetch) bool { return d.urgent || d.bytes >= int64(f.m.MinBytes) }

// count adds one partition's decision to the whole.
func (d *fetchDecisions) count(p *fetchPart, e *partDecision) {
	if e.Code != errNone || e.Diverging != nil || e.News {
		d.urgent = true
	}
	if e.Limit > p.offset {
		d.bytes += e.Bytes
	}
}

// locate finds the partition that p names, or fills in the error.
func (b *Broker) locate(f *fetch, p *fetchPart, e *partDecision) bool {
	var code int16
	e.part, code = b.findPartition(p.key.topic, p.key.id, f.q.version >= 13, p.key.index)
	if code != errNone {
		e.FetchDecision = replica.FetchDecision{Code: code, HighWatermark: -1, LastStable: -1, LogStart: -1}
	}
	return code == errNone
}

// decideFetch looks at each partition as it is now. It changes nothing.
func (b *Broker) decideFetch(f *fetch) fetchDecisions {
	d := fetchDecisions{each: make([]partDecision, len(f.parts))}
	for i, p := range f.parts {
		e := &d.each[i]
		if !b.locate(f, p, e) {
			d.urgent = true
			continue
		}
		if f.replica {
			e.FetchDecision = e.part.replica.FollowerRead(b.now, f.m.ReplicaState.ID, f.m.ReplicaState.Epoch, followerAsk(p))
		} else {
			e.FetchDecision = e.part.replica.ConsumerFetch(b.now, p.offset, p.leaderEpoch, p.lastFetchedEpoch, f.m.IsolationLevel == 1)
		}
		d.count(p, e)
	}
	return d
}

func (b *Broker) parkFetch(f fetch) {
	pf := &parkedFetch{fetch: f}
	for _, p := range f.parts {
		part, code := b.findPartition(p.key.topic, p.key.id, f.q.version >= 13, p.key.index)
		if code != errNone {
			continue
		}
		if pf.on = append(pf.on, part); f.replica {
			part.followers = append(part.followers, pf)
		} else {
			part.fetches = append(part.fetches, pf)
		}
	}
	if f.replica {
		id := f.m.ReplicaState.ID
		b.parkedFollowers[id] = append(b.parkedFollowers[id], pf)
	}
	f.q.drop = func() { b.unparkFetch(pf) }
	wait := time.Duration(f.m.MaxWaitMillis) * time.Millisecond
	pf.timer = b.timers.set(b.now.Add(wait), func() {
		b.unparkFetch(pf)
		b.answerFetch(&pf.fetch, b.decideFetch(&pf.fetch))
	})
}

func (b *Broker) unparkFetch(pf *parkedFetch) {
	b.timers.cancel(pf.timer)
	same := func(x *parkedFetch) bool { return x == pf }
	if id := pf.m.ReplicaState.ID; pf.replica {
		b.parkedFollowers[id] = slices.DeleteFunc(b.parkedFollowers[id], same)
	}
	for _, part := range pf.on {
		part.fetches = slices.DeleteFunc(part.fetches, same)
		part.followers = slices.DeleteFunc(part.followers, same)
	}
	pf.on = nil
}

// wakeFetches looks again at clients' fetches that wait on a partition: there is more to read, or its role changed.
func (b *Broker) wakeFetches(p *partition) { b.wake(p.fetches) }

// wakeFollowers looks again at followers' fetches that wait on a partition.
func (b *Broker) wakeFollowers(p *partition) { b.wake(p.followers) }

func (b *Broker) wake(waiting []*parkedFetch) {
	if len(waiting) == 0 {
		return
	}
	for _, pf := range slices.Clone(waiting) {
		if pf.q.done {
			continue
		}
		if d := b.decideFetch(&pf.fetch); d.enough(&pf.fetch) {
			b.unparkFetch(pf)
			b.answerFetch(&pf.fetch, d)
		}
	}
}

// answerFetch answers with what was decided. Within a session, partitions with nothing new are left out (KIP-227).
func (b *Broker) answerFetch(f *fetch, d fetchDecisions) {
	resp := f.m.ResponseKind().(*kmsg.FetchResponse)
	out := Respond{Msg: resp, MaxBytes: f.m.MaxBytes}
	if limit := b.settings.FetchMaxBytes; out.MaxBytes > limit || out.MaxBytes <= 0 {
		out.MaxBytes = limit
	}
	if f.session != nil {
		resp.SessionID = f.session.id
	}
	incremental := f.session != nil && !f.created
	room := int(out.MaxBytes) // for what is told of producers
	for i, p := range f.parts {
		e := &d.each[i]
		reads := e.Code == errNone && e.Diverging == nil && e.Limit > p.offset
		if e.Code == errNone && e.Unsettled && !reads {
			// A new leader may not know yet of what is committed: to say that there is nothing would be a stale read (rule 6).
			if e.Code = errOffsetNotAvailable; f.m.Version < 11 { // KIP-392: older clients do not know it as one to be tried again
				e.Code = errNotLeaderOrFollower
			}
		}
		if e.Unsettled && !f.replica {
			// Nor may it name the high watermark it knows, which its predecessor may have told to be higher. -1 is Kafka's "not known".
			e.HighWatermark, e.LastStable = -1, -1
		}
		news := !p.told || p.toldHW != e.HighWatermark || p.toldLogStart != e.LogStart
		if incremental && !reads && !news && e.Code == errNone && e.Diverging == nil {
			continue
		}
		p.told, p.toldHW, p.toldLogStart = e.Code == errNone, e.HighWatermark, e.LogStart
		if f.replica && e.Code == errNone {
			e.part.replica.Told(f.m.ReplicaState.ID, e.HighWatermark)
		}
		var producers []byte
		if e.Producers {
			producers = e.tellProducers(&room, int(out.MaxBytes))
		}
		t := fetchTopic(resp, &p.key)
		if reads { // a follower may begin at the base of the batch that the log's start is inside of: what is read is that whole batch
			out.Reads = append(out.Reads, Read{Topic: len(resp.Topics) - 1, Partition: len(t.Partitions),
				Log: e.part.id, From: max(p.offset, e.LogStart), Limit: e.Limit, MaxBytes: p.maxBytes, Records: !f.replica})
		}
		t.Partitions = append(t.Partitions, b.fetchResponsePartition(resp, p, e))
		if producers != nil {
			t.Partitions[len(t.Partitions)-1].UnknownTags.Set(core.TagProducers, producers)
		}
	}
	b.respondWith(f.q, out)
}

// tellProducers returns what a follower that is to begin at the log's start is told of producers. If there is no room for it any more,
// and it is not the first that is told, the follower is to ask again.
func (e *partDecision) tellProducers(room *int, most int) []byte {
	if *room < most && e.part.replica.Log().Producers().Len()*producerBytes > *room { // to find that out it is not made: thousands may ask
		e.FetchDecision = replica.FetchDecision{Code: errOffsetNotAvailable, HighWatermark: -1, LastStable: -1, LogStart: -1}
		return nil
	}
	producers := e.part.replica.ProducersBelow(e.LogStart)
	*room -= len(producers)
	return producers
}

// producerBytes is what a producer takes in a snapshot, or more.
const producerBytes = 256

// fetchTopic returns the topic entry at the end of resp that p belongs to, adding it if the last one is another.
func fetchTopic(resp *kmsg.FetchResponse, key *fetchKey) *kmsg.FetchResponseTopic {
	if n := len(resp.Topics); n > 0 {
		if t := &resp.Topics[n-1]; t.Topic == key.topic && t.TopicID == key.id {
			return t
		}
	}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = key.topic, key.id
	resp.Topics = append(resp.Topics, t)
	return &resp.Topics[len(resp.Topics)-1]
}

func (b *Broker) fetchResponsePartition(resp *kmsg.FetchResponse, p *fetchPart, e *partDecision) kmsg.FetchResponseTopicPartition {
	r := kmsg.NewFetchResponseTopicPartition()
	r.Partition, r.ErrorCode = p.key.index, e.Code
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = e.HighWatermark, e.LastStable, e.LogStart
	if e.part != nil && e.part.config.Compact && e.Code == errNone { // both are 0 for clients
		if e.Covered > 0 {
			core.SetTag(&r.UnknownTags, core.TagCovered, e.Covered)
		}
		if e.End > 0 {
			core.SetTag(&r.UnknownTags, core.TagLimit, e.End)
		}
	}
	if e.Diverging != nil {
		r.DivergingEpoch.Epoch, r.DivergingEpoch.EndOffset = e.Diverging.Epoch, e.Diverging.Start
	}
	if e.part != nil && (e.Code == errNotLeaderOrFollower || e.Code == errFencedLeaderEpoch) {
		r.CurrentLeader.LeaderID, r.CurrentLeader.LeaderEpoch = e.part.replica.Leader(), e.part.replica.LeaderEpoch()
		b.nameFetchLeader(resp, r.CurrentLeader.LeaderID)
	}
	return r
}

// nameFetchLeader tells a client that came to the wrong broker where the leader is (KIP-951).
func (b *Broker) nameFetchLeader(resp *kmsg.FetchResponse, id int32) {
	if resp.Version < 16 || slices.ContainsFunc(resp.Brokers, func(have kmsg.FetchResponseBroker) bool { return have.NodeID == id }) {
		return
	}
	if node, ok := b.endpoint(id); ok {
		e := kmsg.NewFetchResponseBroker()
		e.NodeID, e.Host, e.Port, e.Rack = node.NodeID, node.Host, node.Port, node.Rack
		resp.Brokers = append(resp.Brokers, e)
	}
}
