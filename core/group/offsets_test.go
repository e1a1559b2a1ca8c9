package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitTo commits as nobody's member, and returns the error of each topic's partition.
func (w *world) commitTo(group string, offsets map[string]int64) (codes []int16) {
	a := ask[*kmsg.OffsetCommitResponse](w, commitRequest(group, "", -1, offsets))
	for _, t := range a.Topics {
		codes = append(codes, t.Partitions[0].ErrorCode)
	}
	return codes
}

func TestCommitInEveryVersion(t *testing.T) {
	w := newWorld(t)
	id := w.topics.ids["t"]
	for v := int16(2); v <= 10; v++ {
		group := fmt.Sprint("g", v)
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version, r.Group, r.RetentionTimeMillis = v, group, -1
		x := kmsg.NewOffsetCommitRequestTopic()
		x.Topic, x.TopicID = "t", id
		for i := range int32(2) {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch = i, int64(100+i), 7
			if i == 1 {
				p.Metadata = ptr("héllo")
			}
			x.Partitions = append(x.Partitions, p)
		}
		r.Topics = append(r.Topics, x)
		a := ask[*kmsg.OffsetCommitResponse](w, r)
		require.Zero(t, a.Topics[0].Partitions[0].ErrorCode)
		if v >= 10 {
			require.EqualValues(t, id, a.Topics[0].TopicID)
		} else {
			require.Equal(t, "t", a.Topics[0].Topic)
		}
	}
	for range 2 {
		for v := int16(2); v <= 10; v++ {
			for f := int16(1); f <= 10; f++ {
				epoch := int32(7)
				if v < 6 || f < 5 {
					epoch = -1
				}
				require.Equal(t, []string{fmt.Sprintf("0 100 %d %q 0", epoch, ""), fmt.Sprintf("1 101 %d %q 0", epoch, "héllo"), `2 -1 -1 "" 0`},
					w.fetchVersion(f, fmt.Sprint("g", v), []int32{0, 1, 2}), "committed with %d, fetched with %d", v, f)
				if f >= 2 {
					require.Len(t, w.fetchVersion(f, fmt.Sprint("g", v), nil), 2)
				}
			}
		}
		w.failover(0)
	}
}

