package group

import "lockstep/core"

// change collects the records of one change of a consumer group. It is applied as it is collected, so that what is computed
// next sees it; undo takes it back if its write fails.
type change struct {
	g       *group
	begun   bool
	before  view // how the group was, once begun
	records []Record
	undos   []func()
	after   []func() // when it is committed
}

func newChange(g *group) *change { return &change{g: g} }

// begin notes how the group is before anything is changed. Most heartbeats change nothing, and do not pay for it.
func (x *change) begin() {
	if !x.begun {
		x.begun, x.before = true, x.g.view()
	}
}

// put adds a record and how to take back what it does.
func (x *change) put(r Record, undo func()) {
	x.records, x.undos = append(x.records, r), append(x.undos, undo)
}

func (x *change) undo() {
	for i := len(x.undos) - 1; i >= 0; i-- {
		x.undos[i]()
	}
}

// write writes the change, if there is any. Then done is called, or failed with what a client is to be told.
func (x *change) write(c *Coordinator, done func(), failed func(code int16)) {
	if len(x.records) == 0 { // nor anything to undo
		done()
		return
	}
	c.change(x.g, x.before, x.records, func() {
		for _, f := range x.after {
			f()
		}
		done()
	}, func(code int16) {
		x.undo()
		failed(writeError(code))
	})
}

// set replaces an element of a map, or takes it out if the value is nil, and returns how to take that back.
func set[K comparable, V any](m map[K]V, key K, v V, there bool) (undo func()) {
	old, was := m[key]
	if there {
		m[key] = v
	} else {
		delete(m, key)
	}
	return func() {
		if was {
			m[key] = old
		} else {
			delete(m, key)
		}
	}
}

// create makes the group one of KIP-848.
func (x *change) create() {
	x.begin()
	g := x.g
	g.consumer = newConsumer()
	x.undos = append(x.undos, func() { g.consumer = nil })
}

func (x *change) epoch(epoch int32, hash int64, now core.WallMillis) {
	x.begin()
	k := x.g.consumer
	e, h, s := k.epoch, k.hash, k.since
	k.epoch, k.hash, k.since = epoch, hash, int64(now)
	x.put(Record{groupKey(keyGroup, x.g.id), encodeGroup(epoch, hash)}, func() { k.epoch, k.hash, k.since = e, h, s })
}

func (x *change) targetEpoch(epoch int32) {
	x.begin()
	k := x.g.consumer
	e := k.targetEpoch
	k.targetEpoch = epoch
	x.put(Record{groupKey(keyTargetEpoch, x.g.id), encodeTargetEpoch(epoch)}, func() { k.targetEpoch = e })
}

func (x *change) target(id string, parts []core.Partition) {
	x.begin()
	x.put(Record{memberKey(keyTarget, x.g.id, id), encodePartitions(parts)}, set(x.g.consumer.target, id, parts, true))
}

// member sets what a member wants.
func (x *change) member(id string, m *subscriber) {
	x.begin()
	x.put(Record{memberKey(keyMember, x.g.id, id), encodeMember(m)}, x.g.consumer.setMember(id, m))
}

// current sets what a member has.
func (x *change) current(id string, cur *current) {
	x.begin()
	x.put(Record{memberKey(keyCurrent, x.g.id, id), encodeCurrent(cur)}, x.g.consumer.setCurrent(id, cur))
}

func (x *change) regex(re string, r *resolved) {
	x.begin()
	x.put(Record{memberKey(keyRegex, x.g.id, re), encodeResolved(r)}, set(x.g.consumer.regexes, re, r, true))
}

func (x *change) dropRegex(re string) {
	x.begin()
	x.put(Record{Key: memberKey(keyRegex, x.g.id, re)}, set(x.g.consumer.regexes, re, nil, false))
}

// remove takes a member out.
func (x *change) remove(id string) {
	x.begin()
	k := x.g.consumer
	x.put(Record{Key: memberKey(keyCurrent, x.g.id, id)}, k.setCurrent(id, nil))
	x.put(Record{Key: memberKey(keyTarget, x.g.id, id)}, set(k.target, id, nil, false))
	x.put(Record{Key: memberKey(keyMember, x.g.id, id)}, k.setMember(id, nil))
}

// setMember sets or removes a member, and keeps the instance ids.
func (k *consumer) setMember(id string, m *subscriber) (undo func()) {
	old := k.members[id]
	undoMember, undoOld, undoNew := set(k.members, id, m, m != nil), func() {}, func() {}
	if old != nil && old.instance != nil && k.static[*old.instance] == id {
		undoOld = set(k.static, *old.instance, "", false)
	}
	if m != nil && m.instance != nil {
		undoNew = set(k.static, *m.instance, id, true)
	}
	return func() {
		undoNew()
		undoOld()
		undoMember()
	}
}

// setCurrent sets what a member has, or that it has nothing, and keeps the owners.
func (k *consumer) setCurrent(id string, cur *current) (undo func()) {
	old := k.current[id]
	undoMap := set(k.current, id, cur, cur != nil)
	k.own(id, old, cur)
	return func() {
		undoMap()
		k.own(id, cur, old)
	}
}
