package compress

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"lockstep/core/record"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

var all = []record.Codec{record.Uncompressed, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// compressed is all but Uncompressed.
var compressed = all[1:]

// drawData draws what compresses well, badly, or partly, of sizes around those of blocks.
func drawData(t *rapid.T) []byte {
	size := rapid.OneOf(rapid.IntRange(0, 300), rapid.SampledFrom([]int{
		32<<10 - 1, 32 << 10, 32<<10 + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000,
	})).Draw(t, "size")
	noise := rapid.IntRange(0, 256).Draw(t, "noise") // how many of 256 bytes are random
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	data := make([]byte, size)
	for i := range data {
		if data[i] = byte(i % 7); r.IntN(256) < noise {
			data[i] = byte(r.Uint32())
		}
	}
	return data
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(all).Draw(t, "codec")
		data := drawData(t)
		prefix := []byte("what was there")
		packed, err := Codecs{}.Compress(bytes.Clone(prefix), codec, data)
		require.NoError(t, err)
		require.Equal(t, prefix, packed[:len(prefix)])
		packed = packed[len(prefix):]

		got, err := Codecs{}.Decompress(bytes.Clone(prefix), codec, packed, len(data))
		require.NoError(t, err)
		require.True(t, bytes.Equal(append(prefix, data...), got))

		got, err = Codecs{}.Decompress(nil, codec, packed, 1<<20)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		Codecs{}.Release(got)

		if len(data) > 0 {
			limit := rapid.IntRange(0, len(data)-1).Draw(t, "limit")
			_, err = Codecs{}.Decompress(nil, codec, packed, limit)
			require.ErrorIs(t, err, record.ErrTooLarge)
		}
	})
}

func TestUnknownCodec(t *testing.T) {
	for _, codec := range []record.Codec{5, 7, -1} {
		_, err := Codecs{}.Compress(nil, codec, nil)
		require.ErrorIs(t, err, record.ErrCodec)
		_, err = Codecs{}.Decompress(nil, codec, nil, 10)
		require.ErrorIs(t, err, record.ErrCodec)
	}
}

var kgoCodecs = map[record.Codec]kgo.CompressionCodec{
	record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(),
	record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression(),
}

// What franz-go compresses we decompress, and the other way round.
func TestAgainstKgo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(compressed).Draw(t, "codec")
		data := drawData(t)
		c, err := kgo.DefaultCompressor(kgoCodecs[codec])
		require.NoError(t, err)
		theirs, typ := c.Compress(new(bytes.Buffer), data)
		require.EqualValues(t, codec, typ)
		got, err := Codecs{}.Decompress(nil, codec, theirs, len(data))
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))

		ours, err := Codecs{}.Compress(nil, codec, data)
		require.NoError(t, err)
		got, err = kgo.DefaultDecompressor().Decompress(ours, kgo.CompressionCodecType(codec))
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
	})
}

// text is data that compresses to about a third.
func text(size int) []byte {
	var b bytes.Buffer
	for r := rand.New(rand.NewPCG(1, 2)); b.Len() < size; {
		fmt.Fprintf(&b, "%d little words, %x more; ", r.IntN(100), r.Uint32())
	}
	return b.Bytes()[:size]
}

// requireDecodes checks that the codec reads what another implementation wrote.
func requireDecodes(t *testing.T, codec record.Codec, packed, want []byte) {
	t.Helper()
	got, err := Codecs{}.Decompress(nil, codec, packed, len(want))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	_, err = Codecs{}.Decompress(nil, codec, packed, len(want)-1)
	require.ErrorIs(t, err, record.ErrTooLarge)
}

func requireRefused(t *testing.T, codec record.Codec, packed []byte, want error) {
	t.Helper()
	_, err := Codecs{}.Decompress(nil, codec, packed, record.DefaultDecompressedBytes)
	require.ErrorIs(t, err, record.ErrCompressed)
	if want != nil {
		require.ErrorIs(t, err, want)
	}
}

