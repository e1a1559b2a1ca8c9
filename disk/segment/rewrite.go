package segment

import (
	"bytes"
	"fmt"

	"lockstep/disk"
)

// rewriter writes again, in place, what recovery found good above the recovery
// point. It may be in memory only: no sync of it is known to have succeeded, and after one that
// failed Linux shows pages as clean that never reached the disk, so that another sync alone would not bring them there.
//
// It writes what was parsed, and only when a second read agrees: a wrong bit
// of one read must neither be made to last, nor make an end look torn.
type rewriter struct {
	f       disk.File
	name    string
	pos     int64  // of buf in the file
	buf     []byte // read once
	changed func()
}

const rewriteChunk = 1 << 20

// errDisagree: what was parsed is not what later reads say, in bytes that no CRC covers.
var errDisagree = fmt.Errorf("%w: reads disagree", disk.ErrIO)

// add takes the next size bytes, at which a scanner is.
func (w *rewriter) add(s *scanner, size int) error {
	b, err := s.window(size, crcChunk)
	if err != nil {
		return err
	}
	w.buf = append(w.buf, b...)
	if len(w.buf) < rewriteChunk {
		return nil
	}
	return w.flush()
}

// flush writes what was added.
func (w *rewriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.changed()
	again, agree := make([]byte, len(w.buf)), false
	for range maxReads {
		if err := readFull(w.f, again, w.pos); err != nil {
			return fmt.Errorf("read %s: %w", w.name, err)
		}
		if agree = bytes.Equal(again, w.buf); agree {
			break
		}
	}
	if !agree {
		return fmt.Errorf("read %s at %d: %w", w.name, w.pos, errDisagree)
	}
	if err := writeFull(w.f, w.buf, w.pos); err != nil {
		return fmt.Errorf("rewrite %s: %w", w.name, err)
	}
	w.pos += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}
