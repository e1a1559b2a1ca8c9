package broker

import (
	"testing"

	"lockstep/core"
	"lockstep/core/record"
	"lockstep/core/replica"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A follower hears in one answer of new records and of older ones that are deleted. What those say of producers is stored
// before they go, and that is possible only once the new ones, which the table counts already, are in the log.
func TestProducersAreStoredBetweenAppendAndDeletion(t *testing.T) {
	h := newHost(t, nil)
	createTopic(h, "orders", 1)
	id := core.Partition{Topic: h.b.image.Topic("orders").ID}
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = 7, 0, 0
	b.Add(record.Record{Timestamp: int64(wall), Value: []byte("a")})
	built, err := b.Build()
	require.NoError(t, err)
	resp := ask[*kmsg.ProduceResponse](h, produceRequest("orders", 0, 1), record.Check(built.Bytes(), nil, record.Limits{}))
	require.Zero(t, produced(resp).ErrorCode)

	p, out := h.b.parts[id], Effects{}
	h.b.out = &out
	p.saved = 5
	h.b.carryLog(p, &replica.Out{Truncate: replica.Value{Set: true, Offset: 1}})
	h.b.saveProducers(p)
	require.IsType(t, SaveProducers{}, out.List[len(out.List)-1], "the snapshot of offset 5 went, and there is none of where the log ends")

	p.saved = 5
	h.b.onTruncated(Truncated{Log: id, End: 1})
	require.EqualValues(t, -1, p.saved)

	out = Effects{}
	p.saved = 0
	h.b.carryLog(p, &replica.Out{SetStart: replica.Value{Set: true, Offset: 1}, Append: []record.Batch{built}})
	var order []string
	for _, e := range out.List {
		switch e.(type) {
		case Append:
			order = append(order, "append")
		case SaveProducers:
			order = append(order, "save producers")
		case SetStart:
			order = append(order, "set start")
		}
	}
	require.Equal(t, []string{"append", "save producers", "set start"}, order)
}
