package controller

import (
	"testing"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAlterConfigs(t *testing.T) {
	c := threeBrokers(t)
	c.create("t", configured("retention.ms", "1"))
	require.Zero(t, c.alterConfig(TopicResource("t"), "segment.bytes", "100"))
	layers := c.image().Layers(1, nil)
	tc := c.image().TopicConfig("t", &layers)
	require.EqualValues(t, 100, tc.SegmentBytes)
	records := len(c.log)
	require.Zero(t, c.alterConfig(TopicResource("t"), "segment.bytes", "100"))
	require.Len(t, c.log, records, "what is so already is no change")

	whole := kmsg.NewPtrAlterConfigsRequest()
	x := kmsg.NewAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	y := kmsg.NewAlterConfigsRequestResourceConfig()
	value := "9"
	y.Name, y.Value = "flush.ms", &value
	x.Configs = append(x.Configs, y)
	whole.Resources = append(whole.Resources, x, x)
	resp := c.ask(whole).(*kmsg.AlterConfigsResponse)
	require.Zero(t, resp.Resources[0].ErrorCode)
	require.Equal(t, codeInvalidRequest, resp.Resources[1].ErrorCode, "twice")
	require.Equal(t, config.Values{{Name: "flush.ms", Value: "9"}}, c.image().Config(TopicResource("t")))
}

func TestAlterConfigsRefusals(t *testing.T) {
	c := threeBrokers(t)
	c.create("t")
	c.create(core.OffsetsTopic, configured("cleanup.policy", "compact"))
	broker := func(name string) Resource { return Resource{kmsg.ConfigResourceTypeBroker, name} }
	for _, x := range []struct {
		resource    Resource
		name, value string
		code        int16
	}{
		{TopicResource("x"), "flush.ms", "1", codeUnknownTopicOrPartition},
		{TopicResource(""), "flush.ms", "1", codeInvalidRequest},
		{TopicResource("a b"), "flush.ms", "1", codeInvalidTopic},
		{TopicResource("t"), "flush.ms", "x", codeInvalidConfig},
		{TopicResource("t"), "flush", "1", codeInvalidConfig},
		{broker("x"), "message.max.bytes", "1", codeInvalidRequest},
		{broker("9"), "message.max.bytes", "1", codeBrokerIDNotRegistered},
		{broker("1"), "num.partitions", "1", codeInvalidRequest},
		{broker("1"), "message.max.bytes", "x", codeInvalidRequest},
		{broker("1"), "min.insync.replicas", "1", codeInvalidRequest},
		{Resource{kmsg.ConfigResourceTypeBrokerLogger, "1"}, "a", "b", codeInvalidRequest},
		{TopicResource(core.OffsetsTopic), "cleanup.policy", "compact,delete", codeInvalidConfig},
		{TopicResource(core.OffsetsTopic), "cleanup.policy", "compact", codeNone},
		{broker("1"), "message.max.bytes", "1", codeNone},
		{broker("01"), "message.max.bytes", "2", codeNone},
		{broker(""), "message.max.bytes", "3", codeNone},
	} {
		require.Equal(t, x.code, c.alterConfig(x.resource, x.name, x.value), "%v", x)
	}
	require.Equal(t, config.Values{{Name: "message.max.bytes", Value: "2"}}, c.image().Config(BrokerResource(1)), "01 is 1")
}

func describe(c *cluster, edit func(*kmsg.DescribeConfigsRequest), resources ...Resource) *kmsg.DescribeConfigsResponse {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.Version, r.IncludeSynonyms, r.IncludeDocumentation = 4, true, true
	for _, res := range resources {
		x := kmsg.NewDescribeConfigsRequestResource()
		x.ResourceType, x.ResourceName = res.Type, res.Name
		r.Resources = append(r.Resources, x)
	}
	if edit != nil {
		edit(r)
	}
	return DescribeConfigs(c.image(), 1, config.Values{{Name: "log.segment.bytes", Value: "5000"}}, r)
}

func TestDescribeConfigs(t *testing.T) {
	c := threeBrokers(t)
	c.create("t", configured("retention.ms", "1"))
	c.alterConfig(allBrokers, "message.max.bytes", "7")
	resp := describe(c, nil, TopicResource("t"), BrokerResource(1), allBrokers)
	find := func(resource int, name string) *kmsg.DescribeConfigsResponseResourceConfig {
		for i := range resp.Resources[resource].Configs {
			if x := &resp.Resources[resource].Configs[i]; x.Name == name {
				return x
			}
		}
		t.Fatalf("no %s", name)
		return nil
	}
	require.Len(t, resp.Resources[0].Configs, len(config.TopicDefs()), "every config, whether set or not")
	x := find(0, "segment.bytes")
	require.Equal(t, "5000", *x.Value)
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, x.Source)
	require.False(t, x.IsDefault)
	require.Equal(t, kmsg.ConfigTypeInt, x.ConfigType)
	require.NotEmpty(t, *x.Documentation)
	require.Equal(t, "log.segment.bytes", x.ConfigSynonyms[0].Name)
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, find(0, "retention.ms").Source)
	require.Equal(t, kmsg.ConfigSourceDynamicDefaultBrokerConfig, find(0, "max.message.bytes").Source)
	require.Len(t, resp.Resources[1].Configs, len(config.BrokerDefs()))
	require.True(t, find(1, "num.partitions").ReadOnly)
	require.Equal(t, "7", *find(1, "message.max.bytes").Value)
	require.Len(t, resp.Resources[2].Configs, 1, "what is set for all brokers")

	resp = describe(c, func(r *kmsg.DescribeConfigsRequest) {
		r.IncludeSynonyms, r.IncludeDocumentation = false, false
		r.Resources[0].ConfigNames = []string{"retention.ms", "nonsense"}
	}, TopicResource("t"))
	require.Len(t, resp.Resources[0].Configs, 1)
	require.Empty(t, resp.Resources[0].Configs[0].ConfigSynonyms)
	require.Nil(t, resp.Resources[0].Configs[0].Documentation)

	resp = describe(c, nil, TopicResource("x"), TopicResource("a b"), BrokerResource(2), Resource{kmsg.ConfigResourceTypeBroker, "x"},
		Resource{kmsg.ConfigResourceTypeClientMetrics, "x"})
	for i, code := range []int16{codeUnknownTopicOrPartition, codeInvalidTopic, codeInvalidRequest, codeInvalidRequest, codeInvalidRequest} {
		require.Equal(t, code, resp.Resources[i].ErrorCode)
	}
}

func TestListConfigResources(t *testing.T) {
	c := threeBrokers(t)
	c.create("b")
	c.create("a")
	list := func(version int16, types ...int8) []string {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.Version, r.ResourceTypes = version, types
		resp := ListConfigResources(c.image(), r)
		require.Zero(t, resp.ErrorCode)
		var out []string
		for _, x := range resp.ConfigResources {
			out = append(out, kmsg.ConfigResourceType(x.Type).String()+" "+x.Name)
		}
		return out
	}
	require.Equal(t, []string{"TOPIC a", "TOPIC b", "BROKER 1", "BROKER 2", "BROKER 3"}, list(1))
	require.Equal(t, []string{"TOPIC a", "TOPIC b"}, list(1, int8(kmsg.ConfigResourceTypeTopic)))
	require.Empty(t, list(1, int8(kmsg.ConfigResourceTypeClientMetrics)))
	require.Empty(t, list(0))
	r := kmsg.NewPtrListConfigResourcesRequest()
	r.Version, r.ResourceTypes = 1, []int8{3}
	require.Equal(t, codeUnsupportedVersion, ListConfigResources(c.image(), r).ErrorCode)
}
