package controller

import (
	"bytes"
	"cmp"
	"iter"
	"strconv"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/google/btree"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// NoLeader is the leader of a partition that has none.
const NoLeader int32 = -1

// Topic is one topic. It is immutable; a change makes a new one.
type Topic struct {
	Name       string
	ID         core.TopicID
	Partitions int32 // how many; they are numbered from 0
}

// Partition is the state of one partition. It is immutable; a change makes a new one.
type Partition struct {
	core.Partition
	Leader      int32 // NoLeader if there is none
	LeaderEpoch int32 // rises with every election
	Epoch       int32 // partition epoch: rises with every change
	Recovering  bool  // the leader was chosen uncleanly and has not said that it recovered
	Replicas    []int32
	ISR         []int32 // in-sync replicas; may be empty (KIP-966)
	ELR         []int32 // eligible leader replicas: out of the ISR, but known to hold all that is committed
	LastELR     []int32 // last known ELR: where to look when ISR and ELR are empty
	Adding      []int32 // being added by a reassignment
	Removing    []int32 // being removed by a reassignment

	decided int64 // offset in the metadata log of the change that began the leader epoch; not in records, see ledSince
}

// Preferred returns the replica that should lead when it can.
func (p *Partition) Preferred() int32 { return p.Replicas[0] }

// Endpoint is where a broker listens.
type Endpoint struct {
	Name     string
	Host     string
	Port     uint16
	Protocol int16 // security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// Feature is a range of versions of a feature that a broker supports.
type Feature struct {
	Name     string
	Min, Max int16
}

// Broker is one registered broker. It is immutable; a change makes a new one.
type Broker struct {
	ID          int32
	Epoch       int64    // broker epoch: new at every registration (rule 9)
	Incarnation [16]byte // one life of the process
	LogDirs     [][16]byte
	Endpoints   []Endpoint
	Features    []Feature
	Rack        string // empty for none
	Fenced      bool   // leads nothing and joins no in-sync set
	Stopping    bool   // in controlled shutdown
	Offset      int64  // of the registration in the metadata log
}

// Active reports whether the broker may lead and join in-sync sets (rule 7).
func (b *Broker) Active() bool { return b != nil && !b.Fenced && !b.Stopping }

// Endpoint returns the endpoint of the listener, or the first one if there is none of that name.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	if len(b.Endpoints) == 0 {
		return Endpoint{}, false
	}
	return b.Endpoints[0], true
}

// Resource names what a config belongs to: a topic by name, a broker by its id
// in decimal, or all brokers by the empty name.
type Resource struct {
	Type kmsg.ConfigResourceType
	Name string
}

// TopicResource returns the resource of a topic's configs.
func TopicResource(topic string) Resource { return Resource{kmsg.ConfigResourceTypeTopic, topic} }

type (
	topicByName struct {
		name string
		*Topic
	}
	topicByID struct {
		id core.TopicID
		*Topic
	}
	partitionItem struct {
		key core.Partition
		*Partition
	}
	brokerItem struct {
		id int32
		*Broker
	}
	resourceItem struct {
		key    Resource
		values config.Values
	}
	featureItem struct {
		name  string
		level int16
	}
)

// Image is the cluster's metadata as of one offset of the metadata log. Its
// parts are ordered trees, so iteration is the same everywhere, and Clone
// costs next to nothing. Beside them an image, but not a clone, has maps for the
// lookups that every request makes; they are never iterated.
type Image struct {
	fast       *lookups
	next       int64 // offset after the last record applied
	base       int64 // offset of the last record that a snapshot stood for
	clusterID  string
	producerID int64 // first producer id that no block holds
	lastEpoch  int64 // highest broker epoch given out
	names      *btree.BTreeG[topicByName]
	ids        *btree.BTreeG[topicByID]
	partitions *btree.BTreeG[partitionItem]
	brokers    *btree.BTreeG[brokerItem]
	configs    *btree.BTreeG[resourceItem]
	features   *btree.BTreeG[featureItem]
}

type lookups struct {
	names      map[string]*Topic
	ids        map[core.TopicID]*Topic
	partitions map[core.Partition]*Partition
}

const degree = 16 // of the trees: a node is one or two kilobytes, which is what a write after Clone copies

// NewImage returns the image of an empty metadata log.
func NewImage() *Image {
	return &Image{
		fast:       &lookups{map[string]*Topic{}, map[core.TopicID]*Topic{}, map[core.Partition]*Partition{}},
		names:      btree.NewG(degree, func(a, b topicByName) bool { return a.name < b.name }),
		ids:        btree.NewG(degree, func(a, b topicByID) bool { return bytes.Compare(a.id[:], b.id[:]) < 0 }),
		partitions: btree.NewG(degree, func(a, b partitionItem) bool { return less(&a.key, &b.key) }),
		brokers:    btree.NewG(degree, func(a, b brokerItem) bool { return a.id < b.id }),
		configs:    btree.NewG(degree, func(a, b resourceItem) bool { return a.key.compare(b.key) < 0 }),
		features:   btree.NewG(degree, func(a, b featureItem) bool { return a.name < b.name }),
	}
}

