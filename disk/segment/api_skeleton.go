package segment

// This file shows the API while its parts are being written; each part replaces its lines here.

import (
	"errors"
	"io"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"
	"lockstep/disk"
)

var errUnwritten = errors.New("not written yet")

// Options are the settings of a Store. The zero value is usable.
type Options struct {
	// MaxOpenFiles bounds the files held open; 0 is 1024. Files that are being read or synced count but are not closed.
	MaxOpenFiles int
	// SyncAllAbove is the number of syncs of one round above which they are replaced by one SyncAll; 0 is 4.
	SyncAllAbove int
	// Decompressor decompresses records where LookupTime must look into them.
	Decompressor record.Decompressor
	// ForEach calls do for 0..n-1, possibly in parallel, and returns when all are done. Open recovers logs by it.
	// nil is a plain loop, which a simulation needs.
	ForEach func(n int, do func(i int))
}

// Store is one data directory: its logs and the small files beside them.
type Store struct{}

// Found is a log that Open found and recovered.
type Found struct {
	Partition core.Partition
	Topic     string
	Err       error // the log is damaged: OpenLog returns this too (rule 15)
}

// Open locks and opens a data directory, making it if it is empty, and recovers all its logs: what the States of
// OpenLog say is durable. ErrLocked if another process has it.
func Open(fs disk.FS, opts Options) (*Store, error) { return nil, errUnwritten }

// Clean says that the last process to use the directory stopped cleanly.
func (s *Store) Clean() bool { return false }

// Found lists the logs in the directory when it was opened, in ascending order.
func (s *Store) Found() []Found { return nil }

// Notices are lines for the operator about what Open found and did: unknown files (which are left alone), torn ends
// cut, damage.
func (s *Store) Notices() []string { return nil }

// Meta returns the host's bytes about the directory (node, cluster and directory id), nil if none were saved.
func (s *Store) Meta() []byte { return nil }

// SaveMeta durably replaces the host's bytes.
func (s *Store) SaveMeta(meta []byte) error { return errUnwritten }

// LoadState returns the bytes of the last SaveState, nil if there was none.
func (s *Store) LoadState() ([]byte, error) { return nil, errUnwritten }

// SaveState durably and atomically replaces the broker's small state.
func (s *Store) SaveState(state []byte) error { return errUnwritten }

// OpenLog opens a log, making it if it is not there (that is durable with its first round). It loads the producer table, which
// takes reading; several may run at once.
func (s *Store) OpenLog(id core.Partition, topic string, cfg log.Config) (*Log, log.State, error) {
	return nil, log.State{}, errUnwritten
}

// Log returns an open log, nil if it is not open.
func (s *Store) Log(id core.Partition) *Log { return nil }

// DeleteLogs deletes logs, durably and for good; those that are not there count as deleted. Many in one call cost hardly more syncs than one.
// Spans of theirs stay readable until released.
func (s *Store) DeleteLogs(ids ...core.Partition) error { return errUnwritten }

// Checkpoint durably notes high watermarks, along with what else is worth it: recovery points. To be called every second or so.
func (s *Store) Checkpoint(marks []HighWatermark) error { return errUnwritten }

// HighWatermark of one log, for Checkpoint.
type HighWatermark struct {
	Partition core.Partition
	Offset    int64
}

// BeginSync begins a round of group commit: it notes where the logs end that want one (all that have unsynced appends,
// if none is named) and those that come along for free. Appends go on while it runs. One round at a time.
func (s *Store) BeginSync(want ...*Log) *Round { return nil }

// Round is one round of group commit.
type Round struct{}

// Empty says that there is nothing to sync.
func (r *Round) Empty() bool { return true }

// Run syncs. It blocks, and needs no lock that appends and reads need. If a sync fails, the Store has failed for good
// (ErrDiskFailed). Any other error (disk.ErrNoSpace) leaves everything as it was, for another round.
func (r *Round) Run() error { return errUnwritten }

// Finish tells, after a Run without error, up to where the round's logs are durable. Logs truncated or deleted meanwhile are left out.
func (r *Round) Finish() []DurableEnd { return nil }

// DurableEnd says that all appends to a log below End are durable.
type DurableEnd struct {
	Partition core.Partition
	End       int64
}

// Close flushes and syncs everything and, last, leaves the mark of a clean stop. Nobody may use the Store any more.
func (s *Store) Close() error { return errUnwritten }

// Failed returns ErrDiskFailed, wrapped with its cause, if the Store has failed.
func (s *Store) Failed() error { return nil }

// ReadRequest is one read of ReadMany.
type ReadRequest struct {
	Log         *Log // nil: the result is ErrNoLog
	From, Limit int64
	MaxBytes    int32
}

// ReadResult is its result; a Span must be released.
type ReadResult struct {
	Span Span
	Err  error
}

