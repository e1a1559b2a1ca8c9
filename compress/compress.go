// Package compress is the four codecs of Kafka's record batches, as
// record.Decompressor and record.Compressor: gzip, snappy, lz4 and zstd.
//
// It accepts what a Java consumer can read back and nothing else, because a
// batch is stored as it came: one that only some clients can decompress would
// stop every other consumer of its partition for good. And it never uses much
// more memory than the limit it is given, whatever the input claims.
//
// It stands beside the core, not in it, because it uses pools and foreign
// libraries. It may import core/record and the libraries of the codecs.
package compress

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"lockstep/core/record"
)

// Codecs is all codecs. It has no state of its own and may be copied and used
// from several goroutines at once.
type Codecs struct{}

var (
	_ record.Decompressor = Codecs{}
	_ record.Compressor   = Codecs{}
)

// Decompress implements record.Decompressor.
func (Codecs) Decompress(dst []byte, codec record.Codec, src []byte, limit int) ([]byte, error) {
	decode, ok := decoders[codec]
	if !ok {
		return dst, fmt.Errorf("%w: %v", record.ErrCodec, codec)
	}
	pooled := dst == nil
	if pooled {
		dst = takeBuffer()
	}
	out, err := decode(dst, src, limit)
	if err == nil {
		return out, nil
	}
	if pooled {
		giveBuffer(dst)
		dst = nil
	}
	if !errors.Is(err, record.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", record.ErrCompressed, err)
	}
	return dst, err
}

// Release implements record.Decompressor.
func (Codecs) Release(buf []byte) { giveBuffer(buf) }

// Compress implements record.Compressor.
func (Codecs) Compress(dst []byte, codec record.Codec, src []byte) ([]byte, error) {
	encode, ok := encoders[codec]
	if !ok {
		return dst, fmt.Errorf("%w: %v", record.ErrCodec, codec)
	}
	return encode(dst, src), nil
}

// decoders append at most limit bytes to dst. Their errors are
// record.ErrTooLarge or say what is wrong with src.
var decoders = map[record.Codec]func(dst, src []byte, limit int) ([]byte, error){
	record.Uncompressed: decodeNone,
	record.Gzip:         decodeGzip,
	record.Snappy:       decodeSnappy,
	record.LZ4:          decodeLZ4,
	record.Zstd:         decodeZstd,
}

var encoders = map[record.Codec]func(dst, src []byte) []byte{
	record.Uncompressed: encodeNone,
	record.Gzip:         encodeGzip,
	record.Snappy:       encodeSnappy,
	record.LZ4:          encodeLZ4,
	record.Zstd:         encodeZstd,
}

func decodeNone(dst, src []byte, limit int) ([]byte, error) {
	if len(src) > limit {
		return dst, tooLarge(limit)
	}
	return append(dst, src...), nil
}

func encodeNone(dst, src []byte) []byte { return append(dst, src...) }

func tooLarge(limit int) error {
	return fmt.Errorf("%w: more than %d bytes decompressed", record.ErrTooLarge, limit)
}

// A buffer in the pool is of minBuffer to maxBuffer bytes: smaller ones are
// not worth it, larger ones come from rare batches and would stay with every
// processor.
const (
	minBuffer = 64 << 10
	maxBuffer = 16 << 20
)

var buffers sync.Pool // of *[]byte

func takeBuffer() []byte {
	if p, ok := buffers.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, minBuffer)
}

func giveBuffer(buf []byte) {
	if cap(buf) >= minBuffer && cap(buf) <= maxBuffer {
		buffers.Put(&buf)
	}
}

// grow makes room for n more bytes. Where it must, it takes twice the memory
// there was, so that all that is taken on the way is not more than twice what is
// needed in the end; but no more than for most bytes.
func grow(dst []byte, n, most int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	size := max(len(dst)+n, min(max(2*cap(dst), minBuffer), len(dst)+most))
	return append(make([]byte, 0, size), dst...)
}

// readAll appends all of r to dst, which grows as the data comes.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	from := len(dst)
	for {
		// One byte more than the limit may come, to see that it is exceeded.
		room := limit + 1 - (len(dst) - from)
		dst = grow(dst, 1, room)
		room = min(room, cap(dst)-len(dst))
		n, err := r.Read(dst[len(dst) : len(dst)+room])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-from > limit:
			return dst, tooLarge(limit)
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}
