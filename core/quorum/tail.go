package quorum

import (
	"fmt"

	"lockstep/core/log"
	"lockstep/core/record"
)

// unknownEpoch stands for the epoch of a record that is no longer there.
const unknownEpoch int32 = -1

// tail is the machine's view of the metadata log: where it begins and ends, the epochs of what lies between,
// and the batches themselves from the first that is not delivered yet.
type tail struct {
	base    SnapshotID     // first offset, and the epoch of the record just below; 0 below the very first
	end     int64          // log end offset, of what was appended, durable or not
	epochs  log.Epochs     // only epochs that wrote something at base.Offset or above
	applied int64          // all below was delivered, or is in the snapshot that the image began with
	pending []record.Batch // whole batches from applied to end
}

// lastEpoch returns the epoch of the last record.
func (l *tail) lastEpoch() int32 {
	if e := l.epochs.Latest(); e != log.NoEpoch {
		return e
	}
	return l.base.Epoch
}

// epochBelow returns the epoch of the record just below offset, or unknownEpoch.
func (l *tail) epochBelow(offset int64) int32 {
	switch {
	case offset == l.base.Offset:
		return l.base.Epoch
	case offset < l.base.Offset || offset > l.end:
		return unknownEpoch
	}
	return l.epochs.At(offset - 1)
}

// holds says whether the log has the last record that the snapshot contains, and so all before it as well.
func (l *tail) holds(id SnapshotID) bool { return l.epochBelow(id.Offset) == id.Epoch }

// endOf returns the largest epoch not above the asked one that the log knows, and the offset where it ends. ok is
// false if the log does not reach back that far, so that nothing can be said of what lies below.
func (l *tail) endOf(epoch int32) (found int32, end int64, ok bool) {
	found, end, ok = l.epochs.EndOffsetFor(min(epoch, l.epochs.Latest()), l.end)
	if ok && end > l.base.Offset {
		return found, end, true
	}
	return l.base.Epoch, l.base.Offset, l.base.Epoch != unknownEpoch && epoch >= l.base.Epoch
}

// fits says whether batches can be appended as they are: they begin at the log end (a late answer
// does not: museum B12), follow each other, and their epochs neither fall nor exceed term (museum A24).
func (l *tail) fits(batches []record.Batch, term int32) error {
	end, epoch := l.end, l.lastEpoch()
	for _, b := range batches {
		if b.BaseOffset() != end {
			return fmt.Errorf("batch begins at offset %d, log ends at %d", b.BaseOffset(), end)
		}
		if b.LeaderEpoch() < epoch || b.LeaderEpoch() > term {
			return fmt.Errorf("batch at offset %d is of epoch %d, expected one in [%d, %d]", end, b.LeaderEpoch(), epoch, term)
		}
		end, epoch = b.NextOffset(), b.LeaderEpoch()
	}
	return nil
}

// append takes batches that fit.
func (l *tail) append(batches []record.Batch) {
	for _, b := range batches {
		l.epochs.Add(b.LeaderEpoch(), b.BaseOffset())
		l.end = b.NextOffset()
		if l.end > l.applied {
			l.pending = append(l.pending, b)
		}
	}
}

// truncate makes the log end at to, which lies at or above applied.
func (l *tail) truncate(to int64) {
	l.end = to
	l.epochs.TruncateTail(to)
	n := len(l.pending)
	for n > 0 && l.pending[n-1].NextOffset() > to {
		n--
	}
	clear(l.pending[n:])
	l.pending = l.pending[:n]
}

// take returns the pending batches that end at or below hw, which are committed, and counts them as applied.
func (l *tail) take(hw int64) []record.Batch {
	n := 0
	for n < len(l.pending) && l.pending[n].NextOffset() <= hw {
		n++
	}
	taken := l.pending[:n:n]
	l.pending = l.pending[n:]
	if len(l.pending) == 0 {
		l.pending = nil // do not hold on to what was delivered
	}
	l.applied = max(l.applied, hw)
	return taken
}

// reset empties the log, which then begins and ends at the end of a snapshot.
func (l *tail) reset(id SnapshotID) {
	*l = tail{base: id, end: id.Offset, applied: id.Offset}
}

// dropPrefix makes start the first offset.
func (l *tail) dropPrefix(start int64) {
	below := l.epochBelow(start)
	l.base = SnapshotID{Offset: start, Epoch: below}
	l.epochs.TruncateHead(start)
}
