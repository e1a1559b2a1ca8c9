package broker

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/core/replica"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetcher pulls from one leader for all partitions that follow it: one way to move records, the same Fetch as a
// client's, with a replica id. A partition asks again as soon as what it got is durable, for by what it asks the leader
// learns how far it is, and a client waits for that. Meanwhile the call of the others may be parked at the leader; so
// there are several calls, and each active partition comes to have its own. When there are no more calls to be had, the
// leader is nudged to answer all those that it has parked, and the next one is for all partitions again.
type fetcher struct {
	leader  int32
	calls   int // under way
	wants   []*partition
	soon    *timer // pull, once this instant's inputs are all taken
	paused  *timer // after a failure
	nudged  bool   // a nudge is under way
	merging *timer // after a nudge: calls are coming back, the next one waits for them
}

const (
	// FetcherCalls is how many calls to one leader are under way at most. See Call for what this asks of the host.
	FetcherCalls = 4
	// fetcherRetry is the pause after a call, or a partition, that failed.
	fetcherRetry = 50 * time.Millisecond
	// mergePatience is how long the next call waits for those that a nudge is to bring back: some may have much to carry.
	mergePatience = 20 * time.Millisecond
)

// wantFetch notes that p has something to ask of its leader, and asks soon: with what else turns up at this instant.
func (b *Broker) wantFetch(p *partition) {
	leader := p.replica.Leader()
	f := b.fetchers[leader]
	if f == nil {
		f = &fetcher{leader: leader}
		b.fetchers[leader] = f
	}
	if p.asking == f || p.gone {
		return
	}
	if p.wants != f { // else it is in that list already; the list of an earlier leader's fetcher passes it over
		p.wants = f
		f.wants = append(f.wants, p)
	}
	b.pullSoon(f)
}

// pullSoon pulls once this instant's inputs are all taken.
func (b *Broker) pullSoon(f *fetcher) {
	if f.soon == nil {
		f.soon = b.timers.set(b.now+1, func() {
			f.soon = nil
			b.pull(f)
		})
	}
}

// nudge asks the leader to answer what it has parked of this broker's, by a fetch of nothing.
func (b *Broker) nudge(f *fetcher) {
	if f.nudged || f.merging != nil {
		return
	}
	f.nudged = true
	f.merging = b.timers.set(b.now.Add(mergePatience), func() {
		f.merging = nil
		b.pull(f)
	})
	b.out.Add(Call{Peer: f.leader, Msg: b.fetchRequest(nil), Token: b.ask(func(Input) { f.nudged = false })})
}

// pull sends one call for all partitions that want something and have no question open.
func (b *Broker) pull(f *fetcher) {
	switch {
	case f.paused != nil || len(f.wants) == 0 || b.membership.epoch < 0:
		return
	case f.calls >= FetcherCalls:
		b.nudge(f)
		return
	case f.merging != nil && f.calls > 0:
		return
	}
	b.timers.cancel(f.merging)
	f.merging = nil
	wants := f.wants
	f.wants = nil
	asks := make([]fetchAsk, 0, len(wants))
	for _, p := range wants {
		if p.wants != f {
			continue
		}
		p.wants = nil
		if p.gone || p.asking == f || p.replica.Leader() != f.leader {
			continue
		}
		if a, ok := p.replica.WantFetch(b.now); ok {
			p.asking = f
			asks = append(asks, fetchAsk{p, a})
		}
	}
	if len(asks) == 0 {
		return
	}
	slices.SortFunc(asks, func(x, y fetchAsk) int { return x.part.id.Compare(y.part.id) })
	f.calls++
	b.out.Add(Call{Peer: f.leader, Msg: b.fetchRequest(asks), Token: b.ask(func(in Input) {
		f.calls--
		b.onFetched(f, asks, in.(Answer))
	})})
}

// fetchAsk is what was asked for one partition.
type fetchAsk struct {
	part *partition
	ask  replica.FetchAsk
}

func (b *Broker) fetchRequest(asks []fetchAsk) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version = 17
	r.ReplicaState.ID, r.ReplicaState.Epoch = b.cfg.NodeID, b.membership.epoch
	r.MaxWaitMillis = int32(b.settings.ReplicaFetchWaitMax.Milliseconds())
	r.MinBytes, r.MaxBytes = b.settings.ReplicaFetchMinBytes, b.settings.ReplicaFetchRespBytes
	r.SessionEpoch = -1
	for i := range asks {
		a := &asks[i]
		if n := len(r.Topics); n == 0 || r.Topics[n-1].TopicID != a.part.id.Topic {
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = a.part.id.Topic
			r.Topics = append(r.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.LogStartOffset = a.part.id.Index, a.ask.Offset, a.ask.LogStart
		p.CurrentLeaderEpoch, p.LastFetchedEpoch = a.ask.LeaderEpoch, a.ask.LastFetchedEpoch
		p.PartitionMaxBytes = b.settings.ReplicaFetchMaxBytes
		t := &r.Topics[len(r.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return r
}

// onFetched hands each partition its part of the answer. What the answer leaves out is asked again.
func (b *Broker) onFetched(f *fetcher, asks []fetchAsk, a Answer) {
	for i := range asks {
		if p := asks[i].part; p.asking == f { // else it has turned to another leader meanwhile
			p.asking = nil
		}
	}
	if f.calls == 0 {
		b.timers.cancel(f.merging)
		f.merging = nil
	}
	failed := a.Err != nil
	if resp, ok := a.Msg.(*kmsg.FetchResponse); ok && a.Err == nil {
		failed = resp.ErrorCode != errNone || b.takeFetched(asks, resp, a.Batches)
	}
	if failed && f.paused == nil {
		f.paused = b.timers.set(b.now.Add(fetcherRetry), func() {
			f.paused = nil
			b.pull(f)
		})
	}
	for i := range asks {
		if p := asks[i].part; !p.gone && p.replica.Role() == replica.Follower {
			b.wantFetch(p)
		}
	}
	if len(f.wants) > 0 { // they may have waited for the calls to come back, and none that came back asks again
		b.pullSoon(f)
	}
}

// takeFetched gives the partitions of a response to their replicas, and reports whether any had an error.
func (b *Broker) takeFetched(asks []fetchAsk, resp *kmsg.FetchResponse, batches [][]record.Batch) (failed bool) {
	next, at := 0, 0
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			r := &t.Partitions[j]
			id := core.Partition{Topic: t.TopicID, Index: r.Partition}
			for at < len(asks) && asks[at].part.id != id {
				at++
			}
			if at == len(asks) {
				return true // not in the order asked
			}
			ans := replica.FetchAnswer{Code: r.ErrorCode, HighWatermark: r.HighWatermark, LogStart: r.LogStartOffset,
				Covered: core.Tag(&r.UnknownTags, core.TagCovered), Limit: core.Tag(&r.UnknownTags, core.TagLimit), Producers: core.TagBytes(&r.UnknownTags, core.TagProducers)}
			if next < len(batches) {
				ans.Batches = batches[next]
			}
			next++
			if r.DivergingEpoch.Epoch >= 0 {
				ans.Diverging = &log.EpochStart{Epoch: r.DivergingEpoch.Epoch, Start: r.DivergingEpoch.EndOffset}
			}
			failed = failed || ans.Code != errNone && ans.Code != errCorruptMessage // whose replica waits; the others need not
			if p := asks[at].part; !p.gone {
				p.replica.Fetched(b.now, b.wall, asks[at].ask, ans, &b.rout)
				b.carryOut(p)
			}
		}
	}
	return failed
}
