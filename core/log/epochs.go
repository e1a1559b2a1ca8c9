package log

import "slices"

// NoEpoch is the epoch of a log that has none.
const NoEpoch int32 = -1

// Epochs is the leader-epoch history of one log: for each epoch in which something may have been written, the offset
// at which it began. Epochs and starts ascend; of two epochs only the later can hold an offset.
type Epochs struct{ list []EpochStart }

// NewEpochs returns a history of its own made from list, which ascends.
func NewEpochs(list []EpochStart) Epochs { return Epochs{list: slices.Clone(list)} }

// List returns a copy of the history.
func (e *Epochs) List() []EpochStart { return append([]EpochStart{}, e.list...) }

// Latest returns the largest epoch, or NoEpoch.
func (e *Epochs) Latest() int32 {
	if len(e.list) == 0 {
		return NoEpoch
	}
	return e.list[len(e.list)-1].Epoch
}

// Add records that epoch begins at start and says whether that was news. An epoch not above the latest is none.
// Earlier entries at or above start are dropped: their epochs wrote nothing that is still there, and two epochs that
// begin at one offset could not be told apart by their ends.
func (e *Epochs) Add(epoch int32, start int64) bool {
	if epoch <= e.Latest() {
		return false
	}
	e.TruncateTail(start)
	e.list = append(e.list, EpochStart{Epoch: epoch, Start: start})
	return true
}

// EndOffsetFor returns the largest epoch not above the asked one and the offset at which it ended, which is where the
// next one began or, for the latest, logEnd (KIP-279). An epoch below all that is known ended where the first known
// one began, as Kafka says. ok is false if the asked epoch is above all that is known, or there is none.
func (e *Epochs) EndOffsetFor(epoch int32, logEnd int64) (found int32, end int64, ok bool) {
	if epoch < 0 || epoch > e.Latest() {
		return NoEpoch, -1, false
	}
	i := e.after(epoch) // the first entry above the asked epoch
	if i == 0 {
		return epoch, e.list[0].Start, true
	}
	if i == len(e.list) {
		return e.list[i-1].Epoch, logEnd, true
	}
	return e.list[i-1].Epoch, e.list[i].Start, true
}

// after returns the index of the first entry whose epoch is above the given one.
func (e *Epochs) after(epoch int32) int {
	i, _ := slices.BinarySearchFunc(e.list, epoch, func(s EpochStart, epoch int32) int {
		if s.Epoch <= epoch {
			return -1
		}
		return 1
	})
	return i
}

// At returns the epoch in which the record at offset was written, or NoEpoch if the history does not reach back that far.
func (e *Epochs) At(offset int64) int32 {
	for i := len(e.list) - 1; i >= 0; i-- {
		if e.list[i].Start <= offset {
			return e.list[i].Epoch
		}
	}
	return NoEpoch
}

// TruncateTail drops every entry that begins at or above end, and says whether there was one. It must be called even
// where the log itself already ends there: an entry at the log end is an epoch that wrote nothing, and if it stayed
// it could conflict with the leader's history for ever (museum A20).
func (e *Epochs) TruncateTail(end int64) bool {
	n := len(e.list)
	for n > 0 && e.list[n-1].Start >= end {
		n--
	}
	changed := n < len(e.list)
	e.list = e.list[:n]
	return changed
}

// TruncateHead forgets epochs that ended below start, and says whether there was one. An entry's start is never moved
// up to the log's: that would tell a replica which departed below it that it departs here, and it would keep what it
// wrote itself. As it is, whoever asks for a forgotten epoch hears of an end below the log's start, and starts over.
func (e *Epochs) TruncateHead(start int64) bool {
	n := 0
	for n+1 < len(e.list) && e.list[n+1].Start < start {
		n++
	}
	e.list = append(e.list[:0], e.list[n:]...)
	return n > 0
}

// Clear forgets everything.
func (e *Epochs) Clear() { e.list = e.list[:0] }
