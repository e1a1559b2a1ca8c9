package controller

import "lockstep/core/config"

// Snapshot returns records that build an equal image when applied in order to
// an empty one. Equal images have equal snapshots, byte for byte.
func (im *Image) Snapshot() [][]byte {
	out := make([][]byte, 0, 8+im.brokers.Len()+im.names.Len()+im.partitions.Len()+im.configs.Len())
	add := func(r Record) { out = append(out, Encode(r)) }
	if im.clusterID != "" {
		add(&ClusterRecord{im.clusterID})
	}
	im.features.Ascend(func(f featureItem) bool {
		add(&FeatureRecord{f.name, f.level})
		return true
	})
	for b := range im.Brokers() {
		add(&RegisterBrokerRecord{*b})
	}
	for t := range im.Topics() {
		add(&TopicRecord{t.Name, t.ID})
		for p := range im.Partitions(t.ID) {
			add(&PartitionRecord{*p})
		}
	}
	im.configs.Ascend(func(c resourceItem) bool {
		for _, e := range c.values {
			add(&ConfigRecord{c.key, config.Change{Name: e.Name, Value: &e.Value}})
		}
		return true
	})
	if im.producerID > 0 {
		add(&ProducerIDsRecord{BrokerID: -1, BrokerEpoch: -1, Next: im.producerID})
	}
	if im.lastEpoch > 0 {
		add(&BrokerEpochsRecord{im.lastEpoch})
	}
	return out
}

// SetNext sets the offset after the last record applied: for an image built from a snapshot.
func (im *Image) SetNext(next int64) { im.next, im.base = next, next-1 }

// ledSince returns the offset of the metadata log up to which a broker has to have applied it to know who leads a partition: -1 if it has
// never had another leader. Of what came from a snapshot only the snapshot's own offset is known.
func (im *Image) ledSince(p *Partition) int64 {
	if p.LeaderEpoch == 0 {
		return -1
	}
	return max(p.decided, im.base)
}
