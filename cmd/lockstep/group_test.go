package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// withTopic returns a broker with a topic of two partitions that hold the given numbers of records.
func withTopic(t *testing.T, name string, counts ...int) cli {
	t.Helper()
	_, c := startBroker(t, t.TempDir())
	c.run("topic", "create", name, "-p", fmt.Sprint(len(counts)))
	for p, n := range counts {
		c.produce(name, p, n)
	}
	return c
}

func (c cli) produce(topic string, partition, n int) {
	c.t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "p%d-%d\n", partition, i)
	}
	_, err := c.try(lines.String(), "produce", topic, "-p", fmt.Sprint(partition))
	require.NoError(c.t, err)
}

func (c cli) describe(group string) groupDescription {
	c.t.Helper()
	var d []groupDescription
	require.NoError(c.t, json.Unmarshal([]byte(c.run("group", "describe", group, "--json")), &d))
	require.Len(c.t, d, 1)
	return d[0]
}

func (c cli) list(args ...string) []groupSummary {
	c.t.Helper()
	var g []groupSummary
	require.NoError(c.t, json.Unmarshal([]byte(c.run(append([]string{"group", "list", "--json"}, args...)...)), &g))
	return g
}

// committed returns what is committed of one topic, by partition; -1 where nothing is.
func (d groupDescription) committed() map[int32]int64 {
	out := map[int32]int64{}
	for _, o := range d.Offsets {
		out[o.Partition] = -1
		if o.Committed != nil {
			out[o.Partition] = *o.Committed
		}
	}
	return out
}

// member starts the command in a process of its own.
func (c cli) member(args ...string) (*exec.Cmd, *bufio.Reader) {
	c.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--bootstrap", c.addr, "consume"}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewReader(out)
}

func TestConsumeInAGroup(t *testing.T) {
	for _, protocol := range groupTypes {
		t.Run(protocol, func(t *testing.T) {
			c := withTopic(t, "orders", 30, 20)
			args := []string{"consume", "orders", "-g", "readers", "--group-protocol", protocol, "-f", "%p %o\n"}
			first := c.run(append(args, "-n", "7")...)
			require.Equal(t, 7, strings.Count(first, "\n"), "as many as were asked for")
			committed := c.describe("readers").committed()
			var sum int64
			for _, at := range committed {
				sum += max(at, 0)
			}
			require.Equal(t, int64(7), sum, "what was printed is committed, and no more")

			rest := c.run(append(args, "-e")...)
			lines := strings.Fields(strings.ReplaceAll(first+rest, " ", ":"))
			require.Len(t, lines, 50, "nothing twice, nothing left out")
			seen := map[string]bool{}
			for _, l := range lines {
				seen[l] = true
			}
			require.Len(t, seen, 50)
			d := c.describe("readers")
			require.Equal(t, []any{"Empty", protocol, map[int32]int64{0: 30, 1: 20}}, []any{d.State, d.Type, d.committed()})
			require.Equal(t, int64(0), *d.Offsets[0].Lag)
			require.Empty(t, c.run(append(args, "-e")...), "there is no more")

			require.Empty(t, c.run("consume", "orders", "-g", "late", "--group-protocol", protocol, "--from", "end", "-e"))
			require.Equal(t, "p0-28\np0-29\n", c.run("consume", "orders", "-g", "middle", "--group-protocol", protocol, "--from", "28", "-e"))
		})
	}
}

