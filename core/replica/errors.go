package replica

// Kafka's error codes that a replica answers with (https://kafka.apache.org/protocol#protocol_error_codes).
const (
	codeNone                int16 = 0
	codeOffsetOutOfRange    int16 = 1
	codeCorruptMessage      int16 = 2
	codeNotLeaderOrFollower int16 = 6
	codeRequestTimedOut     int16 = 7
	codeMessageTooLarge     int16 = 10
	codeNotEnoughReplicas   int16 = 19
	codeNotEnoughAfter      int16 = 20 // NOT_ENOUGH_REPLICAS_AFTER_APPEND
	codeInvalidTimestamp    int16 = 32
	codeNotController       int16 = 41
	codePolicyViolation     int16 = 44
	codeStorage             int16 = 56 // KAFKA_STORAGE_ERROR
	codeFencedLeaderEpoch   int16 = 74
	codeUnknownLeaderEpoch  int16 = 75
	codeOffsetNotAvailable  int16 = 78
	codeInvalidRecord       int16 = 87
	codeInvalidUpdate       int16 = 95 // INVALID_UPDATE_VERSION
)

// Levels of a Line, those of log/slog.
const (
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

func (o *Out) line(level int, msg string, attrs ...any) {
	o.Lines = append(o.Lines, Line{Level: level, Msg: msg, Attrs: attrs})
}
