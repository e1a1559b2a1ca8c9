package compress

import (
	"encoding/binary"
	"math/bits"
)

// The primes of xxHash's 32-bit variant.
const (
	xxhPrime1 uint32 = 2654435761
	xxhPrime2 uint32 = 2246822519
	xxhPrime3 uint32 = 3266489917
	xxhPrime4 uint32 = 668265263
	xxhPrime5 uint32 = 374761393
)

// xxh32 is the xxHash of p with seed 0, the checksum of lz4 frames.
func xxh32(p []byte) uint32 {
	size := uint32(len(p))
	h := xxhPrime5
	if len(p) >= 16 {
		// Four lanes take turns; their start is the seed moved by primes.
		lanes := [4]uint32{xxhPrime1, xxhPrime2, 0, 0}
		lanes[0] += xxhPrime2
		lanes[3] -= xxhPrime1
		for ; len(p) >= 16; p = p[16:] {
			for i := range lanes {
				lanes[i] += binary.LittleEndian.Uint32(p[4*i:]) * xxhPrime2
				lanes[i] = bits.RotateLeft32(lanes[i], 13) * xxhPrime1
			}
		}
		h = bits.RotateLeft32(lanes[0], 1) + bits.RotateLeft32(lanes[1], 7) +
			bits.RotateLeft32(lanes[2], 12) + bits.RotateLeft32(lanes[3], 18)
	}
	h += size
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*xxhPrime3, 17) * xxhPrime4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*xxhPrime5, 11) * xxhPrime1
	}
	h = (h ^ h>>15) * xxhPrime2
	h = (h ^ h>>13) * xxhPrime3
	return h ^ h>>16
}
