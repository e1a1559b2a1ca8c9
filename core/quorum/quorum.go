package quorum

import (
	"time"

	"lockstep/core"
	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Quorum is one node's part in the consensus on the metadata log.
type Quorum struct{}

// New makes the machine from what is durable: hard state, newest snapshot (nil if there
// is none; the host builds its first image from it), and what recovery found of the log. Load
// and Start follow.
func New(cfg Config, hard HardState, snap *Snapshot, st log.State) *Quorum { return &Quorum{} }

// LoadFrom says from which offset the host is to read the log for the next Load, and whether there is more to read.
func (q *Quorum) LoadFrom() (from int64, more bool) { return 0, false }

// Load takes the next batches of the local log, read from LoadFrom on. The error is ErrCorruptLog, wrapped.
func (q *Quorum) Load(batches []record.Batch) error { return nil }

// Start begins, when LoadFrom says that all is loaded.
func (q *Quorum) Start(now core.Time, out *Out) {}

// Propose appends values as one batch, atomically: all or none of them will be
// committed. It returns the offset of the last; Commits deliver them. Errors are ErrNotLeader and ErrTruncating.
func (q *Quorum) Propose(now core.Time, wall core.WallMillis, values [][]byte, out *Out) (lastOffset int64, err error) {
	return 0, ErrNotLeader
}

// Handle takes a peer's request (Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, or a Fetch of the
// metadata topic by a replica), to be answered by exactly one Respond with token. It returns false, and does nothing, for any other.
func (q *Quorum) Handle(now core.Time, token uint64, msg kmsg.Request, out *Out) bool { return false }

// Cancel forgets the parked request token: its connection is gone.
func (q *Quorum) Cancel(token uint64) {}

// Answer brings a peer's response to the Call with token, or err. For a FetchResponse batches are its parsed records.
func (q *Quorum) Answer(now core.Time, token uint64, msg kmsg.Response, batches []record.Batch, err error, out *Out) {
}

// PeerClosed says that a connection to or from a peer broke.
func (q *Quorum) PeerClosed(now core.Time, peer int32, out *Out) {}

// Saved says that the hard state given with token is durable.
func (q *Quorum) Saved(now core.Time, token uint64, out *Out) {}

// Written says that the log's appends up to end are in the file.
func (q *Quorum) Written(now core.Time, end int64, out *Out) {}

// Durable says that the log's appends up to end are durable (and written).
func (q *Quorum) Durable(now core.Time, end int64, out *Out) {}

// AppendFailed says that the log could not be appended to and ends at end.
func (q *Quorum) AppendFailed(now core.Time, end int64, err error, out *Out) {}

// Truncated answers Truncate and Reset.
func (q *Quorum) Truncated(now core.Time, end int64, out *Out) {}

// Snapshot gives the machine a snapshot of the image, which holds all committed records below id.Offset: it is stored,
// and the log before the snapshot that it replaces is dropped. The error is ErrSnapshotID, wrapped.
func (q *Quorum) Snapshot(now core.Time, id SnapshotID, bytes []byte, out *Out) error { return nil }

// SnapshotSaved answers SaveSnapshot.
func (q *Quorum) SnapshotSaved(now core.Time, id SnapshotID, out *Out) {}

// Tick is time passing.
func (q *Quorum) Tick(now core.Time, out *Out) {}

// Deadline says when the machine next wants a Tick.
func (q *Quorum) Deadline() core.Time { return core.Never }

// Resign gives leadership up, for a clean stop: the voter with the longest log is asked to follow on at once.
func (q *Quorum) Resign(now core.Time, out *Out) {}

// Leader returns the leader's id, or None, and the current term, which is the leader epoch.
func (q *Quorum) Leader() (id, term int32) { return None, 0 }

// Leading says whether this node leads, and if so whether it is active: whether its term's start is committed and delivered.
func (q *Quorum) Leading() (leads, active bool) { return false, false }

// HighWatermark is the end of what is known committed. All below has been delivered.
func (q *Quorum) HighWatermark() int64 { return 0 }

// Tip names a snapshot that could be taken now: everything delivered so far.
func (q *Quorum) Tip() SnapshotID { return SnapshotID{} }

// LatestSnapshot names the newest stored snapshot; Offset 0 if there is none.
func (q *Quorum) LatestSnapshot() SnapshotID { return SnapshotID{} }

// MajorityHeard is, on a leader, the latest instant at which it is known that a majority followed it: the basis for
// granting leases. False if this node does not lead.
func (q *Quorum) MajorityHeard(now core.Time) (core.Time, bool) { return 0, false }

// VoterEndpoint returns where voter id is reached.
func (q *Quorum) VoterEndpoint(id int32) (Voter, bool) { return Voter{}, false }

// Describe is the answer data of DescribeQuorum for the metadata partition.
func (q *Quorum) Describe(now core.Time, wall core.WallMillis) kmsg.DescribeQuorumResponseTopicPartition {
	return kmsg.NewDescribeQuorumResponseTopicPartition()
}

var _ = time.Second
