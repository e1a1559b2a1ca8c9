package group

import (
	"slices"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A process whose place in an upgraded group another one has taken is told so when it commits. Told that it is unknown it would take its
// place back, and so would the other, for ever.
func TestACommitFromATakenPlaceIsFenced(t *testing.T) {
	w := newWorld(t)
	e, a := w.eager("g", ptr("one")), w.consumer("g", "t")
	require.Zero(t, e.join().joined().ErrorCode)
	require.Zero(t, e.sync().synced())
	a.beat()
	require.Contains(t, w.list(nil, nil)[0], "g consumer")
	stale := *e.classicMember
	e.id = ""
	require.Zero(t, e.join().joined().ErrorCode)
	require.NotEqual(t, stale.id, e.id)
	require.Equal(t, errFencedInstanceID, stale.commit(1))
	stale.instance = nil
	require.Equal(t, errUnknownMemberID, stale.commit(1))
}

// Static members are upgraded one after another: each is started again with the new protocol, within its session and without having left.
// UNRELEASED_INSTANCE_ID would end its client.
func TestStaticMembersAreUpgraded(t *testing.T) {
	w := newWorld(t)
	a, b := w.statics()
	x, y := w.consumer("g", "t"), w.consumer("g", "t")
	x.instance, y.instance = b.instance, a.instance
	require.Zero(t, x.beat())
	require.Equal(t, []string{"g consumer Reconciling"}, w.list(nil, nil))
	require.Equal(t, errFencedInstanceID, b.heartbeat())
	require.Equal(t, errRebalanceInProgress, a.heartbeat())
	w.failover(0)
	require.Zero(t, y.beat())
	require.Equal(t, errFencedInstanceID, a.heartbeat())
	w.settleConsumers(x, y)
	require.Equal(t, 4, all(x, y))
	require.Len(t, w.describeConsumer("g").Members, 2)
	thief := w.consumer("g", "t")
	thief.instance = x.instance
	require.Equal(t, errUnreleasedInstanceID, thief.beat())
}

// So is what static members are taken back to: with the last of them the group is classic again, and its own assignor assigns.
func TestStaticMembersAreDowngraded(t *testing.T) {
	for _, policy := range []string{MigrateBothWays, MigrateUp} {
		w := newWorld(t, func(c *Config) { c.Migration = policy })
		x, y := w.consumer("g", "t"), w.consumer("g", "t")
		x.instance, y.instance = ptr("one"), ptr("two")
		require.Zero(t, x.beat())
		require.Zero(t, y.beat())
		w.settleConsumers(x, y)
		a, b := w.eager("g", x.instance), w.eager("g", y.instance)
		require.Zero(t, a.join().joined().ErrorCode)
		require.Zero(t, a.sync().synced())
		require.Contains(t, w.list(nil, nil)[0], "g consumer")
		b.join()
		if policy == MigrateUp {
			require.Zero(t, b.joined().ErrorCode)
			require.Contains(t, w.list(nil, nil)[0], "g consumer")
			continue
		}
		require.Equal(t, []string{"g classic PreparingRebalance"}, w.list(nil, nil))
		require.Equal(t, errFencedInstanceID, y.beat(), "if that one is alive")
		a.join()
		require.Zero(t, a.joined().ErrorCode)
		require.Zero(t, b.joined().ErrorCode)
		require.Equal(t, a.generation, b.generation)
		a.syncAssigning()
		b.syncAssigning()
		require.Zero(t, a.take())
		require.Zero(t, b.take())
		require.Len(t, union(a.owned, b.owned), 4)
		w.failover(0)
		require.Equal(t, []string{"g classic Stable"}, w.list(nil, nil))
		require.Zero(t, a.heartbeat())
		require.Zero(t, b.heartbeat())
	}
}

// A cooperative member of an upgraded group that joins again before it has heard what it is assigned says what it has of the generation
// before: nobody else is given that.
func TestWhatAMemberStillHasIsNotGivenAway(t *testing.T) {
	w := newWorld(t)
	n, c := w.consumer("g", "t"), w.eager("g", nil)
	join := func(generation int32) {
		s := kmsg.ConsumerMemberMetadata{Version: 2, Topics: []string{"t"}, Generation: generation}
		x := kmsg.ConsumerMemberMetadataOwnedPartition{Topic: "t"}
		for _, p := range c.owned {
			x.Partitions = append(x.Partitions, p.Index)
		}
		if len(x.Partitions) > 0 {
			s.OwnedPartitions = append(s.OwnedPartitions, x)
		}
		c.metadata = s.AppendTo(nil)
		require.Zero(t, c.join().joined().ErrorCode)
	}
	require.Zero(t, n.beat())
	for range 6 {
		if c.id == "" || c.heartbeat() == errRebalanceInProgress {
			join(c.generation)
			c.syncAssigning()
			require.Zero(t, c.take())
		}
		require.Zero(t, n.beat())
	}
	require.Len(t, c.owned, 2)
	had := c.generation

	other := w.consumer("g", "u")
	require.Zero(t, other.beat())
	require.Equal(t, errRebalanceInProgress, c.heartbeat())
	join(had)
	require.Greater(t, c.generation, had)
	more := []*newMember{n, other, w.consumer("g", "t"), w.consumer("g", "t")}
	for range 4 {
		for _, m := range more {
			require.Zero(t, m.beat())
		}
	}
	join(had)
	for range 4 {
		for _, m := range more {
			require.Zero(t, m.beat())
			for _, p := range c.owned {
				require.NotContains(t, m.owned, p, "it has not heard that it is to give it up")
			}
		}
	}
}

// A cooperative member learns by a rebalance what it is to give up, and has it until it joins again. A group that becomes one of KIP-848
// in between gives it to nobody else.
func TestWhatAMemberHasNotYetGivenUpIsNotGivenAwayByAnUpgrade(t *testing.T) {
	w := newWorld(t)
	a, b := w.eager("g", nil), w.eager("g", nil)
	settleEager(w, a)
	require.Len(t, a.owned, 4)
	s := kmsg.ConsumerMemberMetadata{Version: 2, Topics: []string{"t"}, Generation: a.generation,
		OwnedPartitions: []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "t", Partitions: []int32{0, 1, 2, 3}}}}
	a.metadata = s.AppendTo(nil)
	settleEager(w, a, b) // a test's leader lets b have its part at once; a cooperative one would wait for the next rebalance
	require.Len(t, a.owned, 2)
	b.leave()

	n := w.consumer("g", "t")
	for range 4 {
		require.Zero(t, n.beat())
		require.Empty(t, n.owned, "the old member has them still")
	}
	require.Equal(t, errRebalanceInProgress, a.heartbeat())
	s.OwnedPartitions[0].Partitions = nil
	for _, p := range a.owned {
		s.OwnedPartitions[0].Partitions = append(s.OwnedPartitions[0].Partitions, p.Index)
	}
	a.metadata = s.AppendTo(nil)
	require.Zero(t, a.join().joined().ErrorCode)
	require.Zero(t, n.beat())
	require.Len(t, n.owned, 2)
}

