package controller

import (
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *Controller) createPartitions(req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	c.rehearse(req.ValidateOnly, func() {
		room := maxPartitionsPerRequest
		for i := range req.Topics {
			rt := &req.Topics[i]
			same := func(t kmsg.CreatePartitionsRequestTopic) bool { return t.Topic == rt.Topic }
			if slices.ContainsFunc(req.Topics[:i], same) {
				continue
			}
			t := kmsg.NewCreatePartitionsResponseTopic()
			t.Topic = rt.Topic
			var no *refusal
			if slices.ContainsFunc(req.Topics[i+1:], same) {
				no = refuse(codeInvalidRequest, "Topic %q appears twice in the request.", rt.Topic)
			} else {
				no = c.growTopic(rt, &room)
			}
			if no != nil {
				t.ErrorCode, t.ErrorMessage = no.code, &no.msg
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
	return resp
}

// growTopic gives a topic more partitions, with as many replicas as its first one has.
func (c *Controller) growTopic(rt *kmsg.CreatePartitionsRequestTopic, room *int) *refusal {
	t := c.spec.Topic(rt.Topic)
	if t == nil {
		return refuse(codeUnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	switch {
	case rt.Topic == core.OffsetsTopic:
		return refuse(codeInvalidRequest, "Which partition of %s a group has follows from their number: with another one, groups would "+
			"lose what they have committed.", rt.Topic)
	case rt.Count == t.Partitions:
		return refuse(codeInvalidPartitions, "Topic already has %d partition(s).", rt.Count)
	case rt.Count < t.Partitions:
		return refuse(codeInvalidPartitions, "Topic has %d partition(s), and %d would not be an increase.", t.Partitions, rt.Count)
	}
	grow := int(rt.Count - t.Partitions)
	if grow > *room {
		return refuse(codePolicyViolation, "A request may create %d partitions at most.", maxPartitionsPerRequest)
	}
	factor := 0
	for p := range c.spec.Partitions(t.ID) {
		factor = len(p.Replicas)
		break
	}
	replicas, no := c.morePartitions(rt, grow, factor)
	if no != nil {
		return no
	}
	*room -= grow
	for i, r := range replicas {
		c.emitPartition(t.ID, t.Partitions+int32(i), r)
	}
	return nil
}

func (c *Controller) morePartitions(rt *kmsg.CreatePartitionsRequestTopic, grow, factor int) ([][]int32, *refusal) {
	replicas := make([][]int32, grow)
	if rt.Assignment == nil {
		p := c.newPlacer()
		if why := p.check(factor); why != "" {
			return nil, refuse(codeInvalidReplicationFactor, "%s", why)
		}
		for i := range replicas {
			replicas[i] = p.place(factor)
		}
		return replicas, nil
	}
	if len(rt.Assignment) != grow {
		return nil, refuse(codeInvalidReplicaAssignment, "There are %d partitions to add, but %d assignments.", grow, len(rt.Assignment))
	}
	for i, a := range rt.Assignment {
		if no := c.checkAssignment(a.Replicas, factor); no != nil {
			return nil, no
		}
		replicas[i] = slices.Clone(a.Replicas)
	}
	return replicas, nil
}
