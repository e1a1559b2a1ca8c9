package compress

import (
	"bytes"
	"testing"

	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FuzzDecompress decompresses anything. What passes must be within the limit
// and the same for another implementation, and come back when compressed anew.
func FuzzDecompress(f *testing.F) {
	for _, data := range [][]byte{nil, text(300), make([]byte, 100_000)} {
		for _, codec := range all {
			packed, _ := Codecs{}.Compress(nil, codec, data)
			f.Add(int8(codec), packed)
		}
	}
	f.Add(int8(record.Snappy), xerial(text(100), text(200)))
	f.Fuzz(func(t *testing.T, c int8, packed []byte) {
		const limit = 1 << 20
		codec := record.Codec(c)
		got, err := Codecs{}.Decompress(nil, codec, packed, limit)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(got), limit)
		if codec != record.Uncompressed && len(packed) > 0 {
			theirs, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CompressionCodecType(codec))
			require.NoError(t, err)
			require.True(t, bytes.Equal(theirs, got))
		}
		again, err := Codecs{}.Compress(nil, codec, got)
		require.NoError(t, err)
		back, err := Codecs{}.Decompress(nil, codec, again, len(got))
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, back))
		Codecs{}.Release(got)
	})
}