// fetchVersion fetches partitions of t, or all of the group if there are none.
func (w *world) fetchVersion(version int16, group string, parts []int32) (out []string) {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.Group, r.RequireStable = version, group, true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if parts != nil {
		x := kmsg.NewOffsetFetchRequestTopic()
		x.Topic, x.Partitions = "t", parts
		r.Topics = append(r.Topics, x)
		y := kmsg.NewOffsetFetchRequestGroupTopic()
		y.Topic, y.TopicID, y.Partitions = "t", w.topics.ids["t"], parts
		g.Topics = append(g.Topics, y)
	}
	r.Groups = append(r.Groups, g)
	a := ask[*kmsg.OffsetFetchResponse](w, r)
	show := func(p, epoch int32, offset int64, metadata *string, code int16) {
		require.NotNil(w.t, metadata, "metadata is never null")
		out = append(out, fmt.Sprintf("%d %d %d %q %d", p, offset, epoch, *metadata, code))
	}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			show(p.Partition, p.LeaderEpoch, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range a.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				show(p.Partition, p.LeaderEpoch, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	return out
}

func TestRefusedCommits(t *testing.T) {
	w := newWorld(t)
	r := commitRequest("g", "", -1, map[string]int64{"gone": 1, "t": 2, "u": 3})
	r.Topics[1].Partitions[0].Metadata = ptr(strings.Repeat("x", 4097))
	bad := kmsg.NewOffsetCommitRequestTopicPartition()
	bad.Partition = 3
	r.Topics[2].Partitions = append(r.Topics[2].Partitions, bad)
	bad.Partition = -1
	r.Topics[2].Partitions = append(r.Topics[2].Partitions, bad)
	a := ask[*kmsg.OffsetCommitResponse](w, r)
	require.Equal(t, errUnknownTopicOrPartition, a.Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, errOffsetMetadataTooLarge, a.Topics[1].Partitions[0].ErrorCode)
	require.Zero(t, a.Topics[2].Partitions[0].ErrorCode, "the rest is unharmed")
	require.Equal(t, errUnknownTopicOrPartition, a.Topics[2].Partitions[1].ErrorCode)
	require.Equal(t, errUnknownTopicOrPartition, a.Topics[2].Partitions[2].ErrorCode)
	require.EqualValues(t, 3, w.fetch("g", "u"))
	require.EqualValues(t, -1, w.fetch("g", "t"))

	byID := kmsg.NewPtrOffsetCommitRequest()
	byID.Version, byID.Group = 10, "g"
	x := kmsg.NewOffsetCommitRequestTopic()
	x.TopicID = core.TopicID{9}
	x.Partitions = append(x.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	byID.Topics = append(byID.Topics, x)
	require.Equal(t, errUnknownTopicID, ask[*kmsg.OffsetCommitResponse](w, byID).Topics[0].Partitions[0].ErrorCode)

	for code, want := range map[int16]int16{19: errCoordinatorNotAvailable, 20: errCoordinatorNotAvailable, 6: errNotCoordinator,
		56: errNotCoordinator, 10: errInvalidCommitOffsetSize, 18: errInvalidCommitOffsetSize} {
		w.hold = true
		token := w.send(commitRequest("g", "", -1, map[string]int64{"gone": 1, "t": 2}))
		w.failOne(code)
		a := answerTo[*kmsg.OffsetCommitResponse](w, token)
		require.Equal(t, errUnknownTopicOrPartition, a.Topics[0].Partitions[0].ErrorCode)
		require.Equal(t, want, a.Topics[1].Partitions[0].ErrorCode)
	}
	w.release()
	require.EqualValues(t, -1, w.fetch("g", "t"))
}

// E02: a commit is answered, and seen, when it is committed.
func TestE02CommitIsAnsweredWhenCommitted(t *testing.T) {
	w := newWorld(t)
	w.commitTo("g", map[string]int64{"t": 1})
	w.hold = true
	two := w.send(commitRequest("g", "", -1, map[string]int64{"t": 2}))
	three := w.send(commitRequest("g", "", -1, map[string]int64{"t": 3}))
	require.Nil(t, answerTo[*kmsg.OffsetCommitResponse](w, two))
	require.EqualValues(t, 1, w.fetch("g", "t"), "what is not committed is not there")
	w.commitOne()
	require.NotNil(t, answerTo[*kmsg.OffsetCommitResponse](w, two))
	require.Nil(t, answerTo[*kmsg.OffsetCommitResponse](w, three))
	require.EqualValues(t, 2, w.fetch("g", "t"))
	w.failover(0) // the third did not make it
	require.Equal(t, errNotCoordinator, answerTo[*kmsg.OffsetCommitResponse](w, three).Topics[0].Partitions[0].ErrorCode)
	require.EqualValues(t, 2, w.fetch("g", "t"))
}

// E03: a member that slept over a rebalance does not put the offset back.
func TestE03StaleCommits(t *testing.T) {
	w := newWorld(t)
	a := w.stable("g", 1)[0]
	require.Zero(t, a.commit(5))
	require.Equal(t, []int16{errUnknownMemberID}, w.commitTo("g", map[string]int64{"t": 1}), "the group has members")
	old := *a
	a.metadata = subscription("t", "u")
	a.join()
	require.Equal(t, errRebalanceInProgress, func() int16 { a.joined(); return a.commit(6) }())
	require.Equal(t, errIllegalGeneration, old.commit(4))
	require.Zero(t, a.sync().synced())
	require.Zero(t, a.commit(7))
	require.Equal(t, errIllegalGeneration, old.commit(4))
	old.id = "x"
	require.Equal(t, errUnknownMemberID, old.commit(4))
	old.group = "none"
	require.Equal(t, errIllegalGeneration, old.commit(4))
	require.EqualValues(t, 7, w.fetch("g", "t"))

	b := w.consumer("k", "t")
	b.beat()
	commit := func(epoch int32, version int16) int16 {
		r := commitRequest("k", b.id, epoch, map[string]int64{"t": 9})
		r.Version = version
		return ask[*kmsg.OffsetCommitResponse](w, r).Topics[0].Partitions[0].ErrorCode
	}
	require.Zero(t, commit(b.epoch, 9))
	c := w.consumer("k", "t")
	c.beat()
	w.settleConsumers(b, c)
	require.Equal(t, errStaleMemberEpoch, commit(b.epoch-1, 9))
	require.Equal(t, errStaleMemberEpoch, commit(b.epoch+1, 9))
	require.Equal(t, errUnsupportedVersion, commit(b.epoch, 8))
	require.Equal(t, []int16{errUnknownMemberID}, w.commitTo("k", map[string]int64{"t": 1}))
	b.id = "x"
	require.Equal(t, errUnknownMemberID, commit(b.epoch, 9))
}

func TestCommitWhileOthersJoin(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	w.member("g").join()
	require.Equal(t, "PreparingRebalance", w.state("g"))
	w.sleep(9 * time.Second)
	require.Zero(t, m.commit(3), "it has to be able to, before it gives up its partitions")
	w.sleep(9 * time.Second)
	require.Equal(t, errRebalanceInProgress, m.heartbeat(), "and that was a sign of life")
}

func TestFetchErrors(t *testing.T) {
	w := newWorld(t)
	w.c.Resign(w.now, 0, &w.out)
	fetch := func(version int16) (code int16) {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version, r.Group = version, "g"
		x := kmsg.NewOffsetFetchRequestTopic()
		x.Topic, x.Partitions = "t", []int32{0}
		r.Topics = append(r.Topics, x)
		r.Groups = append(r.Groups, kmsg.NewOffsetFetchRequestGroup())
		a := ask[*kmsg.OffsetFetchResponse](w, r)
		switch {
		case version >= 8:
			return a.Groups[0].ErrorCode
		case version >= 2:
			return a.ErrorCode
		}
		return a.Topics[0].Partitions[0].ErrorCode
	}
	for v := int16(1); v <= 10; v++ {
		require.Equal(t, errNotCoordinator, fetch(v))
	}
	w.c.Lead(0, 5)
	for v := int16(1); v <= 10; v++ {
		require.Equal(t, errCoordinatorLoading, fetch(v), "rule 20")
	}
	w.c.Loaded(w.now, w.wall(), 0, &w.out)
	m := w.consumer("k", "t")
	m.beat()
	member := func(group string, id *string, epoch int32) int16 {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version = 9
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = group, id, epoch
		r.Groups = append(r.Groups, g)
		return ask[*kmsg.OffsetFetchResponse](w, r).Groups[0].ErrorCode
	}
	require.Zero(t, member("k", &m.id, m.epoch))
	require.Equal(t, errStaleMemberEpoch, member("k", &m.id, m.epoch+1))
	require.Equal(t, errUnknownMemberID, member("k", ptr("x"), m.epoch))
	require.Equal(t, errUnknownMemberID, member("k", nil, m.epoch))
	require.Equal(t, errGroupIDNotFound, member("none", &m.id, m.epoch))
	require.Zero(t, member("none", nil, -1))
}

func TestOffsetsExpire(t *testing.T) {
	day := 24 * time.Hour
	w := newWorld(t)
	m := w.member("g") // reads t
	m.session = 30 * time.Minute
	w.settleClassic([]*classicMember{m})
	live := func(d time.Duration) {
		for end := w.now.Add(d); w.now < end; {
			w.sleep(20 * time.Minute)
			require.Zero(t, m.heartbeat())
		}
	}
	r := commitRequest("g", m.id, m.generation, map[string]int64{"t": 1, "u": 2})
	ask[*kmsg.OffsetCommitResponse](w, r)
	w.commitTo("simple", map[string]int64{"t": 3})
	brief := commitRequest("brief", "", -1, map[string]int64{"t": 4})
	brief.Version, brief.RetentionTimeMillis = 4, int64(time.Hour/time.Millisecond)
	ask[*kmsg.OffsetCommitResponse](w, brief)
	w.failover(0)
	live(time.Hour / 2)
	require.EqualValues(t, 4, w.fetch("brief", "t"))
	live(time.Hour)
	require.EqualValues(t, -1, w.fetch("brief", "t"), "what an old client asked for")
	live(6 * day)
	require.EqualValues(t, 3, w.fetch("simple", "t"))
	live(day)
	require.EqualValues(t, -1, w.fetch("simple", "t"))
	require.EqualValues(t, -1, w.fetch("g", "u"), "its members do not read it any more")
	require.EqualValues(t, 1, w.fetch("g", "t"))
	require.Zero(t, m.leave())
	w.sleep(7*day - time.Hour)
	require.EqualValues(t, 1, w.fetch("g", "t"), "counted from when the group became empty")
	require.Len(t, w.list(nil, nil), 1)
	w.sleep(2 * time.Hour)
	require.Empty(t, w.list(nil, nil))
	w.failover(0)
	require.Empty(t, w.list(nil, nil))
}

// A group of KIP-848 that reads for longer than offsets are kept, without anything new to commit, is then without members for a moment,
// as where its consumers are replaced. A new coordinator knows of that moment as well.
func TestOffsetsExpireAfterAConsumerGroupIsEmpty(t *testing.T) {
	day := 24 * time.Hour
	w := newWorld(t)
	m := w.consumer("k", "t")
	live := func(d time.Duration) {
		for end := w.now.Add(d); w.now < end; {
			require.Zero(t, m.beat())
			w.sleep(40 * time.Second)
		}
	}
	require.Zero(t, m.beat())
	ask[*kmsg.OffsetCommitResponse](w, commitRequest("k", m.id, m.epoch, map[string]int64{"t": 1}))
	live(8 * day)
	require.Zero(t, m.leave(-1))
	w.sleep(time.Hour)
	require.EqualValues(t, 1, w.fetch("k", "t"))
	w.failover(0)
	w.sleep(6 * day)
	require.EqualValues(t, 1, w.fetch("k", "t"), "counted from when the group became empty")
	require.Equal(t, []int16{0}, w.commitTo("k", map[string]int64{"u": 2}))
	w.sleep(day)
	require.EqualValues(t, -1, w.fetch("k", "t"))
	require.EqualValues(t, 2, w.fetch("k", "u"))
	w.sleep(7 * day)
	require.Empty(t, w.list(nil, nil))
}

// Who sets the offset of a group that has been empty for long, as to process something again, finds it when the group begins.
func TestAnOffsetSetByHandIsKept(t *testing.T) {
	day := 24 * time.Hour
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	require.Zero(t, m.commit(5))
	require.Zero(t, m.leave())
	w.sleep(7*day - time.Hour)
	require.Equal(t, []int16{0}, w.commitTo("g", map[string]int64{"t": 1}))
	w.sleep(6 * day)
	require.EqualValues(t, 1, w.fetch("g", "t"))
	w.sleep(2 * day)
	require.EqualValues(t, -1, w.fetch("g", "t"))
}

// A consumer that assigns partitions to itself may send its instance id with what it commits (librdkafka does).
func TestAnInstanceCommitsWithoutMembership(t *testing.T) {
	w := newWorld(t)
	r := commitRequest("g", "", -1, map[string]int64{"t": 4})
	r.InstanceID = ptr("i")
	require.Zero(t, ask[*kmsg.OffsetCommitResponse](w, r).Topics[0].Partitions[0].ErrorCode)
	require.EqualValues(t, 4, w.fetch("g", "t"))
	w.stable("h", 1)
	r.Group = "h"
	require.Equal(t, errUnknownMemberID, ask[*kmsg.OffsetCommitResponse](w, r).Topics[0].Partitions[0].ErrorCode, "the group has members")
}

func TestManyGroupsExpire(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RetentionCheck = 6 * time.Hour })
	for i := range 3 * sweepGroups {
		w.commitTo(fmt.Sprint(i), map[string]int64{"t": 1})
	}
	w.sleep(7*24*time.Hour + 13*time.Hour)
	require.Empty(t, w.list(nil, nil))
	require.Empty(t, w.c.parts[0].groups)
}

func TestOffsetsGoWithTheirTopic(t *testing.T) {
	w := newWorld(t)
	w.commitTo("g", map[string]int64{"t": 1, "u": 2})
	w.topics.drop("t")
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.collect()
	require.EqualValues(t, -1, w.fetch("g", "t"))
	require.EqualValues(t, 2, w.fetch("g", "u"))
	w.topics.create("t", 4)
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.failover(0)
	require.EqualValues(t, -1, w.fetch("g", "t"))
	w.topics.create("u", 3) // deleted and made again while nobody led
	w.failover(0)
	require.EqualValues(t, -1, w.fetch("g", "u"))
	require.Empty(t, w.list(nil, nil))
}

// Until its offsets are erased, a topic that was deleted and made again has none: a consumer would begin beyond its first records.
func TestOffsetsOfAFormerTopicAreNotShown(t *testing.T) {
	w := newWorld(t)
	w.commitTo("g", map[string]int64{"t": 7, "u": 2})
	w.hold = true
	late := w.send(commitRequest("g", "", -1, map[string]int64{"t": 8})) // on its way when the topic goes
	w.topics.drop("t")
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.topics.create("t", 4)
	w.c.TopicsChanged(w.now, w.wall(), &w.out)
	w.collect()
	require.EqualValues(t, -1, w.fetch("g", "t"), "the tombstone is not committed")
	w.commitOne()
	require.NotNil(t, answerTo[*kmsg.OffsetCommitResponse](w, late))
	require.EqualValues(t, -1, w.fetch("g", "t"))
	require.Empty(t, w.fetchVersion(8, "g", nil)[1:], "nor among all: one of u is left")
	w.release()
	require.EqualValues(t, -1, w.fetch("g", "t"))
	require.EqualValues(t, 2, w.fetch("g", "u"))
	w.commitTo("g", map[string]int64{"t": 1})
	require.EqualValues(t, 1, w.fetch("g", "t"))
}

func TestOffsetDelete(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	ask[*kmsg.OffsetCommitResponse](w, commitRequest("g", m.id, m.generation, map[string]int64{"t": 1, "u": 2}))
	remove := func(group string, topics ...string) (codes []int16) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		for _, topic := range topics {
			x := kmsg.NewOffsetDeleteRequestTopic()
			x.Topic = topic
			x.Partitions = append(x.Partitions, kmsg.NewOffsetDeleteRequestTopicPartition())
			r.Topics = append(r.Topics, x)
		}
		a := ask[*kmsg.OffsetDeleteResponse](w, r)
		if a.ErrorCode != 0 {
			return []int16{a.ErrorCode}
		}
		for _, x := range a.Topics {
			codes = append(codes, x.Partitions[0].ErrorCode)
		}
		return codes
	}
	require.Equal(t, []int16{errGroupIDNotFound}, remove("none", "t"))
	require.Equal(t, []int16{errInvalidGroupID}, remove("", "t"))
	require.Equal(t, []int16{errGroupSubscribedToTopic, 0, errUnknownTopicOrPartition}, remove("g", "t", "u", "gone"))
	require.EqualValues(t, 1, w.fetch("g", "t"))
	require.EqualValues(t, -1, w.fetch("g", "u"))
	m.leave()
	require.Equal(t, []int16{0}, remove("g", "t"))
	w.failover(0)
	require.EqualValues(t, -1, w.fetch("g", "t"))

	k := w.consumer("k", "t")
	k.beat()
	ask[*kmsg.OffsetCommitResponse](w, commitRequest("k", k.id, k.epoch, map[string]int64{"t": 1, "u": 2}))
	require.Equal(t, []int16{errGroupSubscribedToTopic, 0}, remove("k", "t", "u"))

	other := w.member("o")
	r := other.joinRequest()
	r.ProtocolType, r.Version = "connect", 3
	ask[*kmsg.JoinGroupResponse](w, r)
	require.Equal(t, []int16{errNonEmptyGroup}, remove("o", "t"))
}

