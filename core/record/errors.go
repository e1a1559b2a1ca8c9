package record

import "errors"

// What can be wrong with a batch. Functions of this package return these
// wrapped with the place; test with errors.Is. Code tells what a client is told.
var (
	// ErrTruncated: the bytes end before the batch does.
	ErrTruncated = errors.New("record batch is truncated")
	// ErrLength: the batch length field is shorter than a header or too long to store.
	ErrLength = errors.New("record batch length out of bounds")
	// ErrMagic: the batch is not of magic 2.
	ErrMagic = errors.New("record batch magic is not 2")
	// ErrCRC: the CRC-32C does not match the bytes it covers.
	ErrCRC = errors.New("record batch CRC mismatch")
	// ErrHeader: header fields contradict each other or are out of range.
	ErrHeader = errors.New("record batch header is inconsistent")
	// ErrOneBatch: a producer sent no batch, or more than one, for a partition.
	ErrOneBatch = errors.New("not exactly one record batch")
	// ErrControl: a producer sent a control batch.
	ErrControl = errors.New("clients may not write control batches")
	// ErrTimestampType: a producer sent a batch that claims log append time.
	ErrTimestampType = errors.New("clients may not set the timestamp type to LogAppendTime")
	// ErrOffsets: offsets of a producer's batch are not 0, 1, 2 and so on.
	ErrOffsets = errors.New("record offsets are not consecutive from 0")
	// ErrCount: the batch holds more or fewer records than its header says.
	ErrCount = errors.New("record count differs from the batch header")
	// ErrProducer: producer id, epoch and sequence do not go together.
	ErrProducer = errors.New("producer id, epoch and sequence are inconsistent")
	// ErrRecord: a record is malformed.
	ErrRecord = errors.New("malformed record")
	// ErrCodec: the compression codec is unknown or there is nobody to decompress it.
	ErrCodec = errors.New("unsupported compression codec")
	// ErrCompressed: the compressed records cannot be decompressed.
	ErrCompressed = errors.New("malformed compressed records")
	// ErrTooLarge: the records decompress to more than the limit, or a batch
	// being built would exceed what a batch can be.
	ErrTooLarge = errors.New("records are too large")
)

// Kafka's error codes that Code returns.
const (
	codeCorruptMessage         = 2
	codeMessageTooLarge        = 10
	codeInvalidTimestamp       = 32
	codeUnsupportedCompression = 76
	codeInvalidRecord          = 87
)

// Code returns Kafka's error code for an error of Check, 0 for nil. Only a
// CRC mismatch and an impossible length are CORRUPT_MESSAGE, which clients
// retry; the rest would fail again and is final for them.
func Code(err error) int16 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrCRC), errors.Is(err, ErrLength):
		return codeCorruptMessage
	case errors.Is(err, ErrTooLarge):
		return codeMessageTooLarge
	case errors.Is(err, ErrTimestampType):
		return codeInvalidTimestamp
	case errors.Is(err, ErrCodec):
		return codeUnsupportedCompression
	default:
		return codeInvalidRecord
	}
}
