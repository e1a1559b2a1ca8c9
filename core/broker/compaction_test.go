package broker

import (
	"testing"

	"lockstep/core"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func createWith(h *host, name string, configs ...string) {
	h.t.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, -1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	r.Topics = append(r.Topics, t)
	resp := ask[*kmsg.CreateTopicsResponse](h, r)
	require.Zero(h.t, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
}

// keyed is a batch of records with keys; "" is a null key.
func keyed(producer int64, keys ...string) record.Checked {
	b := record.NewBuilder()
	if producer > 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = producer, 0, 0
	}
	for _, k := range keys {
		r := record.Record{Timestamp: int64(wall), Key: []byte(k), Value: []byte("v")}
		if k == "" {
			r.Key = nil
		}
		b.Add(r)
	}
	built, err := b.Build()
	if err != nil {
		panic(err)
	}
	return record.Check(built.Bytes(), nil, record.Limits{})
}

// untilCompact lets time go on until a compaction is asked for, or so long that it should have been.
func (h *host) untilCompact() *Compact {
	h.compacts = nil
	for end := h.now.Add(5 * h.b.settings.CleanerBackoff); len(h.compacts) == 0 && h.now < end; {
		h.pass()
	}
	if len(h.compacts) == 0 {
		return nil
	}
	return &h.compacts[0]
}

func TestCompactionStopsAtTheHighWatermark(t *testing.T) {
	h := newHost(t, nil)
	createWith(h, "table", "cleanup.policy", "compact")
	createWith(h, "plain")
	id := core.Partition{Topic: h.b.image.Topic("table").ID}
	require.Nil(t, h.untilCompact(), "nothing is written")
	ask[*kmsg.ProduceResponse](h, produceRequest("table", 0, -1), keyed(9, "a", "b"))
	ask[*kmsg.ProduceResponse](h, produceRequest("table", 0, -1), keyed(4, "a"))
	ask[*kmsg.ProduceResponse](h, produceRequest("plain", 0, -1), keyed(0, "a", "b"))
	h.holdSync = true
	h.send(produceRequest("table", 0, -1), keyed(0, "a"))
	c := h.untilCompact()
	require.NotNil(t, c)
	require.Equal(t, id, c.Log)
	require.EqualValues(t, 3, c.Limit, "rule 19")
	require.Equal(t, []int64{4, 9}, c.Producers)
	require.EqualValues(t, 128<<20, c.Buffer)
	require.Equal(t, wall, c.Wall)

	require.Nil(t, h.untilCompact(), "one run at a time")
	h.step(Compacted{Log: id, Due: true, More: true})
	require.Len(t, h.compacts, 1, "the map was full: it goes on at once")
	h.step(Compacted{Log: id})
	require.Len(t, h.compacts, 1)
	require.NotNil(t, h.untilCompact())
	h.step(Compacted{Log: id, Err: errStopped})
	require.NotNil(t, h.untilCompact(), "it is tried again")
	h.step(Compacted{Log: id})
	h.step(LogFailed{Log: id, Err: errStopped})
	require.Nil(t, h.untilCompact(), "the replica is set aside")
	h.step(Compacted{Log: core.Partition{Index: 99}})
}

func TestCompactionCanBeOff(t *testing.T) {
	h := newHost(t, map[string]string{"log.cleaner.enable": "false", "log.cleanup.policy": "compact,delete"})
	createWith(h, "table")
	ask[*kmsg.ProduceResponse](h, produceRequest("table", 0, -1), keyed(0, "a"))
	require.Nil(t, h.untilCompact())
}

// INVALID_RECORD is for the batch that holds a record without key, and names the record; the rest of the request is unharmed.
func TestACompactedTopicTakesNoRecordWithoutKey(t *testing.T) {
	for _, policy := range []string{"compact", "compact,delete"} {
		h := newHost(t, nil)
		createWith(h, "table", "cleanup.policy", policy)
		createWith(h, "plain")
		r := produceRequest("table", 0, -1)
		r.Topics = append(r.Topics, produceRequest("plain", 0, -1).Topics...)
		resp := ask[*kmsg.ProduceResponse](h, r, keyed(0, "a", "", "b"), keyed(0, ""))
		p := resp.Topics[0].Partitions[0]
		require.EqualValues(t, 87, p.ErrorCode)
		require.Len(t, p.ErrorRecords, 1)
		require.EqualValues(t, 1, p.ErrorRecords[0].RelativeOffset)
		require.Zero(t, resp.Topics[1].Partitions[0].ErrorCode)
		require.Zero(t, produced(ask[*kmsg.ProduceResponse](h, produceRequest("table", 0, -1), keyed(0, "a"))).ErrorCode)
	}
}

// A follower that is sent batches with gaps between them tells its log that there are some, though its topic's policy is another by now.
func TestGapsAreAnnouncedToTheLog(t *testing.T) {
	h := newHost(t, nil)
	createWith(h, "plain")
	p := h.b.parts[core.Partition{Topic: h.b.image.Topic("plain").ID}]
	var out Effects
	h.b.out = &out
	h.b.rout.Gap = true
	h.b.rout.Append = []record.Batch{keyed(0, "a").Batch}
	h.b.carryOut(p)
	h.b.rout.Gap = true
	h.b.rout.Append = []record.Batch{keyed(0, "a").Batch}
	h.b.carryOut(p)
	require.Len(t, out.List, 3)
	require.True(t, out.List[0].(ConfigureLog).Config.Gaps)
	require.IsType(t, Append{}, out.List[1])
	require.IsType(t, Append{}, out.List[2])
}
