package linearizability

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Planted anomalies: each a small history that shows it, and its nearest neighbour that does not.

func produced(process int, invoke, ret, offset int64, vals ...int64) Op {
	return Op{Process: process, Kind: Produce, Topic: "t", Invoke: invoke, Return: ret, Outcome: OK, Acks: All, Offset: offset, Values: vals}
}

func unanswered(process int, invoke int64, vals ...int64) Op {
	return Op{Process: process, Kind: Produce, Topic: "t", Invoke: invoke, Return: Open, Acks: All, Offset: -1, Values: vals}
}

func refusedWrite(invoke, ret int64, vals ...int64) Op {
	return Op{Kind: Produce, Topic: "t", Invoke: invoke, Return: ret, Outcome: Failed, Acks: All, Offset: -1, Values: vals}
}

// fetched is a fetch from offset from, of consecutive values, with the high watermark hw (-1: not seen).
func fetched(process int, invoke, ret, from, hw int64, vals ...int64) Op {
	op := Op{Process: process, Kind: Fetch, Topic: "t", Invoke: invoke, Return: ret, Outcome: OK, From: from, HighWatermark: hw, LogStart: -1}
	for i, v := range vals {
		op.Records = append(op.Records, Record{from + int64(i), v})
	}
	return op
}

func outOfRange(invoke, ret, from int64) Op {
	return Op{Kind: Fetch, Topic: "t", Invoke: invoke, Return: ret, Outcome: OutOfRange, From: from}
}

func looked(kind Kind, invoke, ret, offset int64) Op {
	return Op{Kind: kind, Topic: "t", Invoke: invoke, Return: ret, Outcome: OK, Offset: offset}
}

func deleted(invoke, ret, to, low int64) Op {
	return Op{Kind: Delete, Topic: "t", Invoke: invoke, Return: ret, Outcome: OK, To: to, Offset: low}
}

func truth(start, end int64, vals ...int64) *Truth {
	t := &Truth{Start: start, End: end}
	for i, v := range vals {
		t.Records = append(t.Records, Record{start + int64(i), v})
	}
	return t
}

func session(n int64, op Op) Op { op.Session = n; return op }

func acks1(op Op) Op { op.Acks = 1; return op }

