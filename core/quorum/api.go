package quorum

import (
	"errors"
	"time"

	"lockstep/core"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// None is the id of nobody: no vote given, no leader known.
const None int32 = -1

// Voter is one member of the quorum, and where its peers reach it.
type Voter struct {
	ID   int32
	Host string
	Port uint16
}

// Config is what one node is told at birth. A zero duration or size means its default.
type Config struct {
	Self      int32   // an observer if it is not among the voters
	Voters    []Voter // at least one; the same on every node
	ClusterID string  // requests that name another are refused; empty while it is not known, see KnowCluster
	// A voter that hears no leader for a time drawn from [ElectionMin,
	// ElectionMax) asks for pre-votes. Defaults 500 ms, 1 s.
	ElectionMin, ElectionMax time.Duration
	// CheckQuorum is how long a leader may hear no majority before it steps down. Default ElectionMax.
	CheckQuorum time.Duration
	// FetchWait is how long a leader parks a fetch that finds nothing new. It is
	// the pulse by which leader and followers know of each other, and must be
	// well below ElectionMin. Default 100 ms.
	FetchWait time.Duration
	// Retry is the pause after a call that failed. Default 20 ms.
	Retry time.Duration
	// FetchBytes bounds the records of one Fetch, SnapshotBytes the piece of one FetchSnapshot. Default 1 MiB.
	FetchBytes, SnapshotBytes int32
	// Rand draws election jitter.
	Rand core.Rand
}

// SnapshotID names a snapshot: the state that all records below Offset make. Offset
// is exclusive, the first offset that the snapshot does *not* contain, and Epoch is
// the epoch of the record just below it (Kafka's OffsetAndEpoch).
type SnapshotID struct {
	Offset int64
	Epoch  int32
}

// Snapshot is a snapshot with its bytes, which only the broker understands.
type Snapshot struct {
	SnapshotID
	Bytes []byte
}

// Errors of Propose, Snapshot and Load.
var (
	// ErrNotLeader: this node does not lead, so it cannot propose.
	ErrNotLeader = errors.New("not the leader of the metadata quorum")
	// ErrTruncating: the leader is taking unwritten proposals back; propose again when ProposalsDropped has been dealt with.
	ErrTruncating = errors.New("metadata log is being truncated")
	// ErrBusy: an earlier snapshot is being stored.
	ErrBusy = errors.New("a metadata snapshot is being stored")
	// ErrSnapshotID: the snapshot is not that of everything delivered so far (Tip), or not newer than the last.
	ErrSnapshotID = errors.New("snapshot does not fit the metadata log")
	// ErrCorruptLog: the local log contradicts itself or its snapshot. The replica must not be used (rule 15).
	ErrCorruptLog = errors.New("corrupt metadata log")
)

// Out is what one call of the machine wants done. The host carries it out after every
// call, in the order of the fields, and passes a reset one to the next call.
type Out struct {
	// Save, if not nil, is the encoded HardState to save durably; answered by Saved(SaveToken).
	Save      []byte
	SaveToken uint64
	// Log is what to do to the log, in this order.
	Log []LogOp
	// SaveSnapshot is a snapshot to store durably; answered by SnapshotSaved. Older ones stay until DropSnapshots.
	SaveSnapshot *Snapshot
	// DropSnapshots, if not nil, says that stored snapshots other than this one are of no more use.
	DropSnapshots *SnapshotID
	// Restore replaces the whole image by this snapshot, before Commits are applied.
	Restore *Snapshot
	// Commits are batches that became committed: to be applied to the image in order. Every data batch above the
	// snapshot that the image began with is delivered exactly once in a run.
	Commits []Commit
	// Elected: this node leads from now on. Its image may be behind until Active.
	Elected bool
	// Active: the start of the leader's own term is committed and all before it has been delivered: the
	// image is current, decisions may be made (rule 20's analogue).
	Active bool
	// LostLeadership: this node led and does no more. Proposals not delivered so far may or may not be committed by others.
	LostLeadership bool
	// ProposalsDropped: still leading, but proposals at and above DroppedFrom could not be written and are gone for good.
	ProposalsDropped bool
	DroppedFrom      int64
	// Calls to peers, each answered by Answer.
	Calls []Call
	// Responds answer requests given to Handle.
	Responds []Respond
	// Notes are lines for the operator.
	Notes []Note
	// Fatal: the quorum's rules were broken, by damage or by configuration; the broker must not go on.
	Fatal error
}

// Reset empties o for the next call, keeping its memory.
func (o *Out) Reset() {
	clear(o.Log)
	clear(o.Commits)
	clear(o.Calls)
	clear(o.Responds)
	clear(o.Notes)
	*o = Out{Log: o.Log[:0], Commits: o.Commits[:0], Calls: o.Calls[:0], Responds: o.Responds[:0], Notes: o.Notes[:0]}
}

// LogOp is one thing to do to the metadata log: Append, Truncate, Reset or DropPrefix. Their order matters.
type LogOp interface{ logOp() }

// Append appends batches with sync; answered by Written, Durable, or AppendFailed.
type Append struct{ Batches []record.Batch }

// Truncate makes the log durably end at To; answered by Truncated(To).
type Truncate struct{ To int64 }

// Reset durably empties the log, which then begins and ends at Start (a snapshot took the
// place of what was there); answered by Truncated(Start).
type Reset struct{ Start int64 }

// DropPrefix makes Start the log's first offset and deletes what lies wholly below. Not answered.
type DropPrefix struct{ Start int64 }

func (Append) logOp()     {}
func (Truncate) logOp()   {}
func (Reset) logOp()      {}
func (DropPrefix) logOp() {}

// Commit is one committed batch of metadata records. Value i has the offset
// Offset+i. Values refer to the batch's bytes and must not be changed.
type Commit struct {
	Offset int64
	Epoch  int32
	Wall   core.WallMillis // when the leader built it
	Values [][]byte
}

// Call is a request to a peer; Answer brings the response, or the error if none will come.
type Call struct {
	Token uint64
	Peer  int32
	Msg   kmsg.Request
}

// Respond answers the request that Handle was given with Token.
type Respond struct {
	Token uint64
	Msg   kmsg.Response
	// Read, for a FetchResponse, says where the records of its only partition come from.
	Read *Read
}

// Read fills a Fetch response's records with whole batches of the metadata log: from the batch that holds
// From, while batches end at or below Limit (exclusive), about MaxBytes but at least one.
type Read struct {
	From, Limit int64
	MaxBytes    int32
}

// Level of a Note, as in log/slog.
type Level int

// Levels.
const (
	Debug Level = -4
	Info  Level = 0
	Warn  Level = 4
)

// Note is a line for the operator.
type Note struct {
	Level Level
	Msg   string
	Attrs []any // alternating keys and values
}
