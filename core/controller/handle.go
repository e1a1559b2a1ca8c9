package controller

import (
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handlers is every request that the controller takes, one file each. A
// handler returns the answer to give when the records it emitted are committed.
var handlers = map[kmsg.Key]func(*Controller, kmsg.Request) kmsg.Response{
	kmsg.CreateTopics:            typed((*Controller).createTopics),
	kmsg.DeleteTopics:            typed((*Controller).deleteTopics),
	kmsg.CreatePartitions:        typed((*Controller).createPartitions),
	kmsg.AlterConfigs:            typed((*Controller).alterConfigs),
	kmsg.IncrementalAlterConfigs: typed((*Controller).incrementalAlterConfigs),
	kmsg.ElectLeaders:            typed((*Controller).electLeaders),
	kmsg.AlterPartition:          typed((*Controller).alterPartition),
	kmsg.BrokerRegistration:      typed((*Controller).registerBroker),
	kmsg.UnregisterBroker:        typed((*Controller).unregisterBroker),
	kmsg.AllocateProducerIDs:     typed((*Controller).allocateProducerIDs),
}

func typed[Q kmsg.Request, R kmsg.Response](h func(*Controller, Q) R) func(*Controller, kmsg.Request) kmsg.Response {
	return func(c *Controller, req kmsg.Request) kmsg.Response { return h(c, req.(Q)) }
}

// Handles reports whether requests of this API key are for the controller.
func Handles(key int16) bool {
	return handlers[kmsg.Key(key)] != nil || kmsg.Key(key) == kmsg.BrokerHeartbeat
}

// Handle takes a request. Its answer is in out at once or after a later call.
// A request that the controller does not take gets no answer; see Handles.
func (c *Controller) Handle(now core.Time, req kmsg.Request, token Token, out *Out) {
	c.begin(now, out)
	w := waiting{token: token, req: req, deadline: core.Never}
	if !c.active {
		c.refuse([]waiting{w})
		return
	}
	if beat, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
		c.heartbeat(beat, w)
		return
	}
	h := handlers[kmsg.Key(req.Key())]
	if h == nil {
		return
	}
	if t, ok := req.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		w.deadline = now.Add(time.Duration(t.Timeout()) * time.Millisecond)
	}
	w.resp = h(c, req)
	c.propose(&w)
}

// rehearse runs f on a copy of the speculative image and forgets what it did: for validate_only.
func (c *Controller) rehearse(only bool, f func()) {
	if !only {
		f()
		return
	}
	spec, diverged, records, lines := c.spec, c.diverged, len(c.call.records), len(c.call.out.Log)
	c.spec = c.spec.Clone()
	f()
	c.spec, c.diverged = spec, diverged
	c.call.records, c.call.out.Log = c.call.records[:records], c.call.out.Log[:lines]
	c.refreshConfig()
}
