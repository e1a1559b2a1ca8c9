package sim

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member belongs to a consumer group. It reads what it is assigned, commits what it has read, goes on from there, and gives
// partitions up, after a last commit, when it is told to. It has a connection to each broker for its group's sake and one
// for fetches, as real clients do, so that neither waits for the other.
type member struct {
	clientBase
	mp     *MemberPlan
	g      *groupTruth
	coord  []*wire // by broker
	life   uint64  // goes up when the process begins and when it ends: events of another life are void
	up     bool
	doom   *FaultCount // dies at its next assignment
	wasted int32       // leader epoch of the group's partition when it died so

	coordinator int  // host, -1: not known
	asking      bool // a request about the membership is on its way, or the pause after a failed one
	committing  bool
	anew        bool // commits also what is committed, as real clients do
	looking     bool // for committed offsets, or the pause after that failed
	learning    bool // metadata
	beatAt      Time // the next heartbeat is due
	commitAt    Time // and the next commit
	away        Time // once it has left: for how long
	leaving     bool //
	phase       phaseOfMember
	id          string
	epoch       int32        // generation, or member epoch
	protocol    string       // classic: the assignor of the generation
	step        int          // of a rolling change of assignors
	counts      []int32      // classic leader: partitions of each topic when it assigned
	looks       int          // classic leader: heartbeats since it looked for new partitions
	assignments []assignment // classic leader: what it is about to send
	news        bool         // KIP-848: it has something to say that cannot wait
	whole       bool         // KIP-848: it has to say everything
	ids         map[[16]byte]int
	names       map[int][16]byte

	held     []*holding
	sessions int64
	fetching []bool // by broker
	asked    []bool // by broker: for starts, the last time
	giveAt   Time   // it gives up partitions no earlier
	gives    int    // commits that it tried before that
	heard    Time   // when the last request was sent whose answer began its session anew
	clear    Time   // and the last one after which it had nothing to give up

	seq int // of its commits

	ownedAt  int32 // classic: the generation of the last assignment
	subs     int   // changes of what it wants to read
	said     int   // what it has said of them
	reads    []int // what it has said that it wants to read
	all      bool  // it wants to read everything
	barred   bool  // KIP-848: it may not join a group of the classic protocol
	usurping bool  // it has asked for the place of another process with its instance id, and not heard of it
	usurped  bool  // another process has asked for its place
	fencedAt Time  // another process had its place for certain
}

type phaseOfMember uint8

const (
	outside phaseOfMember = iota
	syncing               // classic: joined, without assignment
	inside
)

// holding is a partition that a member has been assigned.
type holding struct {
	topic     int
	partition int32
	epoch     int32 // at which it was assigned
	session   int64 // goes up when the member goes elsewhere in it
	next      int64 // -1: not known
	reset     bool  // there is no committed offset, or it is out of range: to be asked for
	committed int64 // -1: nothing
	going     bool  // to be given up
	busy      bool  // in a fetch, or in the question for its start
}

// Kinds of events for members.
const (
	evMember uint8 = iota + 128 // something is due
	evRise                      // the process begins
	evCalm                      // a pause after a failure is over: membership
	evLook                      // the same: committed offsets, metadata
	evRested                    // a broker may be fetched from again
)

func (m *member) start() {
	m.mp = m.plan.Member
	m.g = m.w.group(m.mp)
	for i := range m.w.hosts {
		m.coord = append(m.coord, &wire{client: &m.clientBase, broker: i})
	}
	m.g.members = append(m.g.members, m)
	m.reads = m.subscription()
	m.ids, m.names = map[[16]byte]int{}, map[int][16]byte{}
	m.maxes[kmsg.Metadata.Int16()] = max(m.maxes[kmsg.Metadata.Int16()], 10) // of older ones no ids can be learned
	if m.mp.Long() {
		m.maxes[kmsg.JoinGroup.Int16()] = max(m.maxes[kmsg.JoinGroup.Int16()], 1) // the oldest one takes the session for the rebalance timeout
	}
	if m.mp.Modern {
		m.maxes[kmsg.OffsetCommit.Int16()] = max(m.maxes[kmsg.OffsetCommit.Int16()], 9)
		m.maxes[kmsg.OffsetFetch.Int16()] = max(m.maxes[kmsg.OffsetFetch.Int16()], 9)
	}
	if !m.mp.Twin {
		m.later(int64(m.plan.Start), evRise)
	}
}

// stop begins the end: the group has to settle, and to read everything.
func (m *member) stop() {
	m.stopped, m.doom = true, nil
	if m.g == nil || m.up {
		return
	}
	others := m.g.othersUp(m)
	switch {
	case others && m.wasted > 0 && !(m.mp.Long() && m.mp.Instance != ""): // the others are to do without it
		m.later(second, evRise)
	case others && m.mp.Gone && !m.mp.Long(), m.mateUp():
	default:
		m.wasted = 0
		m.rise()
	}
}

