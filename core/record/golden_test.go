package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// golden returns the batches in testdata by file name.
func golden(t testing.TB) map[string][]byte {
	names, err := filepath.Glob("testdata/*.batch")
	require.NoError(t, err)
	require.Len(t, names, 12)
	files := make(map[string][]byte)
	for _, name := range names {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		files[strings.TrimSuffix(filepath.Base(name), ".batch")] = raw
	}
	return files
}

func TestGolden(t *testing.T) {
	for name, raw := range golden(t) {
		t.Run(name, func(t *testing.T) {
			parts := strings.Split(name, "-")
			codec, ok := record.ParseCodec(parts[len(parts)-1])
			require.True(t, ok)
			want, sequence := sample(60), int32(0)
			if parts[1] == "large" {
				want = sample(1000)
			}
			if parts[0] == "java" {
				sequence = 5
			}
			sent := append([]byte(nil), raw...)
			got := record.Check(raw, compress.Codecs{}, record.Limits{})
			require.NoError(t, got.Err)
			require.Equal(t, sent, raw, "stored as sent")
			require.Equal(t, codec, got.Batch.Codec())
			require.EqualValues(t, 4711, got.Batch.ProducerID())
			require.EqualValues(t, 3, got.Batch.ProducerEpoch())
			require.Equal(t, sequence, got.Batch.BaseSequence())
			require.Equal(t, withOffsets(0, want), read(t, got.Batch))
			require.Equal(t, got.Batch.MaxTimestamp(), got.Info.MaxTimestamp)
		})
	}
}

// Built from the same records, ours is byte for byte what Java's client and librdkafka build.
func TestBuilderIsCanonical(t *testing.T) {
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = 4711, 3, 5
	for _, r := range sample(60) {
		b.Add(r)
	}
	batch, err := b.Build()
	require.NoError(t, err)
	require.Equal(t, golden(t)["java-none"], batch.Bytes())
}
