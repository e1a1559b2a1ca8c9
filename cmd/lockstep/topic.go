package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func topicCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"}
	c.AddCommand(topicCreate(o), topicList(o), topicDescribe(o), topicAlter(o), topicDelete(o))
	return c
}

// topicSummary is what create and list print as JSON.
type topicSummary struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
}

// topicID writes an id as Kafka's tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func topicCreate(o *options) *cobra.Command {
	var partitions int32
	var replicas int16
	var configs []string
	c := &cobra.Command{Use: "create TOPIC...", Short: "Create topics", Args: cobra.MinimumNArgs(1)}
	c.Flags().Int32VarP(&partitions, "partitions", "p", -1, "partitions of each; -1 is the broker's default")
	c.Flags().Int16VarP(&replicas, "replicas", "r", -1, "replicas of each partition; -1 is the broker's default")
	c.Flags().StringArrayVarP(&configs, "config", "c", nil, "topic setting key=value, under Kafka's names; repeatable")
	c.RunE = func(cmd *cobra.Command, topics []string) error {
		keys, values, err := keyValues(configs)
		if err != nil {
			return err
		}
		set := map[string]*string{}
		for _, k := range keys {
			set[k] = kadm.StringPtr(values[k])
		}
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			a.SetTimeoutMillis(int32(o.timeout.Milliseconds()))
			created, err := a.CreateTopics(ctx, partitions, replicas, set, topics...)
			if err != nil {
				return err
			}
			return reportCreated(o, cmd, created.Sorted())
		})
	}
	return c
}

func reportCreated(o *options, cmd *cobra.Command, created []kadm.CreateTopicResponse) error {
	var errs []error
	var rows [][]string
	var done []topicSummary
	for _, t := range created {
		if t.Err != nil {
			errs = append(errs, detail("topic "+t.Topic, t.Err, t.ErrMessage))
			continue
		}
		done = append(done, topicSummary{t.Topic, topicID(t.ID), int(t.NumPartitions), int(t.ReplicationFactor)})
		rows = append(rows, []string{t.Topic, topicID(t.ID), fmt.Sprint(t.NumPartitions), fmt.Sprint(t.ReplicationFactor)})
	}
	if len(done) > 0 {
		if err := o.print(cmd.OutOrStdout(), done, []string{"TOPIC", "ID", "PARTITIONS", "REPLICAS"}, rows); err != nil {
			return err
		}
	}
	return joinErrors(errs)
}

func topicList(o *options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List topics", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			topics, err := a.ListTopicsWithInternal(ctx)
			if err != nil {
				return err
			}
			var rows [][]string
			all := []topicSummary{} // an empty list is [] in JSON
			for _, t := range topics.Sorted() {
				replicas := 0
				for _, p := range t.Partitions {
					replicas = max(replicas, len(p.Replicas))
				}
				all = append(all, topicSummary{t.Topic, topicID(t.ID), len(t.Partitions), replicas})
				rows = append(rows, []string{t.Topic, fmt.Sprint(len(t.Partitions)), fmt.Sprint(replicas)})
			}
			return o.print(cmd.OutOrStdout(), all, []string{"TOPIC", "PARTITIONS", "REPLICAS"}, rows)
		})
	}}
}

// topicDescription is what describe prints as JSON.
type topicDescription struct {
	Topic      string            `json:"topic"`
	ID         string            `json:"id"`
	Partitions []partitionState  `json:"partitions"`
	Configs    map[string]string `json:"configs"` // those that differ from the defaults
}

type partitionState struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start_offset"`
	End         int64   `json:"end_offset"`
}

func topicDescribe(o *options) *cobra.Command {
	return &cobra.Command{Use: "describe TOPIC...", Short: "Show partitions, offsets and settings of topics", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
				all, errs := describeTopics(ctx, a, names)
				if err := printTopics(o, cmd, all); err != nil {
					return err
				}
				return joinErrors(errs)
			})
		}}
}

