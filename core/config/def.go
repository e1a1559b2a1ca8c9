package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Update says how a broker setting may be changed. Topic settings may always be.
type Update uint8

// Kinds of update, in Kafka's words.
const (
	ReadOnly    Update = iota // only by a restart
	ClusterWide               // at run time, for one broker or for all
	// ClusterOnly settings may be set at run time for all brokers at once, not for one, because brokers that
	// disagreed on them would lose data.
	ClusterOnly
)

// Value is a parsed value; which field holds it depends on the type.
type Value struct {
	Int   int64 // int, short, long
	Float float64
	Bool  bool
	Str   string
	List  []string
}

// Def defines one configuration.
type Def struct {
	Name    string
	Type    kmsg.ConfigType
	Default string
	Null    bool // there is no default; DescribeConfigs shows null
	Valid   string
	Doc     string
	Update  Update
	// Broker names, for a topic's setting, the broker's setting that gives it its default.
	Broker string
	// Instead names the settings that are looked at, in this order, where this one is not set.
	Instead []string

	min, max int64    // bounds of an integer, or of a number; 0 and 0 are none of a number
	scale    int64    // of an integer, to milliseconds, where it is given in larger units
	allowed  []string // of a string or of a list's items; nil allows everything
	check    func(Value) error
	setTopic func(*TopicConfig, Value)
	setOwn   func(*BrokerConfig, Value)
	seed     bool // a static value only seeds the cluster's own; see Seeds
}

// Parse parses and validates a value. The error names the setting.
func (d *Def) Parse(s string) (Value, error) {
	v, err := d.parse(strings.TrimSpace(s))
	if err == nil && d.check != nil {
		err = d.check(v)
	}
	if err != nil {
		return Value{}, fmt.Errorf("invalid value %q for %s: %w", s, d.Name, err)
	}
	return v, nil
}

func (d *Def) parse(s string) (v Value, err error) {
	switch d.Type {
	case kmsg.ConfigTypeBoolean:
		v.Bool = strings.EqualFold(s, "true")
		if !v.Bool && !strings.EqualFold(s, "false") {
			err = fmt.Errorf("neither true nor false")
		}
	case kmsg.ConfigTypeInt, kmsg.ConfigTypeShort, kmsg.ConfigTypeLong:
		v.Int, err = d.parseInt(s)
	case kmsg.ConfigTypeDouble:
		v.Float, err = strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v.Float) {
			err = fmt.Errorf("not a number")
		} else if v.Float < float64(d.min) || d.max > d.min && v.Float > float64(d.max) {
			err = fmt.Errorf("must be from %d to %d", d.min, d.max)
		}
	case kmsg.ConfigTypeList:
		v.List = SplitList(s)
		for _, item := range v.List {
			if err == nil {
				err = d.allows(item)
			}
		}
	default:
		v.Str, err = s, d.allows(s)
	}
	return v, err
}

func (d *Def) parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("not an integer")
	case n < d.min && d.max == math.MaxInt64, n < d.min && d.max == math.MaxInt32:
		return 0, fmt.Errorf("must be at least %d", d.min)
	case n < d.min, n > d.max:
		return 0, fmt.Errorf("must be from %d to %d", d.min, d.max)
	}
	return n, nil
}

func (d *Def) allows(s string) error {
	if d.allowed == nil || slices.Contains(d.allowed, s) {
		return nil
	}
	return fmt.Errorf("must be one of %s", strings.Join(d.allowed, ", "))
}

// SplitList splits a comma-separated list and trims its items. An empty text is an empty list.
func SplitList(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// millis makes a duration of milliseconds; -1 and what does not fit is Forever.
func millis(ms int64) time.Duration {
	if ms < 0 || ms > int64(Forever/time.Millisecond) {
		return Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// table is a set of definitions, sorted by name.
type table []*Def

func newTable(defs []*Def) table {
	t := slices.DeleteFunc(slices.Clone(defs), func(d *Def) bool { return d == nil })
	slices.SortFunc(t, func(a, b *Def) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

func (t table) get(name string) *Def {
	i, ok := slices.BinarySearchFunc(t, name, func(d *Def, n string) int { return cmp.Compare(d.Name, n) })
	if !ok {
		return nil
	}
	return t[i]
}

// TopicDefs returns the definitions of all topic settings, sorted by name.
func TopicDefs() []*Def { return topicDefs }

// BrokerDefs returns the definitions of all broker settings, sorted by name.
func BrokerDefs() []*Def { return brokerDefs }

// TopicDef returns the definition of a topic's setting, or nil.
func TopicDef(name string) *Def { return topicDefs.get(name) }

// BrokerDef returns the definition of a broker's setting, or nil.
func BrokerDef(name string) *Def { return brokerDefs.get(name) }