// TestMembersThatAreToldToStopLeave: they commit what they printed, and the group is without them at once.
func TestMembersThatAreToldToStopLeave(t *testing.T) {
	for _, protocol := range groupTypes {
		t.Run(protocol, func(t *testing.T) {
			c := withTopic(t, "orders", 10, 10)
			member, out := c.member("orders", "-g", "readers", "--group-protocol", protocol, "-f", "%p\n")
			for range 20 {
				_, err := out.ReadString('\n')
				require.NoError(t, err)
			}
			d := c.describe("readers")
			require.Equal(t, []any{"Stable", protocol, 1}, []any{d.State, d.Type, len(d.Members)})
			require.Equal(t, map[string][]int32{"orders": {0, 1}}, d.Members[0].Assigned)
			require.Equal(t, "lockstep-cli", d.Members[0].Client)
			require.Equal(t, d.Members[0].Member, d.Offsets[0].Member, "it owns them")
			table := c.run("group", "describe", "readers")
			require.Contains(t, table, "orders:0-1")
			require.Contains(t, table, "coordinator 1 ("+c.addr+")")
			require.Equal(t, []groupSummary{{"readers", protocol, "consumer", "Stable", 1, 1}}, c.list("--state", "stable", "--type", protocol))
			require.Empty(t, c.list("--state", "Empty"))

			// Who reads to the end beside it may get nothing to read.
			require.Empty(t, c.run("consume", "orders", "-g", "readers", "--group-protocol", protocol, "-e"))

			for _, refused := range []string{"reset readers --topic orders --to start", "delete readers", "delete readers --topic orders"} {
				_, err := c.try("", append([]string{"group"}, strings.Fields(refused)...)...)
				require.Error(t, err, refused)
			}
			require.NoError(t, member.Process.Signal(syscall.SIGTERM))
			require.NoError(t, member.Wait())
			d = c.describe("readers")
			require.Equal(t, []any{"Empty", 0, map[int32]int64{0: 10, 1: 10}}, []any{d.State, len(d.Members), d.committed()})
		})
	}
}

func TestStaticMembersKeepTheirPlace(t *testing.T) {
	for _, protocol := range groupTypes {
		t.Run(protocol, func(t *testing.T) {
			c := withTopic(t, "orders", 3)
			args := []string{"consume", "orders", "-g", "readers", "--group-protocol", protocol, "--instance-id", "one"}
			require.Equal(t, "p0-0\n", c.run(append(args, "-n", "1")...))
			d := c.describe("readers")
			require.Equal(t, "one", d.Members[0].Instance)
			require.Equal(t, map[int32]int64{0: 1}, d.committed())
			require.Equal(t, "p0-1\np0-2\n", c.run(append(args, "-n", "2")...), "it comes back to what it had")
			require.Len(t, c.describe("readers").Members, 1)
		})
	}
}

// TestTwoMembersCannotBeTheSameStaticMember: the classic protocol turns out the one that was there, the newer one the one that comes.
func TestTwoMembersCannotBeTheSameStaticMember(t *testing.T) {
	for _, protocol := range groupTypes {
		t.Run(protocol, func(t *testing.T) {
			c := withTopic(t, "orders", 1)
			args := []string{"orders", "-g", "readers", "--group-protocol", protocol, "--instance-id", "one"}
			failed := make(chan error)
			try := func() {
				_, err := c.try("", append([]string{"consume"}, args...)...)
				failed <- err
			}
			want := "UNRELEASED_INSTANCE_ID"
			if protocol == typeClassic {
				want = "FENCED_INSTANCE_ID"
				go try()
				require.Eventually(t, func() bool { return len(c.list("--state", "Stable")) == 1 }, time.Minute, 20*time.Millisecond)
				c.member(args...)
			} else {
				_, out := c.member(args...)
				_, err := out.ReadString('\n')
				require.NoError(t, err)
				go try()
			}
			err := <-failed
			require.ErrorContains(t, err, want)
			require.Equal(t, 1, strings.Count(err.Error(), "group readers"), "why, and no more: %v", err)
		})
	}
}

// brokenPipe takes so many writes and fails then.
type brokenPipe struct {
	bytes.Buffer
	left int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("nobody reads this")
	}
	return b.Buffer.Write(p)
}

