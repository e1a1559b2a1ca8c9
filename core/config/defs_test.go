package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// other is, for each type of value, texts of which at least one is valid and not the default.
var others = []string{"true", "false", "2000", "1000000000", "3", "12345", "0.25", "LogAppendTime", "some-text", "compact", "-1",
	"PLAINTEXT://10.0.0.1:1", "7@h:1", "100000", "range", "disabled"}

func otherValue(t *testing.T, d *Def) string {
	for _, s := range others {
		if _, err := d.Parse(s); err == nil && s != d.Default {
			return s
		}
	}
	t.Fatalf("%s accepts none of the tried values", d.Name)
	return ""
}

func TestTablesAreWhole(t *testing.T) {
	for _, defs := range []table{topicDefs, brokerDefs} {
		for i, d := range defs {
			require.NotEmpty(t, d.Doc, d.Name)
			if i > 0 {
				require.Less(t, defs[i-1].Name, d.Name)
			}
			require.NotZero(t, d.Type, d.Name)
			require.True(t, !d.Null || d.Default == "", d.Name)
			if !d.Null {
				_, err := d.Parse(d.Default)
				require.NoError(t, err)
			}
			for _, n := range d.Instead {
				require.NotNil(t, brokerDefs.get(n), n)
			}
		}
	}
	for _, d := range topicDefs {
		require.NotNil(t, BrokerDef(d.Broker), "%s has no broker-wide default", d.Name)
	}
}

// A setting that is accepted changes something: here, a field; that the field is read is checked below.
func TestEverySettingSetsAField(t *testing.T) {
	for _, d := range topicDefs {
		if d.Name == "compression.type" {
			continue // only one value each
		}
		require.NotEqual(t, Topic(nil, &Layers{}), Topic(Values{{d.Name, otherValue(t, d)}}, &Layers{}), d.Name)
	}
	for _, d := range brokerDefs {
		if d.Name == "compression.type" {
			continue
		}
		v := Values{{d.Name, otherValue(t, d)}}
		l := Layers{Static: v}
		if d.seed {
			l = Layers{Default: v}
		}
		before, after := Layers{}, l
		require.False(t, reflect.DeepEqual(before.Broker(), after.Broker()) && before.TopicDefaults() == after.TopicDefaults(),
			"%s has no effect", d.Name)
	}
}

// The defaults of the topic table are those that the broker table's defaults give.
func TestDefaultsAgree(t *testing.T) {
	got := (&Layers{}).TopicDefaults()
	want := got
	for _, d := range topicDefs {
		v, err := d.Parse(d.Default)
		require.NoError(t, err)
		d.setTopic(&want, v)
	}
	require.Equal(t, want, got)
	require.EqualValues(t, 1, got.FlushMessages, "sync before ack is the default")
	require.Equal(t, Forever, got.FlushInterval)
	require.NoError(t, CheckStatic(nil), "the defaults contradict each other")
}

// Every field that a setting sets is read by the code of the project: a setting that is accepted has an effect.
func TestEveryFieldIsRead(t *testing.T) {
	root := filepath.Join("..", "..")
	read := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		inside := filepath.Dir(path) == filepath.Join(root, "core", "config")
		if strings.HasSuffix(path, "_test.go") || inside && filepath.Base(path) != "topic.go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				read[s.Sel.Name] = true
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	var unread []string
	for _, typ := range []reflect.Type{reflect.TypeFor[TopicConfig](), reflect.TypeFor[BrokerConfig]()} {
		for i := range typ.NumField() {
			name := typ.Field(i).Name
			if !read[name] {
				unread = append(unread, typ.Name()+"."+name)
			}
		}
	}
	require.Empty(t, unread, "nothing reads these, so their settings have no effect")
}

