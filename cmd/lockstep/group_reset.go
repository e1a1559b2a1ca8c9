package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// offsetReset is what reset prints as JSON, for each partition.
type offsetReset struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // null: nothing was committed
	To        int64  `json:"to"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

func groupReset(o *options) *cobra.Command {
	var topic, to string
	var partition int32
	var by int64
	var dryRun bool
	c := &cobra.Command{Use: "reset GROUP --topic TOPIC (--to WHERE | --by N)", Short: "Set the committed offsets of a group without members", Args: cobra.ExactArgs(1)}
	c.Flags().StringVar(&topic, "topic", "", "the topic")
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "one partition; -1 for all")
	c.Flags().StringVar(&to, "to", "", "start, end, an offset, or a time: RFC 3339, or from now on back like -1h30m")
	c.Flags().Int64Var(&by, "by", 0, "on by this many records from what is committed, or back if negative")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be set, and set nothing")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if topic == "" {
			return errors.New("--topic says of which topic to reset the offsets")
		}
		if cmd.Flags().Changed("to") == cmd.Flags().Changed("by") {
			return errors.New("give --to or --by, one of them")
		}
		goal := resetGoal{by: by, shift: cmd.Flags().Changed("by")}
		if !goal.shift {
			var err error
			if goal, err = parseGoal(to, time.Now()); err != nil {
				return err
			}
		}
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			resets, err := planReset(ctx, a, args[0], topic, partition, goal)
			if err != nil {
				return detail("group "+args[0], oneError(err), "")
			}
			if !dryRun {
				if err := commitReset(ctx, a, args[0], resets); err != nil {
					return err
				}
			}
			return printReset(o, cmd, resets, dryRun)
		})
	}
	return c
}

// resetGoal is where offsets are reset to.
type resetGoal struct {
	start, end, shift bool
	by                int64      // with shift
	at                *time.Time // nil: see offset
	offset            int64
}

func parseGoal(to string, now time.Time) (resetGoal, error) {
	switch to {
	case "start":
		return resetGoal{start: true}, nil
	case "end":
		return resetGoal{end: true}, nil
	}
	if n, err := strconv.ParseInt(to, 10, 64); err == nil && n >= 0 {
		return resetGoal{offset: n}, nil
	}
	if at, err := time.Parse(time.RFC3339, to); err == nil {
		return resetGoal{at: &at}, nil
	}
	if d, err := time.ParseDuration(to); err == nil && d < 0 {
		at := now.Add(d)
		return resetGoal{at: &at}, nil
	}
	return resetGoal{}, fmt.Errorf("--to is start, end, an offset, a time (RFC 3339) or back from now (like -1h), not %q", to)
}

// planReset finds out what is to be set, if the group has no members and the partitions are there.
func planReset(ctx context.Context, a *kadm.Client, group, topic string, partition int32, goal resetGoal) ([]offsetReset, error) {
	// A group that is not there can be given offsets to begin at.
	if g, err := describeGroup(ctx, a, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	} else if err == nil && g.State != "Empty" {
		return nil, fmt.Errorf("only a group without members can be reset, this one is %s", g.State)
	}
	starts, err1 := retrying(ctx, func() (kadm.ListedOffsets, error) { return a.ListStartOffsets(ctx, topic) })
	ends, err2 := retrying(ctx, func() (kadm.ListedOffsets, error) { return a.ListEndOffsets(ctx, topic) })
	committed, err3 := a.FetchOffsets(ctx, group)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, oneError(err))
		}
	}
	found, err := goal.list(ctx, a, topic, starts, ends)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, oneError(err))
	}
	var resets []offsetReset
	for _, p := range slices.Sorted(maps.Keys(ends[topic])) {
		if partition >= 0 && p != partition {
			continue
		}
		r := offsetReset{Group: group, Topic: topic, Partition: p}
		if c, ok := committed.Lookup(topic, p); ok && c.At >= 0 {
			r.From = &c.At
		}
		switch {
		case goal.shift && r.From == nil:
			return nil, fmt.Errorf("topic %s, partition %d: nothing is committed that --by could count from", topic, p)
		case goal.shift:
			r.To = *r.From + goal.by
		case found != nil:
			r.To = found[topic][p].Offset
		default:
			r.To = goal.offset
		}
		r.To = min(max(r.To, starts[topic][p].Offset), ends[topic][p].Offset) // elsewhere there is nothing to read
		resets = append(resets, r)
	}
	if resets == nil {
		return nil, fmt.Errorf("topic %s has no partition %d", topic, partition)
	}
	return resets, nil
}

// list returns the offsets of the goal that brokers know, nil where none is needed.
func (g resetGoal) list(ctx context.Context, a *kadm.Client, topic string, starts, ends kadm.ListedOffsets) (kadm.ListedOffsets, error) {
	switch {
	case g.start:
		return starts, nil
	case g.end:
		return ends, nil
	case g.at != nil: // the end of the log where nothing is as young
		return retrying(ctx, func() (kadm.ListedOffsets, error) { return a.ListOffsetsAfterMilli(ctx, g.at.UnixMilli(), topic) })
	}
	return nil, nil
}

// commitReset commits as somebody who is no member, which the coordinator refuses if the group has got members meanwhile.
func commitReset(ctx context.Context, a *kadm.Client, group string, resets []offsetReset) error {
	offsets := kadm.Offsets{}
	for _, r := range resets {
		offsets.Add(kadm.Offset{Topic: r.Topic, Partition: r.Partition, At: r.To, LeaderEpoch: -1})
	}
	err := a.CommitAllOffsets(ctx, group, offsets)
	if errors.Is(err, kerr.UnknownMemberID) {
		return detail("group "+group, err, "it has members now")
	}
	return detail("group "+group, err, "")
}

func printReset(o *options, cmd *cobra.Command, resets []offsetReset, dryRun bool) error {
	var rows [][]string
	for i := range resets {
		r := &resets[i]
		r.DryRun = dryRun
		from := "-"
		if r.From != nil {
			from = fmt.Sprint(*r.From)
		}
		rows = append(rows, []string{r.Group, r.Topic, fmt.Sprint(r.Partition), from, fmt.Sprint(r.To)})
	}
	head := "TO"
	if dryRun {
		head = "WOULD BE"
	}
	return o.print(cmd.OutOrStdout(), resets, []string{"GROUP", "TOPIC", "PARTITION", "FROM", head}, rows)
}
