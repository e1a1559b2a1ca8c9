// Package log is what one log holds, without its bytes: its offsets, its
// leader-epoch history (KIP-101, KIP-279) and its producer table (KIP-98).
package log

import "time"

// EpochStart is one entry of the leader-epoch history: the epoch, and the log end offset when its leader took it.
type EpochStart struct {
	Epoch int32
	Start int64
}

// State is what recovery found of a log.
type State struct {
	Start, End    int64        // first offset, log end offset; all of it durable
	HighWatermark int64        // last checkpointed, 0 if none; never beyond End
	Epochs        []EpochStart // ascending
	Producers     *Producers   // as of End
	Clean         bool         // closed by a clean stop
}

// Config is what the files of one log depend on. The names are Kafka's topic settings.
type Config struct {
	SegmentBytes       int64         // segment.bytes
	SegmentMillis      time.Duration // segment.ms
	IndexBytes         int64         // segment.index.bytes
	IndexIntervalBytes int64         // index.interval.bytes
	FlushMessages      int64         // flush.messages; 1 is sync before ack
	FlushMillis        time.Duration // flush.ms
	RetentionBytes     int64         // retention.bytes, -1 without bound
	RetentionMillis    time.Duration // retention.ms, negative without bound
	Preallocate        bool          // preallocate
	Delete, Compact    bool          // cleanup.policy
	Gaps               bool          // offsets may be missing though the policy is not compact: it was, here or where it is copied from
	MinCleanableRatio  float64       // min.cleanable.dirty.ratio
	MinCompactionLag   time.Duration // min.compaction.lag.ms
	MaxCompactionLag   time.Duration // max.compaction.lag.ms, negative without bound
	DeleteRetention    time.Duration // delete.retention.ms
}
