package broker

import (
	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/group"
	"lockstep/core/record"
	"lockstep/core/replica"
)

// groupLoad is the loading of one partition of the offsets topic whose leadership this broker has taken.
type groupLoad struct {
	epoch int32
	end   int64 // the log end when the epoch began: up to here it is loaded, and waited for (rule 20)
	read  bool  // all of it is read
	done  bool  // its groups serve
}

// groupCall is the coordinator during one call, with what the call wants done.
type groupCall struct {
	*group.Coordinator
	out *group.Out
}

func (b *Broker) stepGroups(call func(*groupCall)) {
	var out group.Out
	call(&groupCall{b.groups, &out})
	for _, l := range out.Lines {
		b.log(Level(l.Level), l.Msg, l.Attrs...)
	}
	for _, a := range out.Answers {
		if q := b.groupRequests[a.Token]; q != nil {
			delete(b.groupRequests, a.Token)
			b.respond(q, a.Msg)
		}
	}
	for i := range out.Writes {
		b.writeGroups(&out.Writes[i])
	}
}

// handleGroup passes a request to the coordinator.
func handleGroup(b *Broker, q *request) {
	b.tokens++
	token := group.Token(b.tokens)
	b.groupRequests[token] = q
	q.drop = func() {
		delete(b.groupRequests, token)
		b.groups.Cancel(b.groupNow(), token)
	}
	now := b.groupNow()
	b.groups.Mute(!b.lease.Valid(b.now))
	b.stepGroups(func(c *groupCall) {
		c.Handle(now, q.Wall, token, group.Client{ID: q.Client.ID, Host: q.Client.Host}, q.Msg, c.out)
	})
}

// offsetsPartition returns the local replica of a partition of the offsets topic.
func (b *Broker) offsetsPartition(index int32) *partition {
	if t := b.image.Topic(group.OffsetsTopic); t != nil {
		return b.local(core.Partition{Topic: t.ID, Index: index})
	}
	return nil
}

// writeGroups appends the coordinator's records as any acks=all producer would; onProduced brings the outcome.
func (b *Broker) writeGroups(w *group.Write) {
	p := b.offsetsPartition(w.Partition)
	if p == nil {
		b.stepGroups(func(c *groupCall) { c.WriteFailed(b.groupNow(), w.Seq, errNotCoordinator, false, c.out) })
		return
	}
	builder := record.NewBuilder()
	for _, r := range w.Records {
		builder.Add(record.Record{Timestamp: int64(b.wall), Key: r.Key, Value: r.Value})
	}
	built, err := builder.Build()
	if err != nil {
		b.log(Error, "group records could not be encoded", "error", err)
		b.stepGroups(func(c *groupCall) { c.WriteFailed(b.groupNow(), w.Seq, errUnknownServerError, false, c.out) })
		return
	}
	b.waiters++
	waiter := b.waiters
	checked := record.Check(built.Bytes(), nil, record.Limits{})
	res, pending := p.replica.Produce(b.now, b.wall, checked, -1, waiter, &b.rout)
	if pending {
		b.groupWrites[waiter] = w.Seq
	}
	b.carryOut(p)
	if !pending {
		b.groupWritten(w.Seq, res.Code, false)
	}
}

func (b *Broker) groupWritten(seq uint64, code int16, unknown bool) {
	b.stepGroups(func(c *groupCall) {
		if code == errNone {
			c.Committed(b.groupNow(), seq, c.out)
		} else {
			c.WriteFailed(b.groupNow(), seq, code, unknown, c.out)
		}
	})
}

// onGroupWritten takes the outcome of a write that waited, if the waiter is the coordinator's.
func (b *Broker) onGroupWritten(r *replica.Produced) {
	seq, ok := b.groupWrites[r.Waiter]
	if !ok {
		return
	}
	delete(b.groupWrites, r.Waiter)
	// An append that failed was rolled back; whoever ceased to lead does not know what became of it.
	b.groupWritten(seq, r.Code, r.Code != errNone && r.Code != errStorage)
}

// followGroups takes or gives up the coordination of an offsets partition as its replica's role changes, and goes on
// with its loading.
func (b *Broker) followGroups(p *partition) {
	leads := !p.gone && p.replica.Role() == replica.Leader
	if p.load != nil && (!leads || p.load.epoch != p.replica.LeaderEpoch()) {
		p.load = nil
		b.stepGroups(func(c *groupCall) { c.Resign(b.groupNow(), p.id.Index, c.out) })
	}
	if !leads {
		return
	}
	if p.load == nil {
		p.load = &groupLoad{epoch: p.replica.LeaderEpoch(), end: p.replica.LogEnd()}
		b.groups.Lead(p.id.Index, p.load.epoch)
		b.loadGroups(p, p.load, p.replica.LogStart())
	}
	if l := p.load; l.read && !l.done && p.replica.HighWatermark() >= l.end {
		l.done = true
		b.stepGroups(func(c *groupCall) { c.Loaded(b.groupNow(), b.wall, p.id.Index, c.out) })
	}
}

