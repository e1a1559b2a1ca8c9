package record

import "fmt"

// Codec is how the records of a batch are compressed: the low three bits of its attributes.
type Codec int8

// The codecs of the protocol.
const (
	Uncompressed Codec = 0
	Gzip         Codec = 1
	Snappy       Codec = 2
	LZ4          Codec = 3
	Zstd         Codec = 4
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Known says whether the protocol defines the codec.
func (c Codec) Known() bool { return c >= Uncompressed && c <= Zstd }

// String returns the codec's name as clients spell it.
func (c Codec) String() string {
	if !c.Known() {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return codecNames[c]
}

// ParseCodec returns the codec of a name; besides String's names it knows
// "uncompressed", which is how the topic setting compression.type says "none".
func ParseCodec(name string) (Codec, bool) {
	if name == "uncompressed" {
		return Uncompressed, true
	}
	for i, n := range codecNames {
		if n == name {
			return Codec(i), true
		}
	}
	return 0, false
}

// Decompressor decompresses the records of batches. Package lockstep/compress
// has it for all codecs. It may be used from several goroutines at once.
type Decompressor interface {
	// Decompress appends what src decompresses to to dst and returns it. It
	// fails with ErrCodec for a codec that it does not know, with
	// ErrCompressed for a malformed src, and with ErrTooLarge, using little
	// more memory than limit, if src decompresses to more than limit bytes.
	// If dst is nil, the result's memory may come from a pool.
	Decompress(dst []byte, codec Codec, src []byte, limit int) ([]byte, error)
	// Release gives memory that Decompress returned back for another use.
	// Nothing may refer to it any more. Not to call it is no leak.
	Release(buf []byte)
}

// Compressor compresses the records of batches.
type Compressor interface {
	// Compress appends the compressed src to dst and returns it. It fails
	// only with ErrCodec, for a codec that it does not know.
	Compress(dst []byte, codec Codec, src []byte) ([]byte, error)
}

// DefaultDecompressedBytes bounds decompression where Limits says nothing.
const DefaultDecompressedBytes = 128 << 20

// Limits bounds what a batch of somebody else's may cost.
type Limits struct {
	// DecompressedBytes is the most that one batch may decompress to; a larger
	// one is ErrTooLarge. 0 means DefaultDecompressedBytes.
	DecompressedBytes int
}

func (l Limits) decompressed() int {
	if l.DecompressedBytes <= 0 {
		return DefaultDecompressedBytes
	}
	return l.DecompressedBytes
}

// plain returns the batch's records uncompressed, and whether they are in
// memory of d's that can be released.
func (b Batch) plain(d Decompressor, lim Limits) (records []byte, owned bool, err error) {
	codec := b.Codec()
	if codec == Uncompressed {
		return b.raw[HeaderSize:], false, nil
	}
	if !codec.Known() || d == nil {
		return nil, false, fmt.Errorf("%w: %v", ErrCodec, codec)
	}
	records, err = d.Decompress(nil, codec, b.raw[HeaderSize:], lim.decompressed())
	if err != nil {
		return nil, false, fmt.Errorf("decompress %v records: %w", codec, err)
	}
	return records, true, nil
}