func TestAnomalies(t *testing.T) {
	sends, gaps, unseen := Options{Sends: true}, Options{Gaps: true}, Options{Unseen: true}
	kafka, retention := Options{Mode: Kafka}, Options{Retention: true}
	two := []Op{produced(1, 0, 10, 0, 11), produced(1, 20, 30, 1, 12)}
	with := func(ops ...Op) []Op { return append(append([]Op{}, two...), ops...) }
	for _, c := range []struct {
		name  string
		kind  Name // "": valid
		opts  Options
		ops   []Op
		truth *Truth
		who   []int // offending operations, if to be checked
	}{
		{"lost at the end", LostWrite, Options{}, two, truth(0, 1, 11), []int{1}},
		{"lost and replaced", LostWrite, Options{}, with(unanswered(2, 5, 13)), truth(0, 2, 11, 13), []int{1}},
		{"all there", "", Options{}, two, truth(0, 2, 11, 12), nil},
		{"deleted is not lost", "", Options{}, with(deleted(40, 50, 1, 1)), truth(1, 2, 12), nil},
		{"seen, then gone", LostWrite, Options{}, []Op{unanswered(1, 0, 11), fetched(2, 5, 6, 0, 1, 11)}, truth(0, 0), []int{0, 1}},
		{"acks=1 may be lost", "", Options{}, []Op{two[0], acks1(produced(1, 20, 30, 1, 12))}, truth(0, 1, 11), nil},
		{"acks=1 at another offset", InconsistentOffsets, Options{},
			[]Op{acks1(produced(1, 0, 9, 1, 12)), fetched(2, 20, 30, 0, 1, 12)}, nil, []int{0, 1}},

		{"twice", Duplicate, Options{}, with(fetched(2, 40, 50, 2, 3, 11)), nil, []int{0, 2}},
		{"twice, but sent twice", "", Options{},
			with(unanswered(1, 35, 11), fetched(2, 40, 50, 2, 3, 11)), nil, nil},
		{"twice, the second send refused", Duplicate, Options{},
			with(refusedWrite(35, 36, 11), fetched(2, 40, 50, 2, 3, 11)), nil, nil},

		{"two values at one offset", InconsistentOffsets, Options{},
			with(unanswered(3, 0, 13), fetched(2, 40, 50, 0, 2, 13, 12)), nil, []int{0, 3}},
		{"two reads differ", InconsistentOffsets, Options{},
			[]Op{unanswered(1, 0, 11), unanswered(1, 0, 12), fetched(2, 5, 6, 0, 1, 11), fetched(2, 7, 8, 0, 1, 12)}, nil, []int{2, 3}},
		{"two reads agree", "", Options{},
			[]Op{unanswered(1, 0, 11), unanswered(1, 0, 12), fetched(2, 5, 6, 0, 1, 11), fetched(3, 7, 8, 0, 1, 11)}, nil, nil},

		{"refused, yet read", AbortedRead, Options{}, []Op{refusedWrite(0, 10, 11), fetched(2, 20, 30, 0, 1, 11)}, nil, []int{0, 1}},
		{"refused, yet in the end there", AbortedRead, Options{}, []Op{refusedWrite(0, 10, 11)}, truth(0, 1, 11), []int{0}},
		{"unanswered, and read", "", Options{}, []Op{unanswered(1, 0, 11), fetched(2, 20, 30, 0, 1, 11)}, nil, nil},
		{"nobody's", PhantomRecord, Options{}, with(fetched(2, 40, 50, 2, 3, 99)), nil, []int{2}},
		{"unreadable", CorruptRecord, Options{}, with(fetched(2, 40, 50, 2, 3, NoValue)), nil, []int{2}},

		{"a refused write left an offset", OffsetGap, Options{},
			[]Op{two[0], refusedWrite(12, 13, 12), produced(1, 20, 30, 2, 13)}, nil, []int{2}},
		{"a gap in a fetch", OffsetGap, Options{}, []Op{{Process: 2, Kind: Fetch, Topic: "t", Invoke: 5, Return: 9, Outcome: OK,
			Records: []Record{{0, 11}, {2, 12}}, HighWatermark: 3, LogStart: -1}, unanswered(1, 0, 11), unanswered(1, 0, 12)}, nil, []int{0}},
		{"a gap where markers are", "", gaps, []Op{two[0], produced(1, 20, 30, 2, 13)}, nil, nil},
		{"an unanswered write may fill it", "", Options{}, []Op{two[0], unanswered(1, 12, 12), produced(1, 20, 30, 2, 13)}, nil, nil},
		{"an unanswered write came too late to fill it", FutureRead, Options{},
			[]Op{two[0], unanswered(1, 40, 12), looked(Latest, 20, 30, 2)}, nil, []int{1, 2}},

		{"a fetch leaves out a record", IntPollSkip, Options{}, []Op{two[0], two[1], produced(1, 32, 33, 2, 13),
			{Process: 2, Kind: Fetch, Topic: "t", Invoke: 35, Return: 39, Outcome: OK, Records: []Record{{0, 11}, {2, 13}}, HighWatermark: -1, LogStart: -1}},
			nil, []int{1, 3}},
		{"leaves out a record, markers or not", IntPollSkip, gaps, []Op{two[0], two[1], produced(1, 32, 33, 2, 13),
			{Process: 2, Kind: Fetch, Topic: "t", Invoke: 35, Return: 39, Outcome: OK, Records: []Record{{0, 11}, {2, 13}}, HighWatermark: -1, LogStart: -1}},
			nil, []int{1, 3}},
		{"a fetch goes back in itself", IntNonmonotonicPoll, Options{}, with(Op{Process: 2, Kind: Fetch, Topic: "t", Invoke: 35, Return: 39,
			Outcome: OK, Records: []Record{{0, 11}, {1, 12}, {0, 11}}, HighWatermark: -1, LogStart: -1}), nil, []int{2}},
		{"a poll skips", PollSkip, Options{}, with(produced(1, 32, 33, 2, 13), fetched(2, 40, 41, 0, 3, 11), fetched(2, 42, 43, 2, 3, 13)),
			nil, []int{3, 4}},
		{"a poll goes on", "", Options{}, with(produced(1, 32, 33, 2, 13), fetched(2, 40, 41, 0, 3, 11), fetched(2, 42, 43, 1, 3, 12, 13)), nil, nil},
		{"another assignment may skip", "", Options{},
			with(produced(1, 32, 33, 2, 13), fetched(2, 40, 41, 0, 3, 11), session(1, fetched(2, 42, 43, 2, 3, 13))), nil, nil},
		{"another consumer may skip", "", Options{},
			with(produced(1, 32, 33, 2, 13), fetched(2, 40, 41, 0, 3, 11), fetched(3, 42, 43, 2, 3, 13)), nil, nil},
		{"skips what was deleted", "", Options{}, with(produced(1, 32, 33, 2, 13), fetched(2, 40, 41, 0, 3, 11), deleted(41, 42, 2, 2),
			Op{Process: 2, Kind: Fetch, Topic: "t", Invoke: 43, Return: 44, Outcome: OK, From: 2, Records: []Record{{2, 13}}, HighWatermark: 3, LogStart: 2}),
			nil, nil},
		{"skips only what nobody sees", "", gaps, []Op{two[0], produced(1, 20, 30, 2, 13), fetched(2, 40, 41, 0, 3, 11), fetched(2, 42, 43, 2, 3, 13)}, nil, nil},
		{"a poll goes back", NonmonotonicPoll, Options{}, with(fetched(2, 40, 41, 0, 2, 11, 12), fetched(2, 42, 43, 1, 2, 12)), nil, []int{2, 3}},
		{"an empty poll moves nothing", "", Options{},
			with(fetched(2, 40, 41, 0, 2, 11), fetched(2, 42, 43, 1, 2), fetched(2, 44, 45, 1, 2, 12)), nil, nil},

		{"a batch with another inside", IntSendSkip, Options{}, []Op{unanswered(1, 0, 11, 12), unanswered(2, 0, 13), fetched(3, 5, 9, 0, 3, 11, 13, 12)},
			nil, []int{0}},
		{"a batch in one piece", "", Options{}, []Op{unanswered(1, 0, 11, 12), unanswered(2, 0, 13), fetched(3, 5, 9, 0, 3, 11, 12, 13)}, nil, nil},
		{"a batch in another order", IntNonmonotonicSend, Options{}, []Op{unanswered(1, 0, 11, 12), unanswered(2, 0, 13), fetched(3, 5, 9, 0, 3, 13, 12, 11)}, nil, []int{0}},
		{"half a batch overwritten", TornBatch, Options{}, []Op{unanswered(1, 0, 11, 12), unanswered(2, 0, 13), fetched(3, 5, 9, 0, 2, 11, 13)},
			nil, []int{0, 2}},
		{"half a batch visible", TornBatch, Options{}, []Op{produced(1, 0, 10, 0, 11, 12), looked(Latest, 5, 9, 1)}, nil, []int{1, 0}},
		{"sends overtake", NonmonotonicSend, sends, []Op{produced(1, 0, 10, 1, 11), produced(1, 5, 10, 0, 12)}, nil, []int{0, 1}},
		{"sends overtake without order promised", "", Options{}, []Op{produced(1, 0, 10, 1, 11), produced(1, 5, 10, 0, 12)}, nil, nil},
		{"sends of two producers cross", "", sends, []Op{produced(1, 0, 10, 1, 11), produced(2, 5, 10, 0, 12)}, nil, nil},

		{"never seen", Unseen, unseen, with(fetched(2, 40, 50, 0, 2, 11)), nil, []int{1}},
		{"all seen", "", unseen, with(fetched(2, 40, 50, 0, 2, 11, 12)), nil, nil},
		{"deleted before it was seen", "", unseen, with(deleted(40, 50, 1, 1), fetched(2, 60, 70, 1, 2, 12)), nil, nil},

		{"a fetch beyond its high watermark", BeyondEnd, Options{}, with(fetched(2, 40, 50, 0, 1, 11, 12)), nil, []int{2}},
		{"stale high watermark", StaleRead, Options{}, with(fetched(2, 40, 50, 0, 1, 11)), nil, []int{2, 1}},
		{"just in time", "", Options{}, with(fetched(2, 30, 50, 0, 1, 11)), nil, nil},
		{"stale, as Kafka may be", "", kafka, with(fetched(2, 40, 50, 0, 1, 11)), nil, nil},
		{"two reads in the wrong order", StaleRead, Options{},
			[]Op{unanswered(1, 0, 11), looked(Latest, 5, 6, 1), looked(Latest, 7, 8, 0)}, nil, []int{0, 1, 2}},
		{"two reads in the wrong order, as Kafka's may be", "", kafka,
			[]Op{unanswered(1, 0, 11), looked(Latest, 5, 6, 1), looked(Latest, 7, 8, 0)}, nil, nil},
		{"two reads at once", "", Options{}, []Op{unanswered(1, 0, 11), looked(Latest, 5, 7, 1), looked(Latest, 7, 8, 0)}, nil, nil},
		{"read before it was sent", FutureRead, Options{}, []Op{unanswered(1, 20, 11), fetched(2, 5, 10, 0, 1, 11)}, nil, []int{0, 1}},
		{"read before it was sent, also with Kafka", FutureRead, kafka, []Op{unanswered(1, 20, 11), fetched(2, 5, 10, 0, 1, 11)}, nil, nil},
		{"writes in the wrong order", Reordered, Options{}, []Op{produced(1, 0, 10, 1, 11), produced(2, 20, 30, 0, 12)}, nil, []int{1, 0}},

		{"between high watermark and log end, refused", StaleRead, Options{}, with(outOfRange(40, 50, 1)), nil, []int{2, 0}},
		{"beyond the end, refused", "", Options{}, with(outOfRange(40, 50, 3)), nil, nil},
		{"at the end, refused", StaleRead, Options{}, with(outOfRange(40, 50, 2)), nil, nil},
		{"below the start, refused", "", Options{}, with(deleted(40, 50, 1, 1), outOfRange(60, 70, 0)), nil, nil},
		{"at the start, refused", StaleRead, Options{}, with(deleted(40, 50, 1, 1), outOfRange(60, 70, 1)), nil, nil},
		{"below the start, served", Contradiction, Options{}, with(deleted(40, 50, 2, 2), Op{Kind: Fetch, Topic: "t", Invoke: 60, Return: 70,
			Outcome: OK, From: 2, HighWatermark: 1, LogStart: 2}), nil, nil},
		{"deleted, yet served", StaleRead, Options{}, with(deleted(40, 50, 1, 1), fetched(2, 60, 70, 0, 2, 11)), nil, nil},
		{"the start comes back", StaleRead, Options{}, with(deleted(40, 50, 1, 1), looked(Earliest, 60, 70, 0)), nil, nil},
		{"a start out of nothing", StartMismatch, Options{}, with(looked(Earliest, 60, 70, 1)), nil, []int{2}},
		{"a start by retention", "", retention, with(looked(Earliest, 60, 70, 1)), nil, nil},
		{"deleted less than asked", StartMismatch, Options{}, with(deleted(40, 50, 2, 1)), nil, []int{2}},
		{"malformed", Malformed, Options{}, []Op{produced(1, 10, 5, 0, 11)}, nil, []int{0}},
		{"a value sent twice in other company", Malformed, Options{}, []Op{produced(1, 0, 5, 0, 11), produced(1, 10, 15, 1, 11, 12)}, nil, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &History{Ops: c.ops}
			if c.truth != nil {
				h.Truth = map[Key]Truth{{Topic: "t"}: *c.truth}
			}
			r := Check(h, c.opts)
			if c.kind == "" {
				require.Equal(t, Valid, r.Verdict, r.String())
				return
			}
			require.Equal(t, Violated, r.Verdict)
			t.Log(r)
			require.Equal(t, c.kind, r.Anomalies[0].Kind, r.String())
			require.NotContains(t, r.String(), "\n")
			require.NotContains(t, r.String(), "%!")
			if c.who != nil {
				require.ElementsMatch(t, c.who, r.Anomalies[0].Ops, r.String())
			}
			if c.kind != Malformed {
				var page bytes.Buffer
				require.NoError(t, r.WriteHTML(&page))
				require.Contains(t, page.String(), "offending")
			}
		})
	}
}

