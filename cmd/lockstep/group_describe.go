package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupDescription is what describe prints as JSON.
type groupDescription struct {
	Group       string        `json:"group"`
	Type        string        `json:"type"`
	State       string        `json:"state"`
	Coordinator brokerAddress `json:"coordinator"`
	Assignor    string        `json:"assignor"`
	Epoch       *int32        `json:"epoch,omitempty"`            // of groups of type consumer
	TargetEpoch *int32        `json:"assignment_epoch,omitempty"` // for which epoch there is an assignment
	Members     []groupMember `json:"members"`
	Offsets     []groupOffset `json:"offsets"`
}

type brokerAddress struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
}

type groupMember struct {
	Member   string             `json:"member"`
	Instance string             `json:"instance,omitempty"`
	Client   string             `json:"client"`
	Host     string             `json:"host"`
	Epoch    *int32             `json:"epoch,omitempty"`
	Assigned map[string][]int32 `json:"assigned"`
	Target   map[string][]int32 `json:"target,omitempty"` // where it differs from what is assigned
}

// groupOffset is a partition that is assigned or has an offset committed.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // null: nothing is committed
	End       *int64 `json:"end_offset"`
	Lag       *int64 `json:"lag"`
	Member    string `json:"member,omitempty"`
	Host      string `json:"host,omitempty"`
	Client    string `json:"client,omitempty"`
	Error     string `json:"error,omitempty"`
}

func groupDescribe(o *options) *cobra.Command {
	return &cobra.Command{Use: "describe GROUP...", Short: "Show state, members, offsets and lag of groups", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
				all := []groupDescription{}
				var errs []error
				for _, name := range names {
					g, err := describeGroup(ctx, a, name)
					if err == nil {
						err = addOffsets(ctx, a, g)
					}
					if err != nil {
						errs = append(errs, detail("group "+name, oneError(err), ""))
						continue
					}
					all = append(all, *g)
				}
				if err := printGroups(o, cmd.OutOrStdout(), all); err != nil {
					return err
				}
				return joinErrors(errs)
			})
		}}
}

// describeGroup asks for a group under one protocol and, where it is not of that, under the other.
func describeGroup(ctx context.Context, a *kadm.Client, name string) (*groupDescription, error) {
	consumers, err := a.DescribeConsumerGroups(ctx, name)
	if g := consumers[name]; err == nil && g.Err == nil {
		return ofConsumerGroup(&g), nil
	}
	groups, err := a.DescribeGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	g, err := groups.On(name, nil)
	switch {
	case err != nil:
		return nil, err
	case g.Err != nil:
		return nil, g.Err
	case g.State == "Dead": // what older brokers say of groups that are not there
		return nil, kerr.GroupIDNotFound
	}
	return ofClassicGroup(&g), nil
}

func ofConsumerGroup(g *kadm.DescribedConsumerGroup) *groupDescription {
	d := &groupDescription{Group: g.Group, Type: typeConsumer, State: g.State, Coordinator: addressOf(g.Coordinator), Assignor: g.AssignorName,
		Epoch: &g.Epoch, TargetEpoch: &g.AssignmentEpoch, Members: []groupMember{}, Offsets: []groupOffset{}}
	for _, m := range g.Members {
		x := groupMember{Member: m.MemberID, Instance: orEmpty(m.InstanceID), Client: m.ClientID, Host: m.ClientHost, Epoch: &m.MemberEpoch,
			Assigned: sortedSet(m.Assignment)}
		if target := sortedSet(m.TargetAssignment); !maps.EqualFunc(target, x.Assigned, slices.Equal) {
			x.Target = target
		}
		d.Members = append(d.Members, x)
	}
	return d
}

func ofClassicGroup(g *kadm.DescribedGroup) *groupDescription {
	d := &groupDescription{Group: g.Group, Type: typeClassic, State: g.State, Coordinator: addressOf(g.Coordinator), Assignor: g.Protocol,
		Members: []groupMember{}, Offsets: []groupOffset{}}
	for _, m := range g.Members {
		x := groupMember{Member: m.MemberID, Instance: orEmpty(m.InstanceID), Client: m.ClientID, Host: m.ClientHost, Assigned: map[string][]int32{}}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				x.Assigned[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
			}
		}
		d.Members = append(d.Members, x)
	}
	return d
}

