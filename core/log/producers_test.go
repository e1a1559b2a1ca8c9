package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"testing"

	"lockstep/core"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// header is a batch of n records of a producer at an offset.
func header(offset, id int64, epoch int16, seq, n int32) record.Header {
	return record.Header{BaseOffset: offset, LastOffsetDelta: n - 1, Count: n, ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq, MaxTimestamp: 1000 + offset}
}

func marker(offset, id int64, epoch int16) record.Header {
	h := header(offset, id, epoch, record.NoSequence, 1)
	h.Attributes = record.AttributeControl | record.AttributeTransactional
	return h
}

func appendAll(p *Producers, list ...record.Header) {
	for _, h := range list {
		p.Append(&h, 1)
	}
}

func check(p *Producers, id int64, epoch int16, seq, n int32) Verdict {
	h := header(math.MaxInt32, id, epoch, seq, n)
	return p.Check(&h)
}

func TestCheckAnswersAsKafka(t *testing.T) {
	p := NewProducers(0)
	appendAll(p, header(0, 7, 2, 10, 5), header(5, 7, 2, 15, 1), header(6, 7, 2, 16, 4))
	require.Equal(t, Verdict{}, check(p, -1, -1, -1, 3), "no producer")
	require.Equal(t, Verdict{}, check(p, 8, 0, 0, 3), "a new producer")
	require.Equal(t, Verdict{}, check(p, 8, 3, 17, 3), "a producer that is not known begins anywhere (KIP-360)")
	require.Equal(t, Verdict{}, check(p, 7, 2, 20, 1), "the next")
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 2, 21, 1).Code, "a gap")
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 2, 0, 1).Code)
	require.Equal(t, CodeInvalidProducerEpoch, check(p, 7, 1, 20, 1).Code, "an older epoch")
	require.Equal(t, CodeInvalidProducerEpoch, check(p, 7, 1, 16, 4).Code, "an older epoch, though the sequences are those of a batch")
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 3, 20, 1).Code, "a new epoch begins at 0")
	require.Equal(t, Verdict{}, check(p, 7, 3, 0, 1))
	require.Equal(t, Verdict{Duplicate: true, Original: Batch{16, 19, 6, 9, 1006}}, check(p, 7, 2, 16, 4))
	require.Equal(t, Verdict{Duplicate: true, Original: Batch{10, 14, 0, 4, 1000}}, check(p, 7, 2, 10, 5))
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 2, 16, 3).Code, "a part of a batch is no duplicate of it")
}

func TestDuplicatesAreToldOverFiveBatches(t *testing.T) {
	p := NewProducers(0)
	for i := range int64(6) {
		appendAll(p, header(i, 7, 0, int32(i), 1))
	}
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 0, 0, 1).Code, "Kafka's answer to a duplicate older than five batches")
	for i := range int32(5) {
		v := check(p, 7, 0, i+1, 1)
		require.True(t, v.Duplicate)
		require.Equal(t, int64(i+1), v.Original.Base)
	}
}

func TestIDsAscend(t *testing.T) {
	var none *Producers
	require.Empty(t, none.IDs())
	p := NewProducers(0)
	appendAll(p, header(0, 7, 0, 0, 1), header(1, 3, 0, 0, 1), header(2, 7, 0, 1, 1), header(3, 5, 0, 0, 1))
	require.Equal(t, []int64{3, 5, 7}, p.IDs())
}

func TestSequenceWraps(t *testing.T) {
	p := NewProducers(0)
	appendAll(p, header(0, 7, 0, math.MaxInt32-2, 3))
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 0, 1, 1).Code)
	require.Equal(t, Verdict{}, check(p, 7, 0, 0, 1), "after 2^31-1 comes 0")

	appendAll(p, header(3, 8, 0, math.MaxInt32-1, 4)) // MaxInt32-1, MaxInt32, 0, 1
	require.Equal(t, Verdict{}, check(p, 8, 0, 2, 1), "a batch may wrap inside")
	v := check(p, 8, 0, math.MaxInt32-1, 4)
	require.True(t, v.Duplicate)
	require.Equal(t, int32(1), v.Original.LastSequence)
}

func TestMarkerWithNewEpochBeginsTheSequenceAgain(t *testing.T) {
	p := NewProducers(0)
	h := header(0, 7, 0, 0, 3)
	h.Attributes = record.AttributeTransactional
	appendAll(p, h, marker(3, 7, 1))
	require.Equal(t, CodeInvalidProducerEpoch, check(p, 7, 0, 3, 1).Code)
	require.Equal(t, CodeOutOfOrderSequence, check(p, 7, 1, 3, 1).Code)
	require.Equal(t, Verdict{}, check(p, 7, 1, 0, 1))
}

