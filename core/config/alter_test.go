package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func text(s string) *string { return &s }

const (
	set      = kmsg.IncrementalAlterConfigOpSet
	remove   = kmsg.IncrementalAlterConfigOpDelete
	add      = kmsg.IncrementalAlterConfigOpAppend
	subtract = kmsg.IncrementalAlterConfigOpSubtract
)

func TestAlterIncremental(t *testing.T) {
	have := Values{{"retention.ms", "1"}, {"segment.bytes", "100"}}
	changes, err := AlterIncremental(OfTopic, have, []Op{
		{"retention.ms", set, text("2")},
		{"segment.bytes", remove, nil},
		{"flush.ms", remove, nil},                // not set: nothing to do
		{"cleanup.policy", add, text("delete")},  // there by default: set, as in Kafka
		{"max.message.bytes", set, text(" 500")}, // spaces are not part of a number
	}, nil)
	require.Nil(t, err)
	require.Equal(t, []Change{
		{"retention.ms", text("2")}, {"segment.bytes", nil}, {"cleanup.policy", text("delete")}, {"max.message.bytes", text(" 500")},
	}, changes)

	same, err := AlterIncremental(OfTopic, have, []Op{{"retention.ms", set, text("1")}}, nil)
	require.Nil(t, err)
	require.Empty(t, same)
}

func TestAlterIncrementalLists(t *testing.T) {
	apply := func(current Values, op Op, inherited string) (string, *AlterError) {
		changes, err := AlterIncremental(OfTopic, current, []Op{op}, func(string) string { return inherited })
		if err != nil || len(changes) == 0 {
			return "", err
		}
		return *changes[0].Value, nil
	}
	got, err := apply(Values{{"cleanup.policy", "delete"}}, Op{"cleanup.policy", add, text("delete")}, "")
	require.Nil(t, err)
	require.Empty(t, got, "what is in the list is not added again")
	_, err = apply(nil, Op{"cleanup.policy", subtract, text("delete")}, "delete")
	require.Contains(t, err.Msg, "must not be empty")
	_, err = apply(nil, Op{"cleanup.policy", add, text("compact")}, "delete")
	require.Nil(t, err)
	// The operations themselves, on a list that has no limits.
	saved := topicDefs
	defer func() { topicDefs = saved }()
	free := *TopicDef("cleanup.policy")
	free.allowed = nil
	topicDefs = table{&free}
	got, err = apply(Values{{"cleanup.policy", "a, b"}}, Op{"cleanup.policy", add, text("c,a")}, "")
	require.Nil(t, err)
	require.Equal(t, "a,b,c", got)
	got, err = apply(nil, Op{"cleanup.policy", subtract, text("b,x")}, "a,b,c")
	require.Nil(t, err)
	require.Equal(t, "a,c", got)
}

func TestAlterRefusals(t *testing.T) {
	for _, c := range []struct {
		name      string
		target    Target
		current   Values
		ops       []Op
		malformed bool
		why       string
	}{
		{"unknown name", OfTopic, nil, []Op{{"retention", set, text("1")}}, false, `unknown topic config "retention"`},
		{"a broker's name", OfTopic, nil, []Op{{"num.partitions", set, text("1")}}, false, "it is a broker's"},
		{"bad value", OfTopic, nil, []Op{{"retention.ms", set, text("x")}}, false, "not an integer"},
		{"no value", OfTopic, nil, []Op{{"retention.ms", set, nil}}, true, "has no value"},
		{"twice", OfTopic, nil, []Op{{"retention.ms", set, text("1")}, {"retention.ms", remove, nil}}, true, "appears twice"},
		{"append to a number", OfTopic, nil, []Op{{"retention.ms", add, text("1")}}, false, "not a list"},
		{"operation 9", OfTopic, nil, []Op{{"retention.ms", 9, text("1")}}, true, "unknown operation"},
		{"read-only", OfAllBrokers, nil, []Op{{"num.partitions", set, text("1")}}, false, "cannot be changed at run time"},
		{"one broker's safety", OfBroker, nil, []Op{{"min.insync.replicas", set, text("1")}}, false, "for all brokers only"},
		{"unknown to brokers", OfBroker, nil, []Op{{"x", set, text("1")}}, false, `unknown broker config "x"`},
		{"too long", OfTopic, nil, []Op{{"retention.ms", set, text(strings.Repeat("1", 1<<15))}}, false, "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := AlterIncremental(c.target, c.current, c.ops, nil)
			require.NotNil(t, err)
			require.Equal(t, c.malformed, err.Malformed)
			require.Contains(t, err.Error(), c.why)
		})
	}
	_, err := AlterIncremental(OfAllBrokers, nil, []Op{{"min.insync.replicas", set, text("2")}}, nil)
	require.Nil(t, err)
	// A setting that a later version wrote, and that is unknown here, can be removed.
	_, err = AlterIncremental(OfTopic, Values{{"x", "1"}}, []Op{{"x", remove, nil}}, nil)
	require.Nil(t, err)
}

func TestAlterAllReplaces(t *testing.T) {
	have := Values{{"flush.ms", "7"}, {"retention.ms", "1"}, {"segment.bytes", "100"}}
	changes, err := AlterAll(OfTopic, have, []Change{{"retention.ms", text("2")}, {"segment.bytes", text("100")}})
	require.Nil(t, err)
	require.Equal(t, []Change{{"flush.ms", nil}, {"retention.ms", text("2")}}, changes)
	_, err = AlterAll(OfTopic, have, []Change{{"retention.ms", nil}})
	require.True(t, err.Malformed)
	_, err = AlterAll(OfTopic, have, []Change{{"a", text("1")}})
	require.False(t, err.Malformed)
}
