package replica

import (
	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// ConsumerFetch decides what a client may read from offset. currentLeaderEpoch and lastFetchedEpoch are -1 if not
// given; committed asks for read_committed. Between the high watermark and the log end there is nothing to read yet,
// and that is no error (museum A29).
func (r *Replica) ConsumerFetch(now core.Time, offset int64, currentLeaderEpoch, lastFetchedEpoch int32, committed bool) FetchDecision {
	if code := r.checkServing(now, currentLeaderEpoch); code != codeNone {
		return r.fetchError(code)
	}
	d := r.decision()
	if d.Diverging = r.diverging(offset, lastFetchedEpoch); d.Diverging != nil {
		return d
	}
	if offset < r.log.Start() || offset > r.log.End() {
		return r.fetchError(codeOffsetOutOfRange)
	}
	d.Unsettled = r.hw < r.epochStart
	d.Limit = d.HighWatermark
	if committed {
		d.Limit = d.LastStable
	}
	d.Bytes = r.log.BytesBetween(offset, d.Limit)
	return d
}

func (r *Replica) decision() FetchDecision {
	return FetchDecision{HighWatermark: r.hw, LastStable: r.LastStable(), LogStart: r.log.Start()}
}

func (r *Replica) fetchError(code int16) FetchDecision {
	if code == codeOffsetOutOfRange {
		d := r.decision()
		d.Code = code
		return d
	}
	return FetchDecision{Code: code, HighWatermark: -1, LastStable: -1, LogStart: -1}
}

// diverging returns where a log departs from this one that has lastFetchedEpoch as its last epoch and ends at offset:
// the largest epoch that both may have, and its end here (KIP-279, KIP-595, museum A02). nil if it does not.
func (r *Replica) diverging(offset int64, lastFetchedEpoch int32) *log.EpochStart {
	if lastFetchedEpoch < 0 {
		return nil
	}
	epoch, end, ok := r.log.EndOffsetFor(lastFetchedEpoch)
	if !ok {
		epoch, end = r.log.Epochs().Latest(), r.log.End()
	}
	if epoch < lastFetchedEpoch || end < offset {
		return &log.EpochStart{Epoch: epoch, Start: end}
	}
	return nil
}

// FollowerFetch decides what a follower may read and takes its progress from the request (rule 6): it holds, as it
// counts, all below the offset from which it asks. A request that was parked is decided again with FollowerRead, which
// takes nothing.
func (r *Replica) FollowerFetch(now core.Time, id int32, brokerEpoch int64, a FetchAsk, out *Out) FetchDecision {
	d := r.FollowerRead(now, id, brokerEpoch, a)
	if d.Code == codeOffsetNotAvailable {
		out.ReadLog = Value{Set: true, Offset: r.log.Start()}
	}
	if d.Code != codeNone || d.Diverging != nil {
		return d // rule 5: nothing is taken from it
	}
	f := r.follower(id)
	if brokerEpoch > f.Epoch {
		f.Epoch, f.end, f.logStart = brokerEpoch, -1, -1
	}
	f.end = max(f.end, a.Offset)
	f.logStart = max(f.logStart, a.LogStart)
	if a.Offset >= r.log.Written() {
		f.caughtUp = now
	} else if a.Offset >= f.endAtLastFetch {
		f.caughtUp = max(f.caughtUp, f.lastFetch)
	}
	f.lastFetch, f.endAtLastFetch = now, r.log.Written()
	r.advance(now, out)
	r.grow(now, f, out)
	r.answerDeletes(now, out)
	return r.FollowerRead(now, id, brokerEpoch, a)
}

// FollowerRead is FollowerFetch for a request that was seen before. Followers read what is written, also before it is
// durable here, and do so whether or not there is a lease: without them nothing commits.
func (r *Replica) FollowerRead(now core.Time, id int32, brokerEpoch int64, a FetchAsk) FetchDecision {
	code := r.checkLeader(a.LeaderEpoch)
	f := r.follower(id)
	switch {
	case code != codeNone:
		return r.fetchError(code)
	case a.LeaderEpoch < 0: // rule 4: everything between replicas carries it
		return r.fetchError(codeFencedLeaderEpoch)
	case f == nil: // the metadata that assigned it may be newer than ours
		return r.fetchError(codeUnknownLeaderEpoch)
	case brokerEpoch < f.Epoch: // from an earlier life of that broker
		return r.fetchError(codeNotLeaderOrFollower)
	}
	d := r.decision()
	if d.Diverging = r.diverging(a.Offset, a.LastFetchedEpoch); d.Diverging != nil {
		return d
	}
	if start, known := r.alignedStart(); a.Offset < start {
		if r.rebuilding { // nobody could tell yet what is known of producers
			return r.fetchError(codeStorage)
		}
		if !known {
			return r.fetchError(codeOffsetNotAvailable)
		}
		d := r.fetchError(codeOffsetOutOfRange)
		d.LogStart, d.Producers = start, true
		return d
	}
	if a.Offset > r.log.Written() {
		return r.fetchError(codeOffsetOutOfRange)
	}
	d.News = r.hw > f.toldHW
	d.Covered = r.Covered()
	d.Limit = r.log.Written()
	d.End = d.Limit
	d.Bytes = r.log.BytesBetween(a.Offset, d.Limit)
	return d
}

// alignedStart returns where a follower begins that has to begin at the log's start: DeleteRecords can put that inside
// a batch, and followers hold whole batches, so it is the base of that batch. Which one that is has to be read from the
// log; until then known is false, and start the log's.
func (r *Replica) alignedStart() (start int64, known bool) {
	if r.aligned.Set && r.alignedAt == r.log.Start() {
		return r.aligned.Offset, true
	}
	return r.log.Start(), r.log.Start() == r.log.End()
}

// ProducersBelow returns a snapshot of what is known of producers by their batches below an offset. A follower whose log begins
// there has no batches to know it from (rule 18, museum D05).
func (r *Replica) ProducersBelow(offset int64) []byte {
	return r.log.Producers().Below(offset).Snapshot()
}

// align takes the batches read from the log's start.
func (r *Replica) align(batches []record.Batch) {
	start := r.log.Start()
	r.alignedAt, r.aligned = start, Value{Set: true, Offset: start}
	for _, b := range batches {
		if b.BaseOffset() < start && b.NextOffset() > start {
			r.aligned.Offset = b.BaseOffset()
		}
	}
}

// Told says that the decision's high watermark was sent to the follower.
func (r *Replica) Told(id int32, highWatermark int64) {
	if f := r.follower(id); f != nil {
		f.toldHW = max(f.toldHW, highWatermark)
	}
}
