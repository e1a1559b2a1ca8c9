package group

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkConsumers100x1000 is the first balance of a KIP-848 group of 100 members over 1000 partitions, one join, and one
// leave, with the requests that each takes.
func BenchmarkConsumers100x1000(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		w.topics.create("t", 1000)
		var ms []*newMember
		for range 100 {
			ms = append(ms, w.consumer("g", "t"))
		}
		count := func(what string, run func()) {
			from, start := w.token, time.Now()
			run()
			b.ReportMetric(float64(w.token-from), "requests/"+what)
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/"+what)
		}
		settle := func() {
			for calm := false; !calm; {
				calm = true
				for _, m := range ms {
					epoch, n := m.epoch, len(m.owned)
					m.beat()
					calm = calm && epoch == m.epoch && n == len(m.owned) && !m.tell
				}
			}
		}
		count("first", settle)
		count("join", func() { ms = append(ms, w.consumer("g", "t")); settle() })
		count("leave", func() { ms[50].leave(-1); ms = append(ms[:50], ms[51:]...); settle() })
	}
}

// BenchmarkGroups10000 is 10,000 groups of one member at rest: memory, and what heartbeats cost.
func BenchmarkGroups10000(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := newWorld(b)
	var ms []*classicMember
	for i := range 10_000 {
		ms = append(ms, w.stable(fmt.Sprint("group-", i), 1)...)
		w.commitTo(fmt.Sprint("group-", i), nil)
		w.log = nil
		clear(w.answers)
		clear(w.asked)
	}
	w.lines = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	i := 0
	h := kmsg.NewPtrHeartbeatRequest()
	h.Version = 4
	for b.Loop() {
		m := ms[i%len(ms)]
		i++
		h.Group, h.MemberID, h.Generation = m.group, m.id, m.generation
		w.c.Handle(w.now, w.wall(), 1, Client{}, h, &w.out)
		w.out.Reset()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000, "B/group")
}
