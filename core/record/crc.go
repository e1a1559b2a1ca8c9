package record

import "hash/crc32"

// A CRC is a polynomial over GF(2), and CRCs are linear: if two messages of
// one length differ, so do their CRCs by an amount that depends on nothing but
// that difference and on how many bytes follow it. n bytes behind the
// difference multiply it by x^8n modulo the CRC's polynomial.
//
// Polynomials are written as CRC-32C writes them: bit 31 is the coefficient of x^0.

const (
	polyX0 uint32 = 1 << 31
	polyX1 uint32 = 1 << 30
)

// squares[k] is x^(2^k) modulo the polynomial.
var squares = func() (t [40]uint32) {
	t[0] = polyX1
	for k := 1; k < len(t); k++ {
		t[k] = mulCRC(t[k-1], t[k-1])
	}
	return t
}()

// mulCRC multiplies two polynomials modulo the one of CRC-32C.
func mulCRC(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		if a&polyX0 != 0 {
			product ^= b
		}
		// b times x: shift, and reduce if x^32 came out.
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return product
}

// shiftCRC returns what a difference of two CRCs becomes when n more bytes follow.
func shiftCRC(diff uint32, n int) uint32 {
	for k := 3; n != 0; k++ { // bit 0 of n stands for 8 = 2^3 bits
		if n&1 != 0 {
			diff = mulCRC(squares[k], diff)
		}
		n >>= 1
	}
	return diff
}