func (m *member) idle() bool { return m.stopped && (m.g == nil || m.g.settled()) }

// instance is the member's instance id, if it has one and speaks versions that know of it.
func (m *member) instance() *string {
	v := func(k kmsg.Key) int16 { return m.maxes[k.Int16()] }
	if m.mp.Instance == "" || !m.mp.Modern && (v(kmsg.JoinGroup) < 5 || v(kmsg.SyncGroup) < 3 || v(kmsg.Heartbeat) < 3 || v(kmsg.OffsetCommit) < 7 ||
		v(kmsg.LeaveGroup) < 3) {
		return nil
	}
	return &m.mp.Instance
}

// later lets an event happen to this life of the process.
func (m *member) later(d Time, kind uint8) *event {
	e := m.w.after(max(d, 0), m, kind)
	e.n = m.life << 8
	return e
}

func (m *member) fire(e *event) {
	if e.n>>8 != m.life {
		return
	}
	if m.w.now < m.paused {
		x := m.w.queue.add(m.paused, m, e.kind)
		x.n = e.n
		return
	}
	switch e.kind {
	case evRise:
		m.rise()
		return
	case evCalm:
		m.asking = false
	case evLook:
		m.looking, m.learning = false, false
	case evRested:
		m.fetching[e.n&255] = false
	}
	m.work()
}

// rise begins a process. One that was to stay dead so that the others miss it begins only if the group's coordinator has
// changed: a new one gives everybody a full session.
func (m *member) rise() {
	if m.up {
		return
	}
	if m.wasted > 0 && m.wasted == m.g.leaderEpoch() {
		if m.stopped {
			m.later(second, evRise)
		}
		return
	}
	m.life++
	m.up, m.doom, m.wasted = true, nil, 0
	m.roll()
	m.ownedAt, m.reads, m.barred, m.usurping = -1, m.subscription(), false, false
	m.begins()
	m.coordinator, m.asking, m.committing, m.looking, m.learning, m.leaving = -1, false, false, false, false, false
	m.phase, m.id, m.epoch, m.held, m.counts = outside, "", 0, nil, nil
	if m.mp.Modern && m.maxes[kmsg.ConsumerGroupHeartbeat.Int16()] >= 1 {
		m.id = m.name + "." + itoa(int(m.life))
	}
	m.fetching, m.asked = make([]bool, len(m.wires)), make([]bool, len(m.wires))
	m.w.event(m.lane, "member", "begins")
	m.commitAt = m.w.now + int64(m.mp.Commit)
	m.work()
}

// die ends the process without a word; it begins anew after d, if that is not negative.
func (m *member) die(d Time) {
	m.w.event(m.lane, "member", "ends")
	m.life++
	m.up = false
	m.dropAll()
	for _, list := range [][]*wire{m.wires, m.coord} {
		for _, x := range list {
			if c := x.conn; c != nil {
				x.lose()
				c.close(dialer)
			}
		}
	}
	m.meta = metadata{}
	if d >= 0 {
		m.later(d, evRise)
	}
}

// leaveFor lets the member give up what it has and leave.
func (m *member) leaveFor(d Time) {
	m.leaving, m.away = true, d
	m.goAll()
	m.work()
}

// dropAll gives up everything at once, for the member has lost it or is no more.
func (m *member) dropAll() {
	for _, h := range m.held {
		m.g.released(m, h)
	}
	m.held = nil
}

// goAll begins to give up everything.
func (m *member) goAll() {
	for _, h := range m.held {
		if !h.going {
			h.going = true
			m.beginGiving()
		}
	}
}

func (m *member) beginGiving() {
	if m.giveAt <= m.w.now {
		m.giveAt, m.gives = m.w.now+int64(m.mp.Revoke), 0
		if m.stopped {
			m.giveAt = min(m.giveAt, m.w.now+int64(m.mp.Rebalance)/2) // in the end everybody is fast enough
		}
		m.later(m.giveAt-m.w.now, evMember)
	}
}

// giving goes on with giving up partitions, and says whether there are any left to give up: what they were read up to is
// committed first, if it can be.
func (m *member) giving() bool {
	dirty, any := false, false
	for _, h := range m.held {
		any = any || h.going
		dirty = dirty || h.going && h.dirty()
	}
	switch {
	case !any:
		return false
	case m.w.now < m.giveAt || m.committing:
		return true
	case dirty && m.gives < 3:
		if m.coordinator >= 0 {
			m.gives++
			m.commit()
		}
		return true
	}
	kept := m.held[:0:0]
	for _, h := range m.held {
		if h.going {
			m.g.released(m, h)
		} else {
			kept = append(kept, h)
		}
	}
	m.held, m.news = kept, true
	return false
}

func (h *holding) dirty() bool { return h.next >= 0 && h.next != h.committed }

