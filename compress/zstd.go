package compress

import (
	"errors"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// zstdDecoder decodes whole blobs, several at once, as many as there are
// processors. It never writes beyond the capacity of what it is given, which
// is how memory is bounded: a frame need not say how large its content is,
// and may lie.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("compress: zstd decoder: " + err.Error()) // the options are constant
	}
	return d
})

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		panic("compress: zstd encoder: " + err.Error())
	}
	return e
})

const (
	zstdFirstGuess = 4       // ratio that is tried first if the frame does not say
	zstdMaxRatio   = 1 << 15 // a block is of 4 bytes at least and of 128 KiB of content at most
)

func decodeZstd(dst, src []byte, limit int) ([]byte, error) {
	guess := zstdFirstGuess * len(src)
	var h zstd.Header
	if h.Decode(src) == nil && h.HasFCS {
		if h.FrameContentSize > uint64(limit) {
			return dst, tooLarge(limit)
		}
		guess = min(int(h.FrameContentSize), zstdMaxRatio*len(src))
	}
	for from := len(dst); ; guess *= 2 {
		guess = min(max(guess, cap(dst)-from, 1), limit)
		dst = slices.Grow(dst, guess)
		out, err := zstdDecoder().DecodeAll(src, dst[:from:from+guess])
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return dst, err
		case guess == limit:
			return dst, tooLarge(limit)
		}
	}
}

func encodeZstd(dst, src []byte) []byte { return zstdEncoder().EncodeAll(src, dst) }
