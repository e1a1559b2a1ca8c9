package controller

import (
	"slices"
	"strings"
	"testing"

	"lockstep/core"
	"lockstep/core/config"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func numbered(partitions int32, factor int16) topicOption {
	return func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions, t.ReplicationFactor = partitions, factor }
}

func TestCreateTopic(t *testing.T) {
	c := newCluster(t, 1, config.Values{{Name: "num.partitions", Value: "4"}})
	c.start(1, 2, 3)
	r := c.ask(createRequest("t", configured("retention.ms", "5"))).(*kmsg.CreateTopicsResponse).Topics[0]
	require.Zero(t, r.ErrorCode)
	require.EqualValues(t, 4, r.NumPartitions, "num.partitions")
	require.EqualValues(t, 3, r.ReplicationFactor, "three, for there are three brokers")
	topic := c.image().Topic("t")
	require.Equal(t, core.TopicID(r.TopicID), topic.ID)
	require.Same(t, topic, c.image().TopicByID(topic.ID))
	require.EqualValues(t, 4, topic.Partitions)
	require.Equal(t, config.Values{{Name: "min.insync.replicas", Value: "2"}, {Name: "retention.ms", Value: "5"}},
		c.image().Config(TopicResource("t")), "where there are three replicas, two must be in sync")
	by := make(map[string]kmsg.CreateTopicsResponseTopicConfig)
	for _, x := range r.Configs {
		by[x.Name] = x
	}
	require.Len(t, by, len(config.TopicDefs()))
	require.Equal(t, "5", *by["retention.ms"].Value)
	require.EqualValues(t, kmsg.ConfigSourceDynamicTopicConfig, by["retention.ms"].Source)
	require.Equal(t, "1", *by["flush.messages"].Value)
	require.EqualValues(t, kmsg.ConfigSourceDefaultConfig, by["flush.messages"].Source)
}

func TestMinInsyncReplicasOfNewTopics(t *testing.T) {
	get := func(c *cluster, name string, options ...topicOption) string {
		c.create(name, options...)
		v, _ := c.image().Config(TopicResource(name)).Get("min.insync.replicas")
		return v
	}
	c := threeBrokers(t)
	require.Equal(t, "2", get(c, "a"))
	require.Equal(t, "", get(c, "b", numbered(1, 2)))
	require.Equal(t, "1", get(c, "c", configured("min.insync.replicas", "1")))
	c.alterConfig(allBrokers, "min.insync.replicas", "1")
	require.Equal(t, "", get(c, "d"), "the cluster says otherwise")

	seeded := newCluster(t, 1, config.Values{{Name: "min.insync.replicas", Value: "3"}})
	seeded.start(1, 2, 3)
	require.Equal(t, "", get(seeded, "a"))
	layers := seeded.image().Layers(1, nil)
	require.EqualValues(t, 3, layers.TopicDefaults().MinInsyncReplicas, "the file of the first controller is the cluster's")
}

func TestCreateTopicRefusals(t *testing.T) {
	c := threeBrokers(t)
	c.create("a.b")
	for _, x := range []struct {
		name string
		code int16
		opts []topicOption
	}{
		{"", codeInvalidTopic, nil},
		{".", codeInvalidTopic, nil},
		{"..", codeInvalidTopic, nil},
		{strings.Repeat("x", 250), codeInvalidTopic, nil},
		{"a b", codeInvalidTopic, nil},
		{"é", codeInvalidTopic, nil},
		{"a/b", codeInvalidTopic, nil},
		{"a_b", codeInvalidTopic, nil},
		{"a.b", codeTopicAlreadyExists, nil},
		{core.MetadataTopic, codeInvalidRequest, nil},
		{"t", codeInvalidPartitions, []topicOption{numbered(0, 1)}},
		{"t", codeInvalidPartitions, []topicOption{numbered(-2, 1)}},
		{"t", codePolicyViolation, []topicOption{numbered(10001, 1)}},
		{"t", codeInvalidReplicationFactor, []topicOption{numbered(1, 0)}},
		{"t", codeInvalidReplicationFactor, []topicOption{numbered(1, -2)}},
		{"t", codeInvalidReplicationFactor, []topicOption{numbered(1, 4)}},
		{"t", codeInvalidConfig, []topicOption{configured("retention.ms", "x")}},
		{"t", codeInvalidConfig, []topicOption{configured("nonsense", "x")}},
		{"t", codeInvalidRequest, []topicOption{configured("flush.ms", "1"), configured("flush.ms", "1")}},
		{"t", codeInvalidRequest, []topicOption{assigned([]int32{1}), numbered(1, -1)}},
		{"t", codeInvalidRequest, []topicOption{assigned([]int32{1}), numbered(-1, 1)}},
		{"t", codeInvalidReplicaAssignment, []topicOption{assigned([]int32{1, 1})}},
		{"t", codeInvalidReplicaAssignment, []topicOption{assigned([]int32{1, 9})}},
		{"t", codeInvalidReplicaAssignment, []topicOption{assigned([]int32{1}, []int32{1, 2})}},
		{"t", codeInvalidReplicaAssignment, []topicOption{assigned([]int32{})}},
		{"t", codeInvalidReplicaAssignment, []topicOption{assigned([]int32{1}, []int32{2}), func(t *kmsg.CreateTopicsRequestTopic) {
			t.ReplicaAssignment[1].Partition = 2
		}}},
	} {
		r := c.ask(createRequest(x.name, x.opts...)).(*kmsg.CreateTopicsResponse).Topics[0]
		require.Equal(t, x.code, r.ErrorCode, "%q: %v", x.name, r.ErrorMessage)
		require.NotEmpty(t, *r.ErrorMessage)
		require.EqualValues(t, -1, r.NumPartitions)
	}
	require.Equal(t, 1, c.image().TopicCount())
	c.create(strings.Repeat("x", 249))
}

