package segment

import (
	"errors"
	"fmt"
)

// Errors of a Store and its Logs, wrapped with what was being done. Besides
// these, the errors of lockstep/disk come through: disk.ErrNoSpace above all.
var (
	// ErrDiskFailed: a sync of this data directory failed earlier. What it
	// covered is unknown, so nothing is written there any more (rule 13);
	// reads go on.
	ErrDiskFailed = errors.New("a sync of the data directory failed")
	// ErrCorrupt: bytes on disk are not what was written. errors.As with a
	// *CorruptError tells where.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrOffsetOutOfRange: the offset is below the log's start or beyond its end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrOffsetOrder: batches to append do not follow on the log's end, or on one another.
	ErrOffsetOrder = errors.New("batches do not follow on the log's end")
	// ErrLogFailed: an append failed and what it left behind could not be cut
	// off again. The log is readable and takes no more writes until it is recovered by a restart.
	ErrLogFailed = errors.New("log is not writable after a failed append")
	// ErrNoLog: no such log is open, or it is deleted.
	ErrNoLog = errors.New("no such log")
	// ErrClosed: the Store is closed.
	ErrClosed = errors.New("data directory is closed")
	// ErrFormat: the data directory was written by a version that this one does not know.
	ErrFormat = errors.New("unknown format of the data directory")
)

// CorruptError says what is damaged, where and how it was noticed. It is an ErrCorrupt.
type CorruptError struct {
	File   string // name relative to the data directory
	Pos    int64  // byte position in the file
	Reason string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %v at byte %d: %s", e.File, ErrCorrupt, e.Pos, e.Reason)
}

// Is makes a CorruptError an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func corrupt(file string, pos int64, format string, args ...any) error {
	return &CorruptError{File: file, Pos: pos, Reason: fmt.Sprintf(format, args...)}
}