func less(a, b *core.Partition) bool {
	if c := bytes.Compare(a.Topic[:], b.Topic[:]); c != 0 {
		return c < 0
	}
	return a.Index < b.Index
}

func (r Resource) compare(s Resource) int {
	return cmp.Or(cmp.Compare(r.Type, s.Type), cmp.Compare(r.Name, s.Name))
}

// Clone returns an image that can be changed without changing this one. The
// two share all that neither has changed.
func (im *Image) Clone() *Image {
	c := *im
	c.fast = nil
	c.names = im.names.Clone()
	c.ids = im.ids.Clone()
	c.partitions = im.partitions.Clone()
	c.brokers = im.brokers.Clone()
	c.configs = im.configs.Clone()
	c.features = im.features.Clone()
	return &c
}

// Next returns the offset after the last record applied.
func (im *Image) Next() int64 { return im.next }

// ClusterID returns the cluster's id; it is empty before the first controller wrote it.
func (im *Image) ClusterID() string { return im.clusterID }

// NextProducerID returns the first producer id that no allocated block holds.
func (im *Image) NextProducerID() int64 { return im.producerID }

// Topic returns the topic of that name, or nil.
func (im *Image) Topic(name string) *Topic {
	if im.fast != nil {
		return im.fast.names[name]
	}
	it, _ := im.names.Get(topicByName{name: name})
	return it.Topic
}

// TopicByID returns the topic of that id, or nil.
func (im *Image) TopicByID(id core.TopicID) *Topic {
	if im.fast != nil {
		return im.fast.ids[id]
	}
	it, _ := im.ids.Get(topicByID{id: id})
	return it.Topic
}

// TopicCount returns the number of topics.
func (im *Image) TopicCount() int { return im.names.Len() }

// Topics iterates over all topics in the order of their names.
func (im *Image) Topics() iter.Seq[*Topic] { return im.TopicsFrom("") }

// TopicsFrom iterates over the topics whose names are at or after first, in order.
func (im *Image) TopicsFrom(first string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		im.names.AscendGreaterOrEqual(topicByName{name: first}, func(it topicByName) bool { return yield(it.Topic) })
	}
}

// Partition returns the state of a partition, or nil.
func (im *Image) Partition(p core.Partition) *Partition {
	if im.fast != nil {
		return im.fast.partitions[p]
	}
	it, _ := im.partitions.Get(partitionItem{key: p})
	return it.Partition
}

// PartitionCount returns the number of partitions of all topics.
func (im *Image) PartitionCount() int { return im.partitions.Len() }

// Partitions iterates over a topic's partitions in order.
func (im *Image) Partitions(topic core.TopicID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		first := partitionItem{key: core.Partition{Topic: topic}}
		im.partitions.AscendGreaterOrEqual(first, func(it partitionItem) bool {
			return it.key.Topic == topic && yield(it.Partition)
		})
	}
}

// AllPartitions iterates over all partitions in the order of topic id and index.
func (im *Image) AllPartitions() iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		im.partitions.Ascend(func(it partitionItem) bool { return yield(it.Partition) })
	}
}

// Broker returns the broker of that id, or nil.
func (im *Image) Broker(id int32) *Broker {
	it, _ := im.brokers.Get(brokerItem{id: id})
	return it.Broker
}

// BrokerCount returns the number of registered brokers.
func (im *Image) BrokerCount() int { return im.brokers.Len() }

// Brokers iterates over all registered brokers in the order of their ids.
func (im *Image) Brokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		im.brokers.Ascend(func(it brokerItem) bool { return yield(it.Broker) })
	}
}

// Config returns what is configured for a resource itself.
func (im *Image) Config(r Resource) config.Values {
	it, _ := im.configs.Get(resourceItem{key: r})
	return it.values
}

// Feature returns the level at which a feature is finalized, 0 if it is not.
func (im *Image) Feature(name string) int16 {
	it, _ := im.features.Get(featureItem{name: name})
	return it.level
}

// Layers returns the sources of a broker's configuration, given its static file.
func (im *Image) Layers(broker int32, static config.Values) config.Layers {
	return config.Layers{
		Dynamic: im.Config(BrokerResource(broker)),
		Default: im.Config(Resource{Type: kmsg.ConfigResourceTypeBroker}),
		Static:  static,
	}
}

// TopicConfig resolves the effective configuration of a topic.
func (im *Image) TopicConfig(topic string, broker *config.Layers) config.TopicConfig {
	return config.Topic(im.Config(TopicResource(topic)), broker)
}

// BrokerResource returns the resource of one broker's dynamic configs.
func BrokerResource(id int32) Resource {
	return Resource{kmsg.ConfigResourceTypeBroker, strconv.FormatInt(int64(id), 10)}
}
