package node

import (
	"errors"
	"runtime"
	"sync"

	"lockstep/compress"
	"lockstep/core/record"
)

const (
	// checkBytes is about what all checks of compressed batches that run at the same time may decompress to.
	checkBytes = 64 << 20
	// maxPlainBatch and minPlainBatch bound what one of them may, beside others. Producers measure their batches
	// uncompressed, so what needs more is rare.
	maxPlainBatch = 8 << 20
	minPlainBatch = 2 << 20
)

// decompressing checks records, of which no batch may decompress to more than limit.
func decompressing(records []byte, limit int) record.Checked {
	return record.Check(records, compress.Codecs{}, record.Limits{DecompressedBytes: limit})
}

// checker checks records. Decompressing may take much memory for little input,
// so only some do it at once, and those that take very much one by one.
func checker(check func(records []byte, limit int) record.Checked) func([]byte) record.Checked {
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	limit := min(maxPlainBatch, max(minPlainBatch, checkBytes/cap(slots)))
	var large sync.Mutex
	const attributesLow = 22 // position of the byte with the codec in a batch
	return func(records []byte) record.Checked {
		if len(records) <= attributesLow || records[attributesLow]&7 == 0 {
			return check(records, 0)
		}
		slots <- struct{}{}
		c := check(records, limit)
		<-slots
		if !errors.Is(c.Err, record.ErrTooLarge) {
			return c
		}
		large.Lock()
		defer large.Unlock()
		return check(records, record.DefaultDecompressedBytes)
	}
}
