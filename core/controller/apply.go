package controller

import (
	"fmt"
	"slices"

	"lockstep/core"
	"lockstep/core/config"
)

// Apply applies one committed record, at its offset in the metadata log, and
// returns what it changed. An error means that this broker cannot know the
// cluster's state any more and must stop: the record is damaged, of a type or
// version unknown here, or contradicts what came before (ErrUnknownRecord,
// ErrBadRecord, ErrContradiction). The image is then as it was.
func (im *Image) Apply(offset int64, record []byte) (Delta, error) {
	r, err := Decode(record)
	if err != nil {
		return Delta{}, fmt.Errorf("metadata record at offset %d: %w", offset, err)
	}
	d, err := im.apply(offset, r)
	if err != nil {
		return Delta{}, fmt.Errorf("metadata record at offset %d: %w", offset, err)
	}
	im.next = offset + 1
	return d, nil
}

func contradiction(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrContradiction}, args...)...)
}

// apply applies a record; offset is -1 for one that is only proposed.
func (im *Image) apply(offset int64, r Record) (Delta, error) {
	switch r := r.(type) {
	case *ClusterRecord:
		if im.clusterID != "" {
			return Delta{}, contradiction("cluster is %s, not %s", im.clusterID, r.ID)
		}
		im.clusterID = r.ID
	case *FeatureRecord:
		if r.Name == MetadataFeature && r.Level > MetadataLevel {
			return Delta{}, fmt.Errorf("%w: %s is %d, known here up to %d", ErrUnknownRecord, r.Name, r.Level, MetadataLevel)
		}
		im.features.ReplaceOrInsert(featureItem{r.Name, r.Level})
	case *ProducerIDsRecord:
		if r.Next < im.producerID {
			return Delta{}, contradiction("producer ids go back from %d to %d", im.producerID, r.Next)
		}
		im.producerID = r.Next
	case *BrokerEpochsRecord:
		im.lastEpoch = max(im.lastEpoch, r.Last)
	case *TopicRecord:
		return im.applyTopic(r)
	case *RemoveTopicRecord:
		return im.applyRemoveTopic(r)
	case *PartitionRecord:
		return im.applyPartition(r)
	case *PartitionChangeRecord:
		return im.applyPartitionChange(offset, r)
	case *ConfigRecord:
		return im.applyConfig(r), nil
	case *RegisterBrokerRecord:
		return im.applyRegistration(offset, r)
	case *BrokerChangeRecord:
		return im.applyBrokerChange(r)
	case *UnregisterBrokerRecord:
		return im.applyUnregistration(r)
	}
	return Delta{Kind: ClusterChanged}, nil
}

func (im *Image) setTopic(t *Topic) {
	im.names.ReplaceOrInsert(topicByName{t.Name, t})
	im.ids.ReplaceOrInsert(topicByID{t.ID, t})
	if im.fast != nil {
		im.fast.names[t.Name], im.fast.ids[t.ID] = t, t
	}
}

func (im *Image) dropTopic(t *Topic) {
	im.names.Delete(topicByName{name: t.Name})
	im.ids.Delete(topicByID{id: t.ID})
	if im.fast != nil {
		delete(im.fast.names, t.Name)
		delete(im.fast.ids, t.ID)
	}
}

func (im *Image) setPartition(p *Partition) {
	im.partitions.ReplaceOrInsert(partitionItem{p.Partition, p})
	if im.fast != nil {
		im.fast.partitions[p.Partition] = p
	}
}

func (im *Image) dropPartition(p core.Partition) {
	im.partitions.Delete(partitionItem{key: p})
	if im.fast != nil {
		delete(im.fast.partitions, p)
	}
}

func (im *Image) applyTopic(r *TopicRecord) (Delta, error) {
	if im.Topic(r.Name) != nil || im.TopicByID(r.ID) != nil {
		return Delta{}, contradiction("topic %s (%s) is there already", r.Name, r.ID)
	}
	t := &Topic{Name: r.Name, ID: r.ID}
	im.setTopic(t)
	return Delta{Kind: TopicCreated, Topic: t}, nil
}

func (im *Image) applyRemoveTopic(r *RemoveTopicRecord) (Delta, error) {
	t := im.TopicByID(r.ID)
	if t == nil {
		return Delta{}, contradiction("no topic %s to remove", r.ID)
	}
	d := Delta{Kind: TopicDeleted, Topic: t, Removed: slices.Collect(im.Partitions(r.ID))}
	for _, p := range d.Removed {
		im.dropPartition(p.Partition)
	}
	im.dropTopic(t)
	im.configs.Delete(resourceItem{key: TopicResource(t.Name)})
	return d, nil
}

func (im *Image) applyPartition(r *PartitionRecord) (Delta, error) {
	t := im.TopicByID(r.Topic)
	if t == nil || t.Partitions != r.Index {
		return Delta{}, contradiction("partition %s is not the next of its topic", r.Partition.Partition)
	}
	p := r.Partition
	if slices.Equal(p.ISR, p.Replicas) {
		p.ISR = p.Replicas // shared: most partitions are like this for most of their life
	}
	if err := p.check(); err != nil {
		return Delta{}, err
	}
	grown := *t
	grown.Partitions++
	im.setTopic(&grown)
	im.setPartition(&p)
	return Delta{Kind: PartitionChanged, New: &p}, nil
}

