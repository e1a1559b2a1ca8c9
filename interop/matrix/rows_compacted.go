package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/interop/agent"
)

// compactedTopic is one that is compacted as soon as there is anything to compact; tombstones go at once, too. Fetch answers do not
// go beyond a segment: in small ones each batch ends one, in larger ones batches without records are between others.
func compactedTopic(segment string) map[string]string {
	return map[string]string{"cleanup.policy": "compact", "segment.bytes": segment, "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1"}
}

const smallSegments, largerSegments = "100", "2000"

// compactionLimit bounds how long it takes until nothing is left to compact, on a busy machine.
const compactionLimit = 60 * time.Second

// latest is what a compacted topic must hold, by key.
type latest map[string]string

// compacted puts the client through compactedIn with segments of either size.
func compacted(w *world, c *column) error {
	for _, segment := range []string{smallSegments, largerSegments} {
		if err := compactedIn(w, c, segment); err != nil {
			return fmt.Errorf("segments of %s bytes: %w", segment, err)
		}
	}
	return nil
}

// compactedIn has the client make a topic in which most is superseded or deleted. When the broker has compacted it, the client
// reads what is left, from the start and from a gap, writes one more record, and comes to it.
func compactedIn(w *world, c *column, segment string) error {
	q := agent.Request{Op: "create", Topic: c.topic("compacted-" + segment), Partitions: 1, Config: compactedTopic(segment)}
	var err error
	if !c.limits.bigSegments {
		_, err = c.must(q)
	}
	if c.limits.bigSegments || errors.As(err, new(gap)) {
		err = w.create(q)
	}
	if err != nil {
		return err
	}
	want, err := w.supersede(c, q.Topic)
	if err != nil {
		return err
	}
	left, err := w.compactedTo(q.Topic, want)
	if err != nil {
		return err
	}
	if err := c.reads(q.Topic, 0, left); err != nil {
		return err
	}
	g := lastGap(left)
	if err := c.reads(q.Topic, left[g-1].Offset+1, left[g:]); err != nil {
		return fmt.Errorf("from a gap: %w", err)
	}
	if err := c.finds(q.Topic, 1, left[0].Offset); err != nil {
		return err
	}
	if err := c.finds(q.Topic, -1, left[len(left)-1].Offset+1); err != nil {
		return err
	}
	if err := c.writeOne(q.Topic, want); err != nil {
		return err
	}
	if left, err = w.compactedTo(q.Topic, want); err != nil {
		return err
	}
	return c.reads(q.Topic, 0, left)
}

// compactedLeaderKilled has a member of a group begin at an offset that compaction has taken away. It goes on under the next
// leader, which has compacted for itself: its gaps are its own, the records the same.
func compactedLeaderKilled(w *world, c *column) error {
	topic := c.topic("compacted-failover")
	if err := w.create(agent.Request{Topic: topic, Partitions: 1, Config: compactedTopic(largerSegments)}); err != nil {
		return err
	}
	want, err := w.supersede(c, topic)
	if err != nil {
		return err
	}
	left, err := w.compactedTo(topic, want)
	if err != nil {
		return err
	}
	from := lastGap(left)
	if _, err := c.must(agent.Request{Op: "commit", Topic: topic, Group: topic, Offset: left[from-1].Offset + 1, Metadata: "in a gap"}); err != nil {
		return err
	}
	g := &group{w: w, c: c, join: agent.Request{Op: "join", Topic: topic, Group: topic, Protocol: "classic"}}
	defer g.close()
	if err := g.add(); err != nil {
		return err
	}
	if err := g.hasRead(left[from:]); err != nil {
		return err
	}
	victim, err := w.leader(topic, 0)
	if err != nil {
		return err
	}
	killed := time.AfterFunc(0, victim.kill)
	defer w.revive(victim, killed, topic)
	_ = victim.proc.Wait() // else who asks next could still ask it
	if err := c.writeOne(topic, want); err != nil {
		return fmt.Errorf("its leader killed: %w", err)
	}
	if left, err = w.compactedTo(topic, want); err != nil {
		return fmt.Errorf("its leader killed: %w", err)
	}
	if err := c.reads(topic, 0, left); err != nil {
		return fmt.Errorf("its leader killed: %w", err)
	}
	return g.hasRead(left[from:])
}

