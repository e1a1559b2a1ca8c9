package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/disk"
)

// journal holds the facts of all logs of a Store in one file, so that ten
// thousand logs cost one write and one sync and not ten thousand. Changes are
// noted in memory, written as one frame, and synced where something waits for
// that; when the file has grown it is replaced by a new one that holds what is known.
//
// A frame is: length of the rest after the CRC (4 bytes), CRC-32C of the length and
// what follows the CRC (4), sequence number of the frame (8), position up to which
// the file was synced when the frame was written (8), all big endian; and entries.
type journal struct {
	s *Store

	syncMu sync.Mutex // held while syncing or replacing; taken before mu

	mu       sync.Mutex
	facts    map[core.Partition]*facts
	pending  entryWriter // noted, not written
	file     disk.File
	end      int64  // where the next frame goes
	room     int64  // zeros are written up to here, so that a full disk does not stop the journal at once
	durable  int64  // synced up to here
	seq      uint64 // of the next frame
	noted    uint64 // counts notes
	written  uint64 // of them are written
	synced   uint64 // of them are durable
	must     uint64 // note number of the last one that a round must make durable
	replaced int64  // size of the file when it was last replaced
	// replacing: a new file is being written, so that what is noted meanwhile waits for it.
	replacing bool
}

const (
	journalName      = "checkpoints"
	journalMagic     = "LKCP0001"
	frameHead        = 8
	frameMin         = 16
	journalChunk     = 64 << 10
	journalGrowth    = 1 << 20 // replaced by Checkpoint when it has grown by this and to twice its size
	journalGrowthMax = 64 << 20
)

// change notes what edit says of a log. must: a round of sync must make it durable before it reports anything more.
func (j *journal) change(id core.Partition, must bool, edit func(f *facts, w *entryWriter)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[id]
	if f == nil {
		f = newFacts()
		j.facts[id] = f
	}
	edit(f, &j.pending)
	j.noted++
	if must {
		j.must = j.noted
	}
}

// note is change for a recovery point.
func (j *journal) note(id core.Partition, p recoveryPoint) {
	j.change(id, false, func(f *facts, w *entryWriter) {
		f.recovery = p
		w.recovery(id, p)
	})
}

// setEpochs notes a leader-epoch history, which it keeps.
func (j *journal) setEpochs(id core.Partition, epochs []log.EpochStart) {
	j.change(id, true, func(f *facts, w *entryWriter) {
		f.epochs = epochs
		w.epochs(id, epochs)
	})
}

// setStart notes a first offset.
func (j *journal) setStart(id core.Partition, start int64) {
	j.change(id, true, func(f *facts, w *entryWriter) {
		f.start = start
		w.offset(entryStart, id, start)
	})
}

// setCleaned notes up to where a log is compacted. It need not be durable: what is lost of it is compacted again.
func (j *journal) setCleaned(id core.Partition, off int64) {
	j.change(id, false, func(f *facts, w *entryWriter) {
		f.cleaned = off
		w.offset(entryCleaned, id, off)
	})
}

// limitCleaned is setCleaned where the log is cut to end at end: what comes there next is not compacted. It goes with
// what is noted of the cut, so that none of it is durable without this.
func (j *journal) limitCleaned(id core.Partition, end int64) {
	if j.get(id).cleaned > end {
		j.setCleaned(id, end)
	}
}

// forget drops what is known of a deleted log.
func (j *journal) forget(id core.Partition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.facts, id)
	j.pending.begin(entryForget, id)
	j.noted++
	j.must = j.noted
}

// get returns a copy of what is known of a log.
func (j *journal) get(id core.Partition) facts {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.facts[id]; f != nil {
		return *f
	}
	return *newFacts()
}

// mustSync says that something is noted that a round has to make durable.
func (j *journal) mustSync() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.must > j.synced
}

// write writes what is noted, not synced. If it fails everything stays noted.
func (j *journal) write() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writeLocked()
}