func TestFirstUnstable(t *testing.T) {
	p := NewProducers(0)
	txn := func(offset, id int64, seq int32) record.Header {
		h := header(offset, id, 0, seq, 1)
		h.Attributes = record.AttributeTransactional
		return h
	}
	require.Equal(t, int64(-1), p.FirstUnstable())
	appendAll(p, header(0, 1, 0, 0, 1), txn(1, 2, 0), txn(2, 3, 0), txn(3, 2, 1))
	require.Equal(t, int64(1), p.FirstUnstable())
	h := header(9, 2, 0, 2, 1)
	require.Equal(t, CodeInvalidTxnState, p.Check(&h).Code, "not transactional inside a transaction")
	appendAll(p, marker(4, 2, 0))
	require.Equal(t, int64(1), p.FirstUnstable(), "the marker is not committed yet")
	p.Committed(5)
	require.Equal(t, int64(2), p.FirstUnstable())
	appendAll(p, marker(5, 3, 0))
	require.True(t, p.Truncate(5))
	require.Equal(t, int64(2), p.FirstUnstable(), "the marker is gone, and the transaction open again")
	appendAll(p, marker(5, 3, 0))
	p.Committed(6)
	require.Equal(t, int64(-1), p.FirstUnstable())
}

// D04: after a truncation the producer's retry of what was cut off is not taken for a duplicate, and what is still
// there is.
func TestD04TruncationTakesTheProducerTableWithIt(t *testing.T) {
	p := NewProducers(0)
	for i := range int64(8) {
		appendAll(p, header(i, 7, 0, int32(i), 1))
	}
	require.True(t, p.Truncate(3))
	require.True(t, check(p, 7, 0, 2, 1).Duplicate)
	require.True(t, check(p, 7, 0, 0, 1).Duplicate, "batches that had fallen out of the window are back")
	require.Equal(t, Verdict{}, check(p, 7, 0, 3, 1))
	require.True(t, p.Truncate(0))
	require.Zero(t, p.Len())
}

func TestTruncationBelowWhatIsCommittedIsRefused(t *testing.T) {
	p := NewProducers(0)
	appendAll(p, header(0, 7, 0, 0, 1), header(1, 7, 0, 1, 1))
	p.Committed(1)
	before := p.Snapshot()
	require.False(t, p.Truncate(0))
	require.Equal(t, before, p.Snapshot())
	require.True(t, p.Truncate(1))
}

func TestALongTailGivesUpItsOldestUndo(t *testing.T) {
	p := NewProducers(0)
	for i := range int64(maxUndo + 100) {
		appendAll(p, header(i, i%7, 0, int32(i/7), 1))
	}
	require.Equal(t, int64(100), p.ExactFrom())
	require.False(t, p.Truncate(99))
	require.True(t, p.Truncate(100))
	want := NewProducers(0)
	for i := range int64(100) {
		appendAll(want, header(i, i%7, 0, int32(i/7), 1))
	}
	require.Equal(t, dump(want), dump(p))
}

func TestTheOldestProducerIsForgottenFirst(t *testing.T) {
	p := NewProducers(3)
	open := header(0, 1, 0, 0, 1)
	open.Attributes = record.AttributeTransactional
	appendAll(p, open, header(1, 2, 0, 0, 1), header(2, 3, 0, 0, 1), header(3, 2, 0, 1, 1), header(4, 4, 0, 0, 1))
	require.Equal(t, 3, p.Len())
	require.Equal(t, Verdict{}, check(p, 3, 0, 5, 1), "3 wrote last before all others that have no transaction open")
	require.Equal(t, CodeOutOfOrderSequence, check(p, 1, 0, 5, 1).Code)
	require.Equal(t, CodeOutOfOrderSequence, check(p, 2, 0, 5, 1).Code)
	require.True(t, p.Truncate(4))
	require.Equal(t, CodeOutOfOrderSequence, check(p, 3, 0, 5, 1).Code, "truncation brings it back")
}

func TestExpire(t *testing.T) {
	p := NewProducers(0)
	a, b, c := header(0, 1, 0, 0, 1), header(1, 2, 0, 0, 1), header(2, 3, 0, 0, 1)
	p.Replay(a)
	require.Equal(t, 0, p.Expire(100, 1000), "nobody knows when 1 was seen, so it counts from now")
	p.Append(&b, 500)
	p.Append(&c, 600)
	p.Committed(2)
	require.Equal(t, 0, p.Expire(50, 1000), "a clock that goes back expires nobody")
	require.Equal(t, 1, p.Expire(1100, 1000))
	require.Equal(t, 1, p.Expire(1700, 1000), "3 is not committed yet")
	require.Equal(t, CodeOutOfOrderSequence, check(p, 3, 0, 5, 1).Code)
	p.Committed(3)
	require.Equal(t, 1, p.Expire(1700, 1000))
	require.Zero(t, p.Len())
}

