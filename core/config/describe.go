package config

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Synonym is one source of a value: DescribeConfigs lists them, strongest first (KIP-226).
type Synonym struct {
	Name   string
	Value  *string
	Source kmsg.ConfigSource
}

// Described is one setting as DescribeConfigs reports it.
type Described struct {
	*Def
	Value    *string // nil: null
	Source   kmsg.ConfigSource
	ReadOnly bool
	Synonyms []Synonym
}

// wanted reports whether names, which are those asked for, has name; none asks for all.
func wanted(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// DescribeTopic describes a topic's settings, those named or (nil) all, sorted by name.
func DescribeTopic(overrides Values, broker *Layers, names []string) []Described {
	var out []Described
	for _, d := range topicDefs {
		if !wanted(names, d.Name) {
			continue
		}
		x := Described{Def: d, Source: kmsg.ConfigSourceDefaultConfig}
		if v, ok := overrides.Get(d.Name); ok {
			x.Synonyms = append(x.Synonyms, Synonym{d.Name, &v, kmsg.ConfigSourceDynamicTopicConfig})
			x.Value = &v
		}
		broker.sources(brokerDefs.get(d.Broker), func(s source) bool {
			x.Synonyms = append(x.Synonyms, Synonym{s.def.Name, &s.value, s.source})
			if x.Value == nil {
				v := s.scaled(d.Broker)
				x.Value = &v
			}
			return true
		})
		if len(x.Synonyms) > 0 {
			x.Source = x.Synonyms[0].Source
		}
		out = append(out, x)
	}
	return out
}

// DescribeBroker describes a broker's settings, those named or (nil) all, sorted by name.
func DescribeBroker(broker *Layers, names []string) []Described {
	var out []Described
	for _, d := range brokerDefs {
		if !wanted(names, d.Name) {
			continue
		}
		x := Described{Def: d, Source: kmsg.ConfigSourceDefaultConfig, ReadOnly: d.Update == ReadOnly}
		broker.sources(d, func(s source) bool {
			x.Synonyms = append(x.Synonyms, Synonym{s.def.Name, &s.value, s.source})
			if x.Value == nil && s.def == d {
				x.Value, x.Source = &s.value, s.source
			}
			return true
		})
		out = append(out, x)
	}
	return out
}

// DescribeDynamic describes what is set at run time for one broker, or, with
// source DynamicDefaultBrokerConfig, for all brokers.
func DescribeDynamic(set Values, from kmsg.ConfigSource, names []string) []Described {
	var out []Described
	for _, e := range set {
		d := BrokerDef(e.Name)
		if d == nil || !wanted(names, e.Name) {
			continue
		}
		out = append(out, Described{Def: d, Value: &e.Value, Source: from, Synonyms: []Synonym{{e.Name, &e.Value, from}}})
	}
	return out
}

// Documentation returns the setting's documentation, with its valid values.
func (d *Def) Documentation() string {
	if d.allowed != nil {
		return d.Doc + " Valid values: " + strings.Join(d.allowed, ", ") + "."
	}
	return d.Doc
}
