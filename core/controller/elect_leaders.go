package controller

import (
	"slices"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// electLeaders makes preferred replicas leaders, or, with election type 1, any
// live replica where no eligible one is left. Asked for all partitions, it answers only for those where there was something to do.
func (c *Controller) electLeaders(req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.ElectionType != 0 && req.ElectionType != 1 {
		resp.ErrorCode = codeInvalidRequest
		return resp
	}
	unclean := req.ElectionType == 1
	if req.Topics == nil {
		for _, t := range slices.Collect(c.spec.Topics()) {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Name
			for i := range t.Partitions {
				if p := c.electOne(t, i, unclean); p.ErrorCode != codeElectionNotNeeded {
					rt.Partitions = append(rt.Partitions, p)
				}
			}
			if len(rt.Partitions) > 0 {
				resp.Topics = append(resp.Topics, rt)
			}
		}
		return resp
	}
	for _, q := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = q.Topic
		for _, i := range q.Partitions {
			rt.Partitions = append(rt.Partitions, c.electOne(c.spec.Topic(q.Topic), i, unclean))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c *Controller) electOne(t *Topic, index int32, unclean bool) kmsg.ElectLeadersResponseTopicPartition {
	out := kmsg.NewElectLeadersResponseTopicPartition()
	out.Partition = index
	if no := c.elect(t, index, unclean); no != nil {
		out.ErrorCode, out.ErrorMessage = no.code, &no.msg
	}
	return out
}

func (c *Controller) elect(t *Topic, index int32, unclean bool) *refusal {
	if t == nil || index < 0 || index >= t.Partitions {
		return refuse(codeUnknownTopicOrPartition, "No such partition.")
	}
	id := core.Partition{Topic: t.ID, Index: index}
	p := c.spec.Partition(id)
	if unclean && p.Leader != NoLeader || !unclean && p.Leader == p.Preferred() {
		return refuse(codeElectionNotNeeded, "The partition has the leader it should have.")
	}
	c.reconsider(p, choice{preferred: !unclean, unclean: unclean})
	p = c.spec.Partition(id)
	switch {
	case unclean && p.Leader == NoLeader:
		return refuse(codeEligibleLeadersUnavailable, "No replica of the partition is alive.")
	case !unclean && p.Leader != p.Preferred():
		return refuse(codePreferredLeaderUnavailable, "The preferred leader %d is not alive and in sync.", p.Preferred())
	}
	return nil
}
