package broker

import (
	"errors"
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/config"
	"lockstep/core/controller"
	"lockstep/core/group"
	"lockstep/core/log"
	"lockstep/core/replica"
)

// partition is one replica that this broker keeps, with its log and what waits on it.
type partition struct {
	id                 core.Partition
	topic              string
	replica            *replica.Replica // nil until the log is open
	state              *controller.Partition
	config             config.TopicConfig
	openedAs           log.Config     // what its log was last opened with
	fetches, followers []*parkedFetch // clients' and followers' fetches that wait on it
	load               *groupLoad     // of the offsets topic: while this broker leads it
	asking             *fetcher       // as a follower: by which its leader was asked, with no answer yet
	wants              *fetcher       // as a follower: has it in its list of those to ask for
	compacting         bool           // a run of compaction is not answered yet
	gaps               bool           // its log was told that offsets may be missing
	due                core.Time      // when the replica wants a Tick; see deadlines
	saved              int64          // offset of the last producer snapshot
	damaged            bool           // its log is (rule 15)
	damagedIn          int32          // the leader epoch in which that was found
	givingUp           bool           // the controller is being told so
	renewed            bool           // its log was begun anew because it was damaged, and is not open yet
	roomless           bool           // there was no room to make its log; it is tried again
	gone               bool           // its topic is deleted, or its replica moved elsewhere
}

// isInternalTopic reports whether a topic is the broker's own: clients may read it, and only the broker writes it.
func isInternalTopic(topic string) bool {
	return topic == group.OffsetsTopic || topic == core.MetadataTopic
}

// findPartition finds the local replica that a request names by topic name or id, or the code that says why there is none.
func (b *Broker) findPartition(topic string, id core.TopicID, byID bool, index int32) (*partition, int16) {
	t, code := b.findTopic(topic, id, byID)
	if code != errNone {
		return nil, code
	}
	if index < 0 || index >= t.Partitions {
		return nil, errUnknownTopicOrPartition
	}
	p := b.parts[core.Partition{Topic: t.ID, Index: index}]
	switch {
	case p == nil || p.gone:
		return nil, errNotLeaderOrFollower
	case p.replica == nil: // its log is being opened
		return nil, errNotLeaderOrFollower
	}
	return p, errNone
}

func (b *Broker) findTopic(topic string, id core.TopicID, byID bool) (*controller.Topic, int16) {
	if byID {
		if t := b.image.TopicByID(id); t != nil {
			return t, errNone
		}
		return nil, errUnknownTopicID
	}
	if t := b.image.Topic(topic); t != nil {
		return t, errNone
	}
	return nil, errUnknownTopicOrPartition
}

// partitionChanged takes what the metadata now says of a partition.
func (b *Broker) partitionChanged(st *controller.Partition) {
	p := b.parts[st.Partition]
	if !slices.Contains(st.Replicas, b.cfg.NodeID) {
		b.dropPartition(p)
		return
	}
	if p == nil {
		p = b.addPartition(st)
	}
	p.state = st
	b.applyState(p)
}

// logConfig is what the files of its log depend on.
func (p *partition) logConfig() log.Config {
	c := p.config.Log(p.id)
	c.Gaps = p.gaps
	return c
}

func (b *Broker) addPartition(st *controller.Partition) *partition {
	p := &partition{id: st.Partition, topic: b.image.TopicByID(st.Topic).Name, due: core.Never}
	p.config = b.image.TopicConfig(p.topic, &b.layers)
	b.parts[p.id] = p
	b.openLog(p)
	return p
}

func (b *Broker) openLog(p *partition) {
	b.membership.opening++
	p.openedAs = p.logConfig()
	b.out.Add(OpenLog{Log: p.id, Topic: p.topic, Config: p.openedAs})
}

// dropPartition gives a replica up for good, files and all.
func (b *Broker) dropPartition(p *partition) {
	if p == nil {
		return
	}
	p.gone = true
	if p.replica != nil { // who waits on it is told that the leader is elsewhere, and finds the topic gone
		p.replica.Apply(b.now, replica.PartitionState{Leader: controller.NoLeader,
			LeaderEpoch: p.replica.LeaderEpoch() + 1, PartitionEpoch: p.state.Epoch + 1}, &b.rout)
		b.carryOut(p)
		b.wakeFetches(p)
		b.wakeFollowers(p)
	}
	b.deadline.drop(p)
	delete(b.parts, p.id)
	if p.replica != nil {
		b.out.Add(DeleteLog{Log: p.id})
	}
}