// dump is everything that matters of a table.
func dump(p *Producers) string {
	s := ""
	for _, e := range p.inOrder() {
		s += fmt.Sprintf("%d: epoch %d, last %d, txn %d, %v\n", e.id, e.epoch, e.lastOffset, e.txnFirst, e.batches)
	}
	return s + fmt.Sprint("unstable ", p.FirstUnstable())
}

// The model knows the whole log, and computes the table from it whenever it is asked.
type producersModel struct {
	max       int
	log       []record.Header
	committed int64
}

func (m *producersModel) end() int64 {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].NextOffset()
}

func (m *producersModel) dump() string {
	type entry struct {
		id, last, txn int64
		epoch         int16
		batches       []Batch
	}
	var table []entry // in the order of the last offsets
	unstable := int64(-1)
	lower := func(offset int64) {
		if unstable < 0 || offset < unstable {
			unstable = offset
		}
	}
	for _, h := range m.log {
		e := entry{id: h.ProducerID, txn: -1, epoch: h.ProducerEpoch}
		found := false
		for i := range table {
			if table[i].id == h.ProducerID {
				e, found = table[i], true
				table = append(table[:i:i], table[i+1:]...)
				break
			}
		}
		if !found && len(table) >= m.max {
			for i := range table {
				if table[i].txn < 0 {
					table = append(table[:i:i], table[i+1:]...)
					break
				}
			}
		}
		if e.epoch != h.ProducerEpoch {
			e.epoch, e.batches = h.ProducerEpoch, nil
		}
		e.last = h.LastOffset()
		if h.Attributes&record.AttributeControl != 0 {
			if e.txn >= 0 && e.last >= m.committed {
				lower(e.txn)
			}
			e.txn = -1
		} else {
			if h.Attributes&record.AttributeTransactional != 0 && e.txn < 0 {
				e.txn = h.BaseOffset
			}
			e.batches = append(e.batches[:len(e.batches):len(e.batches)], Batch{h.BaseSequence, h.LastSequence(), h.BaseOffset, h.LastOffset(), h.MaxTimestamp})
			e.batches = e.batches[max(0, len(e.batches)-window):]
		}
		table = append(table, e)
	}
	s := ""
	for _, e := range table {
		if e.txn >= 0 {
			lower(e.txn)
		}
		s += fmt.Sprintf("%d: epoch %d, last %d, txn %d, %v\n", e.id, e.epoch, e.last, e.txn, e.batches)
	}
	return s + fmt.Sprint("unstable ", unstable)
}

func TestProducersAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &producersModel{max: rapid.IntRange(1, 6).Draw(t, "max")}
		p := NewProducers(m.max)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				id := rapid.Int64Range(0, 7).Draw(t, "id")
				h := header(m.end(), id, int16(rapid.IntRange(0, 2).Draw(t, "epoch")), rapid.Int32Range(0, 20).Draw(t, "seq"), rapid.Int32Range(1, 3).Draw(t, "n"))
				switch rapid.IntRange(0, 4).Draw(t, "kind") {
				case 0:
					h.Attributes = record.AttributeTransactional
				case 1:
					h = marker(h.BaseOffset, id, h.ProducerEpoch)
				}
				p.Append(&h, core.WallMillis(h.BaseOffset))
				m.log = append(m.log, h)
			},
			"plain": func(t *rapid.T) { // a batch without producer takes an offset and nothing else
				m.log = append(m.log, header(m.end(), 0, 0, 0, 1))
				p.Append(&m.log[len(m.log)-1], 1)
				h := header(m.end(), record.NoProducerID, -1, -1, 1)
				p.Append(&h, 1)
			},
			"commit": func(t *rapid.T) {
				m.committed = rapid.Int64Range(m.committed, m.end()).Draw(t, "to")
				p.Committed(m.committed)
			},
			"truncate": func(t *rapid.T) {
				end := rapid.Int64Range(max(0, m.committed-3), m.end()).Draw(t, "to")
				exact := p.Truncate(end)
				require.Equal(t, end >= m.committed, exact)
				for len(m.log) > 0 && m.log[len(m.log)-1].BaseOffset >= end {
					m.log = m.log[:len(m.log)-1]
				}
				if !exact {
					m.committed = min(m.committed, m.end())
					p = NewProducers(m.max)
					for _, h := range m.log {
						p.Replay(h)
					}
					p.Committed(m.committed)
				}
			},
			"reload": func(t *rapid.T) {
				b := p.Snapshot()
				q, err := LoadSnapshot(b)
				require.NoError(t, err)
				require.Equal(t, b, q.Snapshot())
				q.SetMax(m.max)
				p = q
			},
			"": func(t *rapid.T) { require.Equal(t, m.dump(), dump(p)) },
		})
	})
}