func TestCreateTopicsOfOneRequest(t *testing.T) {
	c := threeBrokers(t)
	r := createRequest("t", numbered(6000, 1))
	for _, o := range []struct {
		name string
		n    int32
	}{{"twice", 1}, {"a.b", 1}, {"a_b", 1}, {"u", 4000}, {"twice", 1}, {"v", 3997}} {
		r.Topics = append(r.Topics, createRequest(o.name, numbered(o.n, 1)).Topics[0])
	}
	resp := c.ask(r).(*kmsg.CreateTopicsResponse)
	got := make(map[string]int16)
	for _, x := range resp.Topics {
		got[x.Topic] = x.ErrorCode
	}
	require.Len(t, resp.Topics, 6, "one answer a name")
	require.Equal(t, map[string]int16{"t": 0, "twice": codeInvalidRequest, "a.b": 0, "a_b": codeInvalidTopic,
		"u": codePolicyViolation, "v": 0}, got)
	require.Equal(t, 6000+1+3997, c.image().PartitionCount())
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	c := threeBrokers(t)
	records := len(c.log)
	r := createRequest("t", numbered(2, 2))
	r.ValidateOnly = true
	r.Topics = append(r.Topics, createRequest("t.u").Topics[0], createRequest("t_u").Topics[0])
	resp := c.ask(r).(*kmsg.CreateTopicsResponse)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.EqualValues(t, 2, resp.Topics[0].NumPartitions)
	require.Zero(t, resp.Topics[0].TopicID)
	require.Equal(t, codeInvalidTopic, resp.Topics[2].ErrorCode, "it sees the others of its request")
	alter := alterRequest(allBrokers, "unclean.leader.election.enable", "true")
	alter.ValidateOnly = true
	require.Zero(t, c.ask(alter).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	require.Len(t, c.log, records)
	require.False(t, c.active().defaults.UncleanElection)
	c.create("t", numbered(2, 2))
	grow := growRequest("t", 3)
	grow.ValidateOnly = true
	require.Zero(t, c.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	require.EqualValues(t, 2, c.image().Topic("t").Partitions)
}

func growRequest(topic string, count int32, assignment ...[]int32) *kmsg.CreatePartitionsRequest {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.Version = 3
	x := kmsg.NewCreatePartitionsRequestTopic()
	x.Topic, x.Count = topic, count
	for _, a := range assignment {
		y := kmsg.NewCreatePartitionsRequestTopicAssignment()
		y.Replicas = a
		x.Assignment = append(x.Assignment, y)
	}
	r.Topics = append(r.Topics, x)
	return r
}

func TestCreatePartitions(t *testing.T) {
	c := threeBrokers(t)
	p := c.create("t", numbered(2, 2))
	grow := func(r *kmsg.CreatePartitionsRequest) int16 {
		return c.ask(r).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode
	}
	require.Equal(t, codeUnknownTopicOrPartition, grow(growRequest("x", 3)))
	require.Equal(t, codeInvalidPartitions, grow(growRequest("t", 2)))
	require.Equal(t, codeInvalidPartitions, grow(growRequest("t", 1)))
	require.Equal(t, codePolicyViolation, grow(growRequest("t", 10003)))
	require.Equal(t, codeInvalidReplicaAssignment, grow(growRequest("t", 4, []int32{1, 2})))
	require.Equal(t, codeInvalidReplicaAssignment, grow(growRequest("t", 3, []int32{1, 2, 3})))
	require.Equal(t, codeInvalidReplicaAssignment, grow(growRequest("t", 3, []int32{1, 7})))
	twice := growRequest("t", 3)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	require.Equal(t, codeInvalidRequest, grow(twice))
	c.create(core.OffsetsTopic, numbered(2, 2))
	require.Equal(t, codeInvalidRequest, grow(growRequest(core.OffsetsTopic, 3)), "groups would lose their offsets")
	require.EqualValues(t, 2, c.image().Topic(core.OffsetsTopic).Partitions)
	require.Zero(t, grow(growRequest("t", 3, []int32{3, 1})))
	require.Zero(t, grow(growRequest("t", 7)))
	require.EqualValues(t, 7, c.image().Topic("t").Partitions)
	require.Len(t, slices.Collect(c.image().Partitions(p.Topic)), 7)
	require.Equal(t, []int32{3, 1}, c.image().Partition(core.Partition{Topic: p.Topic, Index: 2}).Replicas)
}

func TestDeleteTopics(t *testing.T) {
	c := threeBrokers(t)
	byName, byID := c.create("a", numbered(3, 3)), c.create("b")
	c.create("c")
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version = 6
	add := func(name string, id core.TopicID) {
		x := kmsg.NewDeleteTopicsRequestTopic()
		if name != "" {
			x.Topic = &name
		}
		x.TopicID = id
		r.Topics = append(r.Topics, x)
	}
	add("a", core.TopicID{})
	add("", byID.Topic)
	add("x", core.TopicID{})
	add("", core.TopicID{9})
	add("", core.TopicID{})
	add("c", byName.Topic)
	add("c", core.TopicID{})
	add("", c.image().Topic("c").ID)
	var codes []int16
	resp := c.ask(r).(*kmsg.DeleteTopicsResponse)
	for _, x := range resp.Topics {
		codes = append(codes, x.ErrorCode)
	}
	require.Equal(t, []int16{0, 0, codeUnknownTopicOrPartition, codeUnknownTopicID, codeInvalidRequest, codeInvalidRequest,
		codeInvalidRequest, codeInvalidRequest}, codes)
	require.Equal(t, "b", *resp.Topics[1].Topic)
	require.EqualValues(t, byName.Topic, resp.Topics[0].TopicID)
	require.Nil(t, c.image().Topic("a"))
	require.Nil(t, c.image().Partition(byName))
	require.Empty(t, c.image().Config(TopicResource("a")), "a topic's configs go with it")
	require.NotNil(t, c.image().Topic("c"))
	again := c.create("a")
	require.NotEqual(t, byName.Topic, again.Topic, "a topic made again is another one")

	older := kmsg.NewPtrDeleteTopicsRequest()
	older.Version, older.TopicNames = 5, []string{"c", "x"}
	resp = c.ask(older).(*kmsg.DeleteTopicsResponse)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Equal(t, codeUnknownTopicOrPartition, resp.Topics[1].ErrorCode)

	off := newCluster(t, 1, config.Values{{Name: "delete.topic.enable", Value: "false"}})
	off.start(1)
	off.create("c")
	require.Equal(t, codeTopicDeletionDisabled, off.ask(older).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
}

// Museum B30, rule 12: a topic that is proposed is nobody's until it is committed, its error answers included; when
// leadership is lost everybody is told so, and nothing is left of it.
func TestNothingShowsBeforeItIsCommitted(t *testing.T) {
	c := threeBrokers(t)
	first := c.send(createRequest("t"))
	second := c.send(createRequest("t"))
	require.Empty(t, c.answers[first])
	require.Nil(t, c.answers[second], "that it exists is not known yet")
	require.Nil(t, c.image().Topic("t"))
	c.commitTo(len(c.log) - 1)
	require.Nil(t, c.answers[first])
	c.depose(1, 0)
	for _, token := range []Token{first, second} {
		require.Equal(t, codeNotController, c.answers[token].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	}
	c.create("u")
	require.Nil(t, c.active().spec.Topic("never"))
}

func TestLostProposalsLeaveNothing(t *testing.T) {
	c := threeBrokers(t)
	kept := c.send(createRequest("kept"))
	end := len(c.log)
	lost := c.send(createRequest("lost"))
	seen := c.send(createRequest("lost"))
	var out Out
	c.active().Dropped(c.now, int64(end), &out)
	c.collect(&out)
	c.log = c.log[:end]
	require.Nil(t, c.answers[kept], "what is below may still be committed")
	require.Equal(t, codeNotController, c.answers[lost].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	require.Equal(t, codeNotController, c.answers[seen].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	again := c.send(createRequest("lost"))
	c.commit()
	require.Zero(t, c.answers[kept].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	require.Zero(t, c.answers[again].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)

	out = Out{}
	c.active().Handle(c.now, createRequest("refused"), 1000, &out)
	require.NotEmpty(t, out.Records)
	out = Out{}
	c.active().Refused(c.now, &out)
	require.Equal(t, codeNotController, out.Answers[0].Msg.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	require.Nil(t, c.active().spec.Topic("refused"))
	c.create("refused")
}

func TestRequestsTimeOut(t *testing.T) {
	c := threeBrokers(t)
	r := createRequest("t")
	r.TimeoutMillis = 300
	token := c.send(r)
	c.now = c.now + 299*ms
	c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	require.Nil(t, c.answers[token])
	require.Equal(t, c.now+ms, c.active().Deadline())
	c.now += ms
	c.run(func(ctl *Controller, out *Out) { ctl.Tick(c.now, out) })
	require.Equal(t, codeRequestTimedOut, c.answers[token].(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	c.commit()
	require.NotNil(t, c.image().Topic("t"), "as after any timeout, it may have happened")
}

func TestInactiveControllerRefuses(t *testing.T) {
	c := newCluster(t, 2, nil)
	var out Out
	for key := range int16(100) {
		if !Handles(key) {
			continue
		}
		req := kmsg.RequestForKey(key)
		c.members[1].Handle(c.now, req, Token(key), &out)
		require.NotNil(t, ErrorResponse(req, codeNotController), "%T", req)
	}
	require.Len(t, out.Answers, len(handlers)+1)
	require.Nil(t, ErrorResponse(kmsg.NewPtrMetadataRequest(), 1))
	require.Equal(t, core.Never, c.members[1].Deadline())
}

func TestProducerIDs(t *testing.T) {
	c := newCluster(t, 2, nil)
	c.start(1)
	ask := func(id int32, epoch int64) *kmsg.AllocateProducerIDsResponse {
		r := kmsg.NewPtrAllocateProducerIDsRequest()
		r.BrokerID, r.BrokerEpoch = id, epoch
		return c.ask(r).(*kmsg.AllocateProducerIDsResponse)
	}
	require.EqualValues(t, 0, ask(1, c.epochs[1]).ProducerIDStart)
	second := ask(1, c.epochs[1])
	require.EqualValues(t, 1000, second.ProducerIDStart)
	require.EqualValues(t, 1000, second.ProducerIDLen)
	require.Equal(t, codeStaleBrokerEpoch, ask(1, c.epochs[1]+1).ErrorCode)
	require.Equal(t, codeBrokerIDNotRegistered, ask(2, 1).ErrorCode)
	c.depose(1, 0)
	require.EqualValues(t, 2000, ask(1, c.epochs[1]).ProducerIDStart)
	require.EqualValues(t, 3000, c.image().NextProducerID())
}

func TestPlacement(t *testing.T) {
	t.Run("even, and followers spread", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.start(1, 2, 3, 4)
		p := c.create("t", numbered(120, 2))
		leaders, pairs := map[int32]int{}, map[[2]int32]int{}
		for x := range c.image().Partitions(p.Topic) {
			leaders[x.Replicas[0]]++
			pairs[[2]int32{x.Replicas[0], x.Replicas[1]}]++
		}
		require.Equal(t, map[int32]int{1: 30, 2: 30, 3: 30, 4: 30}, leaders)
		require.Len(t, pairs, 12)
		for _, n := range pairs {
			require.InDelta(t, 10, n, 2)
		}
	})
	t.Run("racks", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		racks := map[int32]string{1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
		for id := int32(1); id <= 5; id++ {
			r, rack := registrationOf(id, 1), racks[id]
			r.Rack = &rack
			c.register(r)
			c.heartbeat(id)
		}
		p := c.create("t", numbered(30, 3))
		for x := range c.image().Partitions(p.Topic) {
			seen := map[string]bool{}
			for _, id := range x.Replicas {
				seen[racks[id]] = true
			}
			require.Len(t, seen, 3, "%v", x.Replicas)
		}
		p = c.create("u", numbered(30, 5))
		for x := range c.image().Partitions(p.Topic) {
			require.Len(t, x.Replicas, 5)
		}
	})
	t.Run("fenced brokers last", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.start(1, 2)
		c.register(registrationOf(3, 1))
		p := c.create("t", numbered(10, 2))
		for x := range c.image().Partitions(p.Topic) {
			require.NotContains(t, x.Replicas, int32(3))
		}
		p = c.create("u", numbered(10, 3))
		for x := range c.image().Partitions(p.Topic) {
			require.Equal(t, int32(3), x.Replicas[2])
			require.Len(t, x.ISR, 2)
		}
	})
	t.Run("nobody alive", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		require.Equal(t, codeInvalidReplicationFactor, c.ask(createRequest("t")).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		c.register(registrationOf(1, 1))
		require.Equal(t, codeInvalidReplicationFactor, c.ask(createRequest("t")).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	})
}
