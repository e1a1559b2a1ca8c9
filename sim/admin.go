package sim

import (
	"slices"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin deletes records, adds partitions, alters and describes configurations,
// and makes and deletes topics of its own.
type admin struct {
	clientBase
	busy bool
	own  ownTopic
}

// ownTopic is what an admin knows of a topic that nobody else uses.
type ownTopic struct {
	n    int // names another one when an answer did not come: what was asked may yet be done
	made bool
}

func (c *admin) lostTrack() { c.own = ownTopic{n: c.own.n + 1} }

func (c *admin) start()     { c.w.after(int64(c.plan.Start), c, evWork) }
func (c *admin) stop()      { c.stopped = true }
func (c *admin) idle() bool { return c.stopped && c.flying() == 0 && !c.busy }

func (c *admin) next() {
	c.busy = false
	if !c.stopped {
		c.w.after(c.think(), c, evWork)
	}
}

func (c *admin) fire(*event) {
	if !c.more() {
		return
	}
	c.busy = true
	topic := c.plan.Topics[c.chance.Intn(len(c.plan.Topics))]
	what := c.chance.Intn(6)
	if c.skips() {
		c.next()
		return
	}
	switch what {
	case 0:
		c.deleteRecords(topic)
	case 1:
		c.addPartitions(topic)
	case 2:
		c.alter(topic)
	case 3:
		c.describe(topic)
	default:
		c.topics()
	}
}

// ask sends a request to any broker; take gets an answer if there is one.
func (c *admin) ask(req kmsg.Request, take func(kmsg.Response)) {
	c.call(c.chance.Intn(len(c.wires)), req, func(r kmsg.Response) {
		take(r)
		c.next()
	})
}

// check fails the world if an error is neither retriable nor one of those that may come.
func (c *admin) check(what string, code int16, may ...int16) {
	if code != 0 && !retriable(code) && !slices.Contains(may, code) && code != kerr.KafkaStorageError.Code {
		c.w.fail("protocol", "%s: %s: %v", c.name, what, kerr.ErrorForCode(code))
	}
}

func (c *admin) deleteRecords(topic int) {
	name := c.w.plan.Topics[topic].Name
	partition := int32(c.chance.Intn(int(c.w.partitions(topic))))
	broker := c.leader(name, partition)
	if broker < 0 {
		c.refresh([]string{name}, c.next)
		return
	}
	to := c.w.oracle.somewhere(name, partition, &c.chance)
	op := c.w.beginAt(topic, linearizability.Op{Process: c.index, Kind: linearizability.Delete, Topic: name, Partition: partition, To: to})
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(c.plan.Timeout.Milliseconds())
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = partition, to
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = name
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c.call(broker, req, func(r kmsg.Response) {
		if resp, ok := r.(*kmsg.DeleteRecordsResponse); ok {
			a := &resp.Topics[0].Partitions[0]
			switch {
			case a.ErrorCode == 0:
				c.w.endWith(op, linearizability.OK, a.LowWatermark)
				c.w.oracle.deletedRecords(name, partition, to)
			case a.ErrorCode == kerr.OffsetOutOfRange.Code:
				c.w.endWith(op, linearizability.OutOfRange, -1)
			default:
				if !mayHaveHappened(a.ErrorCode) {
					c.w.endWith(op, linearizability.Failed, -1)
				}
				delete(c.meta.topics, name)
				if a.ErrorCode == kerr.PolicyViolation.Code && c.w.plan.Topics[topic].setting("cleanup.policy") == "compact" {
					break // nothing is deleted from a topic that is compacted alone
				}
				c.check("DeleteRecords", a.ErrorCode)
			}
		}
		c.next()
	})
}

func (c *admin) addPartitions(topic int) {
	t := &c.w.plan.Topics[topic]
	if c.w.added[topic] >= 2 {
		c.next()
		return
	}
	n := c.w.partitions(topic) + 1
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(c.plan.Timeout.Milliseconds())
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = t.Name, n
	req.Topics = append(req.Topics, rt)
	c.ask(req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.CreatePartitionsResponse)
		if !ok {
			return
		}
		code := resp.Topics[0].ErrorCode
		c.check("CreatePartitions", code, kerr.InvalidPartitions.Code, kerr.InvalidReplicationFactor.Code)
		if code == 0 || code == kerr.InvalidPartitions.Code { // another one, or this one whose answer was lost, has done it
			c.w.grow(topic, n)
		}
	})
}

func (c *admin) alter(topic int) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, c.w.plan.Topics[topic].Name
	rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	rc.Name, rc.Value = "segment.bytes", kmsg.StringPtr(itoa(int(c.chance.Skewed(500, 100_000))))
	rr.Configs = append(rr.Configs, rc)
	req.Resources = append(req.Resources, rr)
	c.ask(req, func(r kmsg.Response) {
		if resp, ok := r.(*kmsg.IncrementalAlterConfigsResponse); ok {
			c.check("IncrementalAlterConfigs", resp.Resources[0].ErrorCode)
		}
	})
}

func (c *admin) describe(topic int) {
	name := c.w.plan.Topics[topic].Name
	switch c.chance.Intn(3) {
	case 0:
		req := kmsg.NewPtrDescribeConfigsRequest()
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, rr)
		c.ask(req, func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.DescribeConfigsResponse); ok {
				c.check("DescribeConfigs", resp.Resources[0].ErrorCode, kerr.UnknownTopicOrPartition.Code)
			}
		})
	case 1:
		req := kmsg.NewPtrDescribeLogDirsRequest()
		c.ask(req, func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.DescribeLogDirsResponse); ok {
				c.check("DescribeLogDirs", resp.ErrorCode)
			}
		})
	default:
		c.ask(kmsg.NewPtrDescribeClusterRequest(), func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.DescribeClusterResponse); ok {
				c.check("DescribeCluster", resp.ErrorCode)
			}
		})
	}
}

// topics makes or deletes the admin's own topic: an answer tells what is there, and so what the next answer must be.
func (c *admin) topics() {
	name := c.name + "-own-" + itoa(c.own.n)
	if c.own.made {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = int32(c.plan.Timeout.Milliseconds())
		req.TopicNames = []string{name}
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
		c.ask(req, func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.DeleteTopicsResponse); ok {
				c.changed(resp.Topics[0].ErrorCode, false, kerr.UnknownTopicOrPartition.Code)
			} else {
				c.lostTrack()
			}
		})
		return
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(c.plan.Timeout.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1+int32(c.chance.Intn(4)), 1
	req.Topics = append(req.Topics, rt)
	c.ask(req, func(r kmsg.Response) {
		if resp, ok := r.(*kmsg.CreateTopicsResponse); ok {
			c.changed(resp.Topics[0].ErrorCode, true, kerr.TopicAlreadyExists.Code)
		} else {
			c.lostTrack()
		}
	})
}

// changed takes the answer to a creation (made) or a deletion of the own topic; already says that it was so before.
func (c *admin) changed(code int16, made bool, already int16) {
	switch code {
	case 0:
		c.own.made = made
	case already:
		c.w.fail("metadata", "%s: an acknowledged change of its topic (exists: %v) is gone: %v", c.name, c.own.made, kerr.ErrorForCode(code))
	default:
		c.lostTrack()
		c.check("CreateTopics or DeleteTopics", code, kerr.InvalidReplicationFactor.Code) // while the broker is fenced
	}
}
