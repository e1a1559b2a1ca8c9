package controller

// DeltaKind says what one record changed.
type DeltaKind uint8

// Kinds of change, and the fields of Delta they fill.
const (
	NothingChanged   DeltaKind = iota
	TopicCreated               // Topic; its partitions follow, each as PartitionChanged
	TopicDeleted               // Topic, Removed
	PartitionChanged           // Old (nil if it is new), New
	BrokerChanged              // OldBroker (nil if it is new), NewBroker (nil if it is gone)
	ConfigChanged              // Resource, Config
	ClusterChanged             // cluster id, feature level or producer ids
)

// Delta is what applying one record changed.
type Delta struct {
	Kind                 DeltaKind
	Topic                *Topic
	Removed              []*Partition // all partitions of a deleted topic
	Old, New             *Partition
	OldBroker, NewBroker *Broker
	Resource             Resource
	Config               string // name of the setting
}