func (b *Broker) onLogOpened(in LogOpened) {
	if in.Log == core.MetadataPartition {
		b.onMetadataOpened(in)
		return
	}
	b.membership.opening--
	defer b.opened()
	p := b.parts[in.Log]
	if p == nil { // deleted while it was being opened
		b.out.Add(DeleteLog{Log: in.Log})
		return
	}
	if p.roomless && in.Later {
		b.openLater(p)
		return
	}
	st := in.State
	if in.Err != nil { // rule 15: damage is reported and the replica set aside, never cut away
		st = log.State{}
	}
	p.replica = replica.New(p.id, b.cfg.NodeID, st, b.replicaConfig(&p.config, len(p.state.Replicas)), b.lease)
	p.saved = -1
	switch {
	case in.Later:
		b.log(Error, "no room to make the log of a partition; it is tried again", "topic", p.topic, "partition", p.id.Index, "error", in.Err)
		p.roomless = true
		b.stopReplica(p, in.Err)
		b.openLater(p)
	case in.Err != nil:
		b.failPartition(p, in.Err)
	default:
		p.renewed, p.roomless = false, false
		if c := p.logConfig(); c != p.openedAs { // else it would delete by a retention that is not its topic's any more
			b.out.Add(ConfigureLog{Log: p.id, Config: c})
		}
	}
	b.applyState(p)
}

// roomPause is how long after an attempt to make a log without room the next one is.
const roomPause = time.Second

func (b *Broker) openLater(p *partition) {
	b.timers.set(b.now.Add(roomPause), func() {
		if b.parts[p.id] == p && !b.stopping {
			b.openLog(p)
		}
	})
}

func (b *Broker) failPartition(p *partition, err error) {
	b.log(Error, "partition is set aside: its log is damaged or cannot be used", "topic", p.topic, "partition", p.id.Index, "error", err)
	p.damaged, p.damagedIn = true, p.state.LeaderEpoch
	b.stopReplica(p, err)
	b.giveUp(p)
}

// stopReplica makes a replica refuse all with KAFKA_STORAGE_ERROR.
func (b *Broker) stopReplica(p *partition, err error) {
	p.replica.Fail(b.now, err, &b.rout)
	b.carryOut(p)
	b.wakeFetches(p)
}

func (b *Broker) replicaConfig(c *config.TopicConfig, replicas int) replica.Config {
	return replica.Config{
		MinInsync:        c.EffectiveMinISR(replicas),
		Sync:             c.SyncBeforeAck(),
		LagMax:           b.settings.ReplicaLagTimeMax,
		MaxMessageBytes:  int(c.MaxMessageBytes),
		LogAppendTime:    c.LogAppendTime,
		TimestampBefore:  millis(c.TimestampBeforeMax),
		TimestampAfter:   millis(c.TimestampAfterMax),
		Compact:          c.Compact,
		KeepRecords:      c.Compact && !c.Delete,
		ProducerIDExpiry: b.settings.ProducerIDExpiration,
	}
}

func millis(d time.Duration) int64 {
	if d == config.Forever {
		return 1<<63 - 1
	}
	return d.Milliseconds()
}

// applyState tells the replica what the metadata says, once it is open and this life of the broker is in the metadata:
// a restarted broker leads nothing by what an earlier life of it was told (rule 9).
func (b *Broker) applyState(p *partition) {
	if p.replica == nil || p.gone || b.membership.epoch < 0 || !b.membership.roles {
		return
	}
	st := replica.PartitionState{
		Leader:         p.state.Leader,
		LeaderEpoch:    p.state.LeaderEpoch,
		PartitionEpoch: p.state.Epoch,
		Replicas:       make([]replica.Member, len(p.state.Replicas)),
		ISR:            p.state.ISR,
	}
	for i, id := range p.state.Replicas {
		st.Replicas[i] = replica.Member{ID: id, Epoch: -1}
		if br := b.image.Broker(id); br != nil {
			st.Replicas[i].Epoch, st.Replicas[i].Eligible = br.Epoch, br.Active()
		}
	}
	p.replica.Apply(b.now, st, &b.rout)
	b.carryOut(p)
	if p.damaged && !p.gone && !p.renewed && p.state.LeaderEpoch > p.damagedIn && b.unneeded(p.state) {
		b.startOver(p)
	}
	b.giveUp(p)
}

