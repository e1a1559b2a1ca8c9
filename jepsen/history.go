package main

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lockstep/linearizability"
)

// recorder is the history of a run, on one monotonic clock.
type recorder struct {
	linearizability.Recorder
	topic string
	began time.Time
	last  atomic.Int64 // the last value given
}

func newRecorder(topic string) *recorder { return &recorder{topic: topic, began: time.Now()} }

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

// begin notes a call of a client now.
func (r *recorder) begin(process int, op linearizability.Op, partition int32) int {
	op.Process, op.Topic, op.Partition, op.Invoke = process, r.topic, partition, r.now()
	return r.Begin(op)
}

// end notes its return now.
func (r *recorder) end(id int, fill func(*linearizability.Op)) { r.End(id, r.now(), fill) }

// failed notes that a read has no answer, which says nothing.
func (r *recorder) failed(id int, err error) {
	r.end(id, func(op *linearizability.Op) { op.Outcome, op.Note = linearizability.Failed, err.Error() })
}

// payload is a record's value: the number that names it, and filling.
func payload(v int64, size int) []byte {
	b := strconv.AppendInt(make([]byte, 0, size), v, 10)
	b = append(b, '.')
	for len(b) < size {
		b = append(b, byte('a'+len(b)%26))
	}
	return b
}

// number is what payload was made of, or NoValue.
func number(b []byte) int64 {
	text, filling, ok := strings.Cut(string(b), ".")
	v, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return linearizability.NoValue
	}
	for i := range len(filling) {
		if filling[i] != byte('a'+(i+len(text)+1)%26) {
			return linearizability.NoValue
		}
	}
	return v
}
