package compress

import (
	"errors"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A zstd decoder has its limit from birth, so there is one for every power of
// two. Each decodes whole blobs, several at once, as many as there are processors.
var zstdDecoders [bits.UintSize]struct {
	once    sync.Once
	decoder *zstd.Decoder
}

// zstdMinMemory is the least that a decoder's limit is set to, in bytes: a
// decoder refuses what declares a larger window than its limit, and by the
// format's own recommendation windows up to this size are to be accepted, even
// where the content is far smaller.
const zstdMinMemory = 8 << 20

func zstdDecoder(limit int) *zstd.Decoder {
	n := bits.Len(uint(max(limit, zstdMinMemory) - 1)) // 2^n is at least the limit
	d := &zstdDecoders[n]
	d.once.Do(func() {
		var err error
		d.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<n))
		if err != nil {
			panic("compress: zstd decoder: " + err.Error()) // the options are sound
		}
	})
	return d.decoder
}

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		panic("compress: zstd encoder: " + err.Error())
	}
	return e
})

func decodeZstd(dst, src []byte, limit int) ([]byte, error) {
	var h zstd.Header
	if h.Decode(src) == nil && h.HasFCS && h.FrameContentSize > uint64(limit) {
		return dst, tooLarge(limit)
	}
	out, err := zstdDecoder(limit).DecodeAll(src, dst)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return dst, tooLarge(limit)
	case err != nil:
		return dst, err
	case len(out)-len(dst) > limit:
		return dst, tooLarge(limit)
	}
	return out, nil
}

func encodeZstd(dst, src []byte) []byte { return zstdEncoder().EncodeAll(src, dst) }
