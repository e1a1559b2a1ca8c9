package group

import (
	"encoding/binary"
	"maps"
	"slices"

	"lockstep/core"
)

// loadConsumer applies a record of a KIP-848 group, or ignores one of a kind that is not known.
func (c *Coordinator) loadConsumer(p *partition, key, value []byte, timestamp int64) error {
	kind := int16(binary.BigEndian.Uint16(key))
	switch kind {
	case keyGroup, keyMember, keyTargetEpoch, keyTarget, keyCurrent, keyRegex:
	default:
		return nil
	}
	d := &decoder{b: key[2:]}
	id, of := d.shortString(), ""
	if kind != keyGroup && kind != keyTargetEpoch {
		of = d.shortString()
	}
	if d.bad {
		return errMalformed
	}
	g := c.group(p, id)
	if g.consumer == nil {
		if value == nil {
			return nil
		}
		g.consumer = newConsumer()
	}
	if kind == keyGroup {
		g.consumer.since = timestamp // the record's own fields have no time
	}
	return g.consumer.apply(kind, of, value)
}

// apply applies a record.
func (k *consumer) apply(kind int16, of string, value []byte) (err error) {
	switch kind {
	case keyGroup:
		if k.recorded = value != nil; value != nil {
			k.epoch, k.hash, err = decodeGroup(value)
		}
	case keyTargetEpoch:
		if k.targetEpoch = 0; value != nil {
			k.targetEpoch, err = decodeTargetEpoch(value)
		}
	case keyMember:
		var m *subscriber
		if value != nil {
			if m, err = decodeMember(value); err != nil {
				return err
			}
		}
		k.setMember(of, m)
	case keyCurrent:
		var cur *current
		if value != nil {
			if cur, err = decodeCurrent(value); err != nil {
				return err
			}
		}
		k.setCurrent(of, cur)
	case keyTarget:
		var set []core.Partition
		if delete(k.target, of); value != nil {
			set, err = decodePartitions(value)
			k.target[of] = set
		}
	case keyRegex:
		if delete(k.regexes, of); value != nil {
			k.regexes[of], err = decodeResolved(value)
		}
	}
	return err
}

// reviveConsumer begins to serve a KIP-848 group that was loaded. What belongs to no member any more is forgotten, and every
// member gets its full timeouts.
func (c *Coordinator) reviveConsumer(g *group) {
	k := g.consumer
	if k == nil {
		return
	}
	if !k.recorded {
		g.consumer = nil // it was deleted, or made a classic group
		return
	}
	g.classic.init()
	for _, id := range slices.Sorted(maps.Keys(k.current)) {
		if k.members[id] == nil {
			k.setCurrent(id, nil)
		}
	}
	for _, id := range k.ids() {
		if k.current[id] == nil {
			k.setCurrent(id, &current{})
		}
		c.see(g, id)
		c.revokeTimer(g, id)
	}
	k.refresh = true
}