func TestGzipOfOthers(t *testing.T) {
	data := text(150_000)
	var b bytes.Buffer
	for _, part := range [][]byte{data[:100_000], data[100_000:]} { // members may be joined
		w := stdgzip.NewWriter(&b)
		_, _ = w.Write(part)
		require.NoError(t, w.Close())
	}
	requireDecodes(t, record.Gzip, b.Bytes(), data)
	requireRefused(t, record.Gzip, append(b.Bytes(), 1), nil)

	ours, _ := Codecs{}.Compress(nil, record.Gzip, data)
	r, err := stdgzip.NewReader(bytes.NewReader(ours))
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// xerial frames blocks as Java does.
func xerial(blocks ...[]byte) []byte {
	out := append([]byte(nil), "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"...)
	for _, block := range blocks {
		packed := s2.EncodeSnappy(nil, block)
		out = binary.BigEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	return out
}

func TestSnappyOfOthers(t *testing.T) {
	data := text(100_000)
	requireDecodes(t, record.Snappy, s2.EncodeSnappyBest(nil, data), data)
	framed := xerial(data[:32<<10], data[32<<10:64<<10], data[64<<10:])
	requireDecodes(t, record.Snappy, framed, data)
	requireRefused(t, record.Snappy, append(xerial(data[:10]), xerial(data[10:])...), errXerial)
	requireRefused(t, record.Snappy, xerial(), errXerial)
	for _, at := range []int{11, 15} { // version 0
		old := bytes.Clone(framed)
		old[at] = 0
		requireRefused(t, record.Snappy, old, errXerial)
	}

	requireRefused(t, record.Snappy, nil, nil)
	requireRefused(t, record.Snappy, framed[:12], errXerial)
	requireRefused(t, record.Snappy, append(bytes.Clone(framed), 0, 0), errXerial)
	requireRefused(t, record.Snappy, append(bytes.Clone(framed), 0xff, 0xff, 0xff, 0xff), errXerial)
	requireRefused(t, record.Snappy, append(xerial(), 0, 0, 0, 0), nil) // a block has a length at least
	// 4 GB claimed by a few bytes.
	_, err := Codecs{}.Decompress(nil, record.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, 1<<24)
	require.ErrorIs(t, err, record.ErrTooLarge)
	requireRefused(t, record.Snappy, []byte{0x80, 0x80, 0x80, 0x04, 0}, errSnappyOf)
	requireRefused(t, record.Snappy, s2.Encode(nil, text(100_000)), errS2)
}

// Whatever has a repeat is found, and nothing else is taken for one.
func TestSnappyHasRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawData(t)
		require.False(t, hasRepeat(s2.EncodeSnappy(nil, data)))
		require.False(t, hasRepeat(s2.EncodeSnappyBetter(nil, data)))
	})
	long := make([]byte, 1<<24+104) // literals of 1 to 4 bytes of length
	r := rand.New(rand.NewPCG(5, 5))
	for i := 0; i < len(long); i += 8 {
		binary.LittleEndian.PutUint64(long[i:min(i+8, len(long))][:8], r.Uint64())
	}
	for _, size := range []int{1, 60, 61, 256, 257, 65536, 65537, 1 << 24, len(long)} {
		block := binary.AppendUvarint(nil, uint64(size+8))
		switch n := size - 1; {
		case n < 60:
			block = append(block, byte(n<<2))
		case n < 1<<8:
			block = append(block, 60<<2, byte(n))
		case n < 1<<16:
			block = append(block, 61<<2, byte(n), byte(n>>8))
		case n < 1<<24:
			block = append(block, 62<<2, byte(n), byte(n>>8), byte(n>>16))
		default:
			block = append(block, 63<<2, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		}
		block = append(block, long[:size]...)
		block = append(block, 4<<2|1, 0) // a copy of 8 bytes from offset 0
		require.True(t, hasRepeat(block))
		block[len(block)-1] = 1
		require.False(t, hasRepeat(block))
		got, err := s2.Decode(nil, block)
		require.NoError(t, err)
		require.Equal(t, size+8, len(got))
	}
}

func TestLZ4OfOthers(t *testing.T) {
	data := text(300_000)
	random := make([]byte, 100_000) // blocks that are stored
	r := rand.New(rand.NewPCG(3, 4))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for _, data := range [][]byte{data, random, make([]byte, 4<<20+1), {1}} {
		for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb} {
			for _, sums := range []bool{false, true} {
				packed := writeLZ4(t, data, lz4.BlockSizeOption(size), lz4.ChecksumOption(sums), lz4.BlockChecksumOption(sums))
				requireDecodes(t, record.LZ4, packed, data)
			}
		}
		requireDecodes(t, record.LZ4, writeLZ4(t, data, lz4.SizeOption(uint64(len(data)))), data)
		requireDecodes(t, record.LZ4, writeLZ4(t, data[:min(len(data), 100_000)], lz4.CompressionLevelOption(lz4.Level5)),
			data[:min(len(data), 100_000)])

		ours, _ := Codecs{}.Compress(nil, record.LZ4, data)
		got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(ours)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
	}
}