// loadGroups reads an offsets partition from one offset on, piece by piece.
func (b *Broker) loadGroups(p *partition, l *groupLoad, from int64) {
	if from >= l.end {
		l.read = true
		return
	}
	b.out.Add(ReadLog{Log: p.id, From: from, Limit: l.end, MaxBytes: 1 << 20, Token: b.ask(func(in Input) {
		read := in.(LogRead)
		if p.load != l {
			return // given up meanwhile
		}
		next := from
		for _, batch := range read.Batches {
			b.loadBatch(p, batch, &read.Err)
			next = batch.NextOffset()
		}
		if read.Err != nil {
			b.failPartition(p, read.Err)
			return
		}
		if next == from { // compaction left nothing more
			next = l.end
		}
		b.loadGroups(p, l, next)
		b.followGroups(p)
	})})
}

func (b *Broker) loadBatch(p *partition, batch record.Batch, failed *error) {
	if batch.Control() {
		return
	}
	for r, err := range batch.Records(nil, record.Limits{}) {
		if err != nil {
			*failed = err
			return
		}
		b.groups.Load(p.id.Index, r.Key, r.Value, r.Timestamp)
	}
}

// topicsOf gives the coordinator what it asks of the image.
type topicsOf struct{ b *Broker }

func (t topicsOf) Topic(name string) (core.TopicID, int32, bool) {
	if x := t.b.image.Topic(name); x != nil {
		return x.ID, x.Partitions, true
	}
	return core.TopicID{}, 0, false
}

func (t topicsOf) TopicByID(id core.TopicID) (string, int32, bool) {
	if x := t.b.image.TopicByID(id); x != nil {
		return x.Name, x.Partitions, true
	}
	return "", 0, false
}

func (t topicsOf) TopicNames(yield func(string) bool) {
	for x := range t.b.image.Topics() {
		if !yield(x.Name) {
			return
		}
	}
}

func (t topicsOf) Rack(id core.TopicID, partition int32) (racks []string) {
	st := t.b.image.Partition(core.Partition{Topic: id, Index: partition})
	if st == nil {
		return nil
	}
	for _, r := range st.Replicas {
		if br := t.b.image.Broker(r); br != nil && br.Rack != "" {
			racks = append(racks, br.Rack)
		}
	}
	return racks
}

// groupClock is the coordinator's time. It stands still while this broker has no lease: what members sent meanwhile was refused
// or not heard, so that no session may end by it, and a coordinator that was deposed meanwhile is not to judge anybody.
type groupClock struct {
	time core.Time
	seen core.Time // the broker's time at time
}

// groupNow brings the coordinator's time forward, by as much as there was a lease.
func (b *Broker) groupNow() core.Time {
	k := &b.groupClock
	if leased := core.Earlier(b.now, b.lease.Until); leased > k.seen {
		k.time, k.seen = k.time.Add(leased.Sub(k.seen)), leased
	}
	return k.time
}

// groupsLeased has the coordinator's time go on from now, where it stood still without a lease.
func (b *Broker) groupsLeased() {
	b.groupNow()
	b.groupClock.seen = b.now
}

// groupDeadline is when the coordinator wants a tick, in the broker's time.
func (b *Broker) groupDeadline() core.Time {
	d := b.groups.Deadline()
	if d == core.Never || !b.lease.Valid(b.now) {
		return core.Never
	}
	return b.groupClock.seen.Add(d.Sub(b.groupClock.time))
}

// topicsChanged tells the coordinator if the deltas touch which topics and partitions there are.
func (b *Broker) topicsChanged(deltas []controller.Delta) {
	for i := range deltas {
		switch d := &deltas[i]; {
		case d.Kind == controller.TopicCreated, d.Kind == controller.TopicDeleted, d.Kind == controller.PartitionChanged && d.Old == nil:
			b.stepGroups(func(c *groupCall) { c.TopicsChanged(b.groupNow(), b.wall, c.out) })
			return
		}
	}
}

// groupConfig is what the broker's settings say to the coordinator.
func (b *Broker) groupConfig() group.Config {
	c := group.ConfigOf(&b.settings)
	if t := b.image.Topic(group.OffsetsTopic); t != nil {
		c.Partitions = t.Partitions // fixed when the topic was made
	}
	return c
}