func TestDeleteGroups(t *testing.T) {
	w := newWorld(t)
	w.commitTo("simple", map[string]int64{"t": 1})
	w.stable("busy", 1)
	k := w.consumer("k", "t")
	k.beat()
	was := w.consumer("was", "t")
	was.beat()
	was.leave(-1)
	w.commitTo("was", map[string]int64{"t": 1})
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Version, r.Groups = 2, []string{"simple", "busy", "none", "k", "was", "simple"}
	w.hold = true
	token := w.send(commitRequest("simple", "", -1, map[string]int64{"u": 5})) // has to go, too
	del := w.send(r)
	require.Nil(t, answerTo[*kmsg.DeleteGroupsResponse](w, del))
	w.release()
	require.NotNil(t, answerTo[*kmsg.OffsetCommitResponse](w, token))
	var codes []int16
	for _, g := range answerTo[*kmsg.DeleteGroupsResponse](w, del).Groups {
		codes = append(codes, g.ErrorCode)
	}
	require.Equal(t, []int16{0, errNonEmptyGroup, errGroupIDNotFound, errNonEmptyGroup, 0, errGroupIDNotFound}, codes)
	require.Equal(t, []string{"busy classic Stable", "k consumer Stable"}, w.list(nil, nil))
	require.EqualValues(t, -1, w.fetch("simple", "u"))
	w.failover(0)
	require.Equal(t, []string{"busy classic Stable", "k consumer Stable"}, w.list(nil, nil))
	w.hold = true
	w.commitTo2("x")
	w.failOne(6)
	w.release()
	require.Len(t, w.list(nil, nil), 2)
}

