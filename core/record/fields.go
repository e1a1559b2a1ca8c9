package record

import (
	"fmt"
	"math"
)

// minRecordSize is the size of the smallest record in bytes, its length field included.
const minRecordSize = 7

// fields is where the parts of one record are, as positions in the uncompressed records of a batch.
type fields struct {
	timestampDelta int64
	offsetDelta    int32
	attributes     int8
	key, keyLen    int // keyLen is -1 for a null key
	value          int
	valueLen       int // -1 for a null value
	headers        int // where the first header begins
	headerCount    int
}

// parse reads the record at buf[at:], headers included, and returns where the
// next one begins. Everything it says lies within buf.
func (f *fields) parse(buf []byte, at int) (next int, err error) {
	size, at := varint(buf, at)
	if at < 0 || size < minRecordSize-1 || int(size) > len(buf)-at {
		return 0, fmt.Errorf("%w: length", ErrRecord)
	}
	next = at + int(size)
	buf = buf[:next]
	f.attributes = int8(buf[at])
	f.timestampDelta, at = varlong(buf, at+1)
	if at < 0 {
		return 0, fmt.Errorf("%w: timestamp delta", ErrRecord)
	}
	f.offsetDelta, at = varint(buf, at)
	if at < 0 {
		return 0, fmt.Errorf("%w: offset delta", ErrRecord)
	}
	if f.key, f.keyLen, at = bytesAt(buf, at); at < 0 {
		return 0, fmt.Errorf("%w: key length", ErrRecord)
	}
	if f.value, f.valueLen, at = bytesAt(buf, at); at < 0 {
		return 0, fmt.Errorf("%w: value length", ErrRecord)
	}
	count, at := varint(buf, at)
	if at < 0 || count < 0 {
		return 0, fmt.Errorf("%w: header count", ErrRecord)
	}
	f.headers, f.headerCount = at, int(count)
	for i := int32(0); i < count; i++ {
		if _, _, _, _, at = headerAt(buf, at); at < 0 {
			return 0, fmt.Errorf("%w: header %d of %d", ErrRecord, i, count)
		}
	}
	if at != next {
		return 0, fmt.Errorf("%w: %d bytes too long", ErrRecord, next-at)
	}
	return next, nil
}

// headerAt reads one record header: a key, which is never null, and a value.
// It returns their places and where the next header begins, or a negative next.
func headerAt(buf []byte, at int) (key, keyLen, value, valueLen, next int) {
	if key, keyLen, at = bytesAt(buf, at); at < 0 || keyLen < 0 {
		return 0, 0, 0, 0, -1
	}
	value, valueLen, at = bytesAt(buf, at)
	return key, keyLen, value, valueLen, at
}

// bytesAt reads a length, -1 meaning null, and steps over as many bytes. A
// negative next says that the length is malformed or reaches beyond buf.
func bytesAt(buf []byte, at int) (start, size, next int) {
	n, start := varint(buf, at)
	if start < 0 || n < -1 || int(n) > len(buf)-start {
		return 0, 0, -1
	}
	if n == -1 {
		return start, -1, start
	}
	return start, int(n), start + int(n)
}

// varint reads a zigzag varint of 32 bits and returns where it ends, or a
// negative next if it does not end within buf or overflows.
func varint(buf []byte, at int) (v int32, next int) {
	if at+1 < len(buf) { // nearly always one or two bytes
		u := uint32(buf[at])
		if u < 0x80 {
			return int32(u>>1) ^ -int32(u&1), at + 1
		}
		if high := uint32(buf[at+1]); high < 0x80 {
			u = u&0x7f | high<<7
			return int32(u>>1) ^ -int32(u&1), at + 2
		}
	}
	u, next := uvarint(buf, at)
	if u > math.MaxUint32 {
		return 0, -1
	}
	return int32(uint32(u)>>1) ^ -int32(u&1), next
}

// varlong is varint for 64 bits.
func varlong(buf []byte, at int) (v int64, next int) {
	u, next := uvarint(buf, at)
	return int64(u>>1) ^ -int64(u&1), next
}

// uvarint reads a base-128 varint of 64 bits.
func uvarint(buf []byte, at int) (v uint64, next int) {
	for shift := 0; at < len(buf); shift += 7 {
		c := buf[at]
		at++
		if shift == 63 && c > 1 {
			return 0, -1
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, at
		}
	}
	return 0, -1
}

// appendVarint appends a zigzag varint.
func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// varintSize returns how many bytes appendVarint appends.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