func (im *Image) applyPartitionChange(offset int64, r *PartitionChangeRecord) (Delta, error) {
	old := im.Partition(r.Partition)
	if old == nil {
		return Delta{}, contradiction("no partition %s to change", r.Partition)
	}
	p := *old
	p.LeaderEpoch, p.Epoch = r.LeaderEpoch, r.Epoch
	if r.Leader != nil {
		p.Leader = *r.Leader
	}
	if r.Recovering != nil {
		p.Recovering = *r.Recovering
	}
	to := [...]*[]int32{&p.Replicas, &p.ISR, &p.ELR, &p.LastELR, &p.Adding, &p.Removing}
	for i, list := range r.lists() {
		if *list != nil {
			*to[i] = **list
		}
	}
	if slices.Equal(p.ISR, p.Replicas) {
		p.ISR = p.Replicas
	}
	if p.Epoch != old.Epoch+1 || p.LeaderEpoch < old.LeaderEpoch || p.LeaderEpoch > old.LeaderEpoch+1 ||
		p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch {
		return Delta{}, contradiction("partition %s goes from leader %d, epochs %d and %d, to leader %d, epochs %d and %d",
			p.Partition, old.Leader, old.LeaderEpoch, old.Epoch, p.Leader, p.LeaderEpoch, p.Epoch)
	}
	if err := p.check(); err != nil {
		return Delta{}, err
	}
	if p.LeaderEpoch > old.LeaderEpoch {
		p.decided = offset
	}
	im.setPartition(&p)
	return Delta{Kind: PartitionChanged, Old: old, New: &p}, nil
}

// check verifies what holds of every partition at every time (rules 7 and 8).
func (p *Partition) check() error {
	switch {
	case len(p.Replicas) == 0 || hasDuplicates(p.Replicas):
		return contradiction("partition %s has replicas %v", p.Partition, p.Replicas)
	case !subset(p.ISR, p.Replicas) || hasDuplicates(p.ISR):
		return contradiction("partition %s has in-sync replicas %v of %v", p.Partition, p.ISR, p.Replicas)
	case !subset(p.ELR, p.Replicas) || hasDuplicates(p.ELR) || slices.ContainsFunc(p.ELR, func(n int32) bool {
		return slices.Contains(p.ISR, n)
	}):
		return contradiction("partition %s has eligible leaders %v beside in-sync replicas %v", p.Partition, p.ELR, p.ISR)
	case p.Leader != NoLeader && !slices.Contains(p.ISR, p.Leader):
		return contradiction("partition %s has leader %d outside its in-sync replicas %v", p.Partition, p.Leader, p.ISR)
	}
	return nil
}

func subset(a, b []int32) bool {
	for _, n := range a {
		if !slices.Contains(b, n) {
			return false
		}
	}
	return true
}

func hasDuplicates(list []int32) bool {
	for i, n := range list {
		if slices.Contains(list[:i], n) {
			return true
		}
	}
	return false
}

func (im *Image) applyConfig(r *ConfigRecord) Delta {
	values := im.Config(r.Resource)
	if r.Value != nil {
		values = values.With(r.Change.Name, *r.Value)
	} else {
		values = values.Without(r.Change.Name)
	}
	im.setConfig(r.Resource, values)
	return Delta{Kind: ConfigChanged, Resource: r.Resource, Config: r.Change.Name}
}

func (im *Image) setConfig(key Resource, values config.Values) {
	if len(values) == 0 {
		im.configs.Delete(resourceItem{key: key})
		return
	}
	im.configs.ReplaceOrInsert(resourceItem{key, values})
}

func (im *Image) applyRegistration(offset int64, r *RegisterBrokerRecord) (Delta, error) {
	old := im.Broker(r.ID)
	if old != nil && r.Epoch <= old.Epoch {
		return Delta{}, contradiction("broker %d goes from epoch %d to %d", r.ID, old.Epoch, r.Epoch)
	}
	b := r.Broker
	if b.Offset < 0 {
		b.Offset = offset
	}
	im.lastEpoch = max(im.lastEpoch, b.Epoch)
	im.brokers.ReplaceOrInsert(brokerItem{b.ID, &b})
	return Delta{Kind: BrokerChanged, OldBroker: old, NewBroker: &b}, nil
}

func (im *Image) applyBrokerChange(r *BrokerChangeRecord) (Delta, error) {
	old := im.Broker(r.ID)
	if old == nil || old.Epoch != r.Epoch {
		return Delta{}, contradiction("broker %d of epoch %d is not registered", r.ID, r.Epoch)
	}
	b := *old
	b.Fenced, b.Stopping = r.Fenced, r.Stopping
	im.brokers.ReplaceOrInsert(brokerItem{b.ID, &b})
	return Delta{Kind: BrokerChanged, OldBroker: old, NewBroker: &b}, nil
}

func (im *Image) applyUnregistration(r *UnregisterBrokerRecord) (Delta, error) {
	old := im.Broker(r.ID)
	if old == nil || old.Epoch != r.Epoch {
		return Delta{}, contradiction("broker %d of epoch %d is not registered", r.ID, r.Epoch)
	}
	im.brokers.Delete(brokerItem{id: r.ID})
	return Delta{Kind: BrokerChanged, OldBroker: old}, nil
}

// partitionsOf returns, in order, the partitions for which keep is true.
func (im *Image) partitionsOf(keep func(*Partition) bool) []*Partition {
	var out []*Partition
	for p := range im.AllPartitions() {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// topicName returns the name of a topic, or its id in words where it is not there.
func (im *Image) topicName(id core.TopicID) string {
	if t := im.TopicByID(id); t != nil {
		return t.Name
	}
	return id.String()
}
