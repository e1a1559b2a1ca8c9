package group

import (
	"maps"
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicState is the state of a group of the classic protocol.
type classicState uint8

const (
	empty classicState = iota
	preparing
	completing
	stable
)

func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// classic is a group's membership by the classic protocol. Its record, written when the group has an assignment or becomes
// empty, holds generation, protocol, leader and members with their assignments; the rest is soft.
type classic struct {
	state        classicState
	recorded     bool  // it has a record in the log
	since        int64 // wall time of the state in the record, milliseconds; -1 where not known
	generation   int32
	protocolType string
	protocol     string // chosen at the last completed join
	leader       string
	subscribed   map[string]bool // topics that the members of this generation read, if they are consumers
	opaque       bool            // subscriptions of consumers that could not be read: they may read any topic

	members  map[string]*member
	static   map[string]string    // member ids by instance id (KIP-345)
	pending  map[string]pendingID // ids handed out with MEMBER_ID_REQUIRED (KIP-394)
	sequence uint64               // of joins: the first to join leads

	// deadlines, Never where there is none
	joinBy    core.Time // preparing: members that have not joined by then are removed
	notBefore core.Time // preparing, from empty: until then others are waited for
	syncBy    core.Time // members that have joined and not called SyncGroup by then are removed
	retry     core.Time // preparing, with nobody left: when to write again that the group is empty
}

// pendingID is a member id that was handed out, and is to come back in a JoinGroup.
type pendingID struct {
	expires core.Time
	holds   core.Time // until then a rebalance waits for it; 0 when that is over
}

// member is a member of the classic protocol.
type member struct {
	id             string
	instance       *string
	clientID, host string
	session        time.Duration
	rebalance      time.Duration
	protocols      []protocol
	assignment     []byte
	joined         *waiter // waits in JoinGroup
	syncing        *waiter // waits in SyncGroup
	synced         bool    // has called SyncGroup in this generation
	expires        core.Time
	order          uint64
}

// protocol is an assignor that a member brings, with the member's metadata for it.
type protocol struct {
	name     string
	metadata []byte
}

// waiter is a request that waits.
type waiter struct {
	token Token
	join  *kmsg.JoinGroupRequest
	sync  *kmsg.SyncGroupRequest
}

func (k *classic) init() {
	*k = classic{
		since: -1, members: make(map[string]*member), static: make(map[string]string), pending: make(map[string]pendingID),
		joinBy: core.Never, notBefore: core.Never, syncBy: core.Never, retry: core.Never,
	}
}

// ids returns the members' ids in order.
func (k *classic) ids() []string { return slices.Sorted(maps.Keys(k.members)) }

// find finds the member that a request says it comes from.
func (k *classic) find(id string, instance *string) (*member, int16) {
	if instance != nil {
		owner, ok := k.static[*instance]
		if !ok {
			return nil, errUnknownMemberID
		}
		if owner != id {
			return nil, errFencedInstanceID
		}
	}
	if m := k.members[id]; m != nil {
		return m, errNone
	}
	return nil, errUnknownMemberID
}

// add adds a member; the first leads.
func (k *classic) add(m *member) {
	k.sequence++
	m.order = k.sequence
	k.members[m.id] = m
	if m.instance != nil {
		k.static[*m.instance] = m.id
	}
	if k.leader == "" {
		k.leader = m.id
	}
}

// remove removes a member. Its requests that wait are answered by the caller.
func (k *classic) remove(m *member) {
	delete(k.members, m.id)
	if m.instance != nil && k.static[*m.instance] == m.id {
		delete(k.static, *m.instance)
	}
	if k.leader == m.id {
		k.leader = ""
		k.elect(func(*member) bool { return true })
	}
}

// elect makes of those members that a condition holds for the one leader that joined first.
func (k *classic) elect(may func(*member) bool) bool {
	var best *member
	for _, id := range k.ids() {
		if m := k.members[id]; may(m) && (best == nil || m.order < best.order) {
			best = m
		}
	}
	if best != nil {
		k.leader = best.id
	}
	return best != nil
}

// allJoined says whether a rebalance waits for nobody any more.
func (k *classic) allJoined(now core.Time) bool {
	waits := 0
	for _, m := range k.members {
		if m.joined == nil {
			waits++
		}
	}
	for _, p := range k.pending {
		if now < p.holds {
			waits++
		}
	}
	return waits == 0
}

// supports says whether a joining member has the group's protocol type, and an assignor that all others have.
func (k *classic) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if len(k.members) == 0 {
		return true
	}
	n := k.support()
	return protocolType == k.protocolType && slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		return n[p.Name] == len(k.members)
	})
}

// support counts the members that have each assignor.
func (k *classic) support() map[string]int {
	n := make(map[string]int)
	for _, id := range k.ids() {
		for _, p := range k.members[id].protocols {
			n[p.name]++
		}
	}
	return n
}

// choose chooses the assignor that most members prefer among those that all have; of equals the one that the leader prefers.
func (k *classic) choose() string {
	support, votes := k.support(), make(map[string]int)
	for _, id := range k.ids() {
		for _, p := range k.members[id].protocols {
			if support[p.name] == len(k.members) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for _, p := range k.members[k.leader].protocols {
		if votes[p.name] > votes[best] {
			best = p.name
		}
	}
	return best
}

// metadataOf returns a member's metadata for an assignor, nil if it does not have that one.
func (m *member) metadataOf(name string) []byte {
	for _, p := range m.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

// matches says whether the member joined with the same assignors and metadata.
func (m *member) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(p protocol, r kmsg.JoinGroupRequestProtocol) bool {
		return p.name == r.Name && slices.Equal(p.metadata, r.Metadata)
	})
}

// rebalanceTimeout is the longest of the members'.
func (k *classic) rebalanceTimeout() (d time.Duration) {
	for _, m := range k.members {
		d = max(d, m.rebalance)
	}
	return d
}

// read reads the subscriptions of consumers.
func (k *classic) read() {
	k.opaque, k.subscribed = false, nil
	if k.protocolType != protocolConsumer {
		return
	}
	k.subscribed = make(map[string]bool)
	for _, id := range k.ids() {
		s, ok := readSubscription(k.members[id].metadataOf(k.protocol))
		if !ok {
			k.opaque = true
			continue
		}
		for _, topic := range s.Topics {
			k.subscribed[topic] = true
		}
	}
}

// readSubscription reads what a consumer sends as its metadata. Versions that are not known yet are read as the last known.
func readSubscription(metadata []byte) (*kmsg.ConsumerMemberMetadata, bool) {
	s := kmsg.NewConsumerMemberMetadata()
	if len(metadata) < 2 || s.ReadFrom(metadata) != nil {
		return nil, false
	}
	return &s, true
}

// deadline is when the group's members or joins want to be looked at.
func (k *classic) deadline() core.Time {
	at := core.Earlier(core.Earlier(k.joinBy, k.notBefore), core.Earlier(k.syncBy, k.retry))
	for _, m := range k.members {
		if m.joined == nil && m.syncing == nil { // see due
			at = min(at, m.expires)
		}
	}
	for _, p := range k.pending {
		at = min(at, p.expires)
	}
	if k.state == preparing {
		for _, p := range k.pending {
			if p.holds != 0 {
				at = min(at, p.holds)
			}
		}
	}
	return at
}

// due is when the member's session ends. It does not while one of its requests waits: its connection is there.
func (m *member) due() core.Time {
	if m.joined != nil || m.syncing != nil {
		return core.Never
	}
	return m.expires
}
