package broker

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Lane is one of the connections that a host keeps to a peer. Answers on a connection leave in the order of its
// requests, so what may wait long for its answer has a lane of its own: a heartbeat must not queue behind a fetch that
// waits for data.
type Lane int

// Lanes. From FetchLane on there are FetcherCalls of them, as many as there may be fetches under way.
const (
	ControlLane  Lane = iota // all that is answered soon
	MetadataLane             // fetches of the metadata log, snapshots included
	FetchLane                // fetches of partitions; any of these that is free
	NumLanes     = FetchLane + FetcherCalls
)

// LaneOf returns the lane of a Call's request; FetchLane stands for all of its kind.
func LaneOf(req kmsg.Request) Lane {
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		if len(r.Topics) == 0 { // a nudge, which is to overtake what is parked
			return ControlLane
		}
		for i := range r.Topics {
			if core.TopicID(r.Topics[i].TopicID) == core.MetadataPartition.Topic || r.Topics[i].Topic == core.MetadataTopic {
				return MetadataLane
			}
		}
		return FetchLane
	case *kmsg.FetchSnapshotRequest:
		return MetadataLane
	}
	return ControlLane
}
