package sim

import (
	"fmt"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What members of groups read, and how they say what they have read.

// commit commits what was read and not committed yet. Each commit of a partition says in its metadata which it is.
func (m *member) commit() {
	m.commitAt = m.w.now + int64(m.mp.Commit)
	m.later(int64(m.mp.Commit), evMember)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.mp.Group, m.id, m.epoch, m.instance()
	var sent []*commitOp
	for _, t := range m.plan.Topics {
		x := kmsg.NewOffsetCommitRequestTopic()
		x.Topic, x.TopicID = m.topicName(t), m.names[t]
		for _, h := range m.held {
			if h.topic != t || !h.dirty() && !(m.anew && h.next >= 0) {
				continue
			}
			m.seq++
			op := &commitOp{h: h, offset: h.next, epoch: m.epoch, name: fmt.Sprintf("%s.%d", m.name, m.seq), begun: m.w.now}
			m.g.committing(h, op)
			sent = append(sent, op)
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.Metadata, p.LeaderEpoch = h.partition, h.next, &op.name, -1
			x.Partitions = append(x.Partitions, p)
		}
		if len(x.Partitions) > 0 {
			req.Topics = append(req.Topics, x)
		}
	}
	m.anew = false
	if len(sent) == 0 {
		return
	}
	m.committing = true
	m.ask(req, func(r kmsg.Response) {
		m.committing = false
		resp, ok := r.(*kmsg.OffsetCommitResponse)
		if !ok {
			m.coordinator = -1
			return
		}
		i, worst := 0, int16(0)
		for j := range resp.Topics {
			for k := range resp.Topics[j].Partitions {
				p := &resp.Topics[j].Partitions[k]
				if i == len(sent) || sent[i].h.partition != p.Partition {
					m.w.fail("protocol", "%s: OffsetCommit answers for other partitions than were sent", m.name)
					return
				}
				m.g.committed(m, sent[i], p.ErrorCode)
				if i++; p.ErrorCode != 0 {
					worst = p.ErrorCode
				}
			}
		}
		if worst != 0 {
			m.refused(worst, req.Generation)
		}
	})
}

// refused deals with an error to a commit.
func (m *member) refused(code int16, epoch int32) {
	if !m.mp.Modern && epoch != m.epoch {
		return // it is in another generation meanwhile
	}
	switch code {
	case kerr.IllegalGeneration.Code:
		m.fenced("OffsetCommit: " + kerr.ErrorForCode(code).Error())
	case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code:
		if code == kerr.FencedInstanceID.Code && len(m.mates()) > 0 {
			m.banished()
			return
		}
		m.fenced("OffsetCommit: " + kerr.ErrorForCode(code).Error())
		if !m.mp.Modern {
			m.id = ""
		}
	case kerr.RebalanceInProgress.Code:
		m.rejoin()
	case kerr.StaleMemberEpoch.Code:
		m.beatAt = m.w.now // it will say which epoch it is in
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code: // the coordinator has not heard of it
	case kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code, kerr.UnknownServerError.Code:
		m.coordinator = -1
	case kerr.CoordinatorLoadInProgress.Code:
	default:
		m.unexpected("OffsetCommit", code)
	}
}

// lookUp asks where to go on in partitions that the member has just been given.
func (m *member) lookUp() {
	if m.looking || m.coordinator < 0 || m.phase != inside || m.asking && !m.mp.Modern {
		return
	}
	var asked []*holding
	req := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.MemberEpoch = m.mp.Group, -1
	if m.mp.Modern && m.chance.Chance(500) {
		group.MemberID, group.MemberEpoch = &m.id, m.epoch
	}
	for _, t := range m.plan.Topics {
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.TopicID = m.topicName(t), m.names[t]
		for _, h := range m.held {
			if h.topic == t && h.next < 0 && !h.reset && !h.going {
				asked = append(asked, h)
				x.Partitions = append(x.Partitions, h.partition)
			}
		}
		if len(x.Partitions) > 0 {
			group.Topics = append(group.Topics, x)
			y := kmsg.NewOffsetFetchRequestTopic()
			y.Topic, y.Partitions = x.Topic, x.Partitions
			req.Topics = append(req.Topics, y)
		}
	}
	if len(asked) == 0 {
		return
	}
	req.Group, req.Groups = m.mp.Group, append(req.Groups, group)
	m.looking = true
	sent := m.w.now
	m.ask(req, func(r kmsg.Response) {
		m.looking = false
		resp, ok := r.(*kmsg.OffsetFetchResponse)
		if !ok {
			m.coordinator = -1
			return
		}
		code, found := readOffsets(resp)
		switch code {
		case 0:
		case kerr.StaleMemberEpoch.Code, kerr.UnknownMemberID.Code, kerr.GroupIDNotFound.Code: // the next heartbeat will say
			m.lookLater()
			return
		default:
			if m.lookLater(); !m.elsewhere(code) {
				m.unexpected("OffsetFetch", code)
			}
			return
		}
		if len(found) != len(asked) {
			m.w.fail("protocol", "%s: OffsetFetch answers for %d partitions; %d were asked for", m.name, len(found), len(asked))
			return
		}
		for i, h := range asked {
			m.looked(h, found[i], sent)
		}
	})
}

func (m *member) lookLater() {
	m.looking = true
	m.later(m.chance.Between(10*millisecond, 150*millisecond), evLook)
}

// foundOffset is what OffsetFetch says of one partition.
type foundOffset struct {
	partition int32
	offset    int64
	metadata  string
	code      int16
}

// readOffsets reads an answer of any version: an error of the whole, and the partitions in order.
func readOffsets(resp *kmsg.OffsetFetchResponse) (code int16, found []foundOffset) {
	add := func(partition int32, offset int64, metadata *string, e int16) {
		f := foundOffset{partition: partition, offset: offset, code: e}
		if metadata != nil {
			f.metadata = *metadata
		}
		if e != 0 && code == 0 {
			code = e
		}
		found = append(found, f)
	}
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			add(p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	if len(resp.Groups) > 0 {
		for i := range resp.Groups[0].Topics {
			for _, p := range resp.Groups[0].Topics[i].Partitions {
				add(p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
		if resp.Groups[0].ErrorCode != 0 {
			code = resp.Groups[0].ErrorCode
		}
	}
	if resp.ErrorCode != 0 {
		code = resp.ErrorCode
	}
	return code, found
}

func (m *member) looked(h *holding, f foundOffset, sent Time) {
	if f.partition != h.partition {
		m.w.fail("protocol", "%s: OffsetFetch answers for partition %d where %d was asked for", m.name, f.partition, h.partition)
		return
	}
	m.g.fetched(m.name, h.topic, h.partition, f, sent)
	switch {
	case h.next >= 0 || m.find(h.topic, h.partition) != h:
	case f.offset < 0:
		h.reset = true
	default:
		m.w.stats.Resumed++
		h.next, h.committed = f.offset, f.offset
	}
}

// fetch asks each broker, one at a time, for what it leads of what the member has. Where starts are to be asked for it does that
// every other time only: of a damaged partition the question fails for ever.
func (m *member) fetch() {
	unknown := false
	for broker := range m.fetching {
		if m.fetching[broker] {
			continue
		}
		first, then := m.askStarts, m.fetchFrom
		if m.asked[broker] {
			first, then = then, first
		}
		if !first(broker) {
			then(broker)
		}
	}
	for _, h := range m.held {
		unknown = unknown || m.leader(m.topicName(h.topic), h.partition) < 0
	}
	if unknown && !m.learning {
		m.learning = true
		life := m.life
		m.refresh(m.topicNames(), func() {
			if m.life == life {
				m.later(m.chance.Between(5*millisecond, 100*millisecond), evLook)
			}
		})
	}
}

// rest pauses before the next request to a broker.
func (m *member) rest(broker int) {
	m.fetching[broker] = true
	pause := m.think()
	if m.stopped {
		pause = min(pause, 10*millisecond) // in the end nobody dawdles: what is left may be thousands of segments of a few records
	}
	m.later(pause, evRested).n |= uint64(broker)
}

// fromBroker sends a request to a broker, which gets no other meanwhile.
func (m *member) fromBroker(broker int, req kmsg.Request, take func(kmsg.Response)) {
	m.fetching[broker] = true
	life := m.life
	m.call(broker, req, func(r kmsg.Response) {
		if m.life != life || m.w.failure != nil {
			return
		}
		take(r)
		m.rest(broker)
		m.work()
	})
}

// askStarts asks for the starts of partitions of which there is no committed offset, if there are any.
func (m *member) askStarts(broker int) bool {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	var asked []*holding
	for _, h := range m.held {
		if h.reset && !h.going && m.leader(m.topicName(h.topic), h.partition) == broker {
			asked = append(asked, h)
			putOffset(req, m.topicName(h.topic), h.partition, -2)
		}
	}
	if len(asked) == 0 {
		return false
	}
	m.asked[broker] = true
	m.fromBroker(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.ListOffsetsResponse)
		for _, h := range asked {
			a := findOffset(resp, m.topicName(h.topic), h.partition)
			switch {
			case a == nil:
			case a.ErrorCode != 0:
				m.trouble(h, a.ErrorCode)
			case h.reset:
				m.sessions++
				h.reset, h.next, h.session = false, a.Offset, m.sessions
			}
		}
	})
	return true
}

// fetchFrom reads the partitions that a broker leads, if their starts are known of any.
func (m *member) fetchFrom(broker int) bool {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(m.plan.MaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = m.plan.MinBytes, m.plan.MaxBytes
	req.SessionID, req.SessionEpoch = 0, -1
	each := m.plan.PartitionBytes
	if m.w.phase != working { // what is left is read in larger pieces, for there is a bound on how long it may take
		req.MaxBytes, each = 1<<20, 1<<20
	}
	var asked []*holding
	var from []int64
	for _, h := range m.held {
		name := m.topicName(h.topic)
		if h.next < 0 || h.going || m.leader(name, h.partition) != broker {
			continue
		}
		asked, from = append(asked, h), append(from, h.next)
		putFetch(req, name, m.names[h.topic], &position{topic: h.topic, partition: h.partition, next: h.next}, each)
	}
	if len(asked) == 0 {
		return false
	}
	sent := m.w.now
	m.asked[broker] = false
	m.fromBroker(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.FetchResponse)
		if resp == nil {
			return
		}
		if resp.ErrorCode != 0 && !retriable(resp.ErrorCode) {
			m.unexpected("Fetch", resp.ErrorCode)
			return
		}
		for i, h := range asked {
			for j := range resp.Topics {
				t := &resp.Topics[j]
				if resp.Version < 13 && t.Topic != m.topicName(h.topic) || resp.Version >= 13 && t.TopicID != m.names[h.topic] {
					continue
				}
				for k := range t.Partitions {
					if t.Partitions[k].Partition == h.partition {
						m.took(h, from[i], sent, &t.Partitions[k])
					}
				}
			}
		}
	})
	return true
}

// took reads the answer for one partition.
func (m *member) took(h *holding, from int64, sent Time, a *kmsg.FetchResponseTopicPartition) {
	name := m.topicName(h.topic)
	op := linearizability.Op{Process: m.index, Kind: linearizability.Fetch, Topic: name, Partition: h.partition,
		From: from, Session: h.session, HighWatermark: a.HighWatermark, LogStart: a.LogStartOffset}
	if a.ErrorCode != 0 {
		op.Outcome = linearizability.Failed
		if a.ErrorCode == kerr.OffsetOutOfRange.Code {
			op.Outcome = linearizability.OutOfRange
		}
		m.w.note(h.topic, op, sent)
		m.trouble(h, a.ErrorCode)
		return
	}
	if a.HighWatermark < 0 && len(a.RecordBatches) == 0 {
		return
	}
	records, next := readRecords(m.w, m.name, name, h.partition, from, a.RecordBatches)
	if m.find(h.topic, h.partition) != h || h.going || h.next != from { // it gives up the partition: what comes now is the next one's
		return
	}
	op.Outcome, op.Records = linearizability.OK, records
	m.w.note(h.topic, op, sent)
	m.w.stats.Delivered += int64(len(records))
	if len(a.RecordBatches) > 0 && next == from {
		return // damage, which the verifier judges
	}
	m.g.delivered(m, h, records, next)
	h.next = next
}

// trouble deals with an error for one partition.
func (m *member) trouble(h *holding, code int16) {
	switch {
	case code == kerr.UnknownTopicID.Code || code == kerr.UnknownTopicOrPartition.Code || code == kerr.NotLeaderForPartition.Code ||
		code == kerr.InconsistentTopicID.Code:
		delete(m.meta.topics, m.topicName(h.topic))
	case code == kerr.OffsetOutOfRange.Code:
		h.next, h.reset = -1, true
	case !retriable(code) && code != kerr.KafkaStorageError.Code:
		m.w.fail("protocol", "%s: %s-%d: %v", m.name, m.topicName(h.topic), h.partition, kerr.ErrorForCode(code))
	}
}