func TestHistorySurvivesSaving(t *testing.T) {
	h := &History{
		Ops: []Op{produced(1, -5, 10, 0, 11, NoValue+1), unanswered(2, 3, 12), fetched(3, 4, 5, 0, 2, 11), outOfRange(6, 7, 9),
			deleted(8, 9, -1, 2), looked(Earliest, 10, 11, 0), session(3, fetched(3, 4, 5, 0, -1))},
		Truth: map[Key]Truth{{Topic: "t"}: *truth(2, 3, 12), {Topic: "u", Partition: 4}: *truth(0, 0)},
	}
	h.Ops[0].Note = "answered \"NOT_LEADER\"\nonce"
	var saved bytes.Buffer
	require.NoError(t, h.Write(&saved))
	require.Equal(t, len(h.Ops)+len(h.Truth), strings.Count(saved.String(), "\n"))
	again, err := Read(&saved)
	require.NoError(t, err)
	require.Equal(t, h, again)
	for _, bad := range []string{"{", `{"nosuch":1}`, "[]"} {
		_, err := Read(strings.NewReader(bad))
		require.ErrorContains(t, err, "line 1")
	}
}

// Whatever a file says, it is read, judged and pictured, or refused.
func FuzzSavedHistory(f *testing.F) {
	for _, h := range []*History{long(8, true), {Ops: []Op{deleted(1, 2, -1, 0), outOfRange(3, 4, 1), unanswered(1, 0, 1, 2)}}} {
		var saved bytes.Buffer
		require.NoError(f, h.Write(&saved))
		f.Add(saved.Bytes(), uint8(0))
	}
	f.Add([]byte(`{"k":2,"t":"t","e":1,"recs":[{"o":1},{"o":2305843009213693951}],"hw":-1}`), uint8(2))
	f.Fuzz(func(t *testing.T, saved []byte, how uint8) {
		h, err := Read(bytes.NewReader(saved))
		if err != nil || len(h.Ops) == 0 || len(h.Ops) > 50 {
			return
		}
		o := Options{Mode: Mode(how & 1), Gaps: how&2 > 0, Retention: how&4 > 0, Sends: true, Unseen: true, PorcupineTimeout: time.Millisecond}
		r := Check(h, o)
		require.NotContains(t, r.String(), "%!")
		if len(h.Ops) <= 8 && r.Verdict == Violated && r.Anomalies[0].Kind != Malformed {
			require.NoError(t, r.WriteHTML(io.Discard))
		}
	})
}

