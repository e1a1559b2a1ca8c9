package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep/interop/agent"
)

var groupRows = []row{
	{"commit, read the commit", commitAndRead},
	{"group of three", func(w *world, c *column) error { return groupLife(w, c, "classic") }},
	{"group of three, KIP-848", func(w *world, c *column) error { return groupLife(w, c, "consumer") }},
}

// commitAndRead commits an offset with metadata outside of any membership, and reads both back.
func commitAndRead(w *world, c *column) error {
	topic := c.topic("committed")
	if err := w.write2(topic, 1, 10); err != nil {
		return err
	}
	q := agent.Request{Topic: topic, Group: c.topic("commits"), Offset: 7, Metadata: "note: a=b, ü"}
	commit, committed := q, q
	commit.Op, committed.Op = "commit", "committed"
	if _, err := c.must(commit); err != nil {
		return err
	}
	r, err := c.must(committed)
	if err != nil {
		return err
	}
	if c.limits.noMetadata {
		q.Metadata = ""
	}
	if r.Offset != 7 || r.Metadata != q.Metadata {
		return fmt.Errorf("committed 7 with %q, read back %d with %q", q.Metadata, r.Offset, r.Metadata)
	}
	return nil
}

// write2 creates a topic and writes n records to each of its partitions.
func (w *world) write2(topic string, partitions int32, n int) error {
	if err := w.create(agent.Request{Topic: topic, Partitions: partitions}); err != nil {
		return err
	}
	return w.write(topic, partitions, n)
}

const groupPartitions = 6

// group is the members of one client in one group.
type group struct {
	w       *world
	c       *column
	join    agent.Request
	members []session
	gone    []map[int32][]int64 // what members that left or crashed had consumed when last asked
}

// groupLife takes a group through three joins, a leave, a crash, the leave of all and a resumption, with records written at
// every stage.
func groupLife(w *world, c *column, protocol string) error {
	topic := c.topic("group-" + protocol)
	if err := w.write2(topic, groupPartitions, 20); err != nil {
		return err
	}
	g := &group{w: w, c: c, join: agent.Request{Op: "join", Topic: topic, Group: topic, Protocol: protocol}}
	defer g.close()
	for range 3 {
		if err := g.add(); err != nil {
			return err
		}
	}
	if err := g.settle("three joined", 20); err != nil {
		return err
	}
	if err := g.leave(0); err != nil {
		return err
	}
	if err := g.writeAndSettle("one left", 40); err != nil {
		return err
	}
	g.crash(0)
	if err := g.writeAndSettle("one crashed", 60); err != nil {
		return err
	}
	if err := g.leave(0); err != nil {
		return err
	}
	return g.resume()
}

func (g *group) add() error {
	s, err := g.c.open(g.c.in, g.w.addr)
	if err != nil {
		return err
	}
	g.members = append(g.members, s)
	_, err = ask(s, g.join)
	var unable gap
	if err != nil && !errors.As(err, &unable) {
		err = fmt.Errorf("joining: %w", err)
	}
	return err
}

func (g *group) drop(i int) session {
	s := g.members[i]
	if r, err := ask(s, agent.Request{Op: "status"}); err == nil {
		g.gone = append(g.gone, r.Consumed)
	}
	g.members = slices.Delete(g.members, i, i+1)
	return s
}

func (g *group) leave(i int) error {
	s := g.drop(i)
	defer s.Close()
	if _, err := ask(s, agent.Request{Op: "leave"}); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	return nil
}

func (g *group) crash(i int) {
	s := g.drop(i)
	s.(*process).Kill()
	s.Close()
}

func (g *group) close() {
	for _, s := range g.members {
		s.(*process).Kill()
		s.Close()
	}
}

func (g *group) writeAndSettle(when string, perPartition int) error {
	if err := g.w.write(g.join.Topic, groupPartitions, 20); err != nil {
		return err
	}
	return g.settle(when, perPartition)
}

// settle waits until the members share out all partitions and have consumed so many records of each.
func (g *group) settle(when string, perPartition int) error {
	err := g.w.await(60*time.Second, func() error {
		owner := map[int32]int{}
		seen := append([]map[int32][]int64(nil), g.gone...)
		for i, s := range g.members {
			r, err := ask(s, agent.Request{Op: "status"})
			if err != nil {
				return err
			}
			if len(r.Assigned) == 0 {
				return fmt.Errorf("member %d of %d has nothing", i+1, len(g.members))
			}
			for _, p := range r.Assigned {
				if j, taken := owner[p]; taken {
					return fmt.Errorf("partition %d belongs to members %d and %d", p, j+1, i+1)
				}
				owner[p] = i
			}
			seen = append(seen, r.Consumed)
		}
		if len(owner) != groupPartitions {
			return fmt.Errorf("%d of %d partitions have an owner", len(owner), groupPartitions)
		}
		return consumed(seen, perPartition)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	err = g.w.await(aMoment, g.described) // clients that knew another coordinator have to find this one
	var unknown gap
	if err != nil && !errors.As(err, &unknown) { // some clients cannot describe groups
		return fmt.Errorf("%s: describing the group: %w", when, err)
	}
	return nil
}

// described checks what the client says about the group.
func (g *group) described() error {
	r, err := g.c.must(agent.Request{Op: "groups", Group: g.join.Group, Protocol: g.join.Protocol})
	if err == nil && r.Members != len(g.members) {
		err = fmt.Errorf("%d members in place of %d", r.Members, len(g.members))
	}
	return err
}

// consumed checks that members together have every offset of every partition, and each member in order but for rereading
// after a rebalance.
func consumed(seen []map[int32][]int64, perPartition int) error {
	for p := range int32(groupPartitions) {
		have := map[int64]bool{}
		for _, m := range seen {
			for _, o := range m[p] {
				have[o] = true
			}
		}
		for o := range int64(perPartition) {
			if !have[o] {
				return fmt.Errorf("partition %d: offset %d was not consumed", p, o)
			}
		}
	}
	return nil
}

// resume has one member start where the group left off: it sees what is new and nothing else.
func (g *group) resume() error {
	g.gone = nil
	if err := g.w.write(g.join.Topic, groupPartitions, 5); err != nil {
		return err
	}
	if err := g.add(); err != nil {
		return err
	}
	return g.w.await(30*time.Second, func() error {
		r, err := ask(g.members[0], agent.Request{Op: "status"})
		if err != nil {
			return err
		}
		for p := range int32(groupPartitions) {
			if got := r.Consumed[p]; !slices.Equal(got, []int64{60, 61, 62, 63, 64}) {
				return fmt.Errorf("resumed: partition %d gave %v in place of 60 to 64", p, got)
			}
		}
		return nil
	})
}