func writeLZ4(t *testing.T, data []byte, opts ...lz4.Option) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	require.NoError(t, w.Apply(append(opts, lz4.ConcurrencyOption(1))...))
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// head is a frame's magic and descriptor with its checksum.
func head(descriptor ...byte) []byte {
	out := append([]byte{0x04, 0x22, 0x4d, 0x18}, descriptor...)
	return append(out, byte(xxh32(descriptor)>>8))
}

func TestLZ4Refused(t *testing.T) {
	const flags, block = lz4FlagVersion1 | lz4FlagIndependent, 4 << 4
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	end := []byte{0, 0, 0, 0}
	stored := []byte{3, 0, 0, 0x80, 'a', 'b', 'c'}
	sum := func(p string) []byte { return binary.LittleEndian.AppendUint32(nil, xxh32([]byte(p))) }
	size := func(n byte) []byte { return []byte{n, 0, 0, 0, 0, 0, 0, 0} }
	sized := func(n byte) []byte { return head(append([]byte{flags | lz4FlagSize, block}, size(n)...)...) }

	requireDecodes(t, record.LZ4, join(head(flags, block), stored, end), []byte("abc"))
	requireDecodes(t, record.LZ4, join(head(flags|lz4FlagChecksum, block), stored, end, sum("abc")), []byte("abc"))
	requireDecodes(t, record.LZ4, join(head(flags|lz4FlagBlockChecksum, block), stored, sum("abc"), end), []byte("abc"))
	requireDecodes(t, record.LZ4, join(sized(3), stored, end), []byte("abc"))

	for name, c := range map[string]struct {
		packed []byte
		want   error
	}{
		"empty":           {nil, errLZ4Truncated},
		"no end mark":     {join(head(flags, block), stored), errLZ4Truncated},
		"half a block":    {join(head(flags, block), stored[:6]), errLZ4Truncated},
		"half a size":     {join(sized(3)[:10]), errLZ4Truncated},
		"legacy":          {join([]byte{0x02, 0x21, 0x4c, 0x18}, stored[:4], end), errLZ4Magic},
		"skippable":       {join([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, head(flags, block), stored, end), errLZ4Magic},
		"version 2":       {join(head(2<<6|lz4FlagIndependent, block), stored, end), errLZ4Descriptor},
		"dictionary":      {join(head(flags|1, block), stored, end), errLZ4Descriptor},
		"reserved flag":   {join(head(flags|2, block), stored, end), errLZ4Descriptor},
		"block size 3":    {join(head(flags, 3<<4), stored, end), errLZ4Descriptor},
		"reserved size":   {join(head(flags, block|1), stored, end), errLZ4Descriptor},
		"linked":          {join(head(lz4FlagVersion1, block), stored, end), errLZ4Linked},
		"head checksum":   {join(head(flags, block)[:6], []byte{0}, stored, end), errLZ4Checksum},
		"block checksum":  {join(head(flags|lz4FlagBlockChecksum, block), stored, sum("abd"), end), errLZ4Checksum},
		"no checksum":     {join(head(flags|lz4FlagBlockChecksum, block), stored), errLZ4Truncated},
		"checksum":        {join(head(flags|lz4FlagChecksum, block), stored, end, sum("abd")), errLZ4Checksum},
		"other size":      {join(sized(4), stored, end), errLZ4Size},
		"trailing":        {join(head(flags, block), stored, end, []byte{0}), errLZ4Trailing},
		"second frame":    {join(head(flags, block), stored, end, head(flags, block), stored, end), errLZ4Trailing},
		"stored nothing":  {join(head(flags, block), []byte{0, 0, 0, 0x80}, end), errLZ4Block},
		"block too long":  {join(head(flags, block), []byte{1, 0, 1, 0x80}, make([]byte, 1<<16+1), end), errLZ4Block},
		"block malformed": {join(head(flags, block), []byte{3, 0, 0, 0, 0, 1, 9}, end), errLZ4Block},
	} {
		t.Run(name, func(t *testing.T) { requireRefused(t, record.LZ4, c.packed, c.want) })
	}
	big := writeLZ4(t, make([]byte, 100_000), lz4.BlockSizeOption(lz4.Block256Kb))
	big[5] = block // its block is of more than the 64 KiB that it now declares
	big[6] = byte(xxh32(big[4:6]) >> 8)
	requireRefused(t, record.LZ4, big, errLZ4Block)
}

func TestXXH32(t *testing.T) {
	for text, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		require.Equal(t, want, xxh32([]byte(text)), text)
	}
}