// eager is a consumer of the classic protocol that really assigns: as a leader by turns, and it reads what it is assigned.
type eager struct {
	*classicMember
	owned []core.Partition
}

func (w *world) eager(group string, instance *string) *eager {
	e := &eager{classicMember: w.member(group)}
	e.instance = instance
	return e
}

// request is its SyncGroup; a leader deals out the partitions of t.
func (e *eager) request() *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 5, e.group, e.id, e.instance, e.generation
	if e.leader {
		for i, o := range e.others {
			a := kmsg.NewConsumerMemberAssignment()
			x := kmsg.NewConsumerMemberAssignmentTopic()
			x.Topic = "t"
			for p := int32(i); p < 4; p += int32(len(e.others)) {
				x.Partitions = append(x.Partitions, p)
			}
			a.Topics = append(a.Topics, x)
			y := kmsg.NewSyncGroupRequestGroupAssignment()
			y.MemberID, y.MemberAssignment = o.MemberID, a.AppendTo(nil)
			r.GroupAssignment = append(r.GroupAssignment, y)
		}
	}
	return r
}

func (e *eager) syncAssigning() { e.token = e.w.send(e.request()) }

func (e *eager) take() int16 {
	code := e.synced()
	if code == errNone {
		e.owned = e.w.c.readAssignment(e.assignment)
	}
	return code
}

// round does what a client does in one round: a heartbeat, and a new join if it says so.
func (e *eager) round() {
	switch code := e.heartbeat(); code {
	case errNone:
		return
	case errRebalanceInProgress:
	default:
		e.id, e.generation = "", -1
	}
	e.owned = nil // before it joins it gives up everything
	e.join()
}

func (e *eager) finish() bool {
	if a := answerTo[*kmsg.JoinGroupResponse](e.w, e.token); a == nil || e.joined().ErrorCode != errNone {
		return false
	}
	e.syncAssigning()
	return true
}

func settleEager(w *world, es ...*eager) {
	for _, e := range es {
		e.join()
	}
	for range 3 {
		for _, e := range es {
			if e.joined(); e.heartbeat() == errRebalanceInProgress {
				e.join()
			}
		}
	}
	for _, e := range es {
		e.joined()
		e.syncAssigning()
	}
	for _, e := range es {
		require.Zero(w.t, e.take())
	}
}

