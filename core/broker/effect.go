package broker

import (
	"fmt"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/quorum"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Effect is one thing the broker wants done. Effects on one log are carried out in the order in which they
// were emitted; those on different logs, connections and peers do not wait for each other.
type Effect interface{ effect() }

// Effects collects what one Step wants done.
type Effects struct{ List []Effect }

// Add appends one effect.
func (e *Effects) Add(x Effect) { e.List = append(e.List, x) }

// Reset empties the list for the next Step, keeping its memory.
func (e *Effects) Reset() { clear(e.List); e.List = e.List[:0] }

// Respond answers the request (Conn, Seq). The host sends the answers of a
// connection in the order of its requests.
type Respond struct {
	Conn  ConnID
	Seq   uint64
	Msg   kmsg.Response // nil: nothing is sent, the request is over (acks=0)
	Reads []Read        // Fetch: where the records of the response come from
	// MaxBytes bounds the records of all Reads together; the first batch of the first Read that has one is
	// sent whole however large it is.
	MaxBytes int32
	Close    bool // close the connection after this answer
}

// Read fills the records field of one partition of a Fetch response with whole batches
// of a log: from the batch that holds From, while batches end at or below Limit.
type Read struct {
	Topic, Partition int // position in FetchResponse.Topics[].Partitions[]
	Log              core.Partition
	From, Limit      int64 // offsets; Limit is exclusive
	MaxBytes         int32 // bound for this partition
	// Records: who reads wants records. What compaction has left without any is passed over at the beginning, as long as there are
	// some after it, for there are clients that do not get on from an answer without a record; and two such batches in a row, of which
	// others make records that are not there, end the answer after the first.
	Records bool
}

// CloseConn closes a connection at once.
type CloseConn struct {
	Conn   ConnID
	Reason string
}

// OpenLog opens the log, making it if it is not there; answered by LogOpened.
type OpenLog struct {
	Log    core.Partition
	Topic  string // its directory is named topic-index, as Kafka's
	Config log.Config
}

// ConfigureLog changes the settings of an open log.
type ConfigureLog struct {
	Log    core.Partition
	Config log.Config
}

// DeleteLog closes the log and deletes its files; answered by LogDeleted.
type DeleteLog struct{ Log core.Partition }

// Append appends batches whose offsets and epochs are assigned. Answered by
// Written, then by Durable; Written and Durable of several appends may be
// answered by one input each. Or by AppendFailed.
type Append struct {
	Log     core.Partition
	Batches []record.Batch
	// Sync asks for Durable as soon as possible. Without it the host syncs at its leisure (log.Config's flush
	// settings, rolls, and a clean stop), and Durable follows then.
	Sync bool
}

// SyncLog asks for Durable of what was appended without Sync, as soon as possible.
type SyncLog struct{ Log core.Partition }

// Truncate cuts the log so that it ends at To, durably; answered by Truncated.
type Truncate struct {
	Log core.Partition
	To  int64
}

// ResetLog durably empties the log, which then begins and ends at Start, wherever it was before (a snapshot took
// the place of what it held); answered by Truncated with End = Start.
type ResetLog struct {
	Log   core.Partition
	Start int64
}

// SetStart makes Start the log's first offset (DeleteRecords) and deletes what lies wholly below; beyond the log
// end the log becomes empty and begins there, and Producers, a snapshot of the producer table as of there, is durable with it.
// Answered by StartMoved once durable.
type SetStart struct {
	Log       core.Partition
	Start     int64
	Producers []byte // nil is an empty table
}

// Retain deletes old segments by the log's retention settings, none that reaches
// Limit or beyond (rule 19); answered by StartMoved if the start moved.
type Retain struct {
	Log   core.Partition
	Limit int64
	Wall  core.WallMillis
}

// Compact asks for a run of compaction if the log's settings say that it is time, none that reaches Limit or beyond (rule 19);
// answered by Compacted, always. It runs beside the effects that follow, and ends early if they cut or delete the log.
type Compact struct {
	Log       core.Partition
	Limit     int64
	Covered   int64 // tombstones from here on stay: some replica may not have them yet
	Wall      core.WallMillis
	Producers []int64 // ascending: ids in the log's producer table; the last batches of others are not kept
	Buffer    int64   // bytes of memory for the map of keys
	// BytesPerSecond is what all runs of the host together may read and write in a second.
	BytesPerSecond float64
}

// SaveEpochs replaces the log's leader-epoch checkpoint. It is durable before any
// later Append to this log is reported Durable.
type SaveEpochs struct {
	Log    core.Partition
	Epochs []log.EpochStart
}

// SaveProducers stores a snapshot of the producer table as of Offset, which is committed, so that recovery need not read the log from its
// start. Once records are deleted it is all that tells of their producers: a host that could not store it deletes none that no earlier
// one covers.
type SaveProducers struct {
	Log      core.Partition
	Offset   int64
	Snapshot []byte
}

// LookupTime looks for the first record below Limit whose timestamp is at least
// Timestamp (milliseconds); with Timestamp -3 for the record of the largest
// timestamp (ListOffsets' MAX_TIMESTAMP, KIP-734). Answered by TimeFound.
type LookupTime struct {
	Token     Token
	Log       core.Partition
	Timestamp int64
	Limit     int64
}

// ReadLog reads whole batches from the one that holds From, up to Limit, about
// MaxBytes of them and at least one; answered by LogRead.
type ReadLog struct {
	Token       Token
	Log         core.Partition
	From, Limit int64
	MaxBytes    int32
}

// MeasureLogs asks for the size of each log and the room on the device; answered by LogsMeasured.
type MeasureLogs struct{ Token Token }

// SaveState durably replaces the broker's small state file (term, vote, clean-stop knowledge); answered by StateSaved.
type SaveState struct {
	Token Token
	State []byte
}

// SaveSnapshot durably stores a snapshot of the metadata; answered by SnapshotSaved. The host hands the newest one to
// the next life of the broker in Boot.
type SaveSnapshot struct {
	Token    Token
	Snapshot quorum.Snapshot
}

// DropSnapshots deletes all stored snapshots but Keep.
type DropSnapshots struct{ Keep quorum.SnapshotID }

// Call sends a request to a peer; answered by Answer, always. Up to FetcherCalls fetches of partitions are under way
// to one peer, most of them parked there: the host sees to it that none waits for the answer of another, nor anything else
// for theirs.
type Call struct {
	Token Token
	Peer  int32
	Msg   kmsg.Request
}

// KnowPeer tells where a broker that may be called is reached, as its registration says. A voter of the metadata quorum stays
// where the configuration says that it is.
type KnowPeer struct {
	Peer int32
	Host string
	Port uint16
}

// Ready says that the broker now serves clients, and of which cluster it is, which the host keeps for the next life's
// Boot. It comes once.
type Ready struct{ ClusterID string }

// Stop ends the process: a clean stop is done (Err nil), or the broker must not go on.
type Stop struct{ Err error }

// Level of a Log line, as in log/slog.
type Level int

// Levels.
const (
	Debug Level = -4
	Info  Level = 0
	Warn  Level = 4
	Error Level = 8
)

// LimitConns sets how many connections of clients the host accepts, in all and from one address
// (max.connections, max.connections.per.ip), where they were changed at run time.
type LimitConns struct{ Max, PerHost int32 }

// Log is a line for the operator.
type Log struct {
	Level Level
	Msg   string
	Attrs []any // alternating keys and values
}

// LogOf returns the log that an effect is on. It panics for effects that are on none.
func LogOf(e Effect) core.Partition {
	switch e := e.(type) {
	case OpenLog:
		return e.Log
	case ConfigureLog:
		return e.Log
	case DeleteLog:
		return e.Log
	case Append:
		return e.Log
	case SyncLog:
		return e.Log
	case Truncate:
		return e.Log
	case ResetLog:
		return e.Log
	case SetStart:
		return e.Log
	case Retain:
		return e.Log
	case Compact:
		return e.Log
	case SaveEpochs:
		return e.Log
	case SaveProducers:
		return e.Log
	case LookupTime:
		return e.Log
	case ReadLog:
		return e.Log
	}
	panic(fmt.Sprintf("broker: effect %T is not on a log", e))
}

func (Respond) effect()       {}
func (CloseConn) effect()     {}
func (OpenLog) effect()       {}
func (ConfigureLog) effect()  {}
func (DeleteLog) effect()     {}
func (Append) effect()        {}
func (SyncLog) effect()       {}
func (Truncate) effect()      {}
func (SetStart) effect()      {}
func (Retain) effect()        {}
func (Compact) effect()       {}
func (SaveEpochs) effect()    {}
func (SaveProducers) effect() {}
func (LookupTime) effect()    {}
func (ReadLog) effect()       {}
func (MeasureLogs) effect()   {}
func (SaveState) effect()     {}
func (ResetLog) effect()      {}
func (SaveSnapshot) effect()  {}
func (DropSnapshots) effect() {}
func (Call) effect()          {}
func (KnowPeer) effect()      {}
func (Ready) effect()         {}
func (Stop) effect()          {}
func (LimitConns) effect()    {}
func (Log) effect()           {}
