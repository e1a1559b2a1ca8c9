package controller

import (
	"strconv"

	"lockstep/core/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs answers DescribeConfigs from the image, on the broker nodeID whose static configuration is given.
func DescribeConfigs(im *Image, nodeID int32, static config.Values, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	layers := im.Layers(nodeID, static)
	for i := range req.Resources {
		rr := &req.Resources[i]
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = rr.ResourceType, rr.ResourceName
		all, no := describeResource(im, nodeID, &layers, rr)
		if no != nil {
			r.ErrorCode, r.ErrorMessage = no.code, &no.msg
		}
		for j := range all {
			r.Configs = append(r.Configs, describedConfig(&all[j], req))
		}
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func describeResource(im *Image, nodeID int32, layers *config.Layers, rr *kmsg.DescribeConfigsRequestResource) ([]config.Described, *refusal) {
	switch rr.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if why := CheckTopicName(rr.ResourceName); why != "" {
			return nil, refuse(codeInvalidTopic, "Topic name is invalid: %s.", why)
		}
		if im.Topic(rr.ResourceName) == nil {
			return nil, refuse(codeUnknownTopicOrPartition, "This server does not host this topic-partition.")
		}
		return config.DescribeTopic(im.Config(TopicResource(rr.ResourceName)), layers, rr.ConfigNames), nil
	case kmsg.ConfigResourceTypeBroker:
		if rr.ResourceName == "" {
			return config.DescribeDynamic(layers.Default, kmsg.ConfigSourceDynamicDefaultBrokerConfig, rr.ConfigNames), nil
		}
		id, err := strconv.ParseInt(rr.ResourceName, 10, 32)
		if err != nil {
			return nil, refuse(codeInvalidRequest, "%q is not a broker's id.", rr.ResourceName)
		}
		if int32(id) != nodeID {
			return nil, refuse(codeInvalidRequest, "This is broker %d, which does not know the configs of broker %d.", nodeID, id)
		}
		return config.DescribeBroker(layers, rr.ConfigNames), nil
	}
	return nil, refuse(codeInvalidRequest, "Resource type %d has no configs here.", rr.ResourceType)
}

func describedConfig(d *config.Described, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	x := kmsg.NewDescribeConfigsResponseResourceConfig()
	x.Name, x.Value, x.Source, x.ConfigType = d.Name, d.Value, d.Source, d.Type
	x.ReadOnly, x.IsDefault = d.ReadOnly, d.Source == kmsg.ConfigSourceDefaultConfig
	if req.IncludeSynonyms {
		for _, s := range d.Synonyms {
			y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			y.Name, y.Value, y.Source = s.Name, s.Value, s.Source
			x.ConfigSynonyms = append(x.ConfigSynonyms, y)
		}
	}
	if req.IncludeDocumentation {
		doc := d.Documentation()
		x.Documentation = &doc
	}
	return x
}

// ListConfigResources answers ListConfigResources from the image (KIP-1142). Version 0 asks for client metrics, of which there are none.
func ListConfigResources(im *Image, req *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	wants := func(t kmsg.ConfigResourceType) bool {
		if req.Version == 0 {
			return false
		}
		for _, x := range req.ResourceTypes {
			if kmsg.ConfigResourceType(x) == t {
				return true
			}
		}
		return len(req.ResourceTypes) == 0
	}
	for _, x := range req.ResourceTypes {
		switch kmsg.ConfigResourceType(x) {
		case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
			kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		default:
			resp.ErrorCode = codeUnsupportedVersion
			return resp
		}
	}
	add := func(t kmsg.ConfigResourceType, name string) {
		x := kmsg.NewListConfigResourcesResponseConfigResource()
		x.Name, x.Type = name, int8(t)
		resp.ConfigResources = append(resp.ConfigResources, x)
	}
	if wants(kmsg.ConfigResourceTypeTopic) {
		for t := range im.Topics() {
			add(kmsg.ConfigResourceTypeTopic, t.Name)
		}
	}
	if wants(kmsg.ConfigResourceTypeBroker) {
		for b := range im.Brokers() {
			add(kmsg.ConfigResourceTypeBroker, BrokerResource(b.ID).Name)
		}
	}
	return resp
}