// TestOnlineMigration takes a group of two classic members to KIP-848, one by one, and back.
func TestOnlineMigration(t *testing.T) {
	w := newWorld(t)
	a, b := w.eager("g", nil), w.eager("g", ptr("static"))
	settleEager(w, a, b)
	require.Zero(t, a.commit(5))
	n := w.consumer("g", "t")
	rounds := func(es ...*eager) {
		for range 12 {
			for _, e := range es {
				e.round()
				if e.finish() {
					e.take()
				}
				var owners []*newMember
				for _, x := range es {
					owners = append(owners, &newMember{id: x.id, owned: x.owned})
				}
				if n.beat(); n.epoch > 0 {
					owners = append(owners, n)
				}
				w.exclusive(owners...)
			}
			w.sleep(time.Second)
		}
	}
	rounds(a, b)
	require.Equal(t, []string{"g consumer Stable"}, w.list(nil, nil))
	require.Equal(t, 4, len(a.owned)+len(b.owned)+len(n.owned))
	require.NotEmpty(t, n.owned)
	require.Zero(t, a.commit(6))
	d := w.describeConsumer("g")
	require.Len(t, d.Members, 3)
	require.Equal(t, []int8{0, 0, 1}, func() (types []int8) {
		for _, m := range d.Members {
			types = append(types, m.MemberType)
		}
		slices.Sort(types)
		return types
	}())
	w.failover(0)
	require.Zero(t, a.heartbeat())
	require.Zero(t, b.heartbeat())
	require.Zero(t, n.beat())

	// the static one restarts, still classic
	old := b.id
	b.id, b.owned = "", nil
	b.join()
	require.Zero(t, b.joined().ErrorCode)
	require.NotEqual(t, old, b.id)
	b.syncAssigning()
	require.Zero(t, b.take())
	rounds(a, b)
	require.Equal(t, 4, len(a.owned)+len(b.owned)+len(n.owned))

	// the new one goes: the group is classic again
	require.Zero(t, n.leave(-1))
	require.Equal(t, "PreparingRebalance", w.state("g"))
	w.failover(0)
	require.Equal(t, "Stable", w.state("g"), "as its record says")
	settleEager(w, a, b)
	require.Equal(t, 4, len(a.owned)+len(b.owned))
	require.EqualValues(t, 6, w.fetch("g", "t"))
}

func TestMigrationThatIsNotAllowed(t *testing.T) {
	for _, policy := range []string{MigrateNever, MigrateDown} {
		w := newWorld(t, func(c *Config) { c.Migration = policy })
		w.stable("g", 1)
		n := w.consumer("g", "t")
		require.Equal(t, errGroupIDNotFound, n.beat())
		require.Equal(t, []string{"g classic Stable"}, w.list(nil, nil))
	}
	w := newWorld(t)
	m := w.member("g")
	m.metadata = []byte("?")
	w.settleClassic([]*classicMember{m})
	require.Equal(t, errGroupIDNotFound, w.consumer("g", "t").beat(), "what it reads is not known")

	w = newWorld(t, func(c *Config) { c.Migration = MigrateUp })
	a := w.eager("g", nil)
	settleEager(w, a)
	n := w.consumer("g", "t")
	require.Zero(t, n.beat())
	require.Zero(t, n.leave(-1))
	require.Equal(t, "consumer", w.c.parts[0].groups["g"].view().kind)
}

func TestMigrationThatIsNotWritten(t *testing.T) {
	w := newWorld(t)
	a, b := w.eager("g", nil), w.eager("g", nil)
	settleEager(w, a, b)
	w.hold = true
	n := w.consumer("g", "t")
	w.send(n.request())
	require.Equal(t, []string{"g classic Stable"}, w.list(nil, nil))
	w.failOne(19)
	w.hold = false
	require.Zero(t, a.heartbeat())
	require.Equal(t, "Stable", w.state("g"))
	require.Zero(t, n.beat())
	w.hold = true
	before := kept(w.c)
	r := n.request()
	r.MemberEpoch = -1
	w.send(r)
	require.Equal(t, "consumer", w.list(nil, nil)[0][2:10])
	w.failOne(19)
	require.Equal(t, before, kept(w.c))
}

