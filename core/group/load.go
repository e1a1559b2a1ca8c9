package group

import (
	"encoding/binary"
	"errors"
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of keys in the offsets topic, which tell what a record is. Those of other kinds of groups are not read.
const (
	keyOffset      = 1 // and 0
	keyClassic     = 2
	keyGroup       = 3
	keyMember      = 5
	keyTargetEpoch = 6
	keyTarget      = 7
	keyCurrent     = 8
	keyRegex       = 16

	classicRecordLimit = 4 // highest version of the record of a classic group
	offsetRecordLimit  = 4 // and of a committed offset
)

// maxUnread bounds the lines about records that cannot be read.
const maxUnread = 100

var errTooNew = errors.New("a version that is not known")

// Load applies records of a partition that is being loaded, in the order of its log.
func (c *Coordinator) Load(partitionIndex int32, key, value []byte, timestamp int64) {
	p := c.parts[partitionIndex]
	if p == nil || !p.loading || len(key) < 2 {
		return
	}
	if err := c.load(p, key, value, timestamp); err != nil && len(p.unread) < maxUnread {
		p.unread = append(p.unread, Line{levelError, "record of the offsets topic cannot be read", []any{
			"partition", partitionIndex, "key", slices.Clone(key[:min(len(key), 64)]), "timestamp", timestamp, "error", err}})
	}
}

func (c *Coordinator) load(p *partition, key, value []byte, timestamp int64) error {
	switch int16(binary.BigEndian.Uint16(key)) {
	case 0, keyOffset:
		return c.loadOffset(p, key, value)
	case keyClassic:
		return c.loadClassic(p, key, value)
	}
	return c.loadConsumer(p, key, value, timestamp)
}

// loadClassic applies the record of a classic group.
func (c *Coordinator) loadClassic(p *partition, key, value []byte) error {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return err
	}
	g := c.group(p, k.Group)
	g.classic.init()
	if value == nil {
		return nil
	}
	if len(value) >= 2 && binary.BigEndian.Uint16(value) > classicRecordLimit {
		return errTooNew
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(value); err != nil {
		return err
	}
	x := &g.classic
	x.recorded, x.generation, x.protocolType, x.since = true, v.Generation, v.ProtocolType, v.CurrentStateTimestamp
	if v.Version < 2 {
		x.since = -1
	}
	if v.Protocol != nil {
		x.protocol = *v.Protocol
	}
	for _, r := range v.Members {
		m := &member{
			id: r.MemberID, instance: r.InstanceID, clientID: r.ClientID, host: r.ClientHost, synced: true,
			session: millis(r.SessionTimeoutMillis), rebalance: millis(r.RebalanceTimeoutMillis),
			protocols:  []protocol{{x.protocol, slices.Clone(r.Subscription)}},
			assignment: slices.Clone(r.Assignment), expires: core.Never,
		}
		if v.Version < 1 || r.RebalanceTimeoutMillis < 0 {
			m.rebalance = m.session
		}
		x.add(m)
	}
	if len(x.members) > 0 {
		x.state = stable
	}
	if v.Leader != nil && x.members[*v.Leader] != nil {
		x.leader = *v.Leader
	}
	return nil
}

// revive begins to serve a group that was loaded. Every member gets a full session timeout.
func (c *Coordinator) revive(g *group) {
	for _, id := range g.classic.ids() {
		c.touch(g, g.classic.members[id])
	}
	g.classic.read()
	c.reviveConsumer(g)
	c.settle(g)
}

// vacant says whether the group has no members, nor anybody who is about to be one.
func (g *group) vacant() bool {
	if g.consumer != nil {
		return len(g.consumer.members) == 0
	}
	return g.classic.state == empty && len(g.classic.pending) == 0
}

// tombstones erase all records of the group but its offsets.
func (g *group) tombstones() []tombstone {
	if g.consumer != nil {
		return g.consumer.tombstones(g)
	}
	if !g.classic.recorded {
		return nil
	}
	key := kmsg.GroupMetadataKey{Version: 2, Group: g.id}
	return []tombstone{{key.AppendTo(nil), g.classic.init}}
}
