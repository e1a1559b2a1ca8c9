package controller

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
)

func apply(t require.TestingT, im *Image, records ...Record) {
	for _, r := range records {
		_, err := im.Apply(im.Next(), Encode(r))
		require.NoError(t, err)
	}
}

func TestImageRefusesContradictions(t *testing.T) {
	id := core.TopicID{1}
	p := func(leader int32, isr, elr []int32) *PartitionRecord {
		return &PartitionRecord{Partition{Partition: core.Partition{Topic: id}, Leader: leader, Replicas: []int32{1, 2}, ISR: isr, ELR: elr}}
	}
	change := func(edit func(*PartitionChangeRecord)) *PartitionChangeRecord {
		r := &PartitionChangeRecord{Partition: core.Partition{Topic: id}, Epoch: 1}
		edit(r)
		return r
	}
	two, none := int32(2), []int32{}
	base := []Record{&ClusterRecord{"c"}, &TopicRecord{"t", id}, p(1, []int32{1, 2}, nil),
		&RegisterBrokerRecord{Broker{ID: 1, Epoch: 5}}, &ProducerIDsRecord{Next: 10}}
	for i, bad := range []Record{
		&ClusterRecord{"d"}, &TopicRecord{"t", core.TopicID{2}}, &TopicRecord{"u", id}, &RemoveTopicRecord{core.TopicID{2}},
		p(1, []int32{1}, nil), // partition 0 again
		&PartitionRecord{Partition{Partition: core.Partition{Topic: id, Index: 2}, Leader: -1, Replicas: []int32{1}}}, // a gap
		&PartitionRecord{Partition{Partition: core.Partition{Topic: id, Index: 1}, Leader: -1}},
		&PartitionRecord{Partition{Partition: core.Partition{Topic: id, Index: 1}, Leader: -1, Replicas: []int32{1, 1}}},
		change(func(r *PartitionChangeRecord) { r.Index = 1 }),
		change(func(r *PartitionChangeRecord) { r.Epoch = 0 }),
		change(func(r *PartitionChangeRecord) { r.Epoch = 2 }),
		change(func(r *PartitionChangeRecord) { r.LeaderEpoch = -1 }),
		change(func(r *PartitionChangeRecord) { r.LeaderEpoch = 2 }),
		change(func(r *PartitionChangeRecord) { r.Leader = &two }), // without a new leader epoch
		change(func(r *PartitionChangeRecord) { r.ISR = &[]int32{1, 3} }),
		change(func(r *PartitionChangeRecord) { r.ISR = &[]int32{1, 1} }),
		change(func(r *PartitionChangeRecord) { r.ISR = &none }), // the leader is in it
		change(func(r *PartitionChangeRecord) { r.ELR = &[]int32{2} }),
		change(func(r *PartitionChangeRecord) { r.ELR = &[]int32{3} }),
		&RegisterBrokerRecord{Broker{ID: 1, Epoch: 5}}, &BrokerChangeRecord{ID: 1, Epoch: 4}, &BrokerChangeRecord{ID: 2},
		&UnregisterBrokerRecord{ID: 1, Epoch: 4}, &ProducerIDsRecord{Next: 9},
	} {
		im := NewImage()
		apply(t, im, base...)
		before := im.Snapshot()
		_, err := im.Apply(im.Next(), Encode(bad))
		require.ErrorIs(t, err, ErrContradiction, "case %d", i)
		require.Equal(t, before, im.Snapshot(), "case %d changed something", i)
	}
}

func TestDeltas(t *testing.T) {
	im := NewImage()
	id := core.TopicID{1}
	step := func(r Record) Delta {
		d, err := im.Apply(im.Next(), Encode(r))
		require.NoError(t, err)
		return d
	}
	require.Equal(t, ClusterChanged, step(&ClusterRecord{"c"}).Kind)
	d := step(&TopicRecord{"t", id})
	require.Equal(t, Delta{Kind: TopicCreated, Topic: im.Topic("t")}, d)
	d = step(&PartitionRecord{Partition{Partition: core.Partition{Topic: id}, Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}})
	first := im.Partition(core.Partition{Topic: id})
	require.Equal(t, Delta{Kind: PartitionChanged, New: first}, d)
	none, empty := NoLeader, []int32{}
	d = step(&PartitionChangeRecord{Partition: core.Partition{Topic: id}, LeaderEpoch: 1, Epoch: 1, Leader: &none, ISR: &empty})
	require.Same(t, first, d.Old)
	require.EqualValues(t, 1, first.Leader, "what a handler holds does not change under it")
	require.Same(t, im.Partition(core.Partition{Topic: id}), d.New)
	value := "1"
	d = step(&ConfigRecord{TopicResource("t"), config.Change{Name: "flush.ms", Value: &value}})
	require.Equal(t, Delta{Kind: ConfigChanged, Resource: TopicResource("t"), Config: "flush.ms"}, d)
	d = step(&RegisterBrokerRecord{Broker{ID: 1, Epoch: 1, Offset: -1}})
	require.Equal(t, BrokerChanged, d.Kind)
	require.Nil(t, d.OldBroker)
	require.EqualValues(t, 5, d.NewBroker.Offset, "where its record lies")
	d = step(&UnregisterBrokerRecord{1, 1})
	require.NotNil(t, d.OldBroker)
	require.Nil(t, d.NewBroker)
	d = step(&RemoveTopicRecord{id})
	require.Equal(t, TopicDeleted, d.Kind)
	require.Len(t, d.Removed, 1)
	require.EqualValues(t, 8, im.Next())
}

