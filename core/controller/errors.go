package controller

import "errors"

// Kafka error codes that the controller answers with (https://kafka.apache.org/protocol#protocol_error_codes).
const (
	codeUnknownServerError         int16 = -1
	codeNone                       int16 = 0
	codeUnknownTopicOrPartition    int16 = 3
	codeRequestTimedOut            int16 = 7
	codeInvalidTopic               int16 = 17
	codeUnsupportedVersion         int16 = 35
	codeTopicAlreadyExists         int16 = 36
	codeInvalidPartitions          int16 = 37
	codeInvalidReplicationFactor   int16 = 38
	codeInvalidReplicaAssignment   int16 = 39
	codeInvalidConfig              int16 = 40
	codeNotController              int16 = 41
	codeInvalidRequest             int16 = 42
	codePolicyViolation            int16 = 44
	codeTopicDeletionDisabled      int16 = 73
	codeFencedLeaderEpoch          int16 = 74
	codeStaleBrokerEpoch           int16 = 77
	codePreferredLeaderUnavailable int16 = 80
	codeEligibleLeadersUnavailable int16 = 83
	codeElectionNotNeeded          int16 = 84
	codeInvalidUpdateVersion       int16 = 95
	codeUnknownTopicID             int16 = 100
	codeDuplicateRegistration      int16 = 101
	codeBrokerIDNotRegistered      int16 = 102
	codeInconsistentClusterID      int16 = 104
	codeIneligibleReplica          int16 = 107
	codeInvalidRegistration        int16 = 119
)

// Errors of Decode and Apply, wrapped with what they concern. Any of them must stop the broker.
var (
	// ErrUnknownRecord: the type or version of a record is not known to this build.
	ErrUnknownRecord = errors.New("unknown metadata record; a newer version of Lockstep wrote it")
	// ErrBadRecord: the bytes of a record do not parse.
	ErrBadRecord = errors.New("malformed metadata record")
	// ErrContradiction: a record does not fit the image that those before it built.
	ErrContradiction = errors.New("metadata record contradicts those before it")
)
