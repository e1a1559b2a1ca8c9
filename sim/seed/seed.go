// Package seed makes the streams of chance that a simulated world draws from.
// All come from one number, each under its own label, so that drawing more
// from one never changes what another one yields: a fault that is removed
// does not reshuffle the rest of the world. It imports the standard library.
package seed

import "math/bits"

// Stream is a splitmix64 generator (Steele, Lea, Flood 2014). It is a value:
// copying it forks it. It satisfies core.Rand.
type Stream struct{ state uint64 }

const gamma = 0x9e3779b97f4a7c15

// Mix is the finalizer of splitmix64: a bijection without visible structure.
func Mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// New returns the stream that a seed and a path of labels name.
func New(seed uint64, labels ...uint64) Stream {
	s := Mix(seed + gamma)
	for _, l := range labels {
		s = Mix(s ^ Mix(l+gamma))
	}
	return Stream{s}
}

// Label turns a name into a label (FNV-1a).
func Label(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// Uint64 draws 64 bits.
func (s *Stream) Uint64() uint64 {
	s.state += gamma
	return Mix(s.state)
}

// Below draws evenly from [0, n). n must be positive.
func (s *Stream) Below(n uint64) uint64 {
	hi, _ := bits.Mul64(s.Uint64(), n)
	return hi
}

// Intn draws evenly from [0, n). n must be positive.
func (s *Stream) Intn(n int) int { return int(s.Below(uint64(n))) }

// Between draws evenly from [lo, hi], both included.
func (s *Stream) Between(lo, hi int64) int64 { return lo + int64(s.Below(uint64(hi-lo)+1)) }

// Chance is true with a probability of per in a thousand.
func (s *Stream) Chance(perMille int) bool { return s.Below(1000) < uint64(perMille) }

// Float draws from [0, 1).
func (s *Stream) Float() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// Skewed draws from [lo, hi], 0 <= lo, so that every order of magnitude (every number of binary digits) is as likely
// as any other. It is integer arithmetic alone: logarithms may differ in the last bit from machine to machine.
func (s *Stream) Skewed(lo, hi int64) int64 {
	least, most := bits.Len64(uint64(lo)), bits.Len64(uint64(hi))
	digits := least + s.Intn(most-least+1)
	from, to := int64(0), int64(0)
	if digits > 0 {
		from, to = 1<<(digits-1), 1<<digits-1
	}
	return s.Between(max(lo, from), min(hi, to))
}