func (j *journal) writeLocked() error {
	if j.replacing {
		return nil
	}
	if len(j.pending.buf) == 0 {
		j.written = j.noted
		return nil
	}
	frame := encodeFrame(j.seq, j.durable, j.pending.buf)
	j.extend(int64(len(frame)))
	if err := writeFull(j.file, frame, j.end); err != nil {
		return fmt.Errorf("write %s: %w", journalName, err) // the next frame goes to the same place
	}
	j.end += int64(len(frame))
	j.seq++
	j.pending.buf = j.pending.buf[:0]
	if cap(j.pending.buf) > 1<<20 {
		j.pending.buf = nil
	}
	j.written = j.noted
	return nil
}

// extend writes zeros ahead where n more bytes would not fit into them. That it may fail is no harm.
func (j *journal) extend(n int64) {
	if j.end+n <= j.room {
		return
	}
	from := max(j.room, j.end+n)
	if writeFull(j.file, zeros[:journalChunk], from) == nil {
		j.room = from + journalChunk
	}
}

// sync makes everything noted so far durable. Those that come while another syncs share the next sync.
func (j *journal) sync() error {
	j.mu.Lock()
	target := j.noted
	j.mu.Unlock()
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	if j.synced >= target {
		j.mu.Unlock()
		return j.s.usable()
	}
	err := j.writeLocked()
	file, end, upTo := j.file, j.end, j.written
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.s.usable(); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return j.s.syncFailed(err)
	}
	j.setSynced(file, end, upTo)
	return nil
}

// setSynced says that a sync covered the file up to end, and with it the notes up to upTo.
func (j *journal) setSynced(file disk.File, end int64, upTo uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == file {
		j.durable = max(j.durable, end)
	}
	j.synced = max(j.synced, upTo)
}

// beforeSyncAll writes what is noted; afterwards is to be called when a SyncAll has covered it.
func (j *journal) beforeSyncAll() (afterwards func(), err error) {
	j.syncMu.Lock() // a file that is being replaced is in place before
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writeLocked(); err != nil {
		return nil, err
	}
	file, end, upTo := j.file, j.end, j.written
	return func() { j.setSynced(file, end, upTo) }, nil
}

// grown says that the file should be replaced.
func (j *journal) grown(by int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end > j.replaced+max(by, j.replaced)
}

// replace durably replaces the file by one that holds what is known.
func (j *journal) replace() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	content := append([]byte(journalMagic), encodeFrame(j.seq, 0, j.snapshot())...)
	earlier, noted := j.pending.buf, j.noted
	j.pending.buf, j.replacing = nil, true
	j.mu.Unlock()
	file, err := j.s.replaceOpen(journalName, content)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.replacing = false
	if err != nil {
		j.pending.buf = append(earlier, j.pending.buf...)
		return fmt.Errorf("replace %s: %w", journalName, err)
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file = file
	j.end = int64(len(content))
	j.room, j.durable, j.replaced = j.end, j.end, j.end
	j.seq++
	j.written, j.synced = noted, noted
	return nil
}

// snapshot returns entries for all that is known, in the order of the logs.
func (j *journal) snapshot() []byte {
	var w entryWriter
	for _, id := range j.ids() {
		w.all(id, j.facts[id])
	}
	return w.buf
}

// ids returns the logs of which something is known, in ascending order.
func (j *journal) ids() []core.Partition {
	ids := make([]core.Partition, 0, len(j.facts))
	for id := range j.facts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, core.Partition.Compare)
	return ids
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

func encodeFrame(seq uint64, durable int64, entries []byte) []byte {
	b := make([]byte, frameHead+frameMin, frameHead+frameMin+len(entries))
	binary.BigEndian.PutUint32(b, uint32(frameMin+len(entries)))
	binary.BigEndian.PutUint64(b[frameHead:], seq)
	binary.BigEndian.PutUint64(b[frameHead+8:], uint64(durable))
	b = append(b, entries...)
	binary.BigEndian.PutUint32(b[4:], frameCRC(b))
	return b
}

func frameCRC(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[frameHead:])
}

