package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"lockstep/core"
	"lockstep/core/controller"
	"lockstep/core/log"
	"lockstep/core/quorum"
	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataLog is the topic name and settings under which the metadata log is stored.
func (b *Broker) metadataLog() OpenLog {
	return OpenLog{Log: core.MetadataPartition, Topic: core.MetadataTopic, Config: log.Config{
		SegmentBytes:       b.settings.MetadataSegmentBytes,
		IndexBytes:         1 << 20,
		IndexIntervalBytes: 4096,
		FlushMessages:      1,
		RetentionBytes:     -1,
		RetentionMillis:    -1,
	}}
}

func (b *Broker) start() {
	if s := b.boot.Snapshot; s != nil {
		im, err := imageOf(s)
		if err != nil {
			b.fatal("metadata snapshot cannot be used", err)
			return
		}
		b.image = im
	}
	b.out.Add(b.metadataLog())
}

// imageOf builds the image that a snapshot holds: its bytes are record batches whose records, in order, build it.
func imageOf(s *quorum.Snapshot) (*controller.Image, error) {
	im := controller.NewImage()
	batches, used, err := record.ParseAll(s.Bytes)
	if err == nil && used < len(s.Bytes) {
		err = fmt.Errorf("%d bytes after the last batch", len(s.Bytes)-used)
	}
	for _, batch := range batches {
		if err == nil {
			err = applyBatch(im, batch)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot at offset %d: %w", s.Offset, err)
	}
	im.SetNext(s.Offset)
	return im, nil
}

func applyBatch(im *controller.Image, batch record.Batch) error {
	for r, err := range batch.Records(nil, record.Limits{}) {
		if err != nil {
			return err
		}
		if _, err := im.Apply(r.Offset, r.Value); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) onMetadataOpened(in LogOpened) {
	if in.Err != nil {
		b.fatal("the metadata log cannot be opened", in.Err)
		return
	}
	hard, err := quorum.DecodeHardState(b.boot.State)
	if err != nil {
		b.fatal("term and vote cannot be read", err)
		return
	}
	if in.State.End > 0 && b.boot.State == nil && b.votes() {
		// With the term and the vote forgotten it might vote twice in one term (rule 11).
		b.fatal("term and vote are missing", errors.New("the file of the broker's state is gone, though the metadata log is not empty"))
		return
	}
	voters := b.cfg.Voters
	if len(voters) == 0 {
		voters = []quorum.Voter{{ID: b.cfg.NodeID, Host: b.cfg.Peer.Host, Port: b.cfg.Peer.Port}}
	}
	b.quorum = quorum.New(quorum.Config{
		Self:        b.cfg.NodeID,
		Voters:      voters,
		ClusterID:   cmp.Or(b.boot.ClusterID, b.image.ClusterID()),
		ElectionMin: b.settings.ElectionTimeout,
		ElectionMax: 2 * b.settings.ElectionTimeout,
		FetchWait:   b.settings.QuorumFetchWait,
		FetchBytes:  b.settings.QuorumFetchBytes, SnapshotBytes: b.settings.QuorumPieceBytes,
		Rand: b.cfg.Rand,
	}, hard, b.boot.Snapshot, in.State)
	b.loadMetadata(in.State.End)
}

// votes says that this broker is a voter of the metadata quorum.
func (b *Broker) votes() bool {
	return len(b.cfg.Voters) == 0 || slices.ContainsFunc(b.cfg.Voters, func(v quorum.Voter) bool { return v.ID == b.cfg.NodeID })
}

// loadMetadata reads the local metadata log back into the quorum, piece by piece, then starts it.
func (b *Broker) loadMetadata(end int64) {
	from, more := b.quorum.LoadFrom()
	if !more {
		b.controller = controller.New(controller.Settings{
			NodeID: b.cfg.NodeID, Incarnation: b.cfg.Incarnation, Static: b.cfg.Static, Rand: b.cfg.Rand,
		}, b.image)
		if b.boot.Snapshot != nil {
			b.adoptImage() // no record will tell of what it holds
		}
		b.stepQuorum(func(q *quorumCall) { q.Start(b.now, q.out) })
		b.join()
		return
	}
	b.out.Add(ReadLog{Log: core.MetadataPartition, From: from, Limit: end, MaxBytes: 1 << 20, Token: b.ask(func(in Input) {
		read := in.(LogRead)
		err := read.Err
		if err == nil {
			err = b.quorum.Load(read.Batches)
		}
		if err != nil {
			b.fatal("the metadata log cannot be read back", err)
			return
		}
		b.loadMetadata(end)
	})})
}

// quorumCall is the quorum during one call, with what the call wants done.
type quorumCall struct {
	*quorum.Quorum
	out *quorum.Out
}

func (b *Broker) stepQuorum(call func(*quorumCall)) {
	if b.quorum == nil {
		return
	}
	var out quorum.Out
	call(&quorumCall{b.quorum, &out})
	b.carryQuorum(&out)
}

// carryQuorum carries out what a call of the quorum wants done, in the order of quorum.Out's fields.
func (b *Broker) carryQuorum(out *quorum.Out) {
	if out.Fatal != nil {
		b.fatal("the metadata quorum cannot go on", out.Fatal)
		return
	}
	if out.Save != nil {
		saved := out.SaveToken
		b.out.Add(SaveState{State: out.Save, Token: b.ask(func(Input) {
			b.stepQuorum(func(q *quorumCall) { q.Saved(b.now, saved, q.out) })
		})})
	}
	b.carryQuorumLog(out)
	for _, c := range out.Calls {
		b.callPeer(c)
	}
	for _, r := range out.Responds {
		b.respondPeer(r)
	}
	for _, n := range out.Notes {
		b.log(Level(n.Level), n.Msg, n.Attrs...)
	}
	if out.Restore != nil {
		b.restore(out.Restore)
	}
	if len(out.Commits) > 0 {
		b.applyCommits(out.Commits)
	}
	b.carryLeadership(out)
	b.followController()
}

func (b *Broker) carryQuorumLog(out *quorum.Out) {
	for _, op := range out.Log {
		switch op := op.(type) {
		case quorum.Append:
			b.out.Add(Append{Log: core.MetadataPartition, Batches: op.Batches, Sync: true})
		case quorum.Truncate:
			b.out.Add(Truncate{Log: core.MetadataPartition, To: op.To})
		case quorum.Reset:
			b.out.Add(ResetLog{Log: core.MetadataPartition, Start: op.Start})
		case quorum.DropPrefix:
			b.out.Add(SetStart{Log: core.MetadataPartition, Start: op.Start})
		}
	}
	if s := out.SaveSnapshot; s != nil {
		id := s.SnapshotID
		b.out.Add(SaveSnapshot{Snapshot: *s, Token: b.ask(func(Input) {
			b.stepQuorum(func(q *quorumCall) { q.SnapshotSaved(b.now, id, q.out) })
		})})
	}
	if out.DropSnapshots != nil {
		b.out.Add(DropSnapshots{Keep: *out.DropSnapshots})
	}
}

// carryLeadership tells the controller when it begins and ceases to decide.
func (b *Broker) carryLeadership(out *quorum.Out) {
	if b.controller == nil {
		return
	}
	if out.LostLeadership {
		b.stepController(func(c *controllerCall) { c.Lost(b.now, c.out) })
	} else if out.ProposalsDropped {
		b.stepController(func(c *controllerCall) { c.Dropped(b.now, out.DroppedFrom, c.out) })
	}
	if leads, active := b.quorum.Leading(); leads && active && !b.controller.Active() {
		b.stepController(func(c *controllerCall) {
			// Who led before is silent, or has resigned: unless it is heard from, its broker is not waited for longer than its lease, like
			// one whose connections broke.
			if b.membership.former >= 0 {
				c.PeerClosed(b.now, b.membership.former, c.out)
				b.membership.former = -1
			}
			c.Lead(b.now, c.out)
		})
		b.join()
	}
}

// applyCommits applies committed records to the image (rule 12), acts on what they changed, and tells the controller.
func (b *Broker) applyCommits(commits []quorum.Commit) {
	var deltas []controller.Delta
	for _, c := range commits {
		for i, v := range c.Values {
			d, err := b.image.Apply(c.Offset+int64(i), v)
			if err != nil {
				b.fatal("a metadata record cannot be applied", err)
				return
			}
			deltas = append(deltas, d)
			b.membership.logBytes += int64(len(v))
		}
	}
	b.quorum.KnowCluster(b.image.ClusterID())
	b.actOn(deltas)
	b.topicsChanged(deltas)
	if b.controller != nil {
		b.stepController(func(c *controllerCall) { c.Committed(b.now, b.image.Next(), c.out) })
	}
	b.wakeCreations()
	b.maybeReady()
	b.maybeSnapshot()
}

// actOn brings the broker in line with what has changed, once the whole batch is applied.
func (b *Broker) actOn(deltas []controller.Delta) {
	everything := false
	for i := range deltas { // first, for what follows may call them
		if d := &deltas[i]; d.Kind == controller.BrokerChanged {
			b.knowPeer(d.NewBroker)
		}
	}
	for i := range deltas {
		d := &deltas[i]
		switch d.Kind {
		case controller.PartitionChanged:
			if b.image.Partition(d.New.Partition) == d.New { // else a later record has changed it again
				b.partitionChanged(d.New)
			}
		case controller.TopicDeleted:
			for _, gone := range d.Removed {
				b.dropPartition(b.parts[gone.Partition])
			}
		case controller.ConfigChanged:
			everything = b.configChanged(d) || everything
		case controller.BrokerChanged:
			b.brokerChanged(d)
		}
	}
	if everything {
		b.configure()
		for st := range b.image.AllPartitions() {
			if p := b.parts[st.Partition]; p != nil {
				b.reconfigure(p)
			}
		}
	}
	b.takeRoles()
}

// knowPeer tells the host where a broker is, if it has a listener for peers.
func (b *Broker) knowPeer(br *controller.Broker) {
	if br == nil || br.ID == b.cfg.NodeID || b.out == nil {
		return
	}
	if e, ok := br.Endpoint(peerListener); ok && e.Name == peerListener {
		b.out.Add(KnowPeer{Peer: br.ID, Host: e.Host, Port: e.Port})
	}
}

// configChanged applies a topic's new setting, and reports whether the broker's own settings have changed.
func (b *Broker) configChanged(d *controller.Delta) bool {
	if d.Resource.Type != kmsg.ConfigResourceTypeTopic {
		return true
	}
	t := b.image.Topic(d.Resource.Name)
	if t == nil {
		return false
	}
	for st := range b.image.Partitions(t.ID) {
		if p := b.parts[st.Partition]; p != nil {
			b.reconfigure(p)
		}
	}
	return false
}

// brokerChanged tells the replicas that share a partition with a broker of its new epoch or standing (rules 6, 7).
func (b *Broker) brokerChanged(d *controller.Delta) {
	changed := d.NewBroker
	if changed == nil {
		changed = d.OldBroker
	}
	if changed.ID == b.cfg.NodeID {
		return
	}
	for st := range b.image.AllPartitions() {
		if p := b.parts[st.Partition]; p != nil && slices.Contains(st.Replicas, changed.ID) {
			b.applyState(p)
		}
	}
}

// restore replaces the whole image by a snapshot's.
func (b *Broker) restore(s *quorum.Snapshot) {
	im, err := imageOf(s)
	if err != nil {
		b.fatal("metadata snapshot cannot be used", err)
		return
	}
	var gone []*partition
	for old := range b.image.AllPartitions() {
		if p := b.parts[old.Partition]; p != nil && im.Partition(old.Partition) == nil {
			gone = append(gone, p)
		}
	}
	*b.image = *im // the controller holds the pointer
	for _, p := range gone {
		b.dropPartition(p)
	}
	b.adoptImage()
	b.takeRoles()
	b.stepGroups(func(c *groupCall) { c.TopicsChanged(b.groupNow(), b.wall, c.out) }) // no record tells of what the snapshot has changed
	b.wakeCreations()
}

// adoptImage brings the broker in line with an image that came as a whole, from a snapshot.
func (b *Broker) adoptImage() {
	b.quorum.KnowCluster(b.image.ClusterID())
	for br := range b.image.Brokers() {
		b.knowPeer(br)
	}
	b.configure()
	for st := range b.image.AllPartitions() {
		b.partitionChanged(st)
		if p := b.parts[st.Partition]; p != nil {
			b.reconfigure(p)
		}
	}
}

// maybeSnapshot takes a snapshot of the image when enough of the log has gone by.
func (b *Broker) maybeSnapshot() {
	if b.quorum == nil || b.membership.logBytes < b.settings.MetadataSnapshotBytes {
		return
	}
	id := b.quorum.Tip()
	bytes, err := encodeSnapshot(b.image.Snapshot())
	if err == nil && id.Offset == b.image.Next() {
		b.membership.logBytes = 0
		b.stepQuorum(func(q *quorumCall) { err = q.Snapshot(b.now, id, bytes, q.out) })
	}
	if err != nil {
		b.log(Error, "metadata snapshot was not taken", "offset", id.Offset, "error", err)
	}
}

// snapshotBatch is how many records go into one batch of a snapshot.
const snapshotBatch = 1000

func encodeSnapshot(values [][]byte) ([]byte, error) {
	var out []byte
	offset := int64(0)
	for chunk := range slices.Chunk(values, snapshotBatch) {
		builder := record.NewBuilder()
		builder.BaseOffset = offset
		for _, v := range chunk {
			builder.Add(record.Record{Value: v})
		}
		batch, err := builder.Build()
		if err != nil {
			return nil, err
		}
		out = append(out, batch.Bytes()...)
		offset += int64(len(chunk))
	}
	return out, nil
}