// unneeded says that nothing depends on this broker's copy of a partition: another leads, and this one counts neither
// as in sync nor as eligible, so that it can not be chosen before it has fetched everything again (rules 7 and 8).
func (b *Broker) unneeded(st *controller.Partition) bool {
	self := b.cfg.NodeID
	return st.Leader != controller.NoLeader && st.Leader != self && !slices.Contains(st.ISR, self) && !slices.Contains(st.ELR, self)
}

// startOver gives up the files of a damaged replica and fetches everything again (rule 15). A log that cannot be opened
// after that stays set aside.
func (b *Broker) startOver(p *partition) {
	b.log(Warn, "a damaged log is given up, to be fetched from its leader again", "topic", p.topic, "partition", p.id.Index, "leader", p.state.Leader)
	st := p.state
	b.dropPartition(p)
	p = b.addPartition(st)
	p.state, p.renewed = st, true
}

// reconfigure takes new settings of a topic or of the broker. A log that is being opened has them when it is open.
func (b *Broker) reconfigure(p *partition) {
	p.config = b.image.TopicConfig(p.topic, &b.layers)
	if p.replica == nil {
		return
	}
	b.out.Add(ConfigureLog{Log: p.id, Config: p.logConfig()})
	p.replica.Configure(b.now, b.replicaConfig(&p.config, len(p.state.Replicas)), &b.rout)
	b.carryOut(p)
}

// carryOut turns what the replica wants done into effects, in the order that
// replica.Out demands, and tells those who waited.
func (b *Broker) carryOut(p *partition) {
	out := b.rout
	b.touched = append(b.touched, p.id)
	b.rout = replica.Out{} // what follows may call replicas again
	b.carryLog(p, &out)
	b.deadline.set(p, p.replica.Deadline())
	for _, l := range out.Lines {
		b.log(Level(l.Level), l.Msg, append([]any{"topic", p.topic, "partition", p.id.Index}, l.Attrs...)...)
	}
	for i := range out.Produced {
		b.onProduced(&out.Produced[i])
	}
	for i := range out.Deleted {
		b.onRecordsDeleted(&out.Deleted[i])
	}
	if out.Propose != nil {
		b.proposeISR(p, out.Propose)
	}
	if out.Readable {
		b.wakeFetches(p)
	}
	if out.Readable || out.Written {
		b.wakeFollowers(p)
	}
	if out.Fetch {
		b.wantFetch(p)
	}
	if p.topic == group.OffsetsTopic && (out.Readable || p.load != nil && p.replica.Role() != replica.Leader) {
		b.followGroups(p)
	}
}

func (b *Broker) carryLog(p *partition, out *replica.Out) {
	if out.Truncate.Set {
		if p.saved > out.Truncate.Offset {
			p.saved = -1 // snapshots beyond it go with it
		}
		b.out.Add(Truncate{Log: p.id, To: out.Truncate.Offset})
	}
	if out.Restart.Set {
		p.saved = -1
		b.out.Add(ResetLog{Log: p.id, Start: out.Restart.Offset})
	}
	// The producer table already counts what is to be appended, so that goes first where the start moves with it: a
	// follower hears of both in one answer.
	switch {
	case out.Begins:
		p.saved = out.SetStart.Offset
		b.out.Add(SetStart{Log: p.id, Start: out.SetStart.Offset, Producers: out.Producers})
	case out.SetStart.Set && len(out.Append) == 0:
		b.moveStart(p, out.SetStart.Offset)
	}
	if out.SaveEpochs {
		b.out.Add(SaveEpochs{Log: p.id, Epochs: out.Epochs})
	}
	if out.Gap && !p.gaps {
		p.gaps = true
		b.out.Add(ConfigureLog{Log: p.id, Config: p.logConfig()})
	}
	if len(out.Append) > 0 {
		b.out.Add(Append{Log: p.id, Batches: out.Append, Sync: out.Sync})
	} else if out.Sync {
		b.out.Add(SyncLog{Log: p.id})
	}
	if out.SetStart.Set && len(out.Append) > 0 {
		b.moveStart(p, out.SetStart.Offset)
	}
	if out.ReadLog.Set {
		b.out.Add(ReadLog{Token: b.ask(func(in Input) {
			read := in.(LogRead)
			if !p.gone {
				p.replica.LogRead(b.now, read.Batches, read.Err, &b.rout)
				b.carryOut(p)
			}
		}), Log: p.id, From: out.ReadLog.Offset, Limit: p.replica.LogEnd(), MaxBytes: 1 << 20})
	}
}