// decodeFrame returns the frame at the start of b, or ok false.
func decodeFrame(b []byte) (seq uint64, durable int64, entries []byte, size int, ok bool) {
	if len(b) < frameHead+frameMin {
		return 0, 0, nil, 0, false
	}
	n := binary.BigEndian.Uint32(b)
	if n < frameMin || uint64(n) > uint64(len(b)-frameHead) {
		return 0, 0, nil, 0, false
	}
	size = frameHead + int(n)
	if binary.BigEndian.Uint32(b[4:]) != frameCRC(b[:size]) {
		return 0, 0, nil, 0, false
	}
	seq = binary.BigEndian.Uint64(b[frameHead:])
	durable = int64(binary.BigEndian.Uint64(b[frameHead+8:]))
	return seq, durable, b[frameHead+frameMin : size], size, true
}

// journalContent is what a journal's bytes say.
type journalContent struct {
	facts map[core.Partition]*facts
	end   int64  // where its valid frames end
	seq   uint64 // of the frame after them
	// damage is set if what does not make sense was synced once. Without, an invalid end is what a crash leaves.
	damage error
}

// parseJournal reads a journal as far as it is valid. What is after that is a
// torn end, unless a later frame says that the place was synced.
func parseJournal(b []byte) journalContent {
	c := journalContent{facts: map[core.Partition]*facts{}}
	if len(b) < len(journalMagic) || string(b[:len(journalMagic)]) != journalMagic {
		c.damage = corrupt(journalName, 0, "no magic in %d bytes", len(b))
		return c
	}
	at := len(journalMagic)
	for first := true; ; first = false {
		seq, _, entries, size, ok := decodeFrame(b[at:])
		if ok && !first && seq != c.seq {
			ok = false
		}
		if ok {
			r := entryReader{buf: entries}
			ok = r.apply(c.facts)
		}
		if !ok {
			c.end = int64(at)
			if first { // the file was synced with its first frame before it got its name
				c.damage = corrupt(journalName, c.end, "first frame is invalid")
			} else if next := laterFrame(b[at:], c.seq, c.end); next > 0 {
				c.damage = corrupt(journalName, c.end, "invalid frame before the synced one at %d", c.end+next)
			}
			return c
		}
		at += size
		c.seq = seq + 1
	}
}

// laterFrame looks in b, which begins at position at of the file, for a frame of
// sequence from or later that was written when at was synced already. It returns where it is in b, or 0.
func laterFrame(b []byte, from uint64, at int64) int64 {
	for i := 1; i+frameHead+frameMin <= len(b); i++ {
		// The CRC is the costly part, so it comes last.
		seq := binary.BigEndian.Uint64(b[i+frameHead:])
		durable := binary.BigEndian.Uint64(b[i+frameHead+8:])
		if seq < from || seq-from > 1<<32 || durable <= uint64(at) || durable > uint64(at)+uint64(i) {
			continue
		}
		if _, _, _, _, ok := decodeFrame(b[i:]); ok {
			return int64(i)
		}
	}
	return 0
}

// setHighWatermark notes a high watermark if it is news; a log that is not there has none.
func (j *journal) setHighWatermark(id core.Partition, off int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[id]
	if f == nil || f.highWatermark == off {
		return
	}
	f.highWatermark = off
	j.pending.offset(entryHighWatermark, id, off)
	j.noted++
}

// set replaces what is known of a log, to be written by replace.
func (j *journal) set(id core.Partition, f facts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.facts[id] = &f
}

// reuse goes on with the file that is there, where there is no room for a new one. It is written again because nobody
// knows of its end that it is durable.
func (j *journal) reuse(content []byte) error {
	file, err := j.s.fs.Open(journalName, 0)
	if err != nil {
		return err
	}
	j.file, j.end = file, int64(len(content))
	if err := writeFull(file, content, 0); err != nil {
		return err
	}
	if err := file.Truncate(j.end); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return j.s.syncFailed(err)
	}
	j.room, j.durable, j.replaced = j.end, j.end, j.end
	for _, id := range j.ids() {
		j.pending.all(id, j.facts[id])
	}
	j.noted++
	return nil
}