// A broker epoch is never given out twice, though the broker that had it, and the log that says so, are gone.
func TestSnapshotKeepsTheLastBrokerEpoch(t *testing.T) {
	im := NewImage()
	apply(t, im, &RegisterBrokerRecord{Broker{ID: 1, Epoch: 3}}, &RegisterBrokerRecord{Broker{ID: 2, Epoch: 9}}, &UnregisterBrokerRecord{2, 9})
	again := NewImage()
	for _, r := range im.Snapshot() {
		_, err := again.Apply(0, r)
		require.NoError(t, err)
	}
	require.EqualValues(t, 9, again.lastEpoch)
	require.EqualValues(t, 9, again.Clone().lastEpoch)
}

func bigImage(t require.TestingT, topics, partitions int) *Image {
	im := NewImage()
	for i := range topics {
		id := core.TopicID{byte(i >> 8), byte(i), 1}
		apply(t, im, &TopicRecord{fmt.Sprintf("topic-%d", i), id})
		for j := range partitions {
			apply(t, im, &PartitionRecord{Partition{Partition: core.Partition{Topic: id, Index: int32(j)}, Leader: 1,
				Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}}})
		}
	}
	return im
}

func TestImageIterationIsOrdered(t *testing.T) {
	im := bigImage(t, 20, 3)
	var names []string
	for topic := range im.Topics() {
		names = append(names, topic.Name)
	}
	require.Len(t, names, 20)
	require.True(t, slices.IsSorted(names))
	var rest []string
	for topic := range im.TopicsFrom("topic-5") {
		rest = append(rest, topic.Name)
	}
	require.Equal(t, []string{"topic-5", "topic-6", "topic-7", "topic-8", "topic-9"}, rest)
	last := core.Partition{Index: -1}
	n := 0
	for p := range im.AllPartitions() {
		require.Positive(t, p.Compare(last))
		last = p.Partition
		n++
	}
	require.Equal(t, im.PartitionCount(), n)
	for p := range im.Partitions(core.TopicID{0, 7, 1}) {
		require.Equal(t, core.TopicID{0, 7, 1}, p.Topic)
		n--
	}
	require.Equal(t, 57, n)
}

// A clone and its origin go their own ways.
func TestCloneIsIndependent(t *testing.T) {
	im := bigImage(t, 10, 10)
	before := im.Snapshot()
	c := im.Clone()
	apply(t, c, &RemoveTopicRecord{core.TopicID{0, 3, 1}}, &ClusterRecord{"x"})
	require.Equal(t, before, im.Snapshot())
	require.Equal(t, 90, c.PartitionCount())
	after := c.Snapshot()
	apply(t, im, &RemoveTopicRecord{core.TopicID{0, 4, 1}})
	require.Equal(t, after, c.Snapshot())
}

// The image of 10,000 partitions of three replicas is small, and its clone costs nothing.
func TestImageMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	im := bigImage(t, 100, 100)
	size := heap() - before
	clones := make([]*Image, 100)
	for i := range clones {
		clones[i] = im.Clone()
	}
	withClones := heap() - before
	runtime.KeepAlive(im)
	runtime.KeepAlive(clones)
	t.Logf("10,000 partitions: %d bytes each; a clone: %d bytes", size/10000, (withClones-size)/100)
	require.Less(t, size/10000, uint64(450))
	require.Less(t, (withClones-size)/100, uint64(16<<10))
}

func BenchmarkLookup(b *testing.B) {
	im := bigImage(b, 1000, 10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p := core.Partition{Topic: core.TopicID{byte(i % 1000 >> 8), byte(i % 1000), 1}, Index: int32(i % 10)}
		if im.Partition(p) == nil || im.TopicByID(p.Topic) == nil {
			b.Fatal("not there")
		}
	}
}

func BenchmarkApplyPartitionChange(b *testing.B) {
	im := bigImage(b, 100, 100)
	isr := []int32{1, 2}
	epoch := int32(0)
	b.ReportAllocs()
	for b.Loop() {
		epoch++
		r := Encode(&PartitionChangeRecord{Partition: core.Partition{Topic: core.TopicID{0, 50, 1}, Index: 50}, Epoch: epoch, ISR: &isr})
		if _, err := im.Apply(im.Next(), r); err != nil {
			b.Fatal(err)
		}
	}
}
