package sim

import (
	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader asks for offsets: both ends, and by timestamp.
type reader struct {
	clientBase
	busy bool
}

func (c *reader) start()     { c.w.after(int64(c.plan.Start), c, evWork) }
func (c *reader) stop()      { c.stopped = true }
func (c *reader) idle() bool { return c.stopped && c.flying() == 0 && !c.busy }

func (c *reader) fire(*event) {
	if !c.more() {
		return
	}
	topic := c.plan.Topics[c.chance.Intn(len(c.plan.Topics))]
	partition := int32(c.chance.Intn(int(c.w.partitions(topic))))
	name := c.w.plan.Topics[topic].Name
	broker := c.leader(name, partition)
	kinds := []int64{-1, -2, -1, -2, -3, 0}
	if c.skips() {
		c.chance.Intn(len(kinds))
		c.next()
		return
	}
	c.busy = true
	if broker < 0 {
		c.refresh([]string{name}, c.next)
		return
	}
	c.ask(broker, topic, partition, kinds[c.chance.Intn(len(kinds))])
}

func (c *reader) next() {
	c.busy = false
	if !c.stopped {
		c.w.after(c.think(), c, evWork)
	}
}

// ask asks for the offset of a special or a real timestamp; 0 stands for some real one.
func (c *reader) ask(broker, topic int, partition int32, timestamp int64) {
	name := c.w.plan.Topics[topic].Name
	op := -1
	switch timestamp {
	case -1:
		op = c.w.beginAt(topic, linearizability.Op{Process: c.index, Kind: linearizability.Latest, Topic: name, Partition: partition})
	case -2:
		op = c.w.beginAt(topic, linearizability.Op{Process: c.index, Kind: linearizability.Earliest, Topic: name, Partition: partition})
	case -3: // the record of the largest timestamp came with version 7
		if c.maxes[kmsg.ListOffsets.Int16()] < 7 {
			timestamp = 0
		}
	}
	if timestamp == 0 {
		timestamp = c.w.wall() - c.chance.Between(0, 5000)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	putOffset(req, name, partition, timestamp)
	c.call(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.ListOffsetsResponse)
		if a := findOffset(resp, name, partition); a != nil {
			c.answered(topic, op, timestamp, a)
		}
		c.next()
	})
}

func (c *reader) answered(topic, op int, timestamp int64, a *kmsg.ListOffsetsResponseTopicPartition) {
	if a.ErrorCode != 0 {
		c.w.endWith(op, linearizability.Failed, -1)
		if !retriable(a.ErrorCode) && !c.w.excused(topic, a.Partition) {
			c.w.fail("protocol", "%s: ListOffsets of timestamp %d: error %d", c.name, timestamp, a.ErrorCode)
		}
		delete(c.meta.topics, c.w.plan.Topics[topic].Name)
		return
	}
	c.w.endWith(op, linearizability.OK, a.Offset)
	if timestamp >= 0 && a.Offset >= 0 && a.Timestamp < timestamp {
		c.w.fail("protocol", "%s: ListOffsets of timestamp %d found offset %d with timestamp %d", c.name, timestamp, a.Offset, a.Timestamp)
	}
}
