package sim

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// auditTime is how long it may take, in virtual time, until every group's offsets are there in the end.
const auditTime = 180 * second

// auditor asks in the end, after all that went wrong, for what groups have committed.
type auditor struct {
	w    *world
	v    *verifier // whose connections it uses
	todo []*groupTruth
	last string // why it is not further
}

// audit sees to it that committed offsets come back also after the last power loss, when no member is there any more.
func (w *world) audit() {
	a := &auditor{w: w, v: w.verifier}
	for _, g := range w.groups {
		if !g.excused() && !g.lenient() && len(g.parts) > 0 {
			a.todo = append(a.todo, g)
		}
	}
	a.next()
	w.runUntil(w.now+auditTime, func() bool { return len(a.todo) == 0 })
	if w.failure == nil && len(a.todo) > 0 && !w.harmedAtAll() && !w.refused() && !a.todo[0].excused() {
		w.fail("stuck", "the offsets of %s are not to be had within %d seconds: %s", a.todo[0].name, auditTime/second, a.last)
	}
}

func (a *auditor) fire(*event) { a.next() }

func (a *auditor) again(why string) {
	a.last = why
	a.w.after(a.v.chance.Between(20*millisecond, 100*millisecond), a, evRetry)
}

func (a *auditor) next() {
	if len(a.todo) == 0 || a.w.failure != nil {
		return
	}
	g := a.todo[0]
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = g.name, []string{g.name}
	a.v.call(a.v.chance.Intn(len(a.v.wires)), req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.FindCoordinatorResponse)
		if !ok {
			a.again("no answer to FindCoordinator")
			return
		}
		x := kmsg.FindCoordinatorResponseCoordinator{ErrorCode: resp.ErrorCode, NodeID: resp.NodeID}
		if resp.Version >= 4 {
			x = resp.Coordinators[0]
		}
		if x.ErrorCode != 0 {
			a.again(kerr.ErrorForCode(x.ErrorCode).Error())
			return
		}
		a.ask(g, a.w.hostIndex(x.NodeID))
	})
}

// ask asks for all that a group has committed, partition by partition.
func (a *auditor) ask(g *groupTruth, broker int) {
	req := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.MemberEpoch = g.name, -1
	var asked []partOf
	for _, t := range g.topics {
		name := a.w.plan.Topics[t].Name
		id := [16]byte(a.w.oracle.ids[name])
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.TopicID = name, id
		for i := range a.w.partitions(t) {
			x.Partitions = append(x.Partitions, i)
			asked = append(asked, partOf{t, i})
		}
		group.Topics = append(group.Topics, x)
		y := kmsg.NewOffsetFetchRequestTopic()
		y.Topic, y.Partitions = name, x.Partitions
		req.Topics = append(req.Topics, y)
	}
	req.Group, req.Groups = g.name, append(req.Groups, group)
	sent := a.w.now
	a.v.call(broker, req, func(r kmsg.Response) {
		resp, ok := r.(*kmsg.OffsetFetchResponse)
		if !ok {
			a.again("no answer to OffsetFetch")
			return
		}
		code, found := readOffsets(resp)
		if code != 0 {
			if !retriable(code) {
				a.w.fail("protocol", "OffsetFetch of %s in the end: %v", g.name, kerr.ErrorForCode(code))
				return
			}
			a.again(kerr.ErrorForCode(code).Error())
			return
		}
		if len(found) != len(asked) {
			a.w.fail("protocol", "OffsetFetch of %s answers for %d partitions; %d were asked for", g.name, len(found), len(asked))
			return
		}
		for i, p := range asked {
			g.fetched(fmt.Sprintf("the verifier (%s)", a.w.hosts[broker].name()), p.topic, p.partition, found[i], sent)
		}
		a.todo = a.todo[1:]
		a.next()
	})
}