// TestNothingIsCommittedThatCouldNotBePrinted: what is read is on its way to the output, not there.
func TestNothingIsCommittedThatCouldNotBePrinted(t *testing.T) {
	c := withTopic(t, "orders", 5000)
	root := rootCommand()
	out := &brokenPipe{left: 3}
	root.SetArgs([]string{"--bootstrap", c.addr, "consume", "orders", "-g", "readers"})
	root.SetOut(out)
	err := root.ExecuteContext(context.Background())
	require.ErrorContains(t, err, "nobody reads this")
	require.NotContains(t, err.Error(), "\n")
	var committed int64
	for _, at := range c.describe("readers").committed() {
		committed = max(at, 0)
	}
	require.LessOrEqual(t, committed, int64(strings.Count(out.String(), "\n")))
	require.Positive(t, out.Len())
}

// TestWhatCouldNotBePrintedIsAnError: also the last of it, or a copy of a topic on a full disk would look whole.
func TestWhatCouldNotBePrintedIsAnError(t *testing.T) {
	c := withTopic(t, "orders", 10)
	for _, end := range []string{"-e", "-n=10"} {
		root := rootCommand()
		root.SetArgs([]string{"--bootstrap", c.addr, "consume", "orders", end})
		root.SetOut(&brokenPipe{})
		require.ErrorContains(t, root.ExecuteContext(context.Background()), "nobody reads this", end)
	}
}

// TestNamesAreNoCommandsToATerminal: whoever may join a group chooses its name.
func TestNamesAreNoCommandsToATerminal(t *testing.T) {
	c := withTopic(t, "orders", 1)
	c.run("consume", "orders", "-e", "-g", "a\n\x1b[31mü")
	require.Regexp(t, `(?m)^"a\\n\\x1b\[31mü" +classic`, c.run("group", "list"))
	require.Contains(t, c.run("group", "describe", "a\n\x1b[31mü"), `group "a\n\x1b[31mü": classic`)
}

func TestReset(t *testing.T) {
	c := withTopic(t, "orders", 30, 20)
	c.run("consume", "orders", "-g", "readers", "-e")
	reset := func(args ...string) map[int32]int64 {
		c.run(append([]string{"group", "reset", "readers", "--topic", "orders"}, args...)...)
		return c.describe("readers").committed()
	}
	require.Equal(t, map[int32]int64{0: 30, 1: 20}, reset("--to", "start", "--dry-run"), "only shown")
	require.Equal(t, map[int32]int64{0: 30, 1: 0}, reset("--to", "start", "-p", "1"))
	require.Equal(t, map[int32]int64{0: 25, 1: 0}, reset("--by", "-5"), "no further than there are records")
	require.Equal(t, map[int32]int64{0: 12, 1: 12}, reset("--to", "12"))
	require.Equal(t, map[int32]int64{0: 25, 1: 20}, reset("--to", "25"))
	require.Equal(t, map[int32]int64{0: 0, 1: 0}, reset("--to", "-1h"))
	require.Equal(t, map[int32]int64{0: 30, 1: 20}, reset("--to", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), "nothing is as young")
	require.Equal(t, map[int32]int64{0: 0, 1: 0}, reset("--to", "start"))
	require.Equal(t, map[int32]int64{0: 30, 1: 20}, reset("--to", "end"))

	var resets []offsetReset
	require.NoError(t, json.Unmarshal([]byte(c.run("group", "reset", "new", "--topic", "orders", "-p", "0", "--to", "3", "--json")), &resets))
	require.Equal(t, []offsetReset{{Group: "new", Topic: "orders", To: 3}}, resets, "a group may begin where it is told to")
	require.Equal(t, "p0-3\n", c.run("consume", "orders", "-g", "new", "-n", "1", "-f", "%v\n", "--from", "end"))
}

