package group

// Kafka error codes that the coordinator answers with (https://kafka.apache.org/protocol#protocol_error_codes).
const (
	errServer                   int16 = -1
	errNone                     int16 = 0
	errUnknownTopicOrPartition  int16 = 3
	errMessageTooLarge          int16 = 10
	errOffsetMetadataTooLarge   int16 = 12
	errCoordinatorLoading       int16 = 14
	errCoordinatorNotAvailable  int16 = 15
	errNotCoordinator           int16 = 16
	errRecordListTooLarge       int16 = 18
	errIllegalGeneration        int16 = 22
	errInconsistentProtocol     int16 = 23
	errInvalidGroupID           int16 = 24
	errUnknownMemberID          int16 = 25
	errInvalidSessionTimeout    int16 = 26
	errRebalanceInProgress      int16 = 27
	errInvalidCommitOffsetSize  int16 = 28
	errUnsupportedVersion       int16 = 35
	errInvalidRequest           int16 = 42
	errNonEmptyGroup            int16 = 68
	errGroupIDNotFound          int16 = 69
	errMemberIDRequired         int16 = 79
	errGroupMaxSizeReached      int16 = 81
	errFencedInstanceID         int16 = 82
	errGroupSubscribedToTopic   int16 = 86
	errUnknownTopicID           int16 = 100
	errFencedMemberEpoch        int16 = 110
	errUnreleasedInstanceID     int16 = 111
	errUnsupportedAssignor      int16 = 112
	errStaleMemberEpoch         int16 = 113
	errInvalidRegularExpression int16 = 128
)

// writeError is what a request is told whose write was refused with a code.
func writeError(code int16) int16 {
	switch code {
	case errNotCoordinator, errCoordinatorLoading, errCoordinatorNotAvailable:
		return code
	case errMessageTooLarge, errRecordListTooLarge:
		return errServer // as Kafka says: no request can do anything about the size of its group
	case 5, 6, 56: // no leader, not the leader, storage: another broker will be
		return errNotCoordinator
	}
	return errCoordinatorNotAvailable // to be tried again: too few in-sync replicas, timeouts
}