// commitTo2 commits without waiting for an answer.
func (w *world) commitTo2(group string) {
	w.send(commitRequest(group, "", -1, map[string]int64{"t": 1}))
}

func TestDeleteOfManyOffsets(t *testing.T) {
	w := newWorld(t)
	w.topics.create("big", 2500)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group = 9, "g"
	x := kmsg.NewOffsetCommitRequestTopic()
	x.Topic = "big"
	for i := range int32(2500) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition = i
		x.Partitions = append(x.Partitions, p)
	}
	r.Topics = append(r.Topics, x)
	ask[*kmsg.OffsetCommitResponse](w, r)
	d := kmsg.NewPtrDeleteGroupsRequest()
	d.Version, d.Groups = 2, []string{"g"}
	w.hold = true
	token := w.send(d)
	for len(w.pending) > 0 {
		require.LessOrEqual(t, len(w.pending[0].Records), chunkRecords)
		w.commitOne()
	}
	require.Zero(t, answerTo[*kmsg.DeleteGroupsResponse](w, token).Groups[0].ErrorCode)
	require.Empty(t, w.list(nil, nil))
}

func TestListFilters(t *testing.T) {
	w := newWorld(t)
	w.stable("a", 1)
	w.commitTo("b", map[string]int64{"t": 1})
	k := w.consumer("c", "t")
	k.beat()
	require.Equal(t, []string{"a classic Stable", "b classic Empty", "c consumer Stable"}, w.list(nil, nil))
	require.Equal(t, []string{"a classic Stable", "c consumer Stable"}, w.list([]string{"stable"}, nil))
	require.Equal(t, []string{"c consumer Stable"}, w.list([]string{"STABLE", "Dead"}, []string{"Consumer"}))
	require.Equal(t, []string{"b classic Empty"}, w.list([]string{"Empty"}, []string{"classic"}))
	w.c.Lead(7, 1)
	r := kmsg.NewPtrListGroupsRequest()
	r.Version = 3
	require.Equal(t, errCoordinatorLoading, ask[*kmsg.ListGroupsResponse](w, r).ErrorCode)
}

