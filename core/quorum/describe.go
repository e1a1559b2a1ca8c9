package quorum

import (
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Describe is the answer data of DescribeQuorum for the metadata partition (KIP-595, KIP-836). Only the leader knows it;
// elsewhere it is the error NOT_LEADER_OR_FOLLOWER with the leader that is known.
func (q *Quorum) Describe(now core.Time, wall core.WallMillis) kmsg.DescribeQuorumResponseTopicPartition {
	d := kmsg.NewDescribeQuorumResponseTopicPartition()
	d.Partition, d.LeaderID, d.LeaderEpoch, d.HighWatermark = core.MetadataPartition.Index, q.leaderID, q.hard.Term, -1
	if q.role != leader {
		d.ErrorCode = codeNotLeaderOrFollower
		return d
	}
	d.HighWatermark = q.hw
	self := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	self.ReplicaID, self.LogEndOffset = q.cfg.Self, q.log.end
	d.CurrentVoters = append(d.CurrentVoters, self)
	for i := range q.lead.replicas {
		r := &q.lead.replicas[i]
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.LogEndOffset = r.id, r.end
		if r.end >= 0 {
			s.LastFetchTimestamp = int64(wall) - now.Sub(r.fetchedAt).Milliseconds()
		}
		if r.caughtUp != neverHeard {
			s.LastCaughtUpTimestamp = int64(wall) - now.Sub(r.caughtUp).Milliseconds()
		}
		if r.voter {
			d.CurrentVoters = append(d.CurrentVoters, s)
		} else {
			d.Observers = append(d.Observers, s)
		}
	}
	slices.SortFunc(d.CurrentVoters, func(a, b kmsg.DescribeQuorumResponseTopicPartitionReplicaState) int {
		return int(a.ReplicaID) - int(b.ReplicaID)
	})
	return d
}
