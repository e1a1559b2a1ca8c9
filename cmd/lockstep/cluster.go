package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// clusterState is what cluster status prints as JSON.
type clusterState struct {
	Cluster         string        `json:"cluster"`
	Controller      int32         `json:"controller"`
	Brokers         []brokerState `json:"brokers"`
	Topics          int           `json:"topics"`
	Partitions      int           `json:"partitions"`
	Leaderless      int           `json:"leaderless"`
	UnderReplicated int           `json:"under_replicated"`
}

type brokerState struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	Rack    string `json:"rack,omitempty"`
	Leads   int    `json:"leads"`
	Keeps   int    `json:"keeps"`
}

func clusterCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Show the cluster"}
	c.AddCommand(&cobra.Command{Use: "status", Short: "Brokers, controller and the health of partitions", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
				m, err := a.Metadata(ctx)
				if err != nil {
					return err
				}
				return printCluster(o, cmd, clusterOf(m))
			})
		}})
	return c
}

func clusterOf(m kadm.Metadata) clusterState {
	s := clusterState{Cluster: m.Cluster, Controller: m.Controller, Topics: len(m.Topics)}
	leads, keeps := map[int32]int{}, map[int32]int{}
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		s.Partitions++
		if p.Leader < 0 {
			s.Leaderless++
		} else {
			leads[p.Leader]++
		}
		if len(p.ISR) < len(p.Replicas) {
			s.UnderReplicated++
		}
		for _, r := range p.Replicas {
			keeps[r]++
		}
	})
	for _, b := range m.Brokers {
		state := brokerState{ID: b.NodeID, Address: address(b), Leads: leads[b.NodeID], Keeps: keeps[b.NodeID]}
		if b.Rack != nil {
			state.Rack = *b.Rack
		}
		s.Brokers = append(s.Brokers, state)
	}
	return s
}

func printCluster(o *options, cmd *cobra.Command, s clusterState) error {
	var rows [][]string
	for _, b := range s.Brokers {
		role := ""
		if b.ID == s.Controller {
			role = "controller"
		}
		rows = append(rows, []string{fmt.Sprint(b.ID), b.Address, b.Rack, fmt.Sprint(b.Leads), fmt.Sprint(b.Keeps), role})
	}
	if err := o.print(cmd.OutOrStdout(), s, []string{"BROKER", "ADDRESS", "RACK", "LEADS", "KEEPS", ""}, rows); err != nil || o.json {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %d topics, %d partitions, %d without a leader, %d under-replicated\n",
		s.Cluster, s.Topics, s.Partitions, s.Leaderless, s.UnderReplicated)
	return err
}

// address is where a broker is reached, as a client can be told.
func address(b kadm.BrokerDetail) string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }
