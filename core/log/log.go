package log

import (
	"fmt"

	"lockstep/core"
	"lockstep/core/record"
)

// Log is what one open log holds, without its bytes:
//
//	Start <= Durable <= Written <= End
//
// Start is the first offset, End the log end offset: the one that the next record gets (rule 1). Between Written and
// End are appends on their way to the file, between Durable and Written those that a power cut would take.
type Log struct {
	start, written, durable, end int64

	epochs    Epochs
	producers *Producers
	sizes     sizes
}

// New returns the log that recovery found. It takes st.Producers over.
func New(st State) *Log {
	l := &Log{start: st.Start, written: st.End, durable: st.End, end: st.End, epochs: NewEpochs(st.Epochs), producers: st.Producers}
	if l.producers == nil {
		l.producers = NewProducers(0)
	}
	l.sizes.begin(st.End)
	return l
}

// Start returns the first offset.
func (l *Log) Start() int64 { return l.start }

// End returns the log end offset, appends on their way included.
func (l *Log) End() int64 { return l.end }

// Written returns the offset up to which the file holds the log.
func (l *Log) Written() int64 { return l.written }

// Durable returns the offset up to which a power cut takes nothing.
func (l *Log) Durable() int64 { return l.durable }

// Epochs returns the leader-epoch history.
func (l *Log) Epochs() *Epochs { return &l.epochs }

// Producers returns the producer table as of End.
func (l *Log) Producers() *Producers { return l.producers }

// EndOffsetFor is Epochs.EndOffsetFor with the log's own end.
func (l *Log) EndOffsetFor(epoch int32) (found int32, end int64, ok bool) {
	return l.epochs.EndOffsetFor(epoch, l.end)
}

// Append takes a batch whose offsets and epoch are assigned, at End or, where compaction left a gap, above. It says
// whether the epoch history grew, which must be stored before the batch counts as durable. An epoch that begins with a batch
// above a gap may have begun anywhere in it, and is taken to begin with the gap: a replica that departed there from what is
// committed is then told so, and at worst gives up what compaction would take from it, too.
func (l *Log) Append(b record.Batch, seen core.WallMillis) (newEpoch bool) {
	h := b.Header()
	if h.BaseOffset < l.end {
		panic(fmt.Sprintf("log: append at %d to a log that ends at %d", h.BaseOffset, l.end))
	}
	newEpoch = l.epochs.Add(h.LeaderEpoch, l.end)
	l.producers.Append(&h, seen)
	l.end = h.NextOffset()
	l.sizes.add(l.end, h.Size())
	return newEpoch
}

// SetWritten says that the file holds the log up to end. It never goes back, nor beyond End.
func (l *Log) SetWritten(end int64) { l.written = max(l.written, min(end, l.end)) }

// SetDurable says that the log is durable up to end. It never goes back, nor beyond End.
func (l *Log) SetDurable(end int64) {
	l.durable = max(l.durable, min(end, l.end))
	l.written = max(l.written, l.durable)
}

// Truncate cuts the log to end at end, with its epoch history (also where the end does not move, museum A20) and its
// producer table (museum D04). exact is false if the table could not follow: it still knows of batches beyond the end then, and is
// right again only after ForgetProducers, when the log has been replayed into it. That is not done here: a deletion may be on its way,
// and what it deletes is not there to be replayed. epochs says whether the history changed.
func (l *Log) Truncate(end int64) (exact, epochs bool) {
	l.end = min(l.end, end)
	l.start = min(l.start, l.end)
	l.written, l.durable = min(l.written, l.end), min(l.durable, l.end)
	epochs = l.epochs.TruncateTail(l.end)
	l.sizes.truncate(l.end)
	exact = l.producers.Truncate(l.end)
	if !exact {
		l.producers.Truncate(l.producers.ExactFrom())
	}
	return exact, epochs
}

// SetStart makes start the first offset and says whether the epoch history changed. Producers stay until they expire,
// as in Kafka: the deleted batches may still be sent again.
func (l *Log) SetStart(start int64) (epochs bool) {
	if start <= l.start || start > l.end {
		return false
	}
	l.start = start
	return l.epochs.TruncateHead(start)
}

// ForgetProducers forgets what the log's batches say of producers, so that they can be replayed. What deleted ones said stays: no
// batch says it any more. It is for a log of which nothing is deleted until that is done.
func (l *Log) ForgetProducers() { l.producers = l.producers.Below(l.start) }

// Reset empties the log, which begins and ends at offset then; producers is what the records below it say of producers, nil for nothing.
// It is taken over.
func (l *Log) Reset(offset int64, producers *Producers) {
	l.start, l.written, l.durable, l.end = offset, offset, offset, offset
	l.epochs.Clear()
	most := l.producers.max
	if l.producers = producers; producers == nil {
		l.producers = NewProducers(0)
	}
	l.producers.SetMax(most)
	l.producers.Committed(offset)
	l.sizes.begin(offset)
}

// FirstUnstable returns the first offset that is not decided below limit: of a transaction, or limit itself.
func (l *Log) FirstUnstable(limit int64) int64 {
	if first := l.producers.FirstUnstable(); first >= 0 {
		return min(first, limit)
	}
	return limit
}

// BytesBetween returns the bytes of the batches from one offset to another: exactly if both are among the ends of
// the last appends, else a lower bound, and at least 1 if there is any. Before what was appended since the log was
// opened nothing is known, and there counts as plenty.
func (l *Log) BytesBetween(from, to int64) int64 { return l.sizes.between(from, min(to, l.end)) }
