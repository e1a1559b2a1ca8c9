package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Layers are the sources of a broker's configuration above the built-in defaults.
type Layers struct {
	Dynamic Values // set for this broker at run time
	Default Values // set for all brokers at run time
	Static  Values // its file and command line
}

// source is one place where a value was found.
type source struct {
	def    *Def // its definition, of the broker's table
	value  string
	null   bool
	source kmsg.ConfigSource
}

// sources yields where a broker's setting, or those that stand in for it, has a value, strongest first; it
// always ends with the built-in default, if there is one. yield returns false to stop.
func (l *Layers) sources(d *Def, yield func(source) bool) {
	layers := [...]struct {
		values Values
		from   kmsg.ConfigSource
	}{
		{l.Dynamic, kmsg.ConfigSourceDynamicBrokerConfig},
		{l.Default, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
		{l.Static, kmsg.ConfigSourceStaticBrokerConfig},
	}
	for _, layer := range layers {
		if d.seed && layer.from == kmsg.ConfigSourceStaticBrokerConfig {
			continue
		}
		for i := -1; i < len(d.Instead); i++ {
			if x := d.at(i); len(layer.values) > 0 {
				if v, ok := layer.values.Get(x.Name); ok && !yield(source{x, v, false, layer.from}) {
					return
				}
			}
		}
	}
	for i := -1; i < len(d.Instead); i++ {
		if x := d.at(i); !x.Null && !yield(source{x, x.Default, false, kmsg.ConfigSourceDefaultConfig}) {
			return
		}
	}
}

// at returns d for -1, else the i-th setting that stands in for it.
func (d *Def) at(i int) *Def {
	if i < 0 {
		return d
	}
	return brokerDefs.get(d.Instead[i])
}

// effective returns the strongest value of a broker's setting, in the unit of the setting itself.
func (l *Layers) effective(d *Def) (Value, source, bool) {
	var found source
	var value Value
	ok := false
	l.sources(d, func(s source) bool {
		v, err := s.def.Parse(s.value)
		if err != nil {
			return true // none can get in; the next one counts
		}
		if s.def.scale > 1 && v.Int > 0 {
			v.Int *= s.def.scale
		}
		found, value, ok = s, v, true
		return false
	})
	return value, found, ok
}

// TopicDefaults returns what topics without overrides have.
func (l *Layers) TopicDefaults() TopicConfig {
	c := TopicConfig{Delete: true}
	for _, d := range topicDefs {
		if v, _, ok := l.effective(brokerDefs.get(d.Broker)); ok {
			d.setTopic(&c, v)
		}
	}
	return c
}

// Broker returns the broker's effective configuration.
func (l *Layers) Broker() BrokerConfig {
	var c BrokerConfig
	for _, d := range brokerDefs {
		if d.setOwn == nil {
			continue
		}
		if v, _, ok := l.effective(d); ok {
			d.setOwn(&c, v)
		}
	}
	return c
}

// IsSet reports whether a broker's setting has a value in any layer, its built-in default aside.
func (l *Layers) IsSet(name string) bool {
	d := BrokerDef(name)
	if d == nil {
		return false
	}
	_, s, ok := l.effective(d)
	return ok && s.source != kmsg.ConfigSourceDefaultConfig
}

// Seeds returns the static settings that all brokers must agree on. They count
// when a cluster is formed, and are then part of its metadata as cluster-wide
// defaults; what the file of a later broker says of them has no effect.
func Seeds(static Values) Values {
	var out Values
	for _, e := range static {
		if d := BrokerDef(e.Name); d != nil && d.seed {
			out = append(out, e)
		}
	}
	return out
}

// CheckStatic validates a broker's static configuration: file and command line
// together. An unknown name, a bad value, and values that contradict each other are errors that say which.
func CheckStatic(v Values) error {
	for _, e := range v {
		d := BrokerDef(e.Name)
		if d == nil {
			return unknownBrokerConfig(e.Name)
		}
		if _, err := d.Parse(e.Value); err != nil {
			return err
		}
	}
	for _, pair := range [][2]string{{"node.id", "broker.id"}, {"log.dirs", "log.dir"}} {
		a, okA := v.Get(pair[0])
		b, okB := v.Get(pair[1])
		if okA && okB && strings.TrimSpace(a) != strings.TrimSpace(b) {
			return fmt.Errorf("%s and %s are both set and differ", pair[0], pair[1])
		}
	}
	c := (&Layers{Static: v}).Broker()
	return c.Check()
}

func unknownTopicConfig(name string) error {
	if d := BrokerDef(name); d != nil {
		return fmt.Errorf("unknown topic config %q: it is a broker's", name)
	}
	return fmt.Errorf("unknown topic config %q", name)
}

func unknownBrokerConfig(name string) error {
	if d := TopicDef(name); d != nil {
		return fmt.Errorf("unknown broker config %q: it is a topic's; its default for all topics is %s", name, d.Broker)
	}
	return fmt.Errorf("unknown broker config %q", name)
}

// scaled returns a source's value as text in the unit of the setting it stands in for.
func (s *source) scaled(name string) string {
	if s.def.Name == name || s.def.scale <= 1 {
		return s.value
	}
	v, err := s.def.Parse(s.value)
	if err != nil || v.Int < 0 {
		return s.value
	}
	return strconv.FormatInt(v.Int*s.def.scale, 10)
}
