package broker

import (
	"slices"
	"time"

	"lockstep/core"
	"lockstep/core/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bit fields of authorized operations (KIP-430) while there are no ACLs: everything that the resource knows.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	notAsked          = -2147483648
)

// creationTimeout bounds how long a Metadata answer waits for topics that it had created.
const creationTimeout = 2 * time.Second

// creationWait is a request that waits for topics to have leaders.
type creationWait struct {
	topics []string
	timer  *timer
	answer func() // called once: the topics are there, or it is too late
}

func handleMetadata(b *Broker, q *request) {
	if !b.knowsCluster() {
		b.closeConn(q, unknownCluster)
		return
	}
	m := q.Msg.(*kmsg.MetadataRequest)
	create := b.toCreate(q, m)
	if len(create) == 0 {
		b.respond(q, b.metadata(q, m))
		return
	}
	b.createForMetadata(q, m, create)
}

// toCreate returns the topics that the request names, that are not there, and that may be made for it.
func (b *Broker) toCreate(q *request, m *kmsg.MetadataRequest) []string {
	if !b.settings.AutoCreateTopics || q.version >= 4 && !m.AllowAutoTopicCreation {
		return nil
	}
	var names []string
	for i := range m.Topics {
		t := &m.Topics[i]
		if t.Topic == nil || b.image.Topic(*t.Topic) != nil || controller.CheckTopicName(*t.Topic) != "" ||
			isInternalTopic(*t.Topic) || slices.Contains(names, *t.Topic) {
			continue
		}
		names = append(names, *t.Topic)
	}
	return names
}

// createForMetadata creates topics with the broker's defaults and answers when they have leaders. Kafka answers at once,
// with an error that makes the client ask again; here its first try succeeds.
func (b *Broker) createForMetadata(q *request, m *kmsg.MetadataRequest, names []string) {
	r := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
		r.Topics = append(r.Topics, t)
	}
	b.createAndWait(q, r, func() { b.respond(q, b.metadata(q, m)) })
}

// createAndWait has topics created for q and calls answer when all of those that could be have leaders, or after creationTimeout.
func (b *Broker) createAndWait(q *request, r *kmsg.CreateTopicsRequest, answer func()) {
	r.Version = 7
	r.TimeoutMillis = int32(creationTimeout.Milliseconds())
	var names []string
	for i := range r.Topics {
		names = append(names, r.Topics[i].Topic)
	}
	w := b.awaitLeaders(q, names, answer)
	b.askController(clientPatience, r, func(resp kmsg.Response, err error) {
		if q.done {
			return
		}
		if err != nil {
			b.endCreation(w)
			answer()
			return
		}
		for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
			if t.ErrorCode != errNone && t.ErrorCode != errTopicAlreadyExists {
				w.topics = slices.DeleteFunc(w.topics, func(n string) bool { return n == t.Topic })
			}
		}
		b.wakeCreations()
	})
}

// awaitLeaders calls answer when wakeCreations finds that all topics have leaders, or after creationTimeout; not if q's
// connection goes first.
func (b *Broker) awaitLeaders(q *request, topics []string, answer func()) *creationWait {
	w := &creationWait{topics: topics, answer: answer}
	q.drop = func() { b.endCreation(w) }
	w.timer = b.timers.set(b.now.Add(creationTimeout), func() {
		b.endCreation(w)
		answer()
	})
	b.creations = append(b.creations, w)
	return w
}

func (b *Broker) endCreation(w *creationWait) {
	b.timers.cancel(w.timer)
	b.creations = slices.DeleteFunc(b.creations, func(x *creationWait) bool { return x == w })
}

// wakeCreations answers those requests whose new topics have leaders now.
func (b *Broker) wakeCreations() {
	for _, w := range slices.Clone(b.creations) {
		if !slices.ContainsFunc(w.topics, func(name string) bool { return !b.led(name) }) {
			b.endCreation(w)
			w.answer()
		}
	}
}

// led reports whether every partition of a topic has a leader that, if it is this broker, has opened its log.
func (b *Broker) led(topic string) bool {
	t := b.image.Topic(topic)
	if t == nil {
		return false
	}
	for st := range b.image.Partitions(t.ID) {
		if st.Leader == controller.NoLeader || st.Leader == b.cfg.NodeID && b.local(st.Partition) == nil {
			return false
		}
	}
	return true
}

// metadata answers from the image as it is now.
func (b *Broker) metadata(q *request, m *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := m.ResponseKind().(*kmsg.MetadataResponse)
	cluster := b.image.ClusterID()
	resp.ClusterID, resp.ControllerID = &cluster, b.controllerID()
	for br := range b.image.Brokers() {
		if n, ok := metadataBroker(br); ok && !br.Fenced {
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	resp.AuthorizedOperations = notAsked
	if m.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	if m.Topics == nil || q.version == 0 && len(m.Topics) == 0 {
		for t := range b.image.Topics() {
			resp.Topics = append(resp.Topics, b.metadataTopic(q, m, t))
		}
		return resp
	}
	for i := range m.Topics {
		resp.Topics = append(resp.Topics, b.metadataAsked(q, m, &m.Topics[i]))
	}
	return resp
}

// metadataAsked answers for one topic that the request names.
func (b *Broker) metadataAsked(q *request, m *kmsg.MetadataRequest, ask *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	var t *controller.Topic
	code := errUnknownTopicOrPartition
	switch {
	case ask.Topic == nil:
		if t = b.image.TopicByID(core.TopicID(ask.TopicID)); t == nil {
			code = errUnknownTopicID
		}
	default:
		if t = b.image.Topic(*ask.Topic); t == nil && controller.CheckTopicName(*ask.Topic) != "" {
			code = errInvalidTopic
		}
	}
	if t != nil {
		return b.metadataTopic(q, m, t)
	}
	r := kmsg.NewMetadataResponseTopic()
	r.ErrorCode, r.Topic, r.TopicID, r.AuthorizedOperations = code, ask.Topic, ask.TopicID, notAsked
	if r.Topic == nil && q.version < 12 {
		empty := ""
		r.Topic = &empty
	}
	return r
}

func (b *Broker) metadataTopic(q *request, m *kmsg.MetadataRequest, t *controller.Topic) kmsg.MetadataResponseTopic {
	r := kmsg.NewMetadataResponseTopic()
	name := t.Name
	r.Topic, r.TopicID, r.IsInternal, r.AuthorizedOperations = &name, t.ID, isInternalTopic(name), notAsked
	if m.IncludeTopicAuthorizedOperations {
		r.AuthorizedOperations = topicOperations
	}
	r.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Partitions)
	for st := range b.image.Partitions(t.ID) {
		r.Partitions = append(r.Partitions, b.metadataPartition(st))
	}
	return r
}

func (b *Broker) metadataPartition(st *controller.Partition) kmsg.MetadataResponseTopicPartition {
	p := kmsg.NewMetadataResponseTopicPartition()
	p.Partition, p.Leader, p.LeaderEpoch = st.Index, st.Leader, st.LeaderEpoch
	p.Replicas, p.ISR = st.Replicas, st.ISR
	if st.Leader == controller.NoLeader {
		p.ErrorCode = errLeaderNotAvailable
	}
	for _, id := range st.Replicas {
		if br := b.image.Broker(id); br == nil || br.Fenced {
			p.OfflineReplicas = append(p.OfflineReplicas, id)
		}
	}
	return p
}