// ReadMany carries out the reads of one Fetch response: maxBytes bounds their bytes together, and the first batch of the first that
// has one comes whole however large it is. Results are appended to out, one for each request.
func ReadMany(reqs []ReadRequest, maxBytes int32, out []ReadResult) []ReadResult { return out }

// Log is one log. Append, Truncate, SetStart, Retain, SaveEpochs, SaveProducers and Configure exclude each other; reads and rounds of
// sync run beside all of them.
type Log struct{}

// Partition returns the log's id.
func (l *Log) Partition() core.Partition { return core.Partition{} }

// Topic returns the name of its topic.
func (l *Log) Topic() string { return "" }

// Bounds returns the first offset and the log end offset.
func (l *Log) Bounds() (start, end int64) { return 0, 0 }

// Size returns the bytes of its segments.
func (l *Log) Size() int64 { return 0 }

// UnsyncedBytes returns how much was appended since the last round began that covered the log.
func (l *Log) UnsyncedBytes() int64 { return 0 }

// Append writes batches at the end. rolled says that now is a good moment for SaveProducers: a new segment was begun,
// or much was appended since the last one. If it fails, the log ends where it did; with disk.ErrNoSpace or ErrIO it can be appended
// to again, unless ErrLogFailed.
func (l *Log) Append(batches []record.Batch) (rolled bool, err error) { return false, errUnwritten }

// Truncate durably cuts the log so that it ends at the offset to, or at the start of the batch that holds it, along with its indexes, epochs
// and producer snapshots (rule 16), and returns the end. At or beyond the end it only makes sure that all is durable.
func (l *Log) Truncate(to int64) (end int64, err error) { return 0, errUnwritten }

// SetStart durably makes start the first offset and deletes segments wholly below. Beyond the end, the log is emptied and begins there.
// It returns the start, which never moves back.
func (l *Log) SetStart(start int64) (int64, error) { return 0, errUnwritten }

// Retain deletes old segments by retention.ms and retention.bytes, none that reaches limit or beyond (rule 19), and returns the start.
func (l *Log) Retain(limit int64, wall core.WallMillis) (int64, error) { return 0, errUnwritten }

// SaveEpochs replaces the leader-epoch history. It is durable before a later append is reported durable by a round.
func (l *Log) SaveEpochs(epochs []log.EpochStart) error { return errUnwritten }

// SaveProducers keeps a snapshot of the producer table as of offset, so that OpenLog need not replay the log from its
// start. The last few are kept. It need not be durable: what is missing or torn is replayed.
func (l *Log) SaveProducers(offset int64, snapshot []byte) error { return errUnwritten }

// Configure changes the settings.
func (l *Log) Configure(cfg log.Config) {}

// Read finds whole batches, from the one that holds from (or the next one) on, that end at or below limit, at most maxBytes of them; with
// atLeastOne the first comes however large it is. From at the limit or at the end is an empty Span; below the start or beyond the end
// is ErrOffsetOutOfRange. No payload is read, so CRCs are the receiver's to check.
func (l *Log) Read(from, limit int64, maxBytes int32, atLeastOne bool) (Span, error) {
	return Span{}, errUnwritten
}

// Span is a range of bytes of a segment's file that holds whole batches. The file stays, deleted or not, until Release. Only a
// truncation makes it come out short.
type Span struct {
	Base, Next int64 // first offset of its first batch; the offset after its last batch. Equal if it is empty
	Off        int64 // position in the file
	Len        int   // bytes
}

// File returns the file, for sendfile through its Fd.
func (s *Span) File() disk.File { return nil }

// ReadInto reads the span's bytes to buf, which holds at least Len.
func (s *Span) ReadInto(buf []byte) error { return errUnwritten }

// WriteTo writes the span's bytes to w.
func (s *Span) WriteTo(w io.Writer) (int64, error) { return 0, errUnwritten }

// Release lets go of the file. The zero Span may be released, and any more than once.
func (s *Span) Release() {}

// ReadBatches is Read, at least one batch, parsed: every CRC is checked, and a bad one is ErrCorrupt.
func (l *Log) ReadBatches(from, limit int64, maxBytes int32) ([]record.Batch, error) {
	return nil, errUnwritten
}

// TimeResult is the record that LookupTime found; Offset is -1 if there is none.
type TimeResult struct {
	Offset      int64
	Timestamp   int64
	LeaderEpoch int32
}

// MaxTimestamp asks LookupTime for the record of the largest timestamp (KIP-734).
const MaxTimestamp = -3

// LookupTime finds the first record in [start, limit) whose timestamp is at least timestamp (milliseconds), or the first one of the largest.
func (l *Log) LookupTime(timestamp, limit int64) (TimeResult, error) {
	return TimeResult{}, errUnwritten
}

// Verify reads the whole log and checks every CRC, the order of offsets and epochs, and the indexes.
func (l *Log) Verify() error { return errUnwritten }
