package controller

import (
	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicRef is a topic of a DeleteTopics request, by name or by id.
type topicRef struct {
	name string
	id   core.TopicID
}

func (c *Controller) deleteTopics(req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	var refs []topicRef
	for _, name := range req.TopicNames {
		refs = append(refs, topicRef{name: name})
	}
	for _, t := range req.Topics {
		r := topicRef{id: t.TopicID}
		if t.Topic != nil {
			r.name = *t.Topic
		}
		refs = append(refs, r)
	}
	// Everything is looked up before anything is deleted, so that a topic named twice is noticed.
	topics := make([]*Topic, len(refs))
	times := make(map[core.TopicID]int, len(refs))
	for i, r := range refs {
		if topics[i] = c.findTopic(r); topics[i] != nil {
			times[topics[i].ID]++
		}
	}
	for i, r := range refs {
		t := kmsg.NewDeleteTopicsResponseTopic()
		if r.name != "" {
			t.Topic = &r.name
		}
		t.TopicID = r.id
		if no := c.checkDelete(r, topics[i], times); no != nil {
			t.ErrorCode, t.ErrorMessage = no.code, &no.msg
		} else {
			t.Topic, t.TopicID = &topics[i].Name, topics[i].ID
			c.emit(&RemoveTopicRecord{t.TopicID})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (c *Controller) findTopic(r topicRef) *Topic {
	if r.name != "" {
		return c.spec.Topic(r.name)
	}
	return c.spec.TopicByID(r.id)
}

func (c *Controller) checkDelete(r topicRef, topic *Topic, times map[core.TopicID]int) *refusal {
	none := core.TopicID{}
	switch {
	case r.name == "" && r.id == none:
		return refuse(codeInvalidRequest, "Neither topic name nor id was given.")
	case r.name != "" && r.id != none:
		return refuse(codeInvalidRequest, "Both topic name and id were given.")
	case topic == nil && r.name == "":
		return refuse(codeUnknownTopicID, "This server does not host this topic ID.")
	case topic == nil:
		return refuse(codeUnknownTopicOrPartition, "This server does not host this topic-partition.")
	case times[topic.ID] > 1:
		return refuse(codeInvalidRequest, "The topic appears twice in the request.")
	case !c.broker.DeleteTopicEnable:
		return refuse(codeTopicDeletionDisabled, "delete.topic.enable is false.")
	}
	return nil
}
