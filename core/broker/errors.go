package broker

// Kafka error codes that the broker answers with
// (https://kafka.apache.org/protocol#protocol_error_codes). The machines below
// return codes of their own packages with the same numbers.
const (
	errUnknownServerError                 int16 = -1
	errNone                               int16 = 0
	errOffsetOutOfRange                   int16 = 1
	errCorruptMessage                     int16 = 2
	errUnknownTopicOrPartition            int16 = 3
	errLeaderNotAvailable                 int16 = 5
	errNotLeaderOrFollower                int16 = 6
	errRequestTimedOut                    int16 = 7
	errMessageTooLarge                    int16 = 10
	errCoordinatorNotAvailable            int16 = 15
	errNotCoordinator                     int16 = 16
	errInvalidTopic                       int16 = 17
	errInvalidRequiredAcks                int16 = 21
	errUnsupportedVersion                 int16 = 35
	errNotController                      int16 = 41
	errInvalidRequest                     int16 = 42
	errInvalidPartitions                  int16 = 37
	errInvalidConfig                      int16 = 40
	errInvalidTxnState                    int16 = 48
	errTransactionalIDAuthorizationFailed int16 = 53
	errStorage                            int16 = 56
	errFetchSessionIDNotFound             int16 = 70
	errInvalidFetchSessionEpoch           int16 = 71
	errStaleBrokerEpoch                   int16 = 77
	errDuplicateRegistration              int16 = 101
	errBrokerIDNotRegistered              int16 = 102
	errTopicAlreadyExists                 int16 = 36
	errFencedLeaderEpoch                  int16 = 74
	errUnsupportedEndpointType            int16 = 115
	errCoordinatorLoadInProgress          int16 = 14
	errUnsupportedCompression             int16 = 76
	errOffsetNotAvailable                 int16 = 78
	errInvalidRecord                      int16 = 87
	errUnknownTopicID                     int16 = 100
	errInconsistentTopicID                int16 = 103
)