// supersede writes a first value of every key, then a second with each codec, of which a third of the batch will stay, then
// tombstones among third values, and one record that ends the log: the last segment is not compacted. An idempotent producer beside
// the client has a run of batches there of which nothing is left but their heads.
func (w *world) supersede(c *column, topic string) (latest, error) {
	var first, last []agent.Record
	var second [][]agent.Record
	record := func(key, value string) agent.Record {
		return agent.Record{Key: []byte(key), Value: []byte(value + strings.Repeat(", and more of that", 20))}
	}
	for _, codec := range codecNames {
		var batch []agent.Record
		for _, what := range c.order() {
			first = append(first, record(codec+" "+what, "first"))
			batch = append(batch, record(codec+" "+what, "second"))
		}
		second = append(second, batch)
		last = append(last, agent.Record{Key: []byte(codec + " goes")}, record(codec+" changes", "third"))
	}
	want := latest{}
	write := func(codec string, rs ...agent.Record) error {
		for _, r := range rs {
			if want[string(r.Key)] = string(r.Value); r.Value == nil {
				delete(want, string(r.Key))
			}
		}
		return c.write(topic, codec, 0, rs...)
	}
	err := write("none", first...)
	for i, codec := range codecNames {
		err = errors.Join(err, write(codec, second[i]...))
	}
	for _, value := range []string{"first", "second", "third", "fourth"} {
		err = errors.Join(err, w.writeBeside(topic, "beside", value))
		want["beside"] = value
	}
	return want, errors.Join(err, write("none", last...), write("none", record("last", "only")))
}

// order is what becomes of the records of each batch, in their order.
func (c *column) order() []string {
	if c.limits.stopsInBatch {
		return []string{"goes", "changes", "stays"}
	}
	return []string{"stays", "changes", "goes"}
}

// write has the client write records to partition 0 in the way that it does unless told otherwise.
func (c *column) write(topic, codec string, pause int, rs ...agent.Record) error {
	_, err := c.must(agent.Request{Op: "produce", Topic: topic, Codec: codec, Idempotent: c.idempotent, Pause: pause, Records: rs})
	return err
}

// writeOne writes a record more, with the patience of the rows that kill a leader.
func (c *column) writeOne(topic string, want latest) error {
	want["one more"] = "after all"
	return c.write(topic, "none", 1, agent.Record{Key: []byte("one more"), Value: []byte("after all")})
}

// compactedTo waits until a partition holds the latest value of each key and nothing else, and returns that.
func (w *world) compactedTo(topic string, want latest) ([]agent.Record, error) {
	err := w.await(compactionLimit, func() error {
		n, err := w.countStored(topic)
		if err == nil && n != len(want) {
			err = fmt.Errorf("%d records are stored, of which compaction should leave %d", n, len(want))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	left, err := w.readAll(topic, 0, 0, len(want))
	if err != nil {
		return nil, err
	}
	found := latest{}
	for _, r := range left {
		found[string(r.Key)] = string(r.Value)
	}
	for k, v := range want {
		if found[k] != v {
			return nil, fmt.Errorf("stored: the latest of %q is %q in place of %q", k, found[k], v)
		}
	}
	if lastGap(left) == 0 {
		return nil, fmt.Errorf("stored: compaction left no gap in %d records from %d on", len(left), left[0].Offset)
	}
	return left, nil
}

// countStored counts the records of partition 0 as they are stored, past all client libraries.
func (w *world) countStored(topic string) (n int, err error) {
	ends, err := w.ends(topic)
	for at := int64(0); err == nil && at < ends[0]; {
		var batches []storedBatch
		if batches, err = w.stored(topic, 0, at); err == nil && len(batches) == 0 {
			err = fmt.Errorf("nothing is at %d, and the log ends at %d", at, ends[0])
		}
		for _, b := range batches {
			n, at = n+b.records, b.last+1
		}
	}
	return n, err
}

// lastGap is the index of the record before which there is the last gap, 0 if there is none.
func lastGap(rs []agent.Record) int {
	for i := len(rs) - 1; i > 0; i-- {
		if rs[i-1].Offset+1 < rs[i].Offset {
			return i
		}
	}
	return 0
}

// reads checks that a client that reads from an offset gets these records.
func (c *column) reads(topic string, from int64, want []agent.Record) error {
	r, err := c.must(agent.Request{Op: "read", Topic: topic, Offset: from, Count: len(want)})
	if err != nil {
		return err
	}
	if len(r.Records) != len(want) {
		return fmt.Errorf("read from %d: %d records in place of %d", from, len(r.Records), len(want))
	}
	for i := range want {
		if d := sameRecord(want[i], r.Records[i], c.limits); d != "" {
			return fmt.Errorf("read from %d: %s", from, d)
		}
	}
	return nil
}

// finds checks the offset that a client gets for a time.
func (c *column) finds(topic string, time, want int64) error {
	r, err := c.must(agent.Request{Op: "offset", Topic: topic, Time: time})
	if err == nil && r.Offset != want {
		err = fmt.Errorf("offset by time %d is %d, %d was due", time, r.Offset, want)
	}
	return err
}

// hasRead waits until the group's one member has read these records of partition 0, and nothing else.
func (g *group) hasRead(want []agent.Record) error {
	return g.w.await(60*time.Second, func() error {
		r, err := ask(g.members[0], agent.Request{Op: "status"})
		if err != nil {
			return err
		}
		// What it had not committed when its coordinator was killed, too, it reads again.
		got := slices.Compact(slices.Sorted(slices.Values(r.Consumed[0])))
		if !slices.EqualFunc(want, got, func(r agent.Record, o int64) bool { return r.Offset == o }) {
			return fmt.Errorf("the member of the group has read %v of %d records from %d on", got, len(want), want[0].Offset)
		}
		return nil
	})
}
