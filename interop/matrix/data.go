package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"lockstep/interop/agent"
)

// testRecords are what every client writes, for two partitions: keys and values that are null, empty, binary, long.
func testRecords(l limits) []agent.Record {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	binary := []agent.Header{{Key: "h", Value: []byte("first")}, {Key: "h", Value: []byte("again")}, {Key: "binary", Value: []byte{0, 255, 128}},
		{Key: "empty", Value: []byte{}}, {Key: "null", Value: nil}}
	if l.noNullHeaders {
		binary = binary[:len(binary)-1]
	}
	if l.textHeaders {
		binary = []agent.Header{{Key: "h", Value: []byte("first")}, {Key: "other", Value: []byte("second")}}
		all = []byte("text with spaces; and (signs) in it")
	}
	rs := []agent.Record{
		{Key: []byte("k"), Value: []byte("plain")},
		{Key: nil, Value: []byte("no key")},
		{Key: []byte(""), Value: []byte("empty key")},
		{Key: []byte("empty value"), Value: []byte("")},
		{Key: []byte("tombstone"), Value: nil},
		{Key: all, Value: append([]byte("bytes "), all...)},
		{Key: []byte("Ключ"), Value: []byte("värde 値 🔑")},
		{Key: []byte("long"), Value: []byte(strings.Repeat("compress me, please. ", 2000))},
		{Key: []byte("headers"), Value: []byte("with headers"), Headers: binary},
	}
	var out []agent.Record
	for p := range int32(2) {
		for i, r := range rs {
			r.Partition = p
			r.Value = bytes.Clone(r.Value)
			if !l.noTimestamps {
				r.Timestamp = 1_700_000_000_000 + int64(i)*1000
			}
			out = append(out, r)
		}
	}
	return out
}

// sameRecord says how got differs from want, or "".
func sameRecord(want, got agent.Record, l limits) string {
	switch {
	case want.Offset != got.Offset:
		return fmt.Sprintf("offset %d in place of %d", got.Offset, want.Offset)
	case want.Timestamp != got.Timestamp:
		return fmt.Sprintf("offset %d: timestamp %d in place of %d", want.Offset, got.Timestamp, want.Timestamp)
	}
	if d := sameBytes(want.Key, got.Key, l.emptyIsNull); d != "" {
		return fmt.Sprintf("offset %d: key %s", want.Offset, d)
	}
	if d := sameBytes(want.Value, got.Value, l.emptyIsNull); d != "" {
		return fmt.Sprintf("offset %d: value %s", want.Offset, d)
	}
	if len(want.Headers) != len(got.Headers) {
		return fmt.Sprintf("offset %d: %d headers in place of %d", want.Offset, len(got.Headers), len(want.Headers))
	}
	for i, h := range want.Headers {
		if l.textHeaders && !isText(h.Value) && h.Key == got.Headers[i].Key {
			continue
		}
		if d := sameBytes(h.Value, got.Headers[i].Value, l.emptyIsNull); d != "" || h.Key != got.Headers[i].Key {
			return fmt.Sprintf("offset %d: header %q in place of %q: %s", want.Offset, got.Headers[i].Key, h.Key, d)
		}
	}
	return ""
}

func isText(b []byte) bool { return b != nil && utf8.Valid(b) && !bytes.ContainsRune(b, 0) }

func sameBytes(want, got []byte, nilIsEmpty bool) string {
	if bytes.Equal(want, got) && ((want == nil) == (got == nil) || nilIsEmpty) {
		return ""
	}
	return fmt.Sprintf("%s in place of %s", show(got), show(want))
}

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%q... (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}
