package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Snappy comes in two forms: one raw block, as most clients write it, or the
// framing of Java's xerial library, which is a header and then blocks, each
// behind its length. Everybody reads both; we write the raw block.
//
// The header is 8 bytes of magic, a version and the lowest version that can
// read it, 4 bytes each, of which Java's reader refuses any below 1. (It takes
// several streams joined, too. Other clients do not, so they are refused here.)

const xerialHeaderSize = 16

var xerialMagic = []byte("\x82SNAPPY\x00")

var (
	errXerial   = errors.New("malformed xerial framing of snappy")
	errS2       = errors.New("snappy block uses extensions of S2, which other clients cannot read")
	errSnappyOf = errors.New("snappy block claims more than it can hold")
)

func decodeSnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return decodeSnappyBlock(dst, src, limit)
	}
	version := func(at int) int32 { return int32(binary.BigEndian.Uint32(src[at:])) }
	if len(src) <= xerialHeaderSize || version(8) < 1 || version(12) < 1 {
		return dst, errXerial
	}
	src = src[xerialHeaderSize:]
	limit += len(dst)
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, errXerial
		}
		size := uint64(binary.BigEndian.Uint32(src))
		src = src[4:]
		if size > uint64(len(src)) {
			return dst, errXerial
		}
		var err error
		if dst, err = decodeSnappyBlock(dst, src[:size], limit-len(dst)); err != nil {
			return dst, err
		}
		src = src[size:]
	}
	return dst, nil
}

// snappyMaxRatio is above what snappy can do: its best element is 3 bytes that stand for 64.
const snappyMaxRatio = 22

func decodeSnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	size, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return dst, err
	case size > limit:
		return dst, tooLarge(limit)
	case size > snappyMaxRatio*len(src):
		return dst, errSnappyOf // before memory is taken for it
	}
	dst = grow(dst, size, limit)
	if _, err := s2.Decode(dst[len(dst):cap(dst)], src); err != nil {
		return dst, err
	}
	if hasRepeat(src) {
		return dst, errS2
	}
	return dst[:len(dst)+size], nil
}

// hasRepeat says whether a block that s2 decodes uses a repeat of the last
// offset, which is S2's one addition to snappy blocks: a short copy from
// offset 0. The low two bits of an element's first byte are its kind.
func hasRepeat(block []byte) bool {
	_, at := binary.Uvarint(block)
	for at < len(block) {
		tag := block[at]
		switch tag & 3 {
		case 0: // literal; lengths from 61 on are in the 1 to 4 bytes behind the tag
			n := int(tag>>2) + 1
			at++
			if extra := n - 60; extra > 0 {
				n = 1
				for i := 0; i < extra && at < len(block); i++ {
					n += int(block[at]) << (8 * i)
					at++
				}
			}
			at += n
		case 1: // copy, 11 bits of offset
			if at+1 < len(block) && tag&0xe0 == 0 && block[at+1] == 0 {
				return true
			}
			at += 2
		case 2: // copy, 16 bits of offset
			at += 3
		case 3: // copy, 32 bits of offset
			at += 5
		}
	}
	return false
}

func encodeSnappy(dst, src []byte) []byte {
	size := s2.MaxEncodedLen(len(src))
	if size < 0 {
		panic(fmt.Sprintf("compress: %d bytes are more than snappy can encode", len(src)))
	}
	dst = slices.Grow(dst, size)
	return dst[:len(dst)+len(s2.EncodeSnappy(dst[len(dst):cap(dst)], src))]
}