func TestPartitionsAreJudgedApart(t *testing.T) {
	a, b := produced(1, 0, 10, 0, 11), produced(1, 0, 10, 0, 11)
	b.Partition = 1
	h := &History{Ops: []Op{a, b, looked(Latest, 20, 30, 1)}}
	require.True(t, Check(h, Options{}).Valid())
	bad := looked(Latest, 20, 30, 0)
	bad.Partition = 1
	h.Ops = append(h.Ops, bad)
	r := Check(h, Options{})
	require.Len(t, r.Anomalies, 1)
	require.Equal(t, Key{"t", 1}, r.Anomalies[0].Key)
}

func TestRecorderLeavesOpenWhatDidNotReturn(t *testing.T) {
	var r Recorder
	a := r.Begin(Op{Kind: Produce, Topic: "t", Invoke: 1, Acks: All, Values: []int64{1}})
	r.Begin(Op{Kind: Produce, Topic: "t", Invoke: 2, Acks: All, Values: []int64{2}})
	r.End(a, 5, func(op *Op) { op.Outcome, op.Offset = OK, 0 })
	r.SetTruth(Key{Topic: "t"}, *truth(0, 2, 1, 2))
	h := r.History()
	require.Equal(t, []int64{5, Open}, []int64{h.Ops[0].Return, h.Ops[1].Return})
	require.Equal(t, int64(-1), h.Ops[1].Offset)
	require.True(t, Check(h, Options{}).Valid())
}

