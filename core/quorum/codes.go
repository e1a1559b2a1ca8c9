package quorum

// Kafka's error codes that the quorum answers with or understands.
const (
	codeNone                    int16 = 0
	codeUnknownTopicOrPartition int16 = 3
	codeNotLeaderOrFollower     int16 = 6
	codeInvalidRequest          int16 = 42
	codeFencedLeaderEpoch       int16 = 74
	codeUnknownLeaderEpoch      int16 = 75
	codeInconsistentVoterSet    int16 = 94
	codeSnapshotNotFound        int16 = 98
	codePositionOutOfRange      int16 = 99
	codeInconsistentClusterID   int16 = 104
	codeInvalidVoterKey         int16 = 125
)
