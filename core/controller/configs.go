package controller

import (
	"slices"
	"strconv"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// allBrokers is the resource of the cluster-wide defaults of brokers' configs.
var allBrokers = Resource{Type: kmsg.ConfigResourceTypeBroker}

// alterRefusal turns an error of package config into what Kafka answers: a bad value is INVALID_CONFIG for a topic, and
// INVALID_REQUEST for a broker.
func alterRefusal(t config.Target, err *config.AlterError) *refusal {
	code := codeInvalidConfig
	if err.Malformed || t != config.OfTopic {
		code = codeInvalidRequest
	}
	return refuse(code, "%s", err.Msg)
}

func (c *Controller) incrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	c.rehearse(req.ValidateOnly, func() {
		for i := range req.Resources {
			rr := &req.Resources[i]
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = rr.ResourceType, rr.ResourceName
			twice := slices.ContainsFunc(req.Resources[:i], func(x kmsg.IncrementalAlterConfigsRequestResource) bool {
				return x.ResourceType == rr.ResourceType && x.ResourceName == rr.ResourceName
			})
			var ops []config.Op
			for _, op := range rr.Configs {
				ops = append(ops, config.Op{Name: op.Name, Kind: op.Op, Value: op.Value})
			}
			res := Resource{rr.ResourceType, rr.ResourceName}
			no := c.alter(res, twice, func(t config.Target, current config.Values) ([]config.Change, *config.AlterError) {
				return config.AlterIncremental(t, current, ops, func(name string) string { return c.inherited(t, name) })
			})
			if no != nil {
				r.ErrorCode, r.ErrorMessage = no.code, &no.msg
			}
			resp.Resources = append(resp.Resources, r)
		}
	})
	return resp
}

func (c *Controller) alterConfigs(req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	c.rehearse(req.ValidateOnly, func() {
		for i := range req.Resources {
			rr := &req.Resources[i]
			r := kmsg.NewAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = rr.ResourceType, rr.ResourceName
			twice := slices.ContainsFunc(req.Resources[:i], func(x kmsg.AlterConfigsRequestResource) bool {
				return x.ResourceType == rr.ResourceType && x.ResourceName == rr.ResourceName
			})
			var wanted []config.Change
			for _, e := range rr.Configs {
				wanted = append(wanted, config.Change{Name: e.Name, Value: e.Value})
			}
			res := Resource{rr.ResourceType, rr.ResourceName}
			no := c.alter(res, twice, func(t config.Target, current config.Values) ([]config.Change, *config.AlterError) {
				return config.AlterAll(t, current, wanted)
			})
			if no != nil {
				r.ErrorCode, r.ErrorMessage = no.code, &no.msg
			}
			resp.Resources = append(resp.Resources, r)
		}
	})
	return resp
}

// inherited returns the value that a resource has for a config while it sets none itself.
func (c *Controller) inherited(t config.Target, name string) string {
	all := config.DescribeBroker(&c.layers, []string{name})
	if t == config.OfTopic {
		all = config.DescribeTopic(nil, &c.layers, []string{name})
	}
	if len(all) == 0 || all[0].Value == nil {
		return ""
	}
	return *all[0].Value
}

// alter changes the configs of one resource by what decide makes of them.
func (c *Controller) alter(r Resource, twice bool, decide func(config.Target, config.Values) ([]config.Change, *config.AlterError)) *refusal {
	if twice {
		return refuse(codeInvalidRequest, "The resource appears twice in the request.")
	}
	t, no := c.target(&r)
	if no != nil {
		return no
	}
	changes, err := decide(t, c.spec.Config(r))
	if err != nil {
		return alterRefusal(t, err)
	}
	for _, ch := range changes {
		if r == TopicResource(core.OffsetsTopic) && ch.Name == "cleanup.policy" && (ch.Value == nil || *ch.Value != "compact") {
			return refuse(codeInvalidConfig, "%s is compacted: with another cleanup.policy groups would lose what they committed long ago.", r.Name)
		}
	}
	for _, ch := range changes {
		c.emit(&ConfigRecord{r, ch})
		c.configChanged(r, ch.Name)
	}
	return nil
}

// target checks that the resource exists, and makes its name canonical.
func (c *Controller) target(r *Resource) (config.Target, *refusal) {
	switch r.Type {
	case kmsg.ConfigResourceTypeTopic:
		if r.Name == "" {
			return 0, refuse(codeInvalidRequest, "A topic's configs cannot be altered for all topics at once.")
		}
		if why := CheckTopicName(r.Name); why != "" {
			return 0, refuse(codeInvalidTopic, "Topic name is invalid: %s.", why)
		}
		if c.spec.Topic(r.Name) == nil {
			return 0, refuse(codeUnknownTopicOrPartition, "The topic '%s' does not exist.", r.Name)
		}
		return config.OfTopic, nil
	case kmsg.ConfigResourceTypeBroker:
		if r.Name == "" {
			return config.OfAllBrokers, nil
		}
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil || id < 0 {
			return 0, refuse(codeInvalidRequest, "%q is not a broker's id.", r.Name)
		}
		*r = BrokerResource(int32(id))
		if c.spec.Broker(int32(id)) == nil {
			return 0, refuse(codeBrokerIDNotRegistered, "No broker with id %d is registered.", id)
		}
		return config.OfBroker, nil
	}
	return 0, refuse(codeInvalidRequest, "Resource type %d has no configs here.", r.Type)
}

// configChanged draws the consequences of a change for partitions: who may lead (rule 8), and who is eligible.
func (c *Controller) configChanged(r Resource, name string) {
	if name != "unclean.leader.election.enable" && name != "min.insync.replicas" {
		return
	}
	for _, t := range slices.Collect(c.spec.Topics()) {
		if r.Type == kmsg.ConfigResourceTypeTopic && r.Name != t.Name {
			continue
		}
		if name == "min.insync.replicas" {
			c.checkELR(t.ID)
		} else {
			c.electLeaderless(func(p *Partition) bool { return p.Topic == t.ID })
		}
	}
}