func TestParseRefusesByName(t *testing.T) {
	for _, c := range []struct{ name, value, why string }{
		{"retention.ms", "soon", "not an integer"},
		{"retention.ms", "-2", "must be at least -1"},
		{"segment.bytes", "2147483648", "must be from 14 to 2147483647"},
		{"segment.bytes", "13", "must be at least 14"},
		{"preallocate", "yes", "neither true nor false"},
		{"message.timestamp.type", "createTime", "must be one of CreateTime, LogAppendTime"},
		{"compression.type", "zstd", "must be one of producer"},
		{"cleanup.policy", "", "must not be empty"},
		{"cleanup.policy", "delete,delete", `has "delete" twice`},
		{"cleanup.policy", "forget", "must be one of"},
		{"flush.messages", "0", "must be at least 1"},
	} {
		_, err := TopicDef(c.name).Parse(c.value)
		require.ErrorContains(t, err, c.name)
		require.ErrorContains(t, err, c.why)
	}
	for _, ok := range []string{" TRUE", "false "} {
		_, err := TopicDef("preallocate").Parse(ok)
		require.NoError(t, err)
	}
}

func TestCheckStatic(t *testing.T) {
	for _, c := range []struct{ name, value, why string }{
		{"zookeeper.connect", "x:1", `unknown broker config "zookeeper.connect"`},
		{"retention.ms", "1", `it is a topic's; its default for all topics is log.retention.ms`},
		{"log.dirs", "/a,/b", "several directories"},
		{"max.connections", "0", "must be at least 1"},
		{"max.connections.per.ip", "0", "must be at least 1"},
		{"listeners", "127.0.0.1:9092", "NAME://host:port"},
		{"listeners", "A://h:1,a://h:2", "two listeners have the name A"},
		{"listeners", "", "listeners must not be empty"},
		{"advertised.listeners", "OTHER://h:1", "advertised.listeners has OTHER"},
		{"controller.quorum.voters", "1@h", "id@host:port"},
		{"controller.quorum.voters", "1@h:1,1@i:1", "twice"},
		{"controller.quorum.voters", "1@h:1,2@h:1", "h:1 is given to two voters"},
		{"broker.lease.ms", "100", "below broker.lease.ms"},
		{"broker.session.timeout.ms", "500", "must be above broker.lease.ms"},
		{"replica.lag.time.max.ms", "4000", "at least twice"},
		{"default.replication.factor", "0", "-1 or at least 1"},
		{"group.consumer.assignors", "sticky", "not one of uniform, range"},
		{"group.consumer.assignors", "range,range", "twice"},
		{"group.consumer.migration.policy", "sideways", "must be one of"},
		{"group.min.session.timeout.ms", "2000000", "must not be above group.max.session.timeout.ms"},
		{"group.consumer.session.timeout.ms", "5000", "must be below group.consumer.session.timeout.ms"},
	} {
		require.ErrorContains(t, CheckStatic(Values{{c.name, c.value}}), c.why, c.name)
	}
	require.ErrorContains(t, CheckStatic(NewValues(map[string]string{"node.id": "1", "broker.id": "2"})), "differ")
	require.NoError(t, CheckStatic(NewValues(map[string]string{"broker.id": "7", "log.dir": "/x", "log.retention.hours": "-1"})))
}

func TestBrokerConfigOfAliases(t *testing.T) {
	l := Layers{Static: NewValues(map[string]string{
		"broker.id": "7", "log.dir": "/x", "listeners": "plaintext://[::1]:9092, PEER://:0",
		"controller.quorum.voters": "1@a:1,2@b:2", "connections.max.idle.ms": "-1", "broker.rack": "r1",
	})}
	c := l.Broker()
	require.EqualValues(t, 7, c.NodeID)
	require.Equal(t, "/x", c.LogDir)
	require.Equal(t, []Listener{{"PLAINTEXT", "::1", 9092}, {"PEER", "", 0}}, c.Listeners)
	require.Equal(t, []Voter{{1, "a", 1}, {2, "b", 2}}, c.Voters)
	require.Equal(t, Forever, c.ConnectionsMaxIdle)
	require.Equal(t, "r1", c.Rack)
}
