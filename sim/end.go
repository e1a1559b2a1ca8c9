package sim

import (
	"bytes"
	"slices"
	"strconv"

	"lockstep/core/controller"
	"lockstep/core/group"
)

// The end of a world of several brokers: a minority may stay lost; the rest must come to agree.

// running is how many brokers a world has that were not cut away.
func (w *world) running() (n int) {
	for i := range w.plan.Brokers {
		if !w.plan.Brokers[i].Off {
			n++
		}
	}
	return n
}

// loseSome takes brokers away for good, unless that with those that were cut away would leave no majority.
func (w *world) loseSome() {
	for _, i := range w.plan.LostAtEnd {
		h := w.hosts[i]
		if h.lost || i < w.numVoters() && 2*(w.aliveVoters()-1) <= w.numVoters() {
			continue
		}
		h.lost = true
		w.event(h.lane, "fault", "lost for good")
		c := w.stats.fault("lost for good")
		c.Planned++
		c.Happened++
		w.stats.Steps++
		c.Mattered += b2i(h.up)
		h.kill(true, 0)
	}
}

func (w *world) aliveVoters() (n int) {
	for _, h := range w.hosts[:w.numVoters()] {
		if !h.lost {
			n++
		}
	}
	return n
}

// unavailable says that a partition rightly takes no writes: nobody who may lead it is left, or not enough replicas are.
func (w *world) unavailable(topic int, partition int32) bool {
	of := w.oracle.find(w.plan.Topics[topic].Name, partition)
	if of == nil || w.oracle.image == nil || len(w.hosts) == 1 {
		return false
	}
	p := w.oracle.image.Partition(of.id)
	if p == nil {
		return false
	}
	return w.lacks(p, of, w.minInSync(topic))
}

// minInSync is a topic's min.insync.replicas, which is at most the number of its replicas.
func (w *world) minInSync(topic int) int {
	t := &w.plan.Topics[topic]
	if n, err := strconv.Atoi(t.setting("min.insync.replicas")); err == nil {
		return n
	}
	if len(w.plan.Brokers) >= 3 && t.Replicas >= 3 {
		return 2
	}
	return 1
}

// convergeTime is how long replicas have, in virtual time, to be equal once all is written.
const convergeTime = 60 * second

// converge waits until every replica that is left is in sync and byte for byte the same.
func (w *world) converge() {
	if len(w.hosts) == 1 || w.harmedAtAll() {
		return
	}
	why := ""
	w.runUntil(w.now+w.bound(convergeTime), func() bool { why = w.apart(); return why == "" })
	switch {
	case w.failure != nil:
	case why != "":
		w.fail("not converged", "%d seconds after the last write %s", convergeTime/second, why)
	default:
		w.compareImages()
	}
}

// compareImages demands that whoever has applied the metadata log up to the same offset believes the same (rule 12).
func (w *world) compareImages() {
	byNext := map[int64]*host{}
	for _, h := range w.hosts {
		if h.core == nil {
			continue
		}
		im := h.core.Image()
		other := byNext[im.Next()]
		if other == nil {
			byNext[im.Next()] = h
			continue
		}
		mine, theirs := im.Snapshot(), other.core.Image().Snapshot()
		if !slices.EqualFunc(mine, theirs, bytes.Equal) {
			w.fail("images differ", "%s and %s have both applied the metadata log up to %d, and their images differ", other.name(), h.name(), im.Next())
			return
		}
	}
}

// apart says what keeps the replicas from being equal; nothing if they are.
func (w *world) apart() string {
	for p := range w.oracle.image.AllPartitions() {
		of := w.oracle.partitions[p.Partition]
		if of == nil || w.excusedLabel(of) {
			continue
		}
		if why := w.partApart(p, of); why != "" {
			return of.label + ": " + why
		}
	}
	return ""
}

func (w *world) excusedLabel(of *agreed) bool {
	for i := range w.plan.Topics {
		if w.plan.Topics[i].Name == of.topic {
			return w.excused(i, of.id.Index)
		}
	}
	return of.lenient(w) || of.topic == group.OffsetsTopic && w.unusable(of)
}

func (w *world) partApart(p *controller.Partition, of *agreed) string {
	var first *truth
	for _, id := range p.Replicas {
		h, t := w.hosts[id-1], w.oracle.logs[replicaKey{int(id) - 1, of.id}]
		switch {
		case h.lost:
			continue
		case p.Leader == controller.NoLeader:
			return "it has no leader"
		case !slices.Contains(p.ISR, id):
			return h.name() + " is not in sync"
		case t == nil:
			return h.name() + " has no log"
		case first == nil:
			first = t
			continue
		}
		if t.end() != first.end() || len(t.batches) > 0 && len(first.batches) > 0 && !t.batches[len(t.batches)-1].same(first.batches[len(first.batches)-1]) {
			return h.name() + " ends at " + strconv.FormatInt(t.end(), 10) + ", " + first.host.name() + " at " + strconv.FormatInt(first.end(), 10)
		}
	}
	return ""
}
