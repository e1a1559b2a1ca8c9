package group

import (
	"maps"
	"slices"
	"time"

	"lockstep/core"
)

// consumer is a group's membership under KIP-848. All but the sessions is in records. The values in the maps are never
// changed, only replaced, so that a change that fails is undone by putting the old ones back.
type consumer struct {
	epoch       int32 // raised by each change of members, subscriptions or topics
	hash        int64 // of the subscribed topics and their partitions
	since       int64 // wall time of the epoch in the record, milliseconds: of a group without members, since when it has none
	targetEpoch int32 // the epoch that the target assignment was made for
	members     map[string]*subscriber
	target      map[string][]core.Partition // what each member is to have, sorted
	current     map[string]*current         // what each member has
	regexes     map[string]*resolved        // by pattern
	static      map[string]string           // member ids by instance id
	owners      map[core.Partition]string   // who has a partition, or has been told to give it up and has not said that it did

	recorded bool // it has its record in the log; a matter of loading only

	// soft
	sessions map[string]*session
	refresh  bool // topics have changed since the hash was made
}

// subscriber is a member: who it is and what it wants.
type subscriber struct {
	instance, rack *string
	clientID, host string
	topics         []string // sorted
	regex          *string
	rebalance      time.Duration
	assignor       *string
	classic        *bridge // of a member that speaks the classic protocol
}

// bridge is what a member of the classic protocol joined with.
type bridge struct {
	session   time.Duration
	protocols []protocol
}

// memberState is how far a member is on the way to its target, in the numbers of Kafka's records.
type memberState int8

const (
	reconciled memberState = 0
	unrevoked  memberState = 1 // has not yet said that it gave up what it was told to
	unreleased memberState = 2 // waits for what others have not yet given up
)

// current is what a member has.
type current struct {
	epoch, previous int32
	state           memberState
	assigned        []core.Partition // sorted
	revoking        []core.Partition // sorted
}

// leftForNow is the epoch of a static member that is gone and may come back (KIP-848).
const leftForNow = -2

// resolved is a pattern and the topics it matched.
type resolved struct {
	topics  []string // sorted
	version int64    // Kafka: of the metadata; here counted
	at      int64    // wall time, milliseconds
}

// session is what of a member is not in records; Never where a time is not set.
type session struct {
	expires  core.Time
	revokeBy core.Time // has to have given up its partitions
	joinBy   core.Time // classic: has to call JoinGroup
	syncBy   core.Time // classic: has to call SyncGroup
}

func newConsumer() *consumer {
	return &consumer{
		members: make(map[string]*subscriber), target: make(map[string][]core.Partition), current: make(map[string]*current),
		regexes: make(map[string]*resolved), static: make(map[string]string), owners: make(map[core.Partition]string),
		sessions: make(map[string]*session),
	}
}

func (k *consumer) ids() []string { return slices.Sorted(maps.Keys(k.members)) }

// state is the group's state as clients are shown it.
func (k *consumer) state() string {
	switch {
	case len(k.members) == 0:
		return "Empty"
	case k.epoch > k.targetEpoch:
		return "Assigning"
	}
	for _, id := range k.ids() {
		if cur := k.current[id]; cur.state != reconciled || cur.epoch != k.targetEpoch {
			return "Reconciling"
		}
	}
	return "Stable"
}

// topicsOf returns the topics that a member reads, sorted, whether they exist or not.
func (k *consumer) topicsOf(m *subscriber) []string {
	if m.regex == nil || k.regexes[*m.regex] == nil {
		return m.topics
	}
	all := slices.Concat(m.topics, k.regexes[*m.regex].topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// subscribed returns all topics that members read, sorted.
func (k *consumer) subscribed() []string {
	set := make(map[string]bool)
	for _, id := range k.ids() {
		for _, t := range k.topicsOf(k.members[id]) {
			set[t] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// deadline is when the group's members want to be looked at.
func (k *consumer) deadline() core.Time {
	at := core.Never
	if k == nil {
		return at
	}
	for _, s := range k.sessions {
		at = min(at, s.expires, s.revokeBy, s.joinBy, s.syncBy)
	}
	return at
}

// session returns the soft state of a member.
func (k *consumer) session(id string) *session {
	s := k.sessions[id]
	if s == nil {
		s = &session{core.Never, core.Never, core.Never, core.Never}
		k.sessions[id] = s
	}
	return s
}

// sessionTimeout is how long a member may be silent.
func (c *Coordinator) sessionTimeout(m *subscriber) time.Duration {
	if m.classic != nil {
		return m.classic.session
	}
	return c.cfg.ConsumerSession
}

// see begins a member's session anew.
func (c *Coordinator) see(g *group, id string) {
	m := g.consumer.members[id]
	if m == nil {
		return
	}
	s := g.consumer.session(id)
	s.expires = c.now.Add(c.sessionTimeout(m))
	c.wakeAt(g, s.expires)
}

// own notes who has the partitions of a member.
func (k *consumer) own(id string, before, after *current) {
	if before != nil {
		for _, list := range [][]core.Partition{before.assigned, before.revoking} {
			for _, p := range list {
				if k.owners[p] == id {
					delete(k.owners, p)
				}
			}
		}
	}
	if after != nil {
		for _, list := range [][]core.Partition{after.assigned, after.revoking} {
			for _, p := range list {
				k.owners[p] = id
			}
		}
	}
}

// free says whether a member may be given a partition: nobody else has it.
func (k *consumer) free(p core.Partition, id string) bool {
	owner, owned := k.owners[p]
	return !owned || owner == id
}

// tombstones erase all records of the group but its offsets. They are applied with the last one, so that the group is there
// until it is gone.
func (k *consumer) tombstones(g *group) (tombs []tombstone) {
	add := func(key []byte) { tombs = append(tombs, tombstone{key, func() {}}) }
	for _, id := range k.ids() {
		add(memberKey(keyCurrent, g.id, id))
		add(memberKey(keyTarget, g.id, id))
		add(memberKey(keyMember, g.id, id))
	}
	for _, re := range slices.Sorted(maps.Keys(k.regexes)) {
		add(memberKey(keyRegex, g.id, re))
	}
	add(groupKey(keyTargetEpoch, g.id))
	tombs = append(tombs, tombstone{groupKey(keyGroup, g.id), func() { g.consumer = nil }})
	return tombs
}

// Sorted sets of partitions.

func union(a, b []core.Partition) []core.Partition {
	out := slices.Concat(a, b)
	slices.SortFunc(out, core.Partition.Compare)
	return slices.Compact(out)
}

func has(set []core.Partition, p core.Partition) bool {
	_, ok := slices.BinarySearchFunc(set, p, core.Partition.Compare)
	return ok
}

// split divides a set into what is also in another and what is not.
func split(set, other []core.Partition) (in, out []core.Partition) {
	for _, p := range set {
		if has(other, p) {
			in = append(in, p)
		} else {
			out = append(out, p)
		}
	}
	return in, out
}

func subset(a, of []core.Partition) bool {
	_, out := split(a, of)
	return len(out) == 0
}

func disjoint(a, b []core.Partition) bool {
	in, _ := split(a, b)
	return len(in) == 0
}
