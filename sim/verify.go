package sim

import (
	"fmt"
	"strings"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// verifier makes the world's topics in the beginning, and in the end writes to
// every partition and reads all of it: what it reads is the truth by which the history is judged.
type verifier struct {
	clientBase
	todo  []*inspection
	ready bool // topics are made
	wait  bool
}

// inspection is the look at one partition.
type inspection struct {
	topic     int
	partition int32
	probe     outgoing
	probeOp   int
	stage     inspectionStage
	start     int64
	end       int64
	next      int64
	last      string // why it is not further
	session   int64  // goes up when reading begins anew, where the log starts by then
}

type inspectionStage uint8

const (
	probing inspectionStage = iota
	measuring
	reading
	finished
)

func (v *verifier) start()     {}
func (v *verifier) stop()      {}
func (v *verifier) idle() bool { return true }

func (v *verifier) fire(*event) {
	v.wait = false
	if !v.ready {
		v.makeTopics()
		return
	}
	v.work()
}

func (v *verifier) again() {
	if !v.wait {
		v.wait = true
		v.w.after(v.chance.Between(5*millisecond, 50*millisecond), v, evRetry)
	}
}

// makeTopics asks for all topics of the plan until they are there.
func (v *verifier) makeTopics() {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	for i := range v.w.plan.Topics {
		t := &v.w.plan.Topics[i]
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.Name, t.Partitions, int16(min(int(t.Replicas), v.w.running()))
		for _, s := range t.Settings {
			rc := kmsg.NewCreateTopicsRequestTopicConfig()
			rc.Name, rc.Value = s.Name, kmsg.StringPtr(s.Value)
			rt.Configs = append(rt.Configs, rc)
		}
		req.Topics = append(req.Topics, rt)
	}
	v.call(v.chance.Intn(len(v.wires)), req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.CreateTopicsResponse)
		done := ok
		for i := 0; ok && i < len(resp.Topics); i++ {
			if code := resp.Topics[i].ErrorCode; code != 0 && code != kerr.TopicAlreadyExists.Code {
				done = false
				if !retriable(code) && code != kerr.InvalidReplicationFactor.Code { // brokers are yet to come
					msg := ""
					if resp.Topics[i].ErrorMessage != nil {
						msg = *resp.Topics[i].ErrorMessage
					}
					v.w.fail("protocol", "creating topic %s: %v %s", resp.Topics[i].Topic, kerr.ErrorForCode(code), msg)
				}
			}
		}
		if done {
			v.ready = true
		} else {
			v.again()
		}
	})
}

// inspect begins to look at everything.
func (v *verifier) inspect() {
	v.todo = nil
	for topic := range v.w.plan.Topics {
		for p := range v.w.partitions(topic) {
			i := &inspection{topic: topic, partition: p, last: "not begun"}
			v.w.values++
			i.probe = outgoing{values: []int64{v.w.values}}
			v.todo = append(v.todo, i)
		}
	}
	v.meta.topics = nil
	v.work()
}

func (v *verifier) name(i *inspection) string { return v.w.plan.Topics[i.topic].Name }

// work goes on with the first partition that is not finished.
func (v *verifier) work() {
	for _, i := range v.todo {
		if i.stage == finished {
			continue
		}
		broker := v.leader(v.name(i), i.partition)
		if broker < 0 {
			i.last = "no leader in the metadata"
			if v.w.excused(i.topic, i.partition) {
				i.stage = finished
				continue
			}
			v.refresh([]string{v.name(i)}, v.again)
			return
		}
		switch i.stage {
		case probing:
			v.write(i, broker)
		case measuring:
			v.measure(i, broker)
		case reading:
			v.read(i, broker)
		}
		return
	}
}

// trouble is an error for a partition: try again, unless it is one that was set aside.
func (v *verifier) trouble(i *inspection, code int16) {
	i.last = kerr.ErrorForCode(code).Error()
	if v.w.excused(i.topic, i.partition) {
		i.stage = finished
		v.again()
		return
	}
	if code == kerr.OffsetOutOfRange.Code && v.w.plan.Topics[i.topic].retains() {
		i.stage = measuring // the start has moved since it was asked for
		v.again()
		return
	}
	if !retriable(code) {
		v.w.fail("protocol", "%s-%d in the end: %v", v.name(i), i.partition, kerr.ErrorForCode(code))
		return
	}
	delete(v.meta.topics, v.name(i))
	v.again()
}