func TestClassicMembersThatDoNotGoOn(t *testing.T) {
	w := newWorld(t)
	a, b := w.eager("g", nil), w.eager("g", nil)
	a.rebalance, b.rebalance = 20*time.Second, 20*time.Second
	settleEager(w, a, b)
	n := w.consumer("g", "t")
	require.Zero(t, n.beat())
	for range 4 { // a lives, and does not join; b joins, and does not fetch its assignment
		require.Equal(t, errRebalanceInProgress, a.heartbeat())
		w.sleep(4 * time.Second)
		n.beat()
	}
	b.id = ask[*kmsg.JoinGroupResponse](w, func() *kmsg.JoinGroupRequest { b.id = ""; return b.joinRequest() }()).MemberID
	require.Zero(t, b.join().joined().ErrorCode)
	require.Len(t, w.describeConsumer("g").Members, 3, "the old b has gone: its session ended")
	for range 6 {
		w.sleep(4 * time.Second)
		b.heartbeat()
		n.beat()
	}
	require.Len(t, w.describeConsumer("g").Members, 1)
	w.settleConsumers(n)
	require.Len(t, n.owned, 4)
}

func TestRefusedClassicJoins(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ConsumerMaxSize = 2 })
	n := w.consumer("g", "t")
	require.Zero(t, n.beat())
	e := w.eager("g", nil)
	e.join().joined()
	require.Zero(t, e.heartbeat())
	for _, c := range []struct {
		code   int16
		change func(*kmsg.JoinGroupRequest)
	}{
		{errMemberIDRequired, func(r *kmsg.JoinGroupRequest) {}},
		{errGroupMaxSizeReached, func(r *kmsg.JoinGroupRequest) { r.MemberID = "x" }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" }},
		{errInconsistentProtocol, func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Metadata = nil }},
		{errUnknownMemberID, func(r *kmsg.JoinGroupRequest) { r.MemberID, r.InstanceID = "x", ptr("i") }},
		{errUnknownMemberID, func(r *kmsg.JoinGroupRequest) { // was removed while it was silent, and would commit for what others have now
			s := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"t"}}
			s.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "t", Partitions: []int32{0}}}
			r.MemberID, r.Protocols[0].Metadata = "x", s.AppendTo(nil)
		}},
	} {
		r := w.member("g").joinRequest()
		c.change(r)
		require.Equal(t, c.code, ask[*kmsg.JoinGroupResponse](w, r).ErrorCode)
	}
	wrong := *e.classicMember
	wrong.generation++
	require.Equal(t, errIllegalGeneration, wrong.heartbeat())
	wrong.sync()
	require.Equal(t, errIllegalGeneration, wrong.synced())
	wrong.id, wrong.generation = n.id, n.epoch
	require.Equal(t, errUnknownMemberID, wrong.heartbeat(), "it does not speak that protocol")
	require.Equal(t, errUnknownMemberID, wrong.leave())
	require.Zero(t, e.leave())
	require.Equal(t, errUnknownMemberID, e.leave())
}

// TestNumbersGoOn: a group without members that changes its protocol goes on with its generations or epochs, also in the next coordinator:
// what a former member has sent is never taken for something that a member of now has sent.
func TestNumbersGoOn(t *testing.T) {
	w := newWorld(t)
	n := w.consumer("g", "t")
	for range 3 {
		require.Zero(t, n.beat())
		require.Zero(t, n.leave(-1))
		n.epoch = 0
	}
	last := w.describeConsumer("g").Epoch
	require.Greater(t, last, int32(4))
	a := w.eager("g", nil)
	settleEager(w, a)
	require.Greater(t, a.generation, last)
	last = a.generation
	require.Zero(t, a.leave())
	w.failover(0)
	require.Zero(t, n.beat())
	require.Greater(t, n.epoch, last)
	require.Zero(t, n.leave(-1))
	n.epoch = 0
	last = w.describeConsumer("g").Epoch
	b := w.member("g")
	require.Equal(t, errMemberIDRequired, ask[*kmsg.JoinGroupResponse](w, b.joinRequest()).ErrorCode)
	w.failover(0) // nobody has joined, and the group is a classic one
	c := w.eager("g", nil)
	settleEager(w, c)
	require.Greater(t, c.generation, last)
}

// A group of KIP-848 that has only classic members left, and does not become classic again, gives them the partitions that a topic grows by.
func TestClassicMembersOfAConsumerGroupGetNewPartitions(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Migration = MigrateUp })
	a := w.eager("g", nil)
	settleEager(w, a)
	n := w.consumer("g", "t")
	round := func() {
		for range 12 {
			if a.round(); a.finish() {
				a.take()
			}
			w.sleep(time.Second)
		}
	}
	require.Zero(t, n.beat())
	require.Zero(t, n.leave(-1))
	round()
	require.Equal(t, []string{"g consumer Stable"}, w.list(nil, nil))
	require.Len(t, a.owned, 4)
	w.topics.parts["t"] = 6
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.collect()
	round()
	require.Len(t, a.owned, 6)
}
