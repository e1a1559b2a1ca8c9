package controller

import (
	"fmt"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record of the metadata log. The types in this file are all of
// them. A record says what is, not what is to be done: partition records carry
// the epochs that they lead to, so that one applied twice or out of order is
// noticed.
type Record interface {
	kind() kind
	encode(*writer)
	decode(*reader)
}

// kind is the type of a record in the log. Numbers are never used again.
type kind uint64

const (
	kindCluster kind = iota + 1
	kindFeature
	kindTopic
	kindRemoveTopic
	kindPartition
	kindPartitionChange
	kindConfig
	kindRegisterBroker
	kindBrokerChange
	kindUnregisterBroker
	kindProducerIDs
	kindBrokerEpochs
)

// version is the version of every record type so far. A change of a type's
// fields is a new version of that type, written only once a FeatureRecord says
// that every broker understands it.
const version = 0

// MetadataFeature is the feature whose level says which records may be in the log.
const MetadataFeature = "metadata.version"

// MetadataLevel is the level of MetadataFeature that this build writes and reads.
const MetadataLevel int16 = 1

// newRecord returns an empty record of a kind, or nil.
func newRecord(k kind) Record {
	switch k {
	case kindCluster:
		return &ClusterRecord{}
	case kindFeature:
		return &FeatureRecord{}
	case kindTopic:
		return &TopicRecord{}
	case kindRemoveTopic:
		return &RemoveTopicRecord{}
	case kindPartition:
		return &PartitionRecord{}
	case kindPartitionChange:
		return &PartitionChangeRecord{}
	case kindConfig:
		return &ConfigRecord{}
	case kindRegisterBroker:
		return &RegisterBrokerRecord{}
	case kindBrokerChange:
		return &BrokerChangeRecord{}
	case kindUnregisterBroker:
		return &UnregisterBrokerRecord{}
	case kindProducerIDs:
		return &ProducerIDsRecord{}
	case kindBrokerEpochs:
		return &BrokerEpochsRecord{}
	}
	return nil
}

// Encode returns the bytes of a record.
func Encode(r Record) []byte {
	w := writer{b: make([]byte, 0, 64)}
	w.uint(uint64(r.kind()))
	w.uint(version)
	r.encode(&w)
	return w.b
}

// Decode parses a record. The error is ErrUnknownRecord or ErrBadRecord, wrapped.
func Decode(b []byte) (Record, error) {
	in := reader{b: b}
	k, v := in.uint(), in.uint()
	if in.err != nil {
		return nil, in.err
	}
	r := newRecord(kind(k))
	if r == nil || v != version {
		return nil, fmt.Errorf("%w: type %d, version %d", ErrUnknownRecord, k, v)
	}
	r.decode(&in)
	if in.err == nil && len(in.b) > 0 {
		in.fail("%d bytes left over", len(in.b))
	}
	if in.err != nil {
		return nil, fmt.Errorf("type %d: %w", k, in.err)
	}
	return r, nil
}

// ClusterRecord gives the cluster its id; it is the first record of a log.
type ClusterRecord struct{ ID string }

func (*ClusterRecord) kind() kind         { return kindCluster }
func (r *ClusterRecord) encode(w *writer) { w.string(r.ID) }
func (r *ClusterRecord) decode(b *reader) { r.ID = b.string() }

// FeatureRecord finalizes a feature at a level.
type FeatureRecord struct {
	Name  string
	Level int16
}

func (*FeatureRecord) kind() kind         { return kindFeature }
func (r *FeatureRecord) encode(w *writer) { w.string(r.Name); w.int(int64(r.Level)) }
func (r *FeatureRecord) decode(b *reader) { r.Name, r.Level = b.string(), b.int16() }

// TopicRecord makes a topic; its partitions' records follow.
type TopicRecord struct {
	Name string
	ID   core.TopicID
}

func (*TopicRecord) kind() kind         { return kindTopic }
func (r *TopicRecord) encode(w *writer) { w.string(r.Name); w.id(r.ID) }
func (r *TopicRecord) decode(b *reader) { r.Name, r.ID = b.string(), b.id() }

// RemoveTopicRecord removes a topic with its partitions and its configs.
type RemoveTopicRecord struct{ ID core.TopicID }

func (*RemoveTopicRecord) kind() kind         { return kindRemoveTopic }
func (r *RemoveTopicRecord) encode(w *writer) { w.id(r.ID) }
func (r *RemoveTopicRecord) decode(b *reader) { r.ID = b.id() }

// PartitionRecord makes a partition, the next one of its topic.
type PartitionRecord struct{ Partition }

func (*PartitionRecord) kind() kind { return kindPartition }

func (r *PartitionRecord) encode(w *writer) {
	w.id(r.Topic)
	w.int(int64(r.Index))
	w.int(int64(r.Leader))
	w.int(int64(r.LeaderEpoch))
	w.int(int64(r.Epoch))
	w.bool(r.Recovering)
	for _, list := range [...][]int32{r.Replicas, r.ISR, r.ELR, r.LastELR, r.Adding, r.Removing} {
		w.int32s(list)
	}
}

func (r *PartitionRecord) decode(b *reader) {
	r.Topic, r.Index = b.id(), b.int32()
	r.Leader, r.LeaderEpoch, r.Epoch = b.int32(), b.int32(), b.int32()
	r.Recovering = b.bool()
	for _, list := range [...]*[]int32{&r.Replicas, &r.ISR, &r.ELR, &r.LastELR, &r.Adding, &r.Removing} {
		*list = b.int32s()
	}
}

// PartitionChangeRecord changes a partition. Nil fields stay as they are.
type PartitionChangeRecord struct {
	core.Partition
	LeaderEpoch int32 // after the change
	Epoch       int32 // after the change: one more than before
	Leader      *int32
	Recovering  *bool
	Replicas    *[]int32
	ISR         *[]int32
	ELR         *[]int32
	LastELR     *[]int32
	Adding      *[]int32
	Removing    *[]int32
}

func (*PartitionChangeRecord) kind() kind { return kindPartitionChange }

func (r *PartitionChangeRecord) lists() [6]**[]int32 {
	return [...]**[]int32{&r.Replicas, &r.ISR, &r.ELR, &r.LastELR, &r.Adding, &r.Removing}
}

// Bits of the mask that says which optional fields are there; the lists' bits follow in order.
const (
	hasLeader = 1 << iota
	hasRecovering
	hasFirstList
)

func (r *PartitionChangeRecord) encode(w *writer) {
	mask := uint64(0)
	if r.Leader != nil {
		mask |= hasLeader
	}
	if r.Recovering != nil {
		mask |= hasRecovering
	}
	for i, list := range r.lists() {
		if *list != nil {
			mask |= hasFirstList << i
		}
	}
	w.id(r.Topic)
	w.int(int64(r.Index))
	w.int(int64(r.LeaderEpoch))
	w.int(int64(r.Epoch))
	w.uint(mask)
	if r.Leader != nil {
		w.int(int64(*r.Leader))
	}
	if r.Recovering != nil {
		w.bool(*r.Recovering)
	}
	for _, list := range r.lists() {
		if *list != nil {
			w.int32s(**list)
		}
	}
}

func (r *PartitionChangeRecord) decode(b *reader) {
	r.Topic, r.Index = b.id(), b.int32()
	r.LeaderEpoch, r.Epoch = b.int32(), b.int32()
	mask := b.uint()
	if mask >= hasFirstList<<len(r.lists()) {
		b.fail("unknown fields %#x", mask)
	}
	if mask&hasLeader != 0 {
		v := b.int32()
		r.Leader = &v
	}
	if mask&hasRecovering != 0 {
		v := b.bool()
		r.Recovering = &v
	}
	for i, list := range r.lists() {
		if mask&(hasFirstList<<i) != 0 {
			v := b.int32s()
			*list = &v
		}
	}
}

// ConfigRecord sets one config of a resource, or removes it if Value is nil.
type ConfigRecord struct {
	Resource
	config.Change
}

func (*ConfigRecord) kind() kind { return kindConfig }

func (r *ConfigRecord) encode(w *writer) {
	w.int(int64(r.Resource.Type))
	w.string(r.Resource.Name)
	w.string(r.Change.Name)
	w.bool(r.Value != nil)
	if r.Value != nil {
		w.string(*r.Value)
	}
}

func (r *ConfigRecord) decode(b *reader) {
	r.Resource.Type = kmsg.ConfigResourceType(narrow[int8](b))
	r.Resource.Name = b.string()
	r.Change.Name = b.string()
	if b.bool() {
		v := b.string()
		r.Value = &v
	}
}

// RegisterBrokerRecord registers a broker under a new epoch, in place of an earlier registration.
type RegisterBrokerRecord struct{ Broker }

func (*RegisterBrokerRecord) kind() kind { return kindRegisterBroker }

// encode writes an Offset of -1 for "where this record lies", which is not known when it is proposed.
func (r *RegisterBrokerRecord) encode(w *writer) {
	w.int(int64(r.ID))
	w.int(r.Epoch)
	w.id(r.Incarnation)
	writeList(w, r.LogDirs, w.id)
	writeList(w, r.Endpoints, func(e Endpoint) {
		w.string(e.Name)
		w.string(e.Host)
		w.uint(uint64(e.Port))
		w.int(int64(e.Protocol))
	})
	writeList(w, r.Features, func(f Feature) {
		w.string(f.Name)
		w.int(int64(f.Min))
		w.int(int64(f.Max))
	})
	w.string(r.Rack)
	w.bool(r.Fenced)
	w.bool(r.Stopping)
	w.int(r.Offset)
}

func (r *RegisterBrokerRecord) decode(b *reader) {
	r.ID, r.Epoch, r.Incarnation = b.int32(), b.int(), b.id()
	r.LogDirs = readList(b, 16, (*reader).id)
	r.Endpoints = readList(b, 4, func(b *reader) Endpoint {
		return Endpoint{Name: b.string(), Host: b.string(), Port: b.uint16(), Protocol: b.int16()}
	})
	r.Features = readList(b, 3, func(b *reader) Feature {
		return Feature{Name: b.string(), Min: b.int16(), Max: b.int16()}
	})
	r.Rack, r.Fenced, r.Stopping, r.Offset = b.string(), b.bool(), b.bool(), b.int()
}

// BrokerChangeRecord says whether a registered broker is fenced or stopping.
type BrokerChangeRecord struct {
	ID       int32
	Epoch    int64 // of the registration that it changes
	Fenced   bool
	Stopping bool
}

func (*BrokerChangeRecord) kind() kind { return kindBrokerChange }

func (r *BrokerChangeRecord) encode(w *writer) {
	w.int(int64(r.ID))
	w.int(r.Epoch)
	w.bool(r.Fenced)
	w.bool(r.Stopping)
}

func (r *BrokerChangeRecord) decode(b *reader) {
	r.ID, r.Epoch, r.Fenced, r.Stopping = b.int32(), b.int(), b.bool(), b.bool()
}

// UnregisterBrokerRecord removes a broker.
type UnregisterBrokerRecord struct {
	ID    int32
	Epoch int64
}

func (*UnregisterBrokerRecord) kind() kind         { return kindUnregisterBroker }
func (r *UnregisterBrokerRecord) encode(w *writer) { w.int(int64(r.ID)); w.int(r.Epoch) }
func (r *UnregisterBrokerRecord) decode(b *reader) { r.ID, r.Epoch = b.int32(), b.int() }

// ProducerIDsRecord gives a broker the producer ids below Next that no earlier record gave away.
type ProducerIDsRecord struct {
	BrokerID    int32
	BrokerEpoch int64
	Next        int64
}

func (*ProducerIDsRecord) kind() kind { return kindProducerIDs }

func (r *ProducerIDsRecord) encode(w *writer) {
	w.int(int64(r.BrokerID))
	w.int(r.BrokerEpoch)
	w.int(r.Next)
}

func (r *ProducerIDsRecord) decode(b *reader) {
	r.BrokerID, r.BrokerEpoch, r.Next = b.int32(), b.int(), b.int()
}

// BrokerEpochsRecord says what the highest broker epoch given out so far is. Only
// snapshots have it, for the broker that had it may be gone.
type BrokerEpochsRecord struct{ Last int64 }

func (*BrokerEpochsRecord) kind() kind         { return kindBrokerEpochs }
func (r *BrokerEpochsRecord) encode(w *writer) { w.int(r.Last) }
func (r *BrokerEpochsRecord) decode(b *reader) { r.Last = b.int() }