// TestBelow: what is known below an offset, and the batches from there on, are what is known of all.
func TestBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, end := NewProducers(0), int64(0)
		var all []record.Header
		for range rapid.IntRange(0, 40).Draw(t, "batches") {
			n := rapid.Int32Range(1, 3).Draw(t, "n")
			all = append(all, header(end, rapid.Int64Range(1, 4).Draw(t, "id"), int16(rapid.IntRange(0, 2).Draw(t, "epoch")), rapid.Int32Range(0, 20).Draw(t, "seq"), n))
			end += int64(n)
		}
		appendAll(p, all...)
		from := rapid.IntRange(0, len(all)).Draw(t, "from")
		offset := end
		if from < len(all) {
			offset = all[from].BaseOffset
		}
		below, err := LoadSnapshot(p.Below(offset).Snapshot())
		require.NoError(t, err)
		for _, e := range below.byID {
			require.Less(t, e.lastOffset, offset)
		}
		appendAll(below, all[from:]...)
		require.Equal(t, dump(p), dump(below))
	})
	var none *Producers
	require.Zero(t, none.Below(3).Len())
}

// TestBelowWhatIsNotCommitted: who knows what is known below an offset may be without batches from there on that are not committed, and
// lead. It then knows what a replica does that has the same batches and all below, too.
func TestBelowWhatIsNotCommitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "batches")
		all := make([]record.Header, n)
		for i := range all {
			all[i] = header(int64(i), rapid.Int64Range(1, 4).Draw(t, "id"), int16(rapid.IntRange(0, 2).Draw(t, "epoch")), int32(i), 1)
		}
		committed := rapid.IntRange(0, n).Draw(t, "committed")
		offset := rapid.IntRange(0, committed).Draw(t, "offset")
		has := rapid.IntRange(committed, n).Draw(t, "has")
		p := NewProducers(0)
		appendAll(p, all...)
		p.Committed(int64(committed))
		before := dump(p)
		below, err := LoadSnapshot(p.Below(int64(offset)).Snapshot())
		require.NoError(t, err)
		require.Equal(t, before, dump(p))
		appendAll(below, all[offset:has]...)
		other := NewProducers(0)
		appendAll(other, all[:has]...)
		require.Equal(t, dump(other), dump(below))
	})
}

func TestSnapshotIsChecked(t *testing.T) {
	p := NewProducers(0)
	appendAll(p, header(0, 7, 0, 0, 1), header(1, 7, 1, 0, 2))
	good := p.Snapshot()
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 4
		_, err := LoadSnapshot(bad)
		require.Error(t, err)
		_, err = LoadSnapshot(good[:i])
		require.ErrorIs(t, err, ErrSnapshot)
	}
	good[len(snapshotMagic)] = snapshotVersion + 1
	_, err := LoadSnapshot(good)
	require.ErrorIs(t, err, ErrSnapshotVersion)
	var none *Producers
	q, err := LoadSnapshot(none.Snapshot())
	require.NoError(t, err)
	require.Zero(t, q.Len())
}

// FuzzLoadSnapshot gives LoadSnapshot bodies with a right CRC: whatever it takes must be usable.
func FuzzLoadSnapshot(f *testing.F) {
	p := NewProducers(2)
	for i := range int64(12) {
		appendAll(p, header(i, i%3, int16(i/6), int32(i%6), 1))
	}
	appendAll(p, marker(12, 1, 1))
	f.Add(p.Snapshot()[snapshotHead:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := LoadSnapshot(seal(body))
		if err != nil {
			return
		}
		again, err := LoadSnapshot(p.Snapshot())
		require.NoError(t, err)
		require.Equal(t, p.Snapshot(), again.Snapshot())
		check(p, 1, 1, 6, 1)
		appendAll(p, header(1<<40, 1, 3, 0, 1))
		p.Truncate(p.ExactFrom())
		p.Committed(1 << 41)
		p.Expire(1<<50, 1)
	})
}

// seal puts a right head before a body.
func seal(body []byte) []byte {
	b := append([]byte(snapshotMagic), snapshotVersion, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[snapshotHead-4:], crc32.Checksum(body, castagnoli))
	return append(b, body...)
}
