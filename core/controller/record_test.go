package controller

import (
	"bytes"
	"encoding/binary"
	"testing"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func drawID(t *rapid.T, label string) (id [16]byte) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
	return id
}

func drawIDs(t *rapid.T, label string) []int32 {
	v := rapid.SliceOfN(rapid.Int32(), 0, 5).Draw(t, label)
	if len(v) == 0 {
		return nil
	}
	return v
}

func optional[T any](t *rapid.T, label string, draw func() T) *T {
	if !rapid.Bool().Draw(t, "has "+label) {
		return nil
	}
	v := draw()
	return &v
}

// drawRecord draws any record of any type.
func drawRecord(t *rapid.T) Record {
	text := func(label string) string { return rapid.String().Draw(t, label) }
	i32 := func(label string) int32 { return rapid.Int32().Draw(t, label) }
	i64 := func(label string) int64 { return rapid.Int64().Draw(t, label) }
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	at := func() core.Partition { return core.Partition{Topic: drawID(t, "topic"), Index: i32("index")} }
	list := func(label string) *[]int32 { return optional(t, label, func() []int32 { return drawIDs(t, label) }) }
	kinds := []func() Record{
		func() Record { return &ClusterRecord{text("id")} },
		func() Record { return &FeatureRecord{text("name"), rapid.Int16().Draw(t, "level")} },
		func() Record { return &TopicRecord{text("name"), drawID(t, "id")} },
		func() Record { return &RemoveTopicRecord{drawID(t, "id")} },
		func() Record {
			return &PartitionRecord{Partition{at(), i32("leader"), i32("leader epoch"), i32("epoch"), yes("recovering"),
				drawIDs(t, "replicas"), drawIDs(t, "isr"), drawIDs(t, "elr"), drawIDs(t, "last"), drawIDs(t, "adding"), drawIDs(t, "removing"), 0}}
		},
		func() Record {
			return &PartitionChangeRecord{at(), i32("leader epoch"), i32("epoch"),
				optional(t, "leader", func() int32 { return i32("leader") }), optional(t, "recovering", func() bool { return yes("recovering") }),
				list("replicas"), list("isr"), list("elr"), list("last"), list("adding"), list("removing")}
		},
		func() Record {
			return &ConfigRecord{Resource{kmsg.ConfigResourceType(rapid.Int8().Draw(t, "type")), text("resource")},
				config.Change{Name: text("name"), Value: optional(t, "value", func() string { return text("value") })}}
		},
		func() Record { return &RegisterBrokerRecord{drawBroker(t)} },
		func() Record { return &BrokerChangeRecord{i32("id"), i64("epoch"), yes("fenced"), yes("stopping")} },
		func() Record { return &UnregisterBrokerRecord{i32("id"), i64("epoch")} },
		func() Record { return &ProducerIDsRecord{i32("broker"), i64("epoch"), i64("next")} },
		func() Record { return &BrokerEpochsRecord{i64("last")} },
	}
	r := kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]()
	return r
}

func drawBroker(t *rapid.T) Broker {
	b := Broker{ID: rapid.Int32().Draw(t, "id"), Epoch: rapid.Int64().Draw(t, "epoch"), Incarnation: drawID(t, "incarnation"),
		Rack: rapid.String().Draw(t, "rack"), Fenced: rapid.Bool().Draw(t, "fenced"), Stopping: rapid.Bool().Draw(t, "stopping"),
		Offset: rapid.Int64().Draw(t, "offset")}
	for range rapid.IntRange(0, 2).Draw(t, "n") {
		b.LogDirs = append(b.LogDirs, drawID(t, "dir"))
		b.Endpoints = append(b.Endpoints, Endpoint{rapid.String().Draw(t, "name"), rapid.String().Draw(t, "host"),
			rapid.Uint16().Draw(t, "port"), rapid.Int16().Draw(t, "protocol")})
		b.Features = append(b.Features, Feature{rapid.String().Draw(t, "feature"), rapid.Int16().Draw(t, "min"), rapid.Int16().Draw(t, "max")})
	}
	return b
}

