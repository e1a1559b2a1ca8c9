package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Target says whose settings are altered.
type Target uint8

// Targets.
const (
	OfTopic      Target = iota
	OfBroker            // one broker
	OfAllBrokers        // the cluster-wide default
)

// Op is one operation of IncrementalAlterConfigs.
type Op struct {
	Name  string
	Kind  kmsg.IncrementalAlterConfigOp
	Value *string
}

// Change is one setting's new value; nil removes it.
type Change struct {
	Name  string
	Value *string
}

// AlterError says why a request to alter configs is refused.
type AlterError struct {
	Malformed bool // the request itself is wrong, not a value in it
	Msg       string
}

func (e *AlterError) Error() string { return e.Msg }

func malformed(format string, args ...any) *AlterError {
	return &AlterError{true, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *AlterError {
	return &AlterError{false, fmt.Sprintf(format, args...)}
}

// maxValueLen is the longest value, as in Kafka, where a record holds its length in 16 bits.
const maxValueLen = 1<<15 - 1

func (t Target) def(name string) *Def {
	if t == OfTopic {
		return TopicDef(name)
	}
	return BrokerDef(name)
}

// checkName refuses a name that is unknown or that cannot be altered at run time for t.
func (t Target) checkName(name string) *AlterError {
	d := t.def(name)
	switch {
	case d == nil && t == OfTopic:
		return invalid("%v", unknownTopicConfig(name))
	case d == nil:
		return invalid("%v", unknownBrokerConfig(name))
	case t != OfTopic && d.Update == ReadOnly:
		return invalid("broker config %q cannot be changed at run time", name)
	case t == OfBroker && d.Update == ClusterOnly:
		return invalid("broker config %q can be set for all brokers only, not for one", name)
	}
	return nil
}

// AlterIncremental applies operations to what is set for a target and returns
// the changes they make, in their order. inherited tells a list's value where
// the target has none of its own, for APPEND and SUBTRACT; nil takes the default.
func AlterIncremental(t Target, current Values, ops []Op, inherited func(name string) string) ([]Change, *AlterError) {
	var changes []Change
	next := current
	for i, op := range ops {
		if slices.ContainsFunc(ops[:i], func(o Op) bool { return o.Name == op.Name }) {
			return nil, malformed("config %q appears twice", op.Name)
		}
		value, err := t.apply(current, op, inherited)
		if err != nil {
			return nil, err
		}
		old, had := current.Get(op.Name)
		switch {
		case value == nil && had:
			next = next.Without(op.Name)
		case value != nil && (!had || old != *value):
			next = next.With(op.Name, *value)
		default:
			continue
		}
		changes = append(changes, Change{op.Name, value})
	}
	return changes, t.check(next)
}

// apply returns the value that op leaves, nil for none.
func (t Target) apply(current Values, op Op, inherited func(string) string) (*string, *AlterError) {
	_, had := current.Get(op.Name)
	if err := t.checkName(op.Name); err != nil && !(had && op.Kind == kmsg.IncrementalAlterConfigOpDelete) {
		return nil, err
	}
	if op.Kind == kmsg.IncrementalAlterConfigOpDelete {
		return nil, nil
	}
	if op.Value == nil {
		return nil, malformed("config %q has no value", op.Name)
	}
	switch op.Kind {
	case kmsg.IncrementalAlterConfigOpSet:
		return op.Value, nil
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		return t.applyList(current, op, inherited)
	}
	return nil, malformed("unknown operation %d on config %q", op.Kind, op.Name)
}

func (t Target) applyList(current Values, op Op, inherited func(string) string) (*string, *AlterError) {
	d := t.def(op.Name)
	if d.Type != kmsg.ConfigTypeList {
		return nil, invalid("config %q is not a list, so nothing can be appended to it or subtracted", op.Name)
	}
	text, ok := current.Get(op.Name)
	if !ok && inherited != nil {
		text = inherited(op.Name)
	} else if !ok {
		text = d.Default
	}
	list := SplitList(text)
	for _, item := range SplitList(*op.Value) {
		has := slices.Contains(list, item)
		if op.Kind == kmsg.IncrementalAlterConfigOpAppend && !has {
			list = append(list, item)
		} else if op.Kind == kmsg.IncrementalAlterConfigOpSubtract {
			list = slices.DeleteFunc(list, func(s string) bool { return s == item })
		}
	}
	joined := strings.Join(list, ",")
	return &joined, nil
}

// AlterAll replaces all that is set for a target (the older AlterConfigs) and returns the changes this makes, sorted by name.
func AlterAll(t Target, current Values, wanted []Change) ([]Change, *AlterError) {
	next := Values(nil)
	for i, w := range wanted {
		if slices.ContainsFunc(wanted[:i], func(o Change) bool { return o.Name == w.Name }) {
			return nil, malformed("config %q appears twice", w.Name)
		}
		if w.Value == nil {
			return nil, malformed("config %q has no value", w.Name)
		}
		if err := t.checkName(w.Name); err != nil {
			return nil, err
		}
		next = next.With(w.Name, *w.Value)
	}
	var changes []Change
	for _, e := range current {
		if _, ok := next.Get(e.Name); !ok {
			changes = append(changes, Change{Name: e.Name})
		}
	}
	for _, e := range next {
		if old, ok := current.Get(e.Name); !ok || old != e.Value {
			changes = append(changes, Change{e.Name, &e.Value})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes, t.check(next)
}

// check validates all that a target would have.
func (t Target) check(next Values) *AlterError {
	for _, e := range next {
		if len(e.Value) > maxValueLen {
			return invalid("the value of config %q is longer than %d bytes", e.Name, maxValueLen)
		}
		if d := t.def(e.Name); d != nil {
			if _, err := d.Parse(e.Value); err != nil {
				return invalid("%v", err)
			}
		}
	}
	if t == OfTopic {
		if err := CheckTopic(next); err != nil {
			return invalid("%v", err)
		}
	}
	return nil
}
