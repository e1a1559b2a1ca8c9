package record

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControlType is what a control record says.
type ControlType int16

// The control records of the protocol: ends of transactions (KIP-98), and the
// metadata log's own (KIP-595, KIP-630, KIP-853).
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlVersion        ControlType = 5
	ControlVoters         ControlType = 6
)

// ControlRecord returns a record for a control batch.
func ControlRecord(timestamp int64, t ControlType, value []byte) Record {
	key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyType(t)}
	return Record{Timestamp: timestamp, Key: key.AppendTo(nil), Value: value}
}

// ParseControl returns the type of a record of a control batch.
func ParseControl(r Record) (ControlType, error) {
	var key kmsg.ControlRecordKey
	if err := key.ReadFrom(r.Key); err != nil || key.Version < 0 {
		return 0, fmt.Errorf("%w: control record key % x", ErrRecord, r.Key)
	}
	return ControlType(key.Type), nil
}

// EndTxn is the marker that ends a producer's transaction in one partition.
type EndTxn struct {
	ProducerID       int64
	ProducerEpoch    int16
	Commit           bool
	CoordinatorEpoch int32
	Timestamp        int64 // milliseconds
}

// Batch returns the control batch for the marker.
func (e EndTxn) Batch(baseOffset int64, leaderEpoch int32) Batch {
	t := ControlAbort
	if e.Commit {
		t = ControlCommit
	}
	value := kmsg.EndTxnMarker{CoordinatorEpoch: e.CoordinatorEpoch}
	b := NewBuilder()
	b.BaseOffset, b.LeaderEpoch = baseOffset, leaderEpoch
	b.ProducerID, b.ProducerEpoch = e.ProducerID, e.ProducerEpoch
	b.Attributes = AttributeTransactional | AttributeControl
	return b.Add(ControlRecord(e.Timestamp, t, value.AppendTo(nil))).mustBuild()
}

// ParseEndTxn returns the marker in a batch; false if the batch holds none.
func ParseEndTxn(b Batch) (EndTxn, bool) {
	if !b.Control() || !b.Transactional() {
		return EndTxn{}, false
	}
	for r, err := range b.Records(nil, Limits{}) {
		if err != nil {
			return EndTxn{}, false
		}
		t, err := ParseControl(r)
		var value kmsg.EndTxnMarker
		if err != nil || t != ControlAbort && t != ControlCommit || value.ReadFrom(r.Value) != nil {
			return EndTxn{}, false
		}
		return EndTxn{
			ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), Commit: t == ControlCommit,
			CoordinatorEpoch: value.CoordinatorEpoch, Timestamp: r.Timestamp,
		}, true
	}
	return EndTxn{}, false
}

// LeaderChange returns the control batch with which a new leader of the
// metadata log begins its epoch (KIP-595).
func LeaderChange(baseOffset int64, leaderEpoch int32, timestamp int64, m kmsg.LeaderChangeMessage) Batch {
	b := NewBuilder()
	b.BaseOffset, b.LeaderEpoch = baseOffset, leaderEpoch
	b.Attributes = AttributeControl
	return b.Add(ControlRecord(timestamp, ControlLeaderChange, m.AppendTo(nil))).mustBuild()
}

// mustBuild is Build for batches that cannot fail: one small record, uncompressed.
func (b *Builder) mustBuild() Batch {
	batch, err := b.Build()
	if err != nil {
		panic(fmt.Sprintf("record: control batch: %v", err))
	}
	return batch
}