func TestRecordRoundTrip(t *testing.T) {
	seen := make(map[kind]bool)
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		seen[r.kind()] = true
		b := Encode(r)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, r, got)
		require.Equal(t, b, Encode(got))
		require.NotEmpty(t, Describe(b))
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		_, err = Decode(b[:cut])
		require.Error(t, err, "every byte counts")
		_, err = Decode(append(bytes.Clone(b), 0))
		require.ErrorIs(t, err, ErrBadRecord)
	})
	for k := kindCluster; k <= kindBrokerEpochs; k++ {
		require.True(t, seen[k], "type %d was never drawn", k)
	}
	require.Nil(t, newRecord(kindBrokerEpochs+1), "a new type must be drawn here too")
}

// A record of a type or version that this build does not know is refused as that, so that the operator knows what to do.
func TestUnknownRecords(t *testing.T) {
	later := Encode(&ClusterRecord{"x"})
	later[1] = 7
	for _, b := range [][]byte{later, binary.AppendUvarint(nil, 99), append(binary.AppendUvarint(nil, 1<<40), 0)} {
		im := NewImage()
		if len(b) == 1 {
			b = append(b, 0)
		}
		_, err := im.Apply(5, b)
		require.ErrorIs(t, err, ErrUnknownRecord)
		require.ErrorContains(t, err, "offset 5")
		require.Contains(t, Describe(b), "newer version")
		require.Zero(t, im.Next())
	}
	_, err := NewImage().Apply(0, Encode(&FeatureRecord{MetadataFeature, MetadataLevel + 1}))
	require.ErrorIs(t, err, ErrUnknownRecord)
	_, err = NewImage().Apply(0, nil)
	require.ErrorIs(t, err, ErrBadRecord)
}

func TestDescribeRecords(t *testing.T) {
	two, isr, value := int32(2), []int32{1, 2}, "5"
	for want, r := range map[string]Record{
		"Topic t id=01000000000000000000000000000000": &TopicRecord{"t", core.TopicID{1}},
		"PartitionChange 01000000000000000000000000000000-3 leaderEpoch=4 epoch=5 leader=2 isr=[1 2]": &PartitionChangeRecord{
			Partition: core.Partition{Topic: core.TopicID{1}, Index: 3}, LeaderEpoch: 4, Epoch: 5, Leader: &two, ISR: &isr},
		`Config topic "t": flush.ms=5`:                      &ConfigRecord{TopicResource("t"), config.Change{Name: "flush.ms", Value: &value}},
		`Config broker "": flush.ms removed`:                &ConfigRecord{allBrokers, config.Change{Name: "flush.ms"}},
		"BrokerChange 1 epoch=2 fenced=true stopping=false": &BrokerChangeRecord{1, 2, true, false},
	} {
		require.Equal(t, want, Describe(Encode(r)))
	}
}

// Bytes that parse have exactly one form; no bytes make the parser panic or allocate without bound.
func FuzzDecode(f *testing.F) {
	two, isr := int32(2), []int32{1, 2}
	f.Add(Encode(&TopicRecord{"t", core.TopicID{1}}))
	f.Add(Encode(&PartitionRecord{Partition{Replicas: isr, ISR: isr}}))
	f.Add(Encode(&PartitionChangeRecord{Leader: &two, ISR: &isr}))
	f.Add(Encode(&RegisterBrokerRecord{Broker{Endpoints: []Endpoint{{"a", "b", 1, 0}}, LogDirs: [][16]byte{{1}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		Describe(b)
		if err != nil {
			return
		}
		if !bytes.Equal(b, Encode(r)) {
			t.Fatalf("%x parses as %+v, which is %x", b, r, Encode(r))
		}
		im := NewImage()
		if _, err := im.Apply(0, b); err != nil {
			return
		}
		again := NewImage()
		for _, s := range im.Snapshot() {
			if _, err := again.Apply(0, s); err != nil {
				t.Fatalf("snapshot of %+v: %v", r, err)
			}
		}
	})
}
