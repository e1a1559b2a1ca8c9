package segment

import (
	"fmt"
	"strconv"
	"strings"

	"lockstep/disk"
)

// Extensions of the files in a log's directory. Their names are Kafka's: an offset in 20 digits.
const (
	logExt      = ".log"      // batches
	indexExt    = ".index"    // entries
	snapshotExt = ".snapshot" // producer table
)

// segment is one file of batches and what is known of it.
type segment struct {
	log  *Log
	base int64 // offset that its name says; its batches are not below

	// Guarded by log.mu; size, maxTimestamp, pending and indexed are changed with log.op held, too.
	size         int64  // bytes of whole batches
	maxTimestamp int64  // of its batches; valid if checked
	checked      bool   // its end was looked at, or it was written or scanned by this process
	removed      bool   // its files are deleted or about to be
	badIndex     bool   // a lookup found the index broken, or to lack something
	rebuilt      bool   // the index was rebuilt, or that was tried, once
	noRun        int64  // batches that begin below this position, or at it, are not two in a row without records
	unsynced     bool   // is in log.unsynced
	swap         string // the name of its data file while compaction has not yet put it into place
	indexed      int    // entries in the index file; -1 if not known yet
	pending      []entry

	// Used with log.op held.
	sinceEntry     int64 // bytes appended since the last index entry
	firstTimestamp int64 // latest timestamp of the first batch; valid if hasFirst
	hasFirst       bool

	data, index handle
}

func (l *Log) newSegment(base int64) *segment {
	return &segment{log: l, base: base, maxTimestamp: noTimestamp}
}

// name returns the name of one of the segment's files.
func (seg *segment) name(ext string) string {
	seg.log.mu.Lock()
	defer seg.log.mu.Unlock()
	if seg.swap != "" && ext == logExt {
		return seg.log.dir + "/" + seg.swap
	}
	return seg.log.dir + "/" + offsetName(seg.base) + ext
}

func offsetName(off int64) string { return fmt.Sprintf("%020d", off) }

// parseName is the reverse of offsetName plus an extension.
func parseName(name string) (off int64, ext string, ok bool) {
	digits, ext, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	off, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || off < 0 || offsetName(off) != digits {
		return 0, "", false
	}
	return off, "." + ext, true
}

func (seg *segment) isRemoved() bool {
	seg.log.mu.Lock()
	defer seg.log.mu.Unlock()
	return seg.removed
}

// isCut says that the segment is not any more what it was when it had a size: it
// was truncated or removed. A read that fails meanwhile has not met damage.
func (seg *segment) isCut(size int64) bool {
	seg.log.mu.Lock()
	defer seg.log.mu.Unlock()
	return seg.removed || seg.size < size
}

// add counts a batch that is written at the segment's end, and adds to the index what it asks for. l.mu is held.
func (seg *segment) add(base int64, size int, maxTimestamp int64, interval int64) {
	if seg.sinceEntry >= interval && seg.size > 0 && len(seg.pending) < maxPending {
		seg.pending = append(seg.pending, entry{rel: uint32(base - seg.base), pos: uint32(seg.size), maxTimestamp: seg.maxTimestamp})
		seg.sinceEntry = 0
	}
	seg.sinceEntry += int64(size)
	seg.size += int64(size)
	seg.maxTimestamp = max(seg.maxTimestamp, maxTimestamp)
}

// latestIn returns the latest timestamp of a batch's records. Compaction leaves batches without any, whose header still
// says what it was.
func latestIn(records int32, maxTimestamp int64) int64 {
	if records == 0 {
		return noTimestamp
	}
	return maxTimestamp
}

// acquire opens the segment's data file, or finds it open, until release. ErrOffsetOutOfRange if it was removed meanwhile.
func (l *Log) acquire(seg *segment) (disk.File, error) {
	f, err := l.store.files.acquire(&seg.data, seg, logExt, 0)
	if seg.isRemoved() {
		if err == nil {
			l.release(seg)
		}
		return nil, fmt.Errorf("segment %d was deleted: %w", seg.base, ErrOffsetOutOfRange)
	}
	return f, err
}

func (l *Log) release(seg *segment) {
	files := l.store.files
	files.release(&seg.data)
	if seg.isRemoved() {
		files.drop(&seg.data) // it may have been opened after it was dropped
	}
}

// spot is a place where a batch begins, or the end of the last one.
type spot struct {
	off int64
	seg *segment
	pos int64
}

// spots remembers the latest few places, so that who reads on from where it stopped need not search.
type spots struct {
	ring [8]spot
	next int
}

func (s *spots) add(at spot) {
	s.ring[s.next] = at
	s.next = (s.next + 1) % len(s.ring)
}

// find returns the position at which the batch at off begins in a segment, if it is remembered.
func (s *spots) find(seg *segment, off int64) (pos int64, ok bool) {
	for i := range s.ring {
		if at := &s.ring[i]; at.off == off && at.seg == seg {
			return at.pos, true
		}
	}
	return 0, false
}