func TestDescribeGroups(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 2)
	d := w.describe("g")
	require.Equal(t, "Stable", d.State)
	require.Equal(t, "consumer", d.ProtocolType)
	require.Equal(t, "range", d.Protocol)
	require.Len(t, d.Members, 2)
	require.Equal(t, "/127.0.0.1", d.Members[0].ClientHost)
	require.NotEmpty(t, d.Members[0].MemberAssignment)
	require.Equal(t, subscription("t"), d.Members[0].ProtocolMetadata)
	ms[0].leave()
	require.Empty(t, w.describe("g").Members[0].MemberAssignment, "it is of an earlier generation")
	k := w.consumer("k", "t")
	k.beat()
	for _, group := range []string{"none", "k"} {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = 5, []string{group}
		a := ask[*kmsg.DescribeGroupsResponse](w, r).Groups[0]
		require.Equal(t, "Dead", a.State)
		require.Zero(t, a.ErrorCode)
		require.Equal(t, errGroupIDNotFound, w.describe(group).ErrorCode)
	}
	require.Equal(t, errGroupIDNotFound, w.describeConsumer("none").ErrorCode)
	require.Equal(t, errGroupIDNotFound, w.describeConsumer("g").ErrorCode)
	require.Equal(t, errInvalidGroupID, w.describeConsumer("").ErrorCode)
}

// Every request gets its error where this broker does not coordinate.
func TestNotCoordinator(t *testing.T) {
	for key := range int16(100) {
		if !Handles(kmsg.Key(key)) {
			continue
		}
		req := kmsg.RequestForKey(key)
		for v := int16(0); v <= req.MaxVersion(); v++ {
			w := newWorld(t)
			w.c.Resign(w.now, 0, &w.out)
			req.SetVersion(v)
			token := w.send(req)
			require.Contains(t, w.answers, token, "%T %d", req, v)
		}
	}
}

func TestPartitionForIsKafkas(t *testing.T) {
	// Math.abs("…".hashCode()) % 50 in Java.
	for group, want := range map[string]int32{"": 0, "a": 97 % 50, "group": 98629247 % 50, "console-consumer-12345": -1} {
		if want >= 0 {
			require.Equal(t, want, PartitionFor(group, 50), group)
		}
	}
	require.EqualValues(t, 0, PartitionFor("polygenelubricants", 50), "whose hash has no absolute value")
}
