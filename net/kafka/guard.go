package kafka

import (
	"encoding/binary"
	"fmt"

	"lockstep/net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsg refuses an array that claims more elements than bytes are left, so what
// it allocates is in proportion to the frame; but an element of two bytes on
// the wire may be a hundred in memory. A Produce frame is large by its records,
// so the elements around them are counted before kmsg makes room for them. All
// other requests are small, and are bounded as such.

// MaxOtherBytes bounds the frame of a request that carries no records.
const MaxOtherBytes = 16 << 20

// smallBytes is a size of frame below which no amplification matters.
const smallBytes = 64 << 10

// Admit looks at the first net.HeadSize bytes of a frame of size bytes and says how
// to receive it. An error refuses it unread, and the connection with it.
func (d *Decoder) Admit(head []byte, size int) (net.Admission, error) {
	h, err := ParseHead(head)
	if err != nil {
		return net.Admission{}, err
	}
	if _, err := d.admit(h); err != nil {
		return net.Admission{}, err
	}
	a := net.Admission{Cost: int64(size)}
	switch h.Key {
	case kmsg.Produce.Int16():
		a.Pipelined, a.Reuse = true, true
		return a, nil
	case kmsg.Fetch.Int16():
		// Its decoded form has no byte fields, so nothing refers to the frame.
		a.Pipelined, a.Reuse = true, true
	}
	if size > MaxOtherBytes {
		return net.Admission{}, fmt.Errorf("%w: %s of %d bytes, more than %d", ErrMalformed, kmsg.NameForKey(h.Key), size, MaxOtherBytes)
	}
	if size > smallBytes {
		a.Cost *= otherAmplification
	}
	return a, nil
}

// otherAmplification is about how much larger a request without records can be in memory than on the wire.
const otherAmplification = 16

// maxPerElement is the most that is allowed for the topics and partitions of a
// Produce frame, in bytes of memory per byte of the frame.
const maxPerElement = 2

// produceElement is about the memory of one topic or partition of a kmsg.ProduceRequest, with its record.Checked.
const produceElement = 128

// guard refuses a Produce whose many empty elements would cost far more memory than the frame has bytes.
func guard(h Header, body []byte) error {
	if h.Key != kmsg.Produce.Int16() || len(body) < smallBytes {
		return nil
	}
	limit := len(body) * maxPerElement / produceElement
	if n := countProduce(h.Version, body, limit); n > limit {
		return fmt.Errorf("%w: Produce of %d bytes has more than %d topics and partitions", ErrMalformed, len(body), limit)
	}
	return nil
}

// countProduce counts the topics and partitions of a Produce request until there are more than limit.
// What can not be read ends the count: kmsg will find the same.
func countProduce(version int16, body []byte, limit int) int {
	r := reader{b: body, flexible: version >= 9}
	if version >= 3 {
		r.skipString()
	}
	r.take(2 + 4) // acks, timeout
	count := 0
	for topics := r.arrayLen(); topics > 0 && !r.bad; topics-- {
		if version >= 13 {
			r.take(16)
		} else {
			r.skipString()
		}
		if count++; count > limit {
			return count
		}
		for parts := r.arrayLen(); parts > 0 && !r.bad; parts-- {
			r.take(4)
			r.skipBytes()
			if r.flexible {
				r.skipTags()
			}
			if count++; count > limit {
				return count
			}
		}
		if r.flexible {
			r.skipTags()
		}
	}
	return count
}

// reader steps over the primitives of the protocol. Once bad, it yields zeros.
type reader struct {
	b        []byte
	flexible bool
	bad      bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) int16() int16 {
	if p := r.take(2); p != nil {
		return int16(binary.BigEndian.Uint16(p))
	}
	return 0
}

func (r *reader) int32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<32-1 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

func (r *reader) skipTags() {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		r.take(int(r.uvarint()))
	}
}

func (r *reader) skipString() {
	if r.flexible {
		r.take(max(0, int(r.uvarint())-1))
		return
	}
	r.take(max(0, int(r.int16())))
}

func (r *reader) skipBytes() {
	if r.flexible {
		r.take(max(0, int(r.uvarint())-1))
		return
	}
	r.take(max(0, int(r.int32())))
}

func (r *reader) arrayLen() int {
	if r.flexible {
		return int(r.uvarint()) - 1
	}
	return int(r.int32())
}