// long makes a valid history of n operations: six producers and four
// consumers at the end of a log, operations overlapping, some unanswered.
func long(n int, truthful bool) *History {
	rng := rand.New(rand.NewPCG(1, 2))
	h := &History{}
	var log []Record
	next := int64(1)
	at := make([]int64, 10)
	for i := range n {
		now := int64(i) * 100
		op := Op{Process: i % 10, Topic: "t", Invoke: now - rng.Int64N(90), Return: now + rng.Int64N(90), Outcome: OK}
		if op.Process < 6 {
			op.Kind, op.Acks, op.Offset = Produce, All, int64(len(log))
			for range 1 + rng.IntN(4) {
				op.Values = append(op.Values, next)
				log = append(log, Record{int64(len(log)), next})
				next++
			}
			if rng.IntN(50) == 0 {
				op.Outcome, op.Offset, op.Return = Unknown, -1, Open
			}
		} else {
			op.Kind, op.From, op.HighWatermark, op.LogStart = Fetch, at[op.Process], int64(len(log)), 0
			op.Records = log[op.From:len(log):len(log)]
			at[op.Process] = int64(len(log))
		}
		h.Ops = append(h.Ops, op)
	}
	if truthful {
		h.Truth = map[Key]Truth{{Topic: "t"}: {End: int64(len(log)), Records: log}}
	}
	return h
}

