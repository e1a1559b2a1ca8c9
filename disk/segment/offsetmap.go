package segment

import (
	"crypto/sha256"
	"hash/maphash"
)

// offsetMap knows the last offset of each key of what is to be compacted, in memory that is bounded when it is made.
//
// A key of up to 15 bytes is held as it is. A longer one is held as 120 bits of its SHA-256: were two keys taken for one, the
// older record of the two would be lost, and with this hash nobody can make two such keys, while by chance it is 4e-19 for a
// billion keys, which is less than that of a wrong bit that CRC-32C does not see.
type offsetMap struct {
	slots []offsetSlot
	used  int
	max   int
	seed  maphash.Seed // where a slot is tells nothing, so that it may be random: nobody can choose keys that collide
}

type offsetSlot struct {
	key  mapKey
	next int64 // the offset after the last record of the key; 0 if the slot is free
}

type mapKey [16]byte

const (
	slotBytes  = 24
	exactKey   = len(mapKey{}) - 1
	hashedMark = 0xff
)

func mapKeyOf(key []byte) (k mapKey) {
	if len(key) <= exactKey {
		copy(k[:], key)
		k[exactKey] = byte(len(key))
		return k
	}
	sum := sha256.Sum256(key)
	copy(k[:exactKey], sum[:])
	k[exactKey] = hashedMark
	return k
}

// newOffsetMap returns a map that takes at most bytes of memory, and no more than some number of keys needs.
func newOffsetMap(bytes, keys int64) *offsetMap {
	slots := max(2, min(bytes/slotBytes, keys+keys/4+2))
	return &offsetMap{slots: make([]offsetSlot, slots), max: int(max(1, slots/5*4)), seed: maphash.MakeSeed()}
}

// slot returns the slot of a key, or the free one where it would be.
func (m *offsetMap) slot(k mapKey) *offsetSlot {
	i := int(maphash.Bytes(m.seed, k[:]) % uint64(len(m.slots)))
	for m.slots[i].next != 0 && m.slots[i].key != k {
		if i++; i == len(m.slots) {
			i = 0
		}
	}
	return &m.slots[i]
}

// put notes a record of a key, later than all before. It reports false if there is no room for another key.
func (m *offsetMap) put(key []byte, off int64) bool {
	k := mapKeyOf(key)
	s := m.slot(k)
	if s.next == 0 {
		if m.used == m.max {
			return false
		}
		m.used++
		s.key = k
	}
	s.next = off + 1
	return true
}

// superseded says that there is a later record of the key.
func (m *offsetMap) superseded(key []byte, off int64) bool {
	return m.slot(mapKeyOf(key)).next > off+1
}