// gain takes an assignment of partitions that the member did not have.
func (m *member) gain(topic int, partition int32) {
	m.sessions++
	h := &holding{topic: topic, partition: partition, epoch: m.epoch, session: m.sessions, next: -1, committed: -1}
	m.held = append(m.held, h)
	m.g.acquired(m, h)
}

func (m *member) find(topic int, partition int32) *holding {
	for _, h := range m.held {
		if h.topic == topic && h.partition == partition {
			return h
		}
	}
	return nil
}

// work does what can be done.
func (m *member) work() {
	if !m.up || m.w.failure != nil || m.w.now < m.paused {
		return
	}
	life := m.life
	switch {
	case len(m.ids) < len(m.plan.Topics), m.phase == outside && len(m.meta.topics) == 0:
		m.learnTopics() // a leader that knew nothing would assign nothing
	case m.coordinator < 0:
		m.findCoordinator()
	case m.mp.Modern:
		m.workModern()
	default:
		m.workClassic()
	}
	if m.life != life {
		return
	}
	if m.coordinator >= 0 && !m.committing && m.w.now >= m.commitAt && m.mayCommit() {
		m.commit()
	}
	m.lookUp()
	m.fetch()
}

// beat says that the next heartbeat is due in a while.
func (m *member) beat(d Time) {
	m.beatAt = m.w.now + d
	m.later(d, evMember)
}

// calm pauses before the next request about the membership.
func (m *member) calm() {
	m.asking = true
	m.later(m.chance.Between(10*millisecond, 150*millisecond), evCalm)
}

// learnTopics asks for the topics' ids, which never change.
func (m *member) learnTopics() {
	if m.learning {
		return
	}
	m.learning = true
	life := m.life
	m.refresh(m.topicNames(), func() {
		if m.life != life {
			return
		}
		for _, t := range m.plan.Topics {
			if id := m.topicID(m.topicName(t)); id != [16]byte{} {
				m.ids[id], m.names[t] = t, id
			}
		}
		m.later(m.chance.Between(5*millisecond, 50*millisecond), evLook)
	})
}

func (m *member) topicName(t int) string { return m.w.plan.Topics[t].Name }

func (m *member) topicNames() []string {
	var names []string
	for _, t := range m.plan.Topics {
		names = append(names, m.topicName(t))
	}
	return names
}

// ask sends a request to the coordinator. The answer comes to this life of the process only.
func (m *member) ask(req kmsg.Request, take func(kmsg.Response)) {
	req.SetVersion(min(m.maxes[req.Key()], req.MaxVersion()))
	life := m.life
	m.coord[m.coordinator].call(req, func(r kmsg.Response) {
		if m.life != life || m.w.failure != nil {
			return
		}
		take(r)
		m.work()
	})
}

// askAlone is ask for requests of which there is one at a time.
func (m *member) askAlone(req kmsg.Request, take func(kmsg.Response)) {
	m.asking = true
	m.ask(req, func(r kmsg.Response) {
		m.asking = false
		take(r)
	})
}

func (m *member) findCoordinator() {
	if m.asking {
		return
	}
	m.asking = true
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = m.mp.Group, []string{m.mp.Group}
	life := m.life
	m.call(m.chance.Intn(len(m.wires)), req, func(r kmsg.Response) {
		if m.life != life {
			return
		}
		m.asking = false
		resp, _ := r.(*kmsg.FindCoordinatorResponse)
		code, node := int16(-1), int32(-1)
		switch {
		case resp == nil:
		case resp.Version >= 4:
			code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		default:
			code, node = resp.ErrorCode, resp.NodeID
		}
		if code > 0 && !retriable(code) {
			m.unexpected("FindCoordinator", code)
			return
		}
		if code == 0 {
			m.coordinator = m.w.hostIndex(node)
		}
		if m.coordinator < 0 {
			m.calm()
			return
		}
		m.work()
	})
}

func (m *member) unexpected(what string, code int16) {
	m.w.fail("protocol", "%s: %s: %v", m.name, what, kerr.ErrorForCode(code))
}

// elsewhere deals with an answer that the coordinator did not give, or none: somebody else may coordinate the group now.
// It returns false for other codes.
func (m *member) elsewhere(code int16) bool {
	switch code {
	case kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code, kerr.CoordinatorLoadInProgress.Code, kerr.UnknownServerError.Code:
		if code != kerr.CoordinatorLoadInProgress.Code {
			m.coordinator = -1
		}
		m.calm()
		return true
	}
	return false
}

// vanished deals with a request that got no answer.
func (m *member) vanished() {
	m.coordinator = -1
	m.calm()
}

// fenced is the news that the member has lost everything: it joins anew.
func (m *member) fenced(why string) {
	m.w.event(m.lane, "member", "is out: "+why)
	m.dropAll()
	m.phase, m.epoch = outside, 0
	m.assignments = nil
}