// write shows that the partition takes writes, and by what is read after it, that nothing written is missing.
func (v *verifier) write(i *inspection, broker int) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rp := kmsg.NewProduceRequestTopicPartition()
	p := &producer{clientBase: v.clientBase, builder: v.w.builder}
	p.plan = &ClientPlan{Bytes: [2]int{8, 8}}
	op := v.w.beginAt(i.topic, linearizability.Op{Process: v.index, Kind: linearizability.Produce, Topic: v.name(i), Partition: i.partition,
		Acks: -1, Values: i.probe.values})
	i.probe.op = op
	rp.Partition, rp.Records = i.partition, p.build(i.topic, &i.probe)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = v.name(i), v.topicID(v.name(i))
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	i.last = "no answer to a write"
	v.call(broker, req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.ProduceResponse)
		if !ok {
			v.again()
			return
		}
		a := &resp.Topics[0].Partitions[0]
		if a.ErrorCode != 0 {
			if !mayHaveHappened(a.ErrorCode) {
				v.w.endWith(op, linearizability.Failed, -1)
			}
			v.trouble(i, a.ErrorCode)
			return
		}
		v.w.endWith(op, linearizability.OK, a.BaseOffset)
		i.stage = measuring
		v.work()
	})
}

func (v *verifier) measure(i *inspection, broker int) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	putOffset(req, v.name(i), i.partition, -2)
	op := v.w.beginAt(i.topic, linearizability.Op{Process: v.index, Kind: linearizability.Earliest, Topic: v.name(i), Partition: i.partition})
	i.last = "no answer to a question for the log start"
	v.call(broker, req, func(r kmsg.Response) {
		resp, _ := r.(*kmsg.ListOffsetsResponse)
		a := findOffset(resp, v.name(i), i.partition)
		if a == nil {
			v.again()
			return
		}
		if a.ErrorCode != 0 {
			v.trouble(i, a.ErrorCode)
			return
		}
		v.w.endWith(op, linearizability.OK, a.Offset)
		i.start, i.next = a.Offset, a.Offset
		i.session++
		i.stage = reading
		v.work()
	})
}

func (v *verifier) read(i *inspection, broker int) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 50<<20
	req.SessionID, req.SessionEpoch = 0, -1
	pos := &position{topic: i.topic, partition: i.partition, next: i.next}
	putFetch(req, v.name(i), v.topicID(v.name(i)), pos, 1<<20)
	began := v.w.now
	i.last = "no answer to a fetch"
	v.call(broker, req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.FetchResponse)
		if !ok || len(resp.Topics) == 0 {
			v.again()
			return
		}
		a := &resp.Topics[0].Partitions[0]
		if a.ErrorCode != 0 {
			v.trouble(i, a.ErrorCode)
			return
		}
		if a.HighWatermark < 0 { // a new leader, which will know soon
			v.again()
			return
		}
		records, next := readRecords(v.w, v.clientBase.name, v.name(i), i.partition, i.next, a.RecordBatches)
		v.w.note(i.topic, linearizability.Op{Process: v.index, Kind: linearizability.Fetch, Topic: v.name(i), Partition: i.partition, From: i.next,
			Session: i.session, Outcome: linearizability.OK, Records: records, HighWatermark: a.HighWatermark, LogStart: a.LogStartOffset}, began)
		i.last = fmt.Sprintf("reading at offset %d of %d", next, a.HighWatermark)
		if next == i.next && next < a.HighWatermark && v.w.excused(i.topic, i.partition) {
			i.stage = finished // damage: nothing more comes out
		}
		i.next, i.end = next, a.HighWatermark
		if i.next >= i.end {
			i.stage = finished
		}
		if i.stage == finished && v.w.recorded(i.topic) && i.next >= i.end {
			v.w.truth(i)
		}
		v.work()
	})
}

// truth notes what a partition holds in the end: what the verifier has read must agree with it, like every other read.
func (w *world) truth(i *inspection) {
	if w.history.Truth == nil {
		w.history.Truth = map[linearizability.Key]linearizability.Truth{}
	}
	name := w.plan.Topics[i.topic].Name
	t := w.oracle.find(name, i.partition)
	k := linearizability.Key{Topic: name, Partition: i.partition}
	w.history.Truth[k] = linearizability.Truth{Start: max(i.start, t.start), End: t.hw, Records: t.records(w)}
}

func (v *verifier) done() bool {
	for _, i := range v.todo {
		if i.stage != finished {
			return false
		}
	}
	return true
}

// stuck says what is not done.
func (v *verifier) stuck() string {
	var s []string
	for _, i := range v.todo {
		if i.stage != finished {
			s = append(s, fmt.Sprintf("%s-%d (%s)", v.name(i), i.partition, i.last))
			if len(s) == 3 {
				break
			}
		}
	}
	return strings.Join(s, ", ")
}

// aside says that a partition was reported as damaged.
func (o *oracle) aside(topic string, partition int32) bool {
	of := o.find(topic, partition)
	for _, t := range o.order {
		if t.of == of && t.aside {
			return true
		}
	}
	return false
}