func TestLongHistory(t *testing.T) {
	h := long(100_000, true)
	require.Equal(t, "valid: 100000 operations", Check(h, Options{Sends: true, Unseen: true}).String())
	stale := &h.Ops[50_007]
	require.Equal(t, Fetch, stale.Kind)
	stale.Invoke, stale.Return = stale.Invoke+1000, stale.Return+1000
	r := Check(h, Options{})
	require.Equal(t, StaleRead, r.Anomalies[0].Kind, r.String())
	require.Contains(t, r.Anomalies[0].Ops, 50_007)
	var page bytes.Buffer
	require.NoError(t, r.WriteHTML(&page))
	require.Contains(t, page.String(), "#50007")
	require.Less(t, page.Len(), 2<<20)
}

// Many deletions, and offsets that nobody sees, take no longer either.
func TestLongHistoryWithGapsAndDeletions(t *testing.T) {
	h := &History{}
	const n = 60_000
	end, start := int64(0), int64(0)
	for i := range int64(n) {
		now := 100 * i
		switch i % 4 {
		case 0:
			h.Ops = append(h.Ops, produced(0, now, now+150, end, i+1))
			end += 2 // and one that nobody sees
		case 1:
			h.Ops = append(h.Ops, looked(Latest, now, now+20, end))
		case 2:
			start += (end - start) / 2
			h.Ops = append(h.Ops, deleted(now, now+20, start, start))
		case 3:
			h.Ops = append(h.Ops, outOfRange(now, now+20, start-1))
		}
	}
	require.Equal(t, "valid: 60000 operations", Check(h, Options{Gaps: true}).String())
	h.Ops[n-1].From = start
	require.Equal(t, StaleRead, Check(h, Options{Gaps: true}).Anomalies[0].Kind)
}

func BenchmarkNearLinear(b *testing.B) {
	h := long(100_000, true)
	for b.Loop() {
		if r := Check(h, Options{Sends: true}); !r.Valid() {
			b.Fatal(r)
		}
	}
	b.ReportMetric(float64(b.N*len(h.Ops))/b.Elapsed().Seconds(), "ops/s")
}

func BenchmarkPorcupine(b *testing.B) {
	h := long(300, true)
	keys, ops := h.partitions()
	p := newPart(h, keys[0], ops[keys[0]], Options{PorcupineTimeout: time.Minute})
	for b.Loop() {
		if l := newLayout(p); p.porcupine(l) != "Ok" {
			b.Fatal("not linearizable")
		}
	}
	b.ReportMetric(float64(b.N*len(h.Ops))/b.Elapsed().Seconds(), "ops/s")
}