func addressOf(b kadm.BrokerDetail) brokerAddress {
	return brokerAddress{b.NodeID, address(b)}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sortedSet(s kadm.TopicsSet) map[string][]int32 {
	out := map[string][]int32{}
	for t, partitions := range s {
		out[t] = slices.Sorted(maps.Keys(partitions))
	}
	return out
}

// addOffsets adds the partitions that are assigned or committed: the same rows and figures as those of Kafka's own tool.
func addOffsets(ctx context.Context, a *kadm.Client, g *groupDescription) error {
	committed, err := a.FetchOffsets(ctx, g.Group)
	if err != nil {
		return fmt.Errorf("its offsets: %w", err)
	}
	rows := kadm.TopicsSet{}
	owners := map[string]map[int32]*groupMember{}
	for i := range g.Members {
		for t, partitions := range g.Members[i].Assigned {
			rows.Add(t, partitions...)
			if owners[t] == nil {
				owners[t] = map[int32]*groupMember{}
			}
			for _, p := range partitions {
				owners[t][p] = &g.Members[i]
			}
		}
	}
	committed.Each(func(r kadm.OffsetResponse) { rows.Add(r.Topic, r.Partition) })
	if len(rows) == 0 {
		return nil
	}
	ends, err := a.ListEndOffsets(ctx, rows.Topics()...)
	if err != nil && len(ends) == 0 {
		return fmt.Errorf("log ends: %w", err)
	}
	rows.Each(func(topic string, p int32) {
		row := groupOffset{Topic: topic, Partition: p}
		if m := owners[topic][p]; m != nil {
			row.Member, row.Host, row.Client = m.Member, m.Host, m.Client
		}
		c, isCommitted := committed.Lookup(topic, p)
		end, isListed := ends.Lookup(topic, p)
		row.fill(c, isCommitted, end, isListed)
		g.Offsets = append(g.Offsets, row)
	})
	slices.SortFunc(g.Offsets, func(x, y groupOffset) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return nil
}

// fill sets the figures of a row as far as they are known.
func (row *groupOffset) fill(c kadm.OffsetResponse, isCommitted bool, end kadm.ListedOffset, isListed bool) {
	if isCommitted && c.Err == nil && c.At >= 0 {
		row.Committed = &c.At
	}
	switch {
	case !isListed:
		row.Error = kerr.UnknownTopicOrPartition.Message
	case end.Err != nil:
		row.Error = errorName(end.Err)
	default:
		row.End = &end.Offset
	}
	if row.Committed != nil && row.End != nil {
		lag := *row.End - *row.Committed
		row.Lag = &lag
	}
}

// errorName is Kafka's name for an error, where it has one.
func errorName(err error) string {
	if k := (*kerr.Error)(nil); errors.As(err, &k) {
		return k.Message
	}
	return err.Error()
}

func printGroups(o *options, w io.Writer, all []groupDescription) error {
	if o.json {
		return o.print(w, all, nil, nil)
	}
	for i, g := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s: %s, %s, coordinator %d (%s)", printable(g.Group), g.Type, g.State, g.Coordinator.ID, g.Coordinator.Address)
		if g.Assignor != "" {
			fmt.Fprintf(w, ", assignor %s", g.Assignor)
		}
		if g.Epoch != nil {
			fmt.Fprintf(w, ", epoch %d, assignment of epoch %d", *g.Epoch, *g.TargetEpoch)
		}
		fmt.Fprintln(w)
		if err := printMembers(o, w, g.Members); err != nil {
			return err
		}
		if err := printOffsets(o, w, g.Offsets); err != nil {
			return err
		}
	}
	return nil
}

func printMembers(o *options, w io.Writer, members []groupMember) error {
	if len(members) == 0 {
		_, err := fmt.Fprintln(w, "no members")
		return err
	}
	var rows [][]string
	for _, m := range members {
		assigned := assignmentText(m.Assigned)
		if m.Target != nil {
			assigned += " -> " + assignmentText(m.Target)
		}
		epoch := "-"
		if m.Epoch != nil {
			epoch = fmt.Sprint(*m.Epoch)
		}
		rows = append(rows, []string{m.Member, orDash(m.Instance), orDash(m.Client), orDash(m.Host), epoch, assigned})
	}
	fmt.Fprintln(w)
	return o.print(w, nil, []string{"MEMBER", "INSTANCE", "CLIENT", "HOST", "EPOCH", "ASSIGNED"}, rows)
}

// assignmentText is an assignment in a table: topic:0-3,7 for each topic.
func assignmentText(set map[string][]int32) string {
	var topics []string
	for _, t := range slices.Sorted(maps.Keys(set)) {
		var runs []string
		for list := set[t]; len(list) > 0; {
			n := 1
			for n < len(list) && list[n] == list[n-1]+1 {
				n++
			}
			run := fmt.Sprint(list[0])
			if n > 1 {
				run = fmt.Sprintf("%d-%d", list[0], list[n-1])
			}
			runs, list = append(runs, run), list[n:]
		}
		topics = append(topics, t+":"+strings.Join(runs, ","))
	}
	return orDash(strings.Join(topics, " "))
}

func printOffsets(o *options, w io.Writer, offsets []groupOffset) error {
	if len(offsets) == 0 {
		_, err := fmt.Fprintln(w, "no offsets")
		return err
	}
	value := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	var rows [][]string
	for _, r := range offsets {
		end := value(r.End)
		if r.Error != "" {
			end = r.Error
		}
		rows = append(rows, []string{r.Topic, fmt.Sprint(r.Partition), value(r.Committed), end, value(r.Lag), orDash(r.Member), orDash(r.Host), orDash(r.Client)})
	}
	fmt.Fprintln(w)
	return o.print(w, nil, []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "OWNER", "HOST", "CLIENT"}, rows)
}
