package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "group", Short: "List, describe, reset and delete consumer groups"}
	c.AddCommand(groupList(o), groupDescribe(o), groupReset(o), groupDelete(o))
	return c
}

// groupSummary is what list prints as JSON.
type groupSummary struct {
	Group        string `json:"group"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocol_type"`
	State        string `json:"state"`
	Members      int    `json:"members"` // -1 if it cannot be known
	Coordinator  int32  `json:"coordinator"`
}

var (
	groupTypes  = []string{typeClassic, typeConsumer}
	groupStates = []string{"Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)

const (
	typeClassic  = "classic"
	typeConsumer = "consumer"
)

func groupList(o *options) *cobra.Command {
	var states, types []string
	c := &cobra.Command{Use: "list", Short: "List groups", Args: noArgs}
	c.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: "+strings.Join(groupStates, ", "))
	c.Flags().StringSliceVar(&types, "type", nil, "only groups of these types: "+strings.Join(groupTypes, ", "))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := known("--state", states, groupStates); err != nil {
			return err
		}
		if err := known("--type", types, groupTypes); err != nil {
			return err
		}
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			all, err := listGroups(ctx, a, types, states)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, g := range all {
				rows = append(rows, []string{g.Group, g.Type, orDash(g.ProtocolType), orDash(g.State), number(int64(g.Members)), fmt.Sprint(g.Coordinator)})
			}
			return o.print(cmd.OutOrStdout(), all, []string{"GROUP", "TYPE", "PROTOCOL", "STATE", "MEMBERS", "COORDINATOR"}, rows)
		})
	}
	return c
}

// known makes each of some names one of those that there are, however it is capitalized.
func known(flag string, names, all []string) error {
	for i, name := range names {
		j := slices.IndexFunc(all, func(s string) bool { return strings.EqualFold(s, name) })
		if j < 0 {
			return fmt.Errorf("%s is one of %s, not %q", flag, strings.Join(all, ", "), name)
		}
		names[i] = all[j]
	}
	return nil
}

func listGroups(ctx context.Context, a *kadm.Client, types, states []string) ([]groupSummary, error) {
	listed, err := a.ListGroupsByType(ctx, types, states...)
	if err != nil {
		return nil, oneError(err)
	}
	names := map[string][]string{}
	for _, g := range listed.Sorted() {
		names[g.GroupType] = append(names[g.GroupType], g.Group)
	}
	members := map[string]int{}
	if classic := append(names[typeClassic], names[""]...); len(classic) > 0 {
		described, err := a.DescribeGroups(ctx, classic...)
		if err != nil {
			return nil, oneError(err)
		}
		for name, g := range described {
			members[name] = len(g.Members)
		}
	}
	if len(names[typeConsumer]) > 0 {
		described, err := a.DescribeConsumerGroups(ctx, names[typeConsumer]...)
		if err != nil {
			return nil, oneError(err)
		}
		for name, g := range described {
			members[name] = len(g.Members)
		}
	}
	all := []groupSummary{} // an empty list is [] in JSON
	for _, g := range listed.Sorted() {
		n, ok := members[g.Group]
		if !ok {
			n = -1
		}
		all = append(all, groupSummary{g.Group, g.GroupType, g.ProtocolType, g.State, n, g.Coordinator})
	}
	return all, nil
}

// oneError is what is wrong without the list of requests that it was wrong with.
func oneError(err error) error {
	if shards := (*kadm.ShardErrors)(nil); errors.As(err, &shards) && len(shards.Errs) > 0 {
		return shards.Errs[0].Err
	}
	return err
}

func groupDelete(o *options) *cobra.Command {
	var topic string
	var partition int32
	c := &cobra.Command{Use: "delete GROUP...", Short: "Delete groups without members, or with --topic their offsets of a topic", Args: cobra.MinimumNArgs(1)}
	c.Flags().StringVar(&topic, "topic", "", "delete only the committed offsets of this topic")
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "with --topic: only this partition; -1 for all")
	c.RunE = func(cmd *cobra.Command, groups []string) error {
		if topic == "" && cmd.Flags().Changed("partition") {
			return errors.New("--partition needs --topic")
		}
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			var errs []error
			for _, g := range groups {
				if topic != "" {
					errs = append(errs, deleteOffsets(ctx, a, g, topic, partition))
					continue
				}
				deleted, err := a.DeleteGroup(ctx, g)
				if err == nil {
					err = deleted.Err
				}
				errs = append(errs, detail("group "+g, err, deleted.ErrMessage))
			}
			return joinErrors(errs)
		})
	}
	return c
}

// deleteOffsets deletes what a group has committed of a topic, or of one partition of it.
func deleteOffsets(ctx context.Context, a *kadm.Client, group, topic string, partition int32) error {
	subject := fmt.Sprintf("group %s, topic %s", group, topic)
	set := kadm.TopicsSet{}
	if partition >= 0 {
		set.Add(topic, partition)
	} else {
		committed, err := a.FetchOffsets(ctx, group)
		if err != nil {
			return detail(subject, err, "")
		}
		for p := range committed[topic] {
			set.Add(topic, p)
		}
		if len(set) == 0 { // the broker says what is wrong, if anything is
			set.Add(topic, 0)
		}
	}
	deleted, err := a.DeleteOffsets(ctx, group, set)
	if err == nil {
		err = deleted.Error()
	}
	if errors.Is(err, kerr.GroupSubscribedToTopic) {
		return detail(subject, err, "members of the group read it")
	}
	return detail(subject, err, "")
}

// orDash is what a table shows of a text.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number is what a table shows of a number that is negative where it is not known.
func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