func TestZstdOfOthers(t *testing.T) {
	for _, data := range [][]byte{text(200_000), make([]byte, 1<<20), {7}} {
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedBetterCompression} {
			for _, window := range []int{1 << 10, 8 << 20, 128 << 20} {
				var b bytes.Buffer // as a stream, whose size is not in the frame
				w, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(level), zstd.WithWindowSize(window),
					zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
				require.NoError(t, err)
				for part := data; len(part) > 0; part = part[min(len(part), 70_000):] {
					_, err = w.Write(part[:min(len(part), 70_000)])
					require.NoError(t, err)
					require.NoError(t, w.Flush())
				}
				require.NoError(t, w.Close())
				if window <= zstdMinMemory {
					requireDecodes(t, record.Zstd, b.Bytes(), data)
				}
				got, err := Codecs{}.Decompress(nil, record.Zstd, b.Bytes(), record.DefaultDecompressedBytes)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data, got))
				requireRefused(t, record.Zstd, append(b.Bytes(), 1), nil)
			}
		}
	}
	// A frame may say that it is far larger than it can be.
	lie := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x7f, 1, 0, 0}
	_, err := Codecs{}.Decompress(nil, record.Zstd, lie, 1<<24)
	require.ErrorIs(t, err, record.ErrTooLarge)
	_, _ = Codecs{}.Decompress(nil, record.Zstd, lie, 1<<31-1) // make what is made once
	requireBounded(t, 1<<20, func() {
		_, err := Codecs{}.Decompress(nil, record.Zstd, lie, 1<<31-1)
		require.Error(t, err)
	})
}

// requireBounded checks that f takes no more than so many bytes of memory, in all.
func requireBounded(t *testing.T, bytes uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, bytes)
}

// A few KB that decompress to 32 MB are refused in little more memory than the limit.
func TestBombs(t *testing.T) {
	bomb := make([]byte, 32<<20)
	for _, codec := range compressed {
		t.Run(codec.String(), func(t *testing.T) {
			packed, err := Codecs{}.Compress(nil, codec, bomb)
			require.NoError(t, err)
			_, _ = Codecs{}.Decompress(nil, codec, packed, 1<<20) // make what is made once
			requireBounded(t, 5<<20, func() {
				_, err := Codecs{}.Decompress(nil, codec, packed, 1<<20)
				require.ErrorIs(t, err, record.ErrTooLarge)
			})
		})
	}
}

// Nothing that is cut short passes.
func TestTruncations(t *testing.T) {
	data := text(3000)
	for _, codec := range compressed {
		packed, err := Codecs{}.Compress(nil, codec, data)
		require.NoError(t, err)
		for n := range packed {
			got, err := Codecs{}.Decompress(nil, codec, packed[:n:n], 1<<20)
			if codec == record.Zstd && n == 0 {
				require.NoError(t, err, "no frame is no content")
				require.Empty(t, got)
				continue
			}
			require.ErrorIs(t, err, record.ErrCompressed, "%v cut at %d of %d", codec, n, len(packed))
		}
	}
}

// Several goroutines at once, and buffers that go round.
func TestConcurrent(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for range 60 {
				data := bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(200_000))
				codec := all[r.IntN(len(all))]
				packed, err := Codecs{}.Compress(nil, codec, data)
				if err != nil {
					t.Error(err)
				}
				got, err := Codecs{}.Decompress(nil, codec, packed, 200_000)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%v: %v", codec, err)
				}
				Codecs{}.Release(got)
			}
		})
	}
	wg.Wait()
}

func benchmark(b *testing.B, f func(codec record.Codec, data, packed []byte)) {
	data := text(1 << 20)
	for _, codec := range compressed {
		b.Run(codec.String(), func(b *testing.B) {
			packed, _ := Codecs{}.Compress(nil, codec, data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				f(codec, data, packed)
			}
		})
	}
}

func BenchmarkDecompress(b *testing.B) {
	benchmark(b, func(codec record.Codec, data, packed []byte) {
		got, err := Codecs{}.Decompress(nil, codec, packed, 1<<24)
		if err != nil || len(got) != len(data) {
			b.Fatal(err)
		}
		Codecs{}.Release(got)
	})
}

func BenchmarkCompress(b *testing.B) {
	var dst []byte
	benchmark(b, func(codec record.Codec, data, _ []byte) {
		dst, _ = Codecs{}.Compress(dst[:0], codec, data)
	})
}