// moveStart deletes a log's records below start, and keeps what they say of producers.
func (b *Broker) moveStart(p *partition, start int64) {
	b.saveProducers(p)
	b.out.Add(SetStart{Log: p.id, Start: start})
}

// local returns the replica of a log that an input speaks of; nil if it is gone meanwhile.
func (b *Broker) local(id core.Partition) *partition {
	if p := b.parts[id]; p != nil && p.replica != nil {
		return p
	}
	return nil
}

func (b *Broker) onWritten(in Written) {
	if in.Log == core.MetadataPartition {
		b.stepQuorum(func(q *quorumCall) { q.Written(b.now, in.End, q.out) })
		return
	}
	if p := b.local(in.Log); p != nil {
		p.replica.Written(b.now, in.End, &b.rout)
		b.carryOut(p)
		if in.Rolled {
			b.saveProducers(p)
		}
	}
}

// saveProducers stores the producer table, so that recovery need not read the log from its start; and where the log is
// about to be deleted from its start, could not.
func (b *Broker) saveProducers(p *partition) {
	if p.replica.Rebuilding() || p.replica.Log().Producers().Len() == 0 || p.replica.HighWatermark() <= p.saved {
		return
	}
	if offset, snapshot := p.replica.ProducerSnapshot(); len(snapshot) > 0 {
		p.saved = offset
		b.out.Add(SaveProducers{Log: p.id, Offset: offset, Snapshot: snapshot})
	}
}

func (b *Broker) onDurable(in Durable) {
	if in.Log == core.MetadataPartition {
		b.stepQuorum(func(q *quorumCall) { q.Durable(b.now, in.End, q.out) })
		return
	}
	if p := b.local(in.Log); p != nil {
		p.replica.Durable(b.now, in.End, &b.rout)
		b.carryOut(p)
	}
}

func (b *Broker) onAppendFailed(in AppendFailed) {
	b.log(Error, "append failed", "log", in.Log.String(), "error", in.Err)
	if in.Log == core.MetadataPartition {
		b.stepQuorum(func(q *quorumCall) { q.AppendFailed(b.now, in.End, in.Err, q.out) })
		return
	}
	if p := b.local(in.Log); p != nil {
		p.replica.AppendFailed(b.now, in.End, in.Err, &b.rout)
		b.carryOut(p)
	}
}

func (b *Broker) onTruncated(in Truncated) {
	if in.Log == core.MetadataPartition {
		b.stepQuorum(func(q *quorumCall) { q.Truncated(b.now, in.End, q.out) })
		return
	}
	if p := b.local(in.Log); p != nil {
		if p.saved > in.End { // inside a batch, which went as a whole
			p.saved = -1
		}
		p.replica.Truncated(b.now, in.End, &b.rout)
		b.carryOut(p)
	}
}

func (b *Broker) onStartMoved(in StartMoved) {
	if p := b.local(in.Log); p != nil {
		p.replica.StartMoved(b.now, in.Start, &b.rout)
		b.carryOut(p)
	}
}

func (b *Broker) onLogFailed(in LogFailed) {
	if in.Log == core.MetadataPartition {
		b.fatal("the metadata log cannot be read", in.Err)
		return
	}
	if p := b.local(in.Log); p != nil {
		b.failPartition(p, in.Err)
	}
}

var errStopped = errors.New("broker is stopping")