func describeTopics(ctx context.Context, a *kadm.Client, names []string) (all []topicDescription, errs []error) {
	topics, err := a.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, []error{err}
	}
	var there []string
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			errs = append(errs, detail("topic "+t.Topic, t.Err, ""))
		} else {
			there = append(there, t.Topic)
		}
	}
	if len(there) == 0 {
		return nil, errs
	}
	// What a leader that is down or missing cannot say leaves a gap: the rest is what one looks for then.
	configs, err := a.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		errs = append(errs, fmt.Errorf("settings: %w", err))
	}
	starts, err1 := a.ListStartOffsets(ctx, there...)
	ends, err2 := a.ListEndOffsets(ctx, there...)
	if err := cmp.Or(err1, err2); err != nil {
		errs = append(errs, fmt.Errorf("offsets: %w", err))
	}
	for _, name := range there {
		t := topics[name]
		d := topicDescription{Topic: name, ID: topicID(t.ID), Configs: map[string]string{}}
		for _, p := range t.Partitions.Sorted() {
			s := partitionState{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, -1, -1}
			if l, ok := starts.Lookup(name, p.Partition); ok && l.Err == nil {
				s.Start = l.Offset
			}
			if l, ok := ends.Lookup(name, p.Partition); ok && l.Err == nil {
				s.End = l.Offset
			}
			d.Partitions = append(d.Partitions, s)
		}
		if c, err := configs.On(name, nil); err == nil {
			for _, e := range c.Configs {
				if e.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
					d.Configs[e.Key] = e.MaybeValue()
				}
			}
		}
		all = append(all, d)
	}
	return all, errs
}

func printTopics(o *options, cmd *cobra.Command, all []topicDescription) error {
	if len(all) == 0 {
		return nil
	}
	var rows [][]string
	for _, t := range all {
		for _, p := range t.Partitions {
			rows = append(rows, []string{t.Topic, fmt.Sprint(p.Partition), number(int64(p.Leader)), fmt.Sprint(p.LeaderEpoch),
				ids(p.Replicas), ids(p.ISR), number(p.Start), number(p.End)})
		}
	}
	heads := []string{"TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"}
	if err := o.print(cmd.OutOrStdout(), all, heads, rows); err != nil || o.json {
		return err
	}
	for _, t := range all {
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s=%s\n", t.Topic, k, t.Configs[k])
		}
	}
	return nil
}

func topicAlter(o *options) *cobra.Command {
	var partitions int
	var set, unset []string
	c := &cobra.Command{Use: "alter TOPIC...", Short: "Add partitions or change settings", Args: cobra.MinimumNArgs(1)}
	c.Flags().IntVarP(&partitions, "partitions", "p", 0, "grow to this many partitions")
	c.Flags().StringArrayVarP(&set, "config", "c", nil, "set key=value; repeatable")
	c.Flags().StringArrayVar(&unset, "unset", nil, "return this setting to its default; repeatable")
	c.RunE = func(cmd *cobra.Command, topics []string) error {
		keys, values, err := keyValues(set)
		if err != nil {
			return err
		}
		var changes []kadm.AlterConfig
		for _, k := range keys {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(values[k])})
		}
		for _, k := range unset {
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
		}
		if cmd.Flags().Changed("partitions") && partitions < 1 {
			return fmt.Errorf("--partitions is at least 1, not %d", partitions)
		}
		if partitions == 0 && len(changes) == 0 {
			return errors.New("nothing to alter: give -p, -c or --unset")
		}
		return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
			return alterTopics(ctx, a, topics, partitions, changes)
		})
	}
	return c
}

func alterTopics(ctx context.Context, a *kadm.Client, topics []string, partitions int, changes []kadm.AlterConfig) error {
	var errs []error
	if partitions > 0 {
		grown, err := a.UpdatePartitions(ctx, partitions, topics...)
		if err != nil {
			return err
		}
		for _, t := range grown.Sorted() {
			errs = append(errs, detail("topic "+t.Topic, t.Err, t.ErrMessage))
		}
	}
	if len(changes) > 0 {
		altered, err := a.AlterTopicConfigs(ctx, changes, topics...)
		if err != nil {
			return err
		}
		for _, t := range altered {
			errs = append(errs, detail("topic "+t.Name, t.Err, t.ErrMessage))
		}
	}
	return joinErrors(errs)
}

func topicDelete(o *options) *cobra.Command {
	return &cobra.Command{Use: "delete TOPIC...", Short: "Delete topics and all that is in them", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, topics []string) error {
			return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
				deleted, err := a.DeleteTopics(ctx, topics...)
				if err != nil {
					return err
				}
				var errs []error
				for _, t := range deleted.Sorted() {
					errs = append(errs, detail("topic "+strconv.Quote(t.Topic), t.Err, t.ErrMessage))
				}
				return joinErrors(errs)
			})
		}}
}
