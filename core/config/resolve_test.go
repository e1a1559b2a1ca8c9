package config

import (
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// A topic's override is stronger than the broker's dynamic setting, that than the cluster-wide one, that than the file
// (KIP-226), and within one source milliseconds are stronger than minutes, and those than hours.
func TestOrderOfSources(t *testing.T) {
	l := Layers{Static: NewValues(map[string]string{"log.retention.hours": "1", "log.retention.minutes": "2"})}
	require.Equal(t, 2*time.Minute, l.topic(nil).Retention)
	l.Default = Values{{"log.retention.hours", "3"}}
	require.Equal(t, 3*time.Hour, l.topic(nil).Retention)
	l.Dynamic = Values{{"log.retention.ms", "4"}}
	require.Equal(t, 4*time.Millisecond, l.topic(nil).Retention)
	require.Equal(t, Forever, l.topic(Values{{"retention.ms", "-1"}}).Retention)

	d := DescribeTopic(Values{{"retention.ms", "5"}}, &l, []string{"retention.ms"})[0]
	require.Equal(t, "5", *d.Value)
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, d.Source)
	var got []string
	for _, s := range d.Synonyms {
		got = append(got, s.Source.String()+":"+s.Name+"="+*s.Value)
	}
	require.Equal(t, []string{
		"DYNAMIC_TOPIC_CONFIG:retention.ms=5",
		"DYNAMIC_BROKER_CONFIG:log.retention.ms=4",
		"DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.hours=3",
		"STATIC_BROKER_CONFIG:log.retention.minutes=2",
		"STATIC_BROKER_CONFIG:log.retention.hours=1",
		"DEFAULT_CONFIG:log.retention.hours=168",
	}, got)
}

func (l *Layers) topic(overrides Values) TopicConfig { return Topic(overrides, l) }

// An inherited value is shown in the topic setting's own unit.
func TestInheritedValueIsScaled(t *testing.T) {
	l := Layers{}
	d := DescribeTopic(nil, &l, []string{"retention.ms"})[0]
	require.Equal(t, "604800000", *d.Value)
	require.Equal(t, kmsg.ConfigSourceDefaultConfig, d.Source)
	l.Static = Values{{"log.retention.hours", "-1"}}
	require.Equal(t, "-1", *DescribeTopic(nil, &l, []string{"retention.ms"})[0].Value)
	require.Equal(t, Forever, l.TopicDefaults().Retention)
}

func TestDescribeBroker(t *testing.T) {
	l := Layers{Static: Values{{"log.retention.hours", "1"}}, Default: Values{{"message.max.bytes", "9"}}}
	by := make(map[string]Described)
	for _, d := range DescribeBroker(&l, nil) {
		by[d.Name] = d
	}
	require.Len(t, by, len(brokerDefs))
	require.Nil(t, by["log.retention.ms"].Value, "not set itself, as in Kafka")
	require.Equal(t, "1", *by["log.retention.hours"].Value)
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, by["log.retention.hours"].Source)
	require.Equal(t, kmsg.ConfigSourceDynamicDefaultBrokerConfig, by["message.max.bytes"].Source)
	require.False(t, by["message.max.bytes"].ReadOnly)
	require.True(t, by["node.id"].ReadOnly)
	dyn := DescribeDynamic(l.Default, kmsg.ConfigSourceDynamicDefaultBrokerConfig, nil)
	require.Len(t, dyn, 1)
	require.Equal(t, "9", *dyn[0].Value)
}

// Brokers must agree on min.insync.replicas, so a broker's file only seeds a new cluster with it.
func TestMinInsyncReplicasOfTheFileOnlySeeds(t *testing.T) {
	l := Layers{Static: Values{{"min.insync.replicas", "3"}}}
	require.EqualValues(t, 1, l.TopicDefaults().MinInsyncReplicas)
	require.False(t, l.IsSet("min.insync.replicas"))
	require.Equal(t, l.Static, Seeds(l.Static))
	l.Default = Seeds(l.Static)
	require.EqualValues(t, 3, l.TopicDefaults().MinInsyncReplicas)
	require.True(t, l.IsSet("min.insync.replicas"))
}

func TestEffectiveMinISR(t *testing.T) {
	c := TopicConfig{MinInsyncReplicas: 2}
	require.Equal(t, 1, c.EffectiveMinISR(1))
	require.Equal(t, 2, c.EffectiveMinISR(3))
}

func TestSegmentJitterSpreadsPartitions(t *testing.T) {
	c := Topic(Values{{"segment.jitter.ms", "1000"}, {"segment.ms", "5000"}}, &Layers{})
	seen := make(map[time.Duration]bool)
	for i := range int32(50) {
		p := core.Partition{Topic: core.TopicID{1}, Index: i}
		ms := c.Log(p).SegmentMillis
		require.Equal(t, ms, c.Log(p).SegmentMillis, "a partition's share does not change")
		require.True(t, ms > 4*time.Second && ms <= 5*time.Second, ms)
		seen[ms] = true
	}
	require.Greater(t, len(seen), 40)
}

func TestValuesAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v Values
		model := make(map[string]string)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			before := NewValues(model)
			old := v
			if rapid.Bool().Draw(t, "remove") {
				v = v.Without(name)
				delete(model, name)
			} else {
				value := rapid.StringN(0, 3, 3).Draw(t, "value")
				v = v.With(name, value)
				model[name] = value
			}
			require.Equal(t, len(before), len(old))
			for i := range before {
				require.Equal(t, before[i], old[i], "a Values changed under its holder")
			}
			require.Equal(t, len(model), len(v))
			for _, e := range NewValues(model) {
				got, ok := v.Get(e.Name)
				require.True(t, ok)
				require.Equal(t, e.Value, got)
			}
		}
	})
}
