package group

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"lockstep/core"
)

// The records of KIP-848 groups, which kmsg does not have: keys are a version, which is the kind of record, and strings;
// values a version, which is 0, and Kafka's flexible encoding (KIP-482).

var errMalformed = errors.New("malformed record")

func groupKey(kind int16, group string) []byte {
	return appendShortString(binary.BigEndian.AppendUint16(nil, uint16(kind)), group)
}

// memberKey is the key of what belongs to a member, or to a pattern.
func memberKey(kind int16, group, of string) []byte {
	return appendShortString(groupKey(kind, group), of)
}

func appendShortString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// encoder appends to a value.
type encoder struct{ b []byte }

func newValue() *encoder { return &encoder{make([]byte, 2, 64)} } // version 0

func (e *encoder) int8(v int8)     { e.b = append(e.b, byte(v)) }
func (e *encoder) int32(v int32)   { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64)   { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uvarint(v int)   { e.b = binary.AppendUvarint(e.b, uint64(v)) }
func (e *encoder) length(n int)    { e.uvarint(n + 1) }
func (e *encoder) string(s string) { e.length(len(s)); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte)  { e.length(len(s)); e.b = append(e.b, s...) }

func (e *encoder) nullable(s *string) {
	if s == nil {
		e.uvarint(0)
		return
	}
	e.string(*s)
}

func (e *encoder) strings(list []string) {
	e.length(len(list))
	for _, s := range list {
		e.string(s)
	}
}

// tags ends a structure that has no tagged fields set.
func (e *encoder) tags() { e.uvarint(0) }

// partitions appends a sorted set of partitions, by topic.
func (e *encoder) partitions(set []core.Partition) {
	topics := byTopic(set)
	e.length(len(topics))
	for _, t := range topics {
		e.b = append(e.b, t[0].Topic[:]...)
		e.length(len(t))
		for _, p := range t {
			e.int32(p.Index)
		}
		e.tags()
	}
}

// byTopic divides a sorted set of partitions by topic.
func byTopic(set []core.Partition) (out [][]core.Partition) {
	for len(set) > 0 {
		n := 1
		for n < len(set) && set[n].Topic == set[0].Topic {
			n++
		}
		out = append(out, set[:n])
		set = set[n:]
	}
	return out
}

func encodeGroup(epoch int32, hash int64) []byte {
	e := newValue()
	e.int32(epoch)
	if hash == 0 {
		e.tags()
		return e.b
	}
	e.uvarint(1)
	e.uvarint(0) // MetadataHash
	e.uvarint(8)
	e.int64(hash)
	return e.b
}

func encodeTargetEpoch(epoch int32) []byte {
	e := newValue()
	e.int32(epoch)
	e.tags()
	return e.b
}

func encodePartitions(set []core.Partition) []byte {
	e := newValue()
	e.partitions(set)
	e.tags()
	return e.b
}

func encodeCurrent(c *current) []byte {
	e := newValue()
	e.int32(c.epoch)
	e.int32(c.previous)
	e.int8(int8(c.state))
	e.partitions(c.assigned)
	e.partitions(c.revoking)
	e.tags()
	return e.b
}

func encodeResolved(r *resolved) []byte {
	e := newValue()
	e.strings(r.topics)
	e.int64(r.version)
	e.int64(r.at)
	e.tags()
	return e.b
}

func encodeMember(m *subscriber) []byte {
	e := newValue()
	e.nullable(m.instance)
	e.nullable(m.rack)
	e.string(m.clientID)
	e.string(m.host)
	e.strings(m.topics)
	e.nullable(m.regex)
	e.int32(int32(m.rebalance.Milliseconds()))
	e.nullable(m.assignor)
	if m.classic == nil {
		e.tags()
		return e.b
	}
	var x encoder
	x.uvarint(1) // present
	x.int32(int32(m.classic.session.Milliseconds()))
	x.length(len(m.classic.protocols))
	for _, p := range m.classic.protocols {
		x.string(p.name)
		x.bytes(p.metadata)
		x.tags()
	}
	x.tags()
	e.uvarint(1)
	e.uvarint(0) // ClassicMemberMetadata
	e.uvarint(len(x.b))
	e.b = append(e.b, x.b...)
	return e.b
}

// decoder reads a value. After the first thing that is wrong it gives zeros, and err says so. It keeps nothing of its input.
type decoder struct {
	b   []byte
	bad bool
}

// newDecoder begins to read a value of version 0.
func newDecoder(value []byte) *decoder {
	d := &decoder{b: value}
	if v := d.take(2); v != nil && binary.BigEndian.Uint16(v) != 0 {
		d.bad = true
	}
	return d
}

func (d *decoder) err() error {
	if d.bad {
		return errMalformed
	}
	return nil
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) int8() int8 {
	if v := d.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > math.MaxInt32 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// array reads the length of an array whose elements have at least size bytes each; null is empty.
func (d *decoder) array(size int) int {
	n := d.uvarint() - 1
	if d.bad || n < 0 || n > len(d.b)/size {
		d.bad = d.bad || n > 0
		return 0
	}
	return n
}

func (d *decoder) nullable() *string {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	s := string(d.take(n - 1))
	return &s
}

func (d *decoder) string() string {
	if s := d.nullable(); s != nil {
		return *s
	}
	return ""
}

func (d *decoder) strings() []string {
	out := make([]string, 0, d.array(1))
	for range cap(out) {
		out = append(out, d.string())
	}
	return out
}

func (d *decoder) shortString() string {
	if v := d.take(2); v != nil {
		return string(d.take(int(int16(binary.BigEndian.Uint16(v)))))
	}
	return ""
}

// tags reads tagged fields, which are given to known by their tags.
func (d *decoder) tags(known func(tag int, x *decoder)) {
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		tag := d.uvarint()
		x := &decoder{b: d.take(d.uvarint())}
		if known != nil && !d.bad {
			known(tag, x)
			d.bad = d.bad || x.bad
		}
	}
}

func (d *decoder) partitions() (set []core.Partition) {
	for n := d.array(18); n > 0 && !d.bad; n-- {
		var topic core.TopicID
		copy(topic[:], d.take(16))
		for m := d.array(4); m > 0; m-- {
			set = append(set, core.Partition{Topic: topic, Index: d.int32()})
		}
		d.tags(nil)
	}
	slices.SortFunc(set, core.Partition.Compare)
	return slices.Compact(set)
}

func decodeGroup(value []byte) (epoch int32, hash int64, err error) {
	d := newDecoder(value)
	epoch = d.int32()
	d.tags(func(tag int, x *decoder) {
		if tag == 0 {
			hash = x.int64()
		}
	})
	return epoch, hash, d.err()
}

func decodeTargetEpoch(value []byte) (int32, error) {
	d := newDecoder(value)
	epoch := d.int32()
	d.tags(nil)
	return epoch, d.err()
}

func decodePartitions(value []byte) ([]core.Partition, error) {
	d := newDecoder(value)
	set := d.partitions()
	d.tags(nil)
	return set, d.err()
}

func decodeCurrent(value []byte) (*current, error) {
	d := newDecoder(value)
	c := &current{epoch: d.int32(), previous: d.int32(), state: memberState(d.int8())}
	c.assigned, c.revoking = d.partitions(), d.partitions()
	d.tags(nil)
	return c, d.err()
}

func decodeResolved(value []byte) (*resolved, error) {
	d := newDecoder(value)
	r := &resolved{topics: d.strings(), version: d.int64(), at: d.int64()}
	d.tags(nil)
	slices.Sort(r.topics)
	return r, d.err()
}

func decodeMember(value []byte) (*subscriber, error) {
	d := newDecoder(value)
	m := &subscriber{instance: d.nullable(), rack: d.nullable(), clientID: d.string(), host: d.string()}
	m.topics, m.regex = d.strings(), d.nullable()
	m.rebalance, m.assignor = millis(d.int32()), d.nullable()
	slices.Sort(m.topics)
	d.tags(func(tag int, x *decoder) {
		if tag != 0 || x.uvarint() != 1 {
			return
		}
		m.classic = &bridge{session: millis(x.int32())}
		for n := x.array(3); n > 0 && !x.bad; n-- {
			p := protocol{name: x.string()}
			p.metadata = append([]byte{}, x.take(max(x.uvarint(), 1)-1)...)
			x.tags(nil)
			m.classic.protocols = append(m.classic.protocols, p)
		}
		x.tags(nil)
	})
	return m, d.err()
}
