package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"lockstep/interop/agent"

	"github.com/twmb/franz-go/pkg/kadm"
)

var clusterRows = []row{
	{"three brokers, leader killed", leaderKilled},
	{"three brokers, leader of a compacted topic killed", compactedLeaderKilled},
	{"three brokers, coordinator killed", func(w *world, c *column) error { return coordinatorKilled(w, c, "classic") }},
	{"three brokers, coordinator killed, KIP-848", func(w *world, c *column) error { return coordinatorKilled(w, c, "consumer") }},
}

const (
	clusterPartitions = 3
	clusterRecords    = 60
)

// leaderKilled writes one record after another through one producer while a member of a group reads, and kills the broker
// that leads the first partition in the middle. Every record is acknowledged, stored, and read by the member; once each
// where the producer is idempotent.
func leaderKilled(w *world, c *column) error {
	topic := c.topic("failover")
	if err := w.create(agent.Request{Topic: topic, Partitions: clusterPartitions}); err != nil {
		return err
	}
	g := &group{w: w, c: c, join: agent.Request{Op: "join", Topic: topic, Group: topic, Protocol: "classic"}}
	defer g.close()
	if err := g.add(); err != nil {
		return err
	}
	var victim *broker
	err := w.await(aMoment, func() (err error) {
		victim, err = w.leader(topic, 0)
		return err
	})
	if err != nil {
		return err
	}
	killed := time.AfterFunc(time.Second, victim.kill)
	defer w.revive(victim, killed, topic)
	idempotent, err := producePaced(c, topic)
	if err != nil {
		return err
	}
	if killed.Stop() {
		return errors.New("all was written before the leader was killed")
	}
	stored, err := w.storedOnce(topic, idempotent)
	if err != nil {
		return err
	}
	return w.await(60*time.Second, func() error {
		r, err := ask(g.members[0], agent.Request{Op: "status"})
		if err != nil {
			return err
		}
		for p, n := range stored {
			seen := map[int64]bool{}
			for _, o := range r.Consumed[p] {
				seen[o] = true
			}
			if len(seen) != n {
				return fmt.Errorf("the member of the group has read %d of %d records of partition %d", len(seen), n, p)
			}
		}
		return nil
	})
}

// coordinatorKilled kills the broker that coordinates a group of two. The group goes on under the next coordinator, shrinks
// there, and who joins when all have left goes on from what was committed.
func coordinatorKilled(w *world, c *column, protocol string) error {
	topic := c.topic("coordinated-" + protocol)
	if err := w.write2(topic, groupPartitions, 20); err != nil {
		return err
	}
	g := &group{w: w, c: c, join: agent.Request{Op: "join", Topic: topic, Group: topic, Protocol: protocol}}
	defer g.close()
	for range 2 {
		if err := g.add(); err != nil {
			return err
		}
	}
	if err := g.settle("two joined", 20); err != nil {
		return err
	}
	victim, err := w.coordinator(topic)
	if err != nil {
		return err
	}
	killed := time.AfterFunc(0, victim.kill)
	defer w.revive(victim, killed, topic)
	// Who describes the group is new: several clients ask the coordinator that they know for as long as nobody there says that
	// it is none (franz-go 1.22.3, kafka-python 3.0.12, librdkafka 2.16.0).
	c.stop()
	if err := c.start(w.addr); err != nil {
		return err
	}
	if err := g.writeAndSettle("its coordinator killed", 40); err != nil {
		return err
	}
	// All members have found the next coordinator when it has their commits. aiokafka 0.14.0 never stops when it is told to
	// before that: closing it looks for no coordinator, and its last commit tries again for ever, with any broker.
	if err := w.await(30*time.Second, func() error { return w.committed(topic, 40) }); err != nil {
		return fmt.Errorf("its coordinator killed: %w", err)
	}
	if err := g.leave(0); err != nil {
		return err
	}
	if err := g.writeAndSettle("one left", 60); err != nil {
		return err
	}
	if err := g.leave(0); err != nil {
		return err
	}
	return g.resume()
}

// committed checks that the group of a topic's name has committed an offset in each of the topic's partitions.
func (w *world) committed(topic string, offset int64) error {
	adm, ctx, cancel := w.adm()
	defer cancel()
	found, err := adm.FetchOffsets(ctx, topic)
	if err != nil {
		return err
	}
	for p := range int32(groupPartitions) {
		if o, _ := found.Lookup(topic, p); o.Err != nil || o.At != offset {
			return fmt.Errorf("partition %d is committed at %d in place of %d (%v)", p, o.At, offset, o.Err)
		}
	}
	return nil
}

// coordinator finds the broker that coordinates a group.
func (w *world) coordinator(group string) (*broker, error) {
	adm, ctx, cancel := w.adm()
	defer cancel()
	found := adm.FindGroupCoordinators(ctx, group)
	if err := found.Error(); err != nil {
		return nil, err
	}
	return w.broker(found[group].NodeID)
}

func (w *world) broker(id int32) (*broker, error) {
	for _, b := range w.brokers {
		if int32(b.ID) == id {
			return b, nil
		}
	}
	return nil, fmt.Errorf("there is no broker %d", id)
}

// producePaced writes as an idempotent producer where the client has one.
func producePaced(c *column, topic string) (idempotent bool, err error) {
	q := agent.Request{Op: "produce", Topic: topic, Codec: "none", Idempotent: true, Pause: 40}
	for i := range clusterRecords {
		q.Records = append(q.Records, agent.Record{Partition: int32(i % clusterPartitions), Value: []byte(fmt.Sprint("record ", i))})
	}
	_, err = c.must(q)
	if _, isGap := err.(gap); isGap {
		q.Idempotent = false
		_, err = c.must(q)
	}
	return q.Idempotent, err
}

// storedOnce checks that each record is stored, and returns how many there are in each partition.
func (w *world) storedOnce(topic string, once bool) (map[int32]int, error) {
	var ends map[int32]int64
	err := w.await(aMoment, func() (err error) { // the reference, too, has to find the new leaders
		ends, err = w.ends(topic)
		return err
	})
	if err != nil {
		return nil, err
	}
	counts, times := map[int32]int{}, map[string]int{}
	for p, end := range ends {
		rs, err := w.readAll(topic, p, 0, int(end))
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			times[string(bytes.TrimSpace(r.Value))]++
		}
		counts[p] = len(rs)
	}
	for i := range clusterRecords {
		switch n := times[fmt.Sprint("record ", i)]; {
		case n == 0:
			return nil, fmt.Errorf("record %d was acknowledged and is not stored", i)
		case n > 1 && once:
			return nil, fmt.Errorf("record %d of an idempotent producer is stored %d times", i, n)
		}
	}
	return counts, nil
}

// leader finds the broker that leads a partition.
func (w *world) leader(topic string, p int32) (*broker, error) {
	adm, ctx, cancel := w.adm()
	defer cancel()
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	return w.broker(topics[topic].Partitions[p].Leader)
}

// revive starts a killed broker again and waits until all replicas are in sync.
func (w *world) revive(b *broker, killed *time.Timer, topic string) {
	if !killed.Stop() {
		_ = b.proc.Wait()
		if wait, err := w.startBroker(b); err == nil {
			_ = wait()
		}
	}
	_ = w.await(30*time.Second, func() error {
		adm, ctx, cancel := w.adm()
		defer cancel()
		topics, err := adm.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		var late error
		topics.EachPartition(func(d kadm.PartitionDetail) {
			if len(d.ISR) < len(w.brokers) {
				late = fmt.Errorf("partition %d has %d replicas in sync", d.Partition, len(d.ISR))
			}
		})
		return late
	})
}
