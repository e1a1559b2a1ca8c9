package compress

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// The lz4 frame format: a magic number; a descriptor of flags, block size and
// a checksum over both; blocks, each behind its size; a size of 0 as the end
// mark. The library does the blocks. The frame is done here, because the
// library's reader takes more than Java's does: linked blocks, dictionaries,
// legacy, skippable and joined frames. Java's does not verify the content
// checksum; other clients do, so it is verified.

const (
	lz4Magic = 0x184D2204

	lz4FlagVersion1      = 1 << 6
	lz4FlagVersionMask   = 3 << 6
	lz4FlagIndependent   = 1 << 5
	lz4FlagBlockChecksum = 1 << 4
	lz4FlagSize          = 1 << 3
	lz4FlagChecksum      = 1 << 2
	lz4FlagsReservedOrID = 3
	lz4BlockSizeShift    = 4 // of the block size code in the second byte
	lz4Stored            = 1 << 31
	lz4MaxRatio          = 255 // a byte of a block stands for at most so many
	lz4EncodeBlock       = 64 << 10
	lz4EncodeBlockCode   = 4
	lz4FirstGuess        = 4 // ratio that is tried first
)

var (
	errLZ4Truncated  = errors.New("lz4 frame is truncated")
	errLZ4Magic      = errors.New("not an lz4 frame")
	errLZ4Descriptor = errors.New("malformed lz4 frame descriptor")
	errLZ4Linked     = errors.New("lz4 frame has linked blocks, which other clients cannot read")
	errLZ4Block      = errors.New("malformed lz4 block")
	errLZ4Checksum   = errors.New("lz4 checksum mismatch")
	errLZ4Size       = errors.New("lz4 frame is not of the size it claims")
	errLZ4Trailing   = errors.New("bytes follow the lz4 frame")
)

// lz4Frame is the descriptor of a frame.
type lz4Frame struct {
	flags    byte
	blockMax int
	size     uint64 // uncompressed, if flags say so
}

// parseLZ4 reads the head of a frame and returns what follows it.
func parseLZ4(src []byte) (f lz4Frame, rest []byte, err error) {
	if len(src) < 4+3 {
		return f, nil, errLZ4Truncated
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, nil, errLZ4Magic
	}
	src = src[4:]
	f.flags = src[0]
	n := 2 // bytes of the descriptor before its checksum
	if f.flags&lz4FlagSize != 0 {
		n += 8
	}
	if len(src) <= n {
		return f, nil, errLZ4Truncated
	}
	code := src[1] >> lz4BlockSizeShift
	switch {
	case f.flags&lz4FlagVersionMask != lz4FlagVersion1, f.flags&lz4FlagsReservedOrID != 0,
		code < 4, code > 7, src[1]&(1<<lz4BlockSizeShift-1) != 0:
		return f, nil, errLZ4Descriptor
	case f.flags&lz4FlagIndependent == 0:
		return f, nil, errLZ4Linked
	case byte(xxh32(src[:n])>>8) != src[n]:
		return f, nil, errLZ4Checksum
	}
	f.blockMax = 1 << (8 + 2*code) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	if f.flags&lz4FlagSize != 0 {
		f.size = binary.LittleEndian.Uint64(src[2:])
	}
	return f, src[n+1:], nil
}

func decodeLZ4(dst, src []byte, limit int) ([]byte, error) {
	f, src, err := parseLZ4(src)
	if err != nil {
		return dst, err
	}
	from := len(dst)
	for {
		if len(src) < 4 {
			return dst, errLZ4Truncated
		}
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if size == 0 {
			return dst, f.checkEnd(dst[from:], src)
		}
		stored := size&lz4Stored != 0
		n := int(size &^ lz4Stored)
		if n > len(src) {
			return dst, errLZ4Truncated
		}
		block := src[:n]
		src = src[n:]
		if f.flags&lz4FlagBlockChecksum != 0 {
			if src, err = checkSum(block, src); err != nil {
				return dst, err
			}
		}
		if dst, err = f.appendBlock(dst, block, stored, limit-(len(dst)-from)); err != nil {
			if errors.Is(err, errLZ4Room) {
				err = tooLarge(limit)
			}
			return dst, err
		}
	}
}

// checkSum compares the checksum at the start of src with that of data and returns what follows it.
func checkSum(data, src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, errLZ4Truncated
	}
	if binary.LittleEndian.Uint32(src) != xxh32(data) {
		return nil, errLZ4Checksum
	}
	return src[4:], nil
}

// checkEnd checks what follows the end mark.
func (f *lz4Frame) checkEnd(data, src []byte) (err error) {
	if f.flags&lz4FlagSize != 0 && f.size != uint64(len(data)) {
		return errLZ4Size
	}
	if f.flags&lz4FlagChecksum != 0 {
		if src, err = checkSum(data, src); err != nil {
			return err
		}
	}
	if len(src) > 0 {
		return errLZ4Trailing
	}
	return nil
}

var errLZ4Room = errors.New("no room for the lz4 block")

// appendBlock appends one block, uncompressed, of at most room bytes.
func (f *lz4Frame) appendBlock(dst, block []byte, stored bool, room int) ([]byte, error) {
	if stored {
		// Java takes a stored block of no bytes for the end of the frame.
		if len(block) == 0 || len(block) > f.blockMax {
			return dst, errLZ4Block
		}
		if len(block) > room {
			return dst, errLZ4Room
		}
		return append(grow(dst, len(block), room), block...), nil
	}
	// The block does not say how long it is. Its frame's maximum would be far
	// too much for most, so a guess is doubled until it fits.
	most := min(f.blockMax, lz4MaxRatio*len(block))
	for guess := lz4FirstGuess * len(block); ; guess *= 2 {
		guess = max(guess, cap(dst)-len(dst))
		size := min(guess, most, room)
		dst = grow(dst, size, room)
		n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+size])
		switch {
		case err == nil:
			return dst[:len(dst)+n], nil
		case size == most:
			return dst, errLZ4Block
		case size == room:
			return dst, errLZ4Room
		}
	}
}

var lz4Compressors = sync.Pool{New: func() any { return new(lz4.Compressor) }}

func encodeLZ4(dst, src []byte) []byte {
	c := lz4Compressors.Get().(*lz4.Compressor)
	defer lz4Compressors.Put(c)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	descriptor := [2]byte{lz4FlagVersion1 | lz4FlagIndependent, lz4EncodeBlockCode << lz4BlockSizeShift}
	dst = append(dst, descriptor[:]...)
	dst = append(dst, byte(xxh32(descriptor[:])>>8))
	for len(src) > 0 {
		block := src[:min(len(src), lz4EncodeBlock)]
		src = src[len(block):]
		dst = slices.Grow(dst, 4+len(block))
		at := len(dst)
		body := dst[at+4 : at+4+len(block)]
		size := uint32(len(block)) | lz4Stored
		// A block that does not get smaller is stored as it is.
		if n, err := c.CompressBlock(block, body[:len(block)-1]); err == nil && n > 0 {
			body, size = body[:n], uint32(n)
		} else {
			copy(body, block)
		}
		binary.LittleEndian.PutUint32(dst[at:at+4], size)
		dst = dst[:at+4+len(body)]
	}
	return append(dst, 0, 0, 0, 0)
}
