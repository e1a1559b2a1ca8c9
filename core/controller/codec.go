package controller

import (
	"encoding/binary"
	"fmt"
)

// Records are encoded as type and version (uvarints), then the fields in
// order: integers as zigzag varints, strings and byte strings behind their
// length, lists behind their count, an optional field behind a bit of a mask.
// There is exactly one encoding of a value: a varint that could be shorter, or
// bytes that are left over, do not parse.

// writer appends to b.
type writer struct{ b []byte }

func (w *writer) uint(v uint64)    { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)      { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) id(v [16]byte)    { w.b = append(w.b, v[:]...) }
func (w *writer) string(v string)  { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) int32s(v []int32) { writeList(w, v, func(n int32) { w.int(int64(n)) }) }

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func writeList[T any](w *writer, list []T, each func(T)) {
	w.uint(uint64(len(list)))
	for _, v := range list {
		each(v)
	}
}

// reader takes from b. After an error it returns zero values, and err says what was wrong.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrBadRecord}, args...)...)
	}
	r.b = nil
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail("bad varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	u := r.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) int32() int32 { return narrow[int32](r) }
func (r *reader) int16() int16 { return narrow[int16](r) }

func narrow[T int16 | int32 | int8](r *reader) T {
	v := r.int()
	if int64(T(v)) != v {
		r.fail("%d does not fit its field", v)
		return 0
	}
	return T(v)
}

func (r *reader) uint16() uint16 {
	v := r.uint()
	if v > 1<<16-1 {
		r.fail("%d does not fit its field", v)
		return 0
	}
	return uint16(v)
}

func (r *reader) bool() bool {
	if len(r.b) == 0 || r.b[0] > 1 {
		r.fail("bad boolean")
		return false
	}
	v := r.b[0] == 1
	r.b = r.b[1:]
	return v
}

// count reads how many items of at least size bytes follow.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.fail("%d items in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) string() string {
	n := r.count(1)
	v := string(r.b[:n])
	r.b = r.b[n:]
	return v
}

func (r *reader) id() (v [16]byte) {
	if len(r.b) < len(v) {
		r.fail("%d bytes for an id", len(r.b))
		return v
	}
	r.b = r.b[copy(v[:], r.b):]
	return v
}

func (r *reader) int32s() []int32 { return readList(r, 1, (*reader).int32) }

// readList reads a list of items of at least size bytes; nil if it is empty.
func readList[T any](r *reader, size int, each func(*reader) T) []T {
	n := r.count(size)
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = each(r)
	}
	return list
}
