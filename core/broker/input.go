package broker

import (
	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Input is one thing that happened to the broker. The types in this file are all of them.
type Input interface{ input() }

// ConnID names a client connection; a broker never uses one twice in its life.
type ConnID uint64

// Token pairs an effect with the input that answers it. The core draws it from a counter.
type Token uint64

// Client is what is known of the sender of a request.
type Client struct {
	ID       string // client.id of the request header
	Software string // name and version, from ApiVersions 3+
	Host     string // remote address, without port
}

// Request is one decoded request. Requests of one connection come in the order
// in which it sent them, Seq rising by one from 0, and each is answered by
// exactly one Respond (with a nil Msg where the protocol sends nothing).
type Request struct {
	Conn   ConnID
	Seq    uint64
	Peer   bool // came in on the peers' listener
	Client Client
	Wall   core.WallMillis // the wall clock when it came in
	Msg    kmsg.Request
	// Batches holds, for a Produce request, what checking made of the records of
	// each topic's partitions, in the request's order, all in one slice.
	Batches []record.Checked
}

// ConnClosed says that a client's connection is gone. What it had parked is dropped without an answer.
type ConnClosed struct{ Conn ConnID }

// Start is the first input of a broker's life.
type Start struct{ Wall core.WallMillis }

// Tick is time passing; the host sends one when Deadline comes.
type Tick struct{ Wall core.WallMillis }

// LogOpened answers OpenLog.
type LogOpened struct {
	Log   core.Partition
	State log.State // valid if Err is nil
	Err   error     // the log is damaged or unreadable: its replica is set aside (rule 15)
	Later bool      // with Err: there was no room to make it, and may be later
}

// Written says that all appends to the log up to End are in the file, though not yet durable.
type Written struct {
	Log    core.Partition
	End    int64 // log end offset
	Rolled bool  // a new segment was begun: a good moment for SaveProducers
}

// Durable says that all appends to the log up to End survive a power cut.
type Durable struct {
	Log core.Partition
	End int64
}

// AppendFailed says that an append could not be written (no space, I/O error) and the log ends at End. The
// host drops every later Append to this log until a Truncate to End comes.
type AppendFailed struct {
	Log core.Partition
	End int64
	Err error
}

// Truncated answers Truncate: the log durably ends at End.
type Truncated struct {
	Log core.Partition
	End int64
}

// StartMoved says that the log's first offset is now Start: it answers SetStart and Retain.
type StartMoved struct {
	Log   core.Partition
	Start int64
}

// Compacted answers Compact.
type Compacted struct {
	Log           core.Partition
	Due           bool  // it was time
	From, To      int64 // offsets that are newly compacted
	Keys          int   // in them
	Before, After int64 // bytes of the segments that were replaced
	More          bool  // there was no memory for all keys
	Err           error // the log is as it was but for what is counted
}

// LogDeleted answers DeleteLog.
type LogDeleted struct{ Log core.Partition }

// LogFailed says that one log can no longer be read where it should be (CRC, I/O): damage is reported, never served.
type LogFailed struct {
	Log core.Partition
	Err error
}

// DiskFailed says that a sync of the data directory failed: what it covered is
// unknown, and nothing more is written there (rule 13).
type DiskFailed struct{ Err error }

// TimeFound answers LookupTime. Offset is -1 if no record is that young.
type TimeFound struct {
	Token       Token
	Offset      int64
	Timestamp   int64 // of the record found, milliseconds
	LeaderEpoch int32 // of its batch
	Err         error
}

// LogRead answers ReadLog.
type LogRead struct {
	Token   Token
	Batches []record.Batch // whole batches in order; empty at the end
	Err     error
}

// LogsMeasured answers MeasureLogs.
type LogsMeasured struct {
	Token Token
	Sizes []LogSize // ascending by partition
	Total int64     // bytes of the device
	Free  int64     // bytes of the device that can still be written
	Err   error
}

// LogSize is the size in bytes of one log's segments.
type LogSize struct {
	Log  core.Partition
	Size int64
}

// SnapshotSaved answers SaveSnapshot.
type SnapshotSaved struct{ Token Token }

// StateSaved answers SaveState: the bytes are durable.
type StateSaved struct{ Token Token }

// Answer is a peer's answer to a Call, or Err if none will come.
type Answer struct {
	Token Token
	Peer  int32
	Msg   kmsg.Response
	// Batches are the parsed records of a Fetch response's partitions, in its order.
	Batches [][]record.Batch
	Err     error
}

// PeerClosed says that the connection to or from a peer broke, as a dying process's does.
type PeerClosed struct{ Peer int32 }

// StopRequested asks for a clean stop (SIGTERM): hand over leadership, then emit Stop.
type StopRequested struct{}

func (Request) input()       {}
func (ConnClosed) input()    {}
func (Tick) input()          {}
func (LogOpened) input()     {}
func (Written) input()       {}
func (Durable) input()       {}
func (AppendFailed) input()  {}
func (Truncated) input()     {}
func (StartMoved) input()    {}
func (Compacted) input()     {}
func (LogDeleted) input()    {}
func (LogFailed) input()     {}
func (DiskFailed) input()    {}
func (TimeFound) input()     {}
func (LogRead) input()       {}
func (LogsMeasured) input()  {}
func (StateSaved) input()    {}
func (SnapshotSaved) input() {}
func (Start) input()         {}
func (Answer) input()        {}
func (PeerClosed) input()    {}
func (StopRequested) input() {}
