package log

import "iter"

// ActiveProducer is what DescribeProducers tells of one producer (KIP-664).
type ActiveProducer struct {
	ID            int64
	Epoch         int16
	LastSequence  int32 // -1 if none of its batches is remembered
	LastTimestamp int64 // milliseconds, -1 if not known
	TxnFirst      int64 // first offset of its open transaction, -1 if it has none
}

// Active yields the producers of the table, the one whose last batch is the oldest first.
func (p *Producers) Active() iter.Seq[ActiveProducer] {
	return func(yield func(ActiveProducer) bool) {
		if p == nil {
			return
		}
		for e := p.head; e != nil; e = e.next {
			a := ActiveProducer{ID: e.id, Epoch: e.epoch, LastSequence: -1, LastTimestamp: -1, TxnFirst: e.txnFirst}
			if n := len(e.batches); n > 0 {
				a.LastSequence, a.LastTimestamp = e.batches[n-1].LastSequence, e.batches[n-1].Timestamp
			}
			if !yield(a) {
				return
			}
		}
	}
}
