package segment

import (
	"io"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
)

// ScanFile calls fn for every batch of a segment's file, with its position, until fn fails. Every CRC is checked, and damage is a
// CorruptError that names the file as name. Room prepared at the end, which is zeros, ends it without an error. The batch is valid
// during the call.
func ScanFile(f io.ReaderAt, name string, size int64, fn func(pos int64, b record.Batch) error) error {
	s := newScanner(f, name, 0, size)
	defer s.close()
	for !s.done() {
		b, err := s.batch()
		if err != nil {
			if err == errZeros {
				return s.onlyZeros()
			}
			return err
		}
		if err := fn(s.pos, b); err != nil {
			return err
		}
		s.step(b.Size(), b.NextOffset())
	}
	return nil
}

// onlyZeros checks that nothing else is left.
func (s *scanner) onlyZeros() error {
	for !s.done() {
		n := int(min(s.end-s.pos, crcChunk))
		b, err := s.window(n, n)
		if err != nil {
			return err
		}
		if !allZero(b) {
			return corrupt(s.name, s.pos, "neither a batch nor zeros")
		}
		s.pos += int64(n)
	}
	return nil
}

// IndexEntry is one entry of an index file.
type IndexEntry struct {
	Offset       int64 // base offset of a batch
	Pos          int64 // its position in the segment
	MaxTimestamp int64 // latest of all batches before it, in milliseconds
}

// ReadIndex decodes an index file of the segment with a base offset. It returns the entries before the first one that is broken, which
// is ErrCorrupt.
func ReadIndex(b []byte, base int64) ([]IndexEntry, error) {
	var list []IndexEntry
	for at := 0; at < len(b); at += entrySize {
		if len(b)-at < entrySize {
			return list, corrupt(offsetName(base)+indexExt, int64(at), "%d bytes are less than an entry", len(b)-at)
		}
		e, ok := decodeEntry(b[at:], base)
		if !ok {
			return list, corrupt(offsetName(base)+indexExt, int64(at), "CRC of the entry is wrong")
		}
		x := IndexEntry{base + int64(e.rel), int64(e.pos), e.maxTimestamp}
		if n := len(list); n > 0 && (x.Offset <= list[n-1].Offset || x.Pos <= list[n-1].Pos || x.MaxTimestamp < list[n-1].MaxTimestamp) {
			return list, corrupt(offsetName(base)+indexExt, int64(at), "entries do not ascend")
		}
		list = append(list, x)
	}
	return list, nil
}

// LogFacts is what the checkpoints file knows of one log.
type LogFacts struct {
	Partition     core.Partition
	RecoveryPoint int64 // offset, -1 if there is none
	Start         int64
	HighWatermark int64
	Epochs        []log.EpochStart
	Compacted     int64 // compacted below this offset
}

// ReadCheckpoints decodes a checkpoints file, in the order of the logs. It returns what comes before damage, which is ErrCorrupt.
func ReadCheckpoints(b []byte) ([]LogFacts, error) {
	c := parseJournal(b)
	j := journal{facts: c.facts}
	var list []LogFacts
	for _, id := range j.ids() {
		f := c.facts[id]
		list = append(list, LogFacts{id, f.recovery.off, f.start, f.highWatermark, f.epochs, f.cleaned})
	}
	return list, c.damage
}
