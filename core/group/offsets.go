package group

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offset is a committed offset. It is set when its write is committed, and never changed.
type offset struct {
	offset   int64
	epoch    int32 // leader epoch of the last record that was read; -1 where not known
	metadata string
	at       int64        // wall time of the commit, milliseconds
	expires  int64        // wall time set by an old client, milliseconds; -1 for none
	topic    core.TopicID // zero in records of older versions
}

func (g *group) setOffset(topic string, partition int32, o *offset) {
	t := g.offsets[topic]
	if t == nil {
		t = make(map[int32]*offset)
		g.offsets[topic] = t
	}
	t[partition] = o
}

func (g *group) dropOffset(topic string, partition int32) {
	delete(g.offsets[topic], partition)
	if len(g.offsets[topic]) == 0 {
		delete(g.offsets, topic)
	}
}

func (g *group) findOffset(topic string, partition int32) *offset { return g.offsets[topic][partition] }

// offsetTombstone erases one committed offset.
func (g *group) offsetTombstone(topic string, partition int32) tombstone {
	k := kmsg.OffsetCommitKey{Version: 1, Group: g.id, Topic: topic, Partition: partition}
	return tombstone{k.AppendTo(nil), func() { g.dropOffset(topic, partition) }}
}

// offsetTombstones erases those committed offsets that a condition holds for.
func (g *group) offsetTombstones(which func(topic string, o *offset) bool) (tombs []tombstone) {
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			if which(topic, g.offsets[topic][p]) {
				tombs = append(tombs, g.offsetTombstone(topic, p))
			}
		}
	}
	return tombs
}

// record is the record of a committed offset.
func (o *offset) record(group, topic string, partition int32) Record {
	k := kmsg.OffsetCommitKey{Version: 1, Group: group, Topic: topic, Partition: partition}
	v := kmsg.OffsetCommitValue{
		Version: 3, Offset: o.offset, LeaderEpoch: o.epoch, Metadata: o.metadata, CommitTimestamp: o.at, TopicID: o.topic,
	}
	switch {
	case o.expires >= 0:
		v.Version, v.ExpireTimestamp = 1, o.expires // the only version that has it; nor did such clients know epochs
	case o.topic != core.TopicID{}:
		v.Version = 4
	}
	return Record{k.AppendTo(nil), v.AppendTo(nil)}
}

// loadOffset applies the record of a committed offset.
func (c *Coordinator) loadOffset(p *partition, key, value []byte) error {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return err
	}
	g := c.group(p, k.Group)
	if value == nil {
		g.dropOffset(k.Topic, k.Partition)
		return nil
	}
	if len(value) >= 2 && binary.BigEndian.Uint16(value) > offsetRecordLimit {
		return errTooNew
	}
	v := kmsg.OffsetCommitValue{}
	if err := v.ReadFrom(value); err != nil {
		return err
	}
	o := &offset{v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp, -1, v.TopicID}
	if v.Version < 3 {
		o.epoch = -1
	}
	if v.Version == 1 {
		o.expires = v.ExpireTimestamp
	}
	g.setOffset(k.Topic, k.Partition, o)
	return nil
}

// expired says whether the time of an offset is over (KIP-211), in a group whose members read some topics. Without members it counts
// from when the last one left, or from the commit if that was later: somebody has set the offset by hand.
func (c *Coordinator) expired(g *group, read map[string]bool, topic string, o *offset) bool {
	base := o.at
	switch k := &g.classic; {
	case g.consumer != nil:
		if read[topic] {
			return false
		}
		if len(g.consumer.members) == 0 {
			base = max(base, g.consumer.since)
		}
	case k.protocolType == "": // only keeps offsets
	case k.state == empty:
		base = max(base, k.since)
	case k.protocolType == protocolConsumer && k.state == stable && !k.opaque:
		if read[topic] {
			return false
		}
	default:
		return false
	}
	if o.expires >= 0 {
		return int64(c.wall) >= o.expires
	}
	return int64(c.wall)-base >= c.cfg.Retention.Milliseconds()
}

// sweepGroups is how many groups a sweep looks at in one call, and sweepPause how long it rests then.
const (
	sweepGroups = 200
	sweepPause  = 10 * time.Millisecond
)

// sweep looks, in every partition, for offsets and groups whose time is over.
func (c *Coordinator) sweep() {
	left, more := sweepGroups, false
	for _, i := range slices.Sorted(maps.Keys(c.parts)) {
		p := c.parts[i]
		if p.loading {
			continue
		}
		if !c.sweeping {
			p.expiry = slices.Sorted(maps.Keys(p.groups))
		}
		for ; left > 0 && len(p.expiry) > 0; left-- {
			if g := p.groups[p.expiry[0]]; g != nil {
				c.do(p, g.id, task{alone: true, run: c.expire, fail: func(int16) {}})
			}
			p.expiry = p.expiry[1:]
		}
		more = more || len(p.expiry) > 0
	}
	c.sweeping = more
	if more {
		c.sweeps = c.now.Add(sweepPause)
	} else {
		c.sweeps = c.now.Add(c.cfg.RetentionCheck)
	}
}

// expire takes from a group the offsets whose time is over, and the group itself if it has neither offsets nor members left.
func (c *Coordinator) expire(g *group) {
	read := g.read()
	tombs := g.offsetTombstones(func(topic string, o *offset) bool { return c.expired(g, read, topic, o) || !c.isOf(topic, o) })
	left := -len(tombs)
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		left += len(g.offsets[topic])
	}
	if left == 0 && g.vacant() {
		tombs = append(tombs, g.tombstones()...)
	}
	if len(tombs) > 0 {
		c.erase(g, tombs, func() {}, func(int16) {})
	}
}

// dropTopics takes from all groups of a partition the offsets of topics that are gone.
func (c *Coordinator) dropTopics(p *partition) {
	gone := func(topic string, o *offset) bool { return !c.isOf(topic, o) }
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		if len(p.groups[id].offsetTombstones(gone)) == 0 {
			continue
		}
		c.do(p, id, task{alone: true, fail: func(int16) {}, run: func(g *group) {
			if tombs := g.offsetTombstones(gone); len(tombs) > 0 {
				c.erase(g, tombs, func() {}, func(int16) {})
			}
		}})
	}
}

// isOf says whether a topic is still the one whose offset it is: not deleted, nor made again under the same name.
func (c *Coordinator) isOf(topic string, o *offset) bool {
	id, _, ok := c.topics.Topic(topic)
	return ok && (o.topic == core.TopicID{} || o.topic == id)
}
