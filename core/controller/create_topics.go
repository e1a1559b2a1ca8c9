package controller

import (
	"fmt"
	"slices"
	"strconv"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxPartitionsPerRequest bounds what one request creates, as in Kafka: it is one batch of the metadata log.
const maxPartitionsPerRequest = 10_000

// refusal is an error code and its message for a client.
type refusal struct {
	code int16
	msg  string
}

func refuse(code int16, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// newTopic is a topic that was checked and may be created.
type newTopic struct {
	name     string
	replicas [][]int32 // of each partition
	configs  config.Values
}

func (c *Controller) createTopics(req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	c.rehearse(req.ValidateOnly, func() {
		room := maxPartitionsPerRequest
		for i := range req.Topics {
			rt := &req.Topics[i]
			same := func(t kmsg.CreateTopicsRequestTopic) bool { return t.Topic == rt.Topic }
			if slices.ContainsFunc(req.Topics[:i], same) {
				continue
			}
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = rt.Topic, -1, -1
			var no *refusal
			if slices.ContainsFunc(req.Topics[i+1:], same) {
				no = refuse(codeInvalidRequest, "Topic %q appears twice in the request.", rt.Topic)
			} else {
				no = c.createTopic(rt, &t, &room)
			}
			if no != nil {
				t.ErrorCode, t.ErrorMessage = no.code, &no.msg
			}
			if req.ValidateOnly {
				t.TopicID = core.TopicID{}
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
	return resp
}

// createTopic creates one topic of a request and fills its answer, or says why not.
func (c *Controller) createTopic(rt *kmsg.CreateTopicsRequestTopic, t *kmsg.CreateTopicsResponseTopic, room *int) *refusal {
	nt, no := c.checkNewTopic(rt)
	if no != nil {
		return no
	}
	if len(nt.replicas) > *room {
		return refuse(codePolicyViolation, "A request may create %d partitions at most.", maxPartitionsPerRequest)
	}
	*room -= len(nt.replicas)
	id := c.newTopicID()
	c.emit(&TopicRecord{nt.name, id})
	for i, replicas := range nt.replicas {
		c.emitPartition(id, int32(i), replicas)
	}
	for _, e := range nt.configs {
		c.emit(&ConfigRecord{TopicResource(nt.name), config.Change{Name: e.Name, Value: &e.Value}})
	}
	t.TopicID, t.NumPartitions, t.ReplicationFactor = id, int32(len(nt.replicas)), int16(len(nt.replicas[0]))
	for _, d := range config.DescribeTopic(nt.configs, &c.layers, nil) {
		x := kmsg.NewCreateTopicsResponseTopicConfig()
		x.Name, x.Value, x.Source, x.ReadOnly = d.Name, d.Value, int8(d.Source), d.ReadOnly
		t.Configs = append(t.Configs, x)
	}
	return nil
}

// emitPartition creates a partition: all its live replicas are in sync, the first of them leads.
func (c *Controller) emitPartition(id core.TopicID, index int32, replicas []int32) {
	var isr []int32
	for _, n := range replicas {
		if c.spec.Broker(n).Active() {
			isr = append(isr, n)
		}
	}
	c.emit(&PartitionRecord{Partition{
		Partition: core.Partition{Topic: id, Index: index}, Leader: isr[0], Replicas: replicas, ISR: isr,
	}})
}

func (c *Controller) checkNewTopic(rt *kmsg.CreateTopicsRequestTopic) (*newTopic, *refusal) {
	if no := c.checkName(rt.Topic); no != nil {
		return nil, no
	}
	nt := &newTopic{name: rt.Topic}
	var no *refusal
	if len(rt.ReplicaAssignment) > 0 {
		nt.replicas, no = c.manualAssignment(rt)
	} else {
		nt.replicas, no = c.placeReplicas(rt)
	}
	if no == nil {
		nt.configs, no = c.newTopicConfigs(rt, len(nt.replicas[0]))
	}
	return nt, no
}

func (c *Controller) checkName(name string) *refusal {
	if why := CheckTopicName(name); why != "" {
		return refuse(codeInvalidTopic, "Topic name is invalid: %s.", why)
	}
	if name == core.MetadataTopic {
		return refuse(codeInvalidRequest, "The topic %s is the cluster's own.", name)
	}
	if c.spec.Topic(name) != nil {
		return refuse(codeTopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	if !slices.ContainsFunc([]byte(name), dotted) {
		return nil
	}
	for t := range c.spec.Topics() {
		if collides(t.Name, name) {
			return refuse(codeInvalidTopic, "Topic '%s' collides with existing topic: %s.", name, t.Name)
		}
	}
	return nil
}

// placeReplicas chooses replicas for a topic that says how many it wants, or leaves that to the defaults.
func (c *Controller) placeReplicas(rt *kmsg.CreateTopicsRequestTopic) ([][]int32, *refusal) {
	partitions, factor := rt.NumPartitions, int(rt.ReplicationFactor)
	if partitions == -1 {
		partitions = c.broker.NumPartitions
	}
	if factor == -1 {
		factor = c.defaultReplicationFactor()
	}
	if partitions < 1 {
		return nil, refuse(codeInvalidPartitions, "Number of partitions must be at least 1, or -1 for the default.")
	}
	if partitions > maxPartitionsPerRequest {
		return nil, refuse(codePolicyViolation, "A request may create %d partitions at most.", maxPartitionsPerRequest)
	}
	p := c.newPlacer()
	if why := p.check(factor); why != "" {
		return nil, refuse(codeInvalidReplicationFactor, "%s", why)
	}
	replicas := make([][]int32, partitions)
	for i := range replicas {
		replicas[i] = p.place(factor)
	}
	return replicas, nil
}

func (c *Controller) defaultReplicationFactor() int {
	if n := int(c.broker.DefaultReplicationFactor); n > 0 {
		return n
	}
	return max(1, min(3, c.spec.BrokerCount()))
}

// manualAssignment checks an assignment that the client brings.
func (c *Controller) manualAssignment(rt *kmsg.CreateTopicsRequestTopic) ([][]int32, *refusal) {
	if rt.NumPartitions != -1 {
		return nil, refuse(codeInvalidRequest, "A topic with a manual assignment must have -1 as its number of partitions.")
	}
	if rt.ReplicationFactor != -1 {
		return nil, refuse(codeInvalidRequest, "A topic with a manual assignment must have -1 as its replication factor.")
	}
	replicas := make([][]int32, len(rt.ReplicaAssignment))
	for _, a := range rt.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(replicas) || replicas[a.Partition] != nil {
			return nil, refuse(codeInvalidReplicaAssignment, "The partitions of a manual assignment must be numbered from 0 without gaps or repeats.")
		}
		if no := c.checkAssignment(a.Replicas, len(rt.ReplicaAssignment[0].Replicas)); no != nil {
			return nil, no
		}
		replicas[a.Partition] = slices.Clone(a.Replicas)
	}
	return replicas, nil
}

// checkAssignment checks the replicas that a client assigns to one partition.
func (c *Controller) checkAssignment(replicas []int32, factor int) *refusal {
	if len(replicas) == 0 {
		return refuse(codeInvalidReplicaAssignment, "A manual assignment has a partition without replicas.")
	}
	if len(replicas) != factor {
		return refuse(codeInvalidReplicaAssignment, "A manual assignment has partitions of %d and of %d replicas.", factor, len(replicas))
	}
	if hasDuplicates(replicas) {
		return refuse(codeInvalidReplicaAssignment, "A manual assignment has a broker twice: %v.", replicas)
	}
	live := false
	for _, n := range replicas {
		b := c.spec.Broker(n)
		if b == nil {
			return refuse(codeInvalidReplicaAssignment, "A manual assignment has broker %d, which is not registered.", n)
		}
		live = live || b.Active()
	}
	if !live {
		return refuse(codeInvalidReplicaAssignment, "A manual assignment has a partition without any live replica: %v.", replicas)
	}
	return nil
}

// newTopicConfigs checks a new topic's configs. A topic that is replicated threefold or more gets
// min.insync.replicas=2 unless it, or the cluster, says otherwise.
func (c *Controller) newTopicConfigs(rt *kmsg.CreateTopicsRequestTopic, factor int) (config.Values, *refusal) {
	var wanted []config.Change
	for _, e := range rt.Configs {
		wanted = append(wanted, config.Change{Name: e.Name, Value: e.Value})
	}
	changes, err := config.AlterAll(config.OfTopic, nil, wanted)
	if err != nil {
		return nil, alterRefusal(config.OfTopic, err)
	}
	var values config.Values
	for _, ch := range changes {
		values = values.With(ch.Name, *ch.Value)
	}
	const minISR = "min.insync.replicas"
	if _, said := values.Get(minISR); !said && factor >= 3 && !c.layers.IsSet(minISR) {
		values = values.With(minISR, strconv.Itoa(2))
	}
	return values, nil
}