func TestResetByTime(t *testing.T) {
	c := withTopic(t, "orders", 0)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.DefaultProduceTopic("orders"))
	require.NoError(t, err)
	defer cl.Close()
	noon := time.Date(2020, 2, 3, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		require.NoError(t, cl.ProduceSync(context.Background(), &kgo.Record{Value: []byte("x"), Timestamp: noon.Add(time.Duration(i) * time.Minute)}).FirstErr())
	}
	for at, want := range map[string]int64{"2020-02-03T12:02:00Z": 2, "2020-02-03T13:02:01+01:00": 3, "-1h": 5} {
		c.run("group", "reset", "readers", "--topic", "orders", "--to", at)
		require.Equal(t, map[int32]int64{0: want}, c.describe("readers").committed(), at)
	}
}

func TestDeleteGroupsAndOffsets(t *testing.T) {
	c := withTopic(t, "orders", 3, 2)
	c.run("topic", "create", "other")
	for _, g := range []string{"a", "b"} {
		c.run("consume", "orders", "-g", g, "-e")
	}
	c.run("group", "reset", "a", "--topic", "other", "--to", "end")
	c.run("group", "delete", "a", "--topic", "orders", "-p", "0")
	require.Len(t, c.describe("a").Offsets, 2)
	c.run("group", "delete", "a", "--topic", "orders")
	require.Equal(t, "other", c.describe("a").Offsets[0].Topic)
	require.Len(t, c.list(), 2)
	c.run("group", "delete", "a", "b")
	require.Empty(t, c.list())
}

func TestOffsetsOfOthersAreDescribedAsTheyAre(t *testing.T) {
	c := withTopic(t, "orders", 3)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
	require.NoError(t, err)
	defer cl.Close()
	a := kadm.NewClient(cl)
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 1, -1)
	require.NoError(t, a.CommitAllOffsets(context.Background(), "simple", offsets))
	d := c.describe("simple")
	require.Equal(t, []any{"Empty", int64(1), int64(3), int64(2)}, []any{d.State, *d.Offsets[0].Committed, *d.Offsets[0].End, *d.Offsets[0].Lag})
}

func TestGroupCommandsFailWithOneClearLine(t *testing.T) {
	c := withTopic(t, "orders", 2)
	c.run("consume", "orders", "-g", "readers", "-e")
	for _, x := range []struct{ want, line string }{
		{"GROUP_ID_NOT_FOUND", "group describe nobody"},
		{"GROUP_ID_NOT_FOUND", "group delete nobody"},
		{"GROUP_ID_NOT_FOUND", "group delete nobody --topic orders"},
		{"UNKNOWN_TOPIC_OR_PARTITION", "group delete readers --topic nowhere"},
		{"needs --topic", "group delete readers -p 1"},
		{"not \"odd\"", "group list --state odd"},
		{"not \"share\"", "group list --type share"},
		{"one of them", "group reset readers --topic orders"},
		{"one of them", "group reset readers --topic orders --to end --by 1"},
		{"--topic", "group reset readers --to end"},
		{"not \"1h\"", "group reset readers --topic orders --to 1h"},
		{"no partition 7", "group reset readers --topic orders -p 7 --to end"},
		{"nowhere", "group reset readers --topic nowhere --to end"},
		{"nothing is committed", "group reset nobody --topic orders --by 1"},
		{"exclude each other", "consume orders -g readers -p 0"},
		{"needs --group", "consume orders --instance-id x"},
		{"not \"modern\"", "consume orders -g readers --group-protocol modern"},
		{"nowhere", "consume nowhere -g readers"},
	} {
		_, err := c.try("", strings.Fields(x.line)...)
		require.Error(t, err, x.line)
		require.Contains(t, err.Error(), x.want, x.line)
		require.NotContains(t, err.Error(), "\n", x.line)
	}
}

func TestAssignmentsAsText(t *testing.T) {
	require.Equal(t, "a:0-2,4,7-8 b:3", assignmentText(map[string][]int32{"b": {3}, "a": {0, 1, 2, 4, 7, 8}}))
	require.Equal(t, "-", assignmentText(nil))
}
