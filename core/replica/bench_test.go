package replica

import (
	"testing"

	"lockstep/core/record"
)

// BenchmarkProduce is what an acks=all batch of an idempotent producer costs the core, from the request to its answer.
func BenchmarkProduce(b *testing.B) {
	cfg := testConfig()
	cfg.MinInsync = 1
	n := newNode(b, 1, cfg)
	n.r.Apply(n.now, state(1, 1, 0, 0, 1), &n.out)
	batches := make([]record.Checked, 1024)
	for i := range batches {
		batches[i] = checked(b, 7, int16(i>>10), int32(i), "x")
	}
	var out Out
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := batches[i%1024]
		if i%1024 == 0 && i > 0 {
			n.r.log.Reset(n.r.log.End(), nil) // the sequences begin again
		}
		out.Reset()
		if _, pending := n.r.Produce(n.now, 1, c, -1, Waiter(i), &out); !pending {
			b.Fatal("not pending")
		}
		n.r.Written(n.now, n.r.log.End(), &out)
		n.r.Durable(n.now, n.r.log.End(), &out)
		if len(out.Produced) != 1 {
			b.Fatal("not answered")
		}
	}
}
