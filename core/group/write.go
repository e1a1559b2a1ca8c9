package group

import (
	"lockstep/core"
)

// write is a write that is under way, and what to do when its outcome is known. Exactly one of the two is called.
type write struct {
	g      *group
	done   func()
	failed func(code int16)
}

// write appends records of a group.
func (c *Coordinator) write(g *group, records []Record, done func(), failed func(code int16)) *write {
	c.seq++
	w := &write{g, done, failed}
	c.writes[c.seq] = w
	c.out.Writes = append(c.out.Writes, Write{g.part.index, c.seq, records})
	return w
}

// change appends records that change a group's membership. Until their outcome is known, whatever else concerns the group
// waits, and others are shown what was before: so the change may already be applied, as long as failed undoes it.
func (c *Coordinator) change(g *group, before view, records []Record, done func(), failed func(code int16)) {
	g.shown = before
	g.busy = c.write(g, records, func() {
		g.busy = nil
		done()
		c.drain(g)
	}, func(code int16) {
		if writeError(code) == errServer {
			c.log(levelError, "group's record is too large for the offsets topic", "group", g.id, "error", code)
		}
		g.busy = nil
		failed(code)
		c.drain(g)
	})
}

// chunkRecords is how many tombstones one write has at most, so that it fits into a batch.
const chunkRecords = 1000

// erase appends tombstones, of any number, as a change of the group. Those that are committed are applied also if one of a
// later write fails.
func (c *Coordinator) erase(g *group, tombs []tombstone, done func(), failed func(code int16)) {
	if len(tombs) == 0 {
		done()
		return
	}
	n := min(len(tombs), chunkRecords)
	records := make([]Record, n)
	for i := range records {
		records[i].Key = tombs[i].key
	}
	c.change(g, g.view(), records, func() {
		for _, t := range tombs[:n] {
			t.apply()
		}
		if n == len(tombs) {
			done()
			return
		}
		c.erase(g, tombs[n:], done, failed)
	}, failed)
}

// tombstone erases a key; apply takes what it held out of the state.
type tombstone struct {
	key   []byte
	apply func()
}

// Committed says that a write is committed: on every in-sync replica, durably.
func (c *Coordinator) Committed(now core.Time, seq uint64, out *Out) {
	c.enter(now, out)
	if w := c.writes[seq]; w != nil {
		delete(c.writes, seq)
		c.settleAlone(w.g.part)
		w.done()
	}
}

// WriteFailed says that a write was refused with a Kafka error code, or that it is not known what became of it: then, and only
// then, unknown is true, and the caller makes the partition lead anew (Resign, Lead, Load) before anything else.
func (c *Coordinator) WriteFailed(now core.Time, seq uint64, code int16, unknown bool, out *Out) {
	c.enter(now, out)
	w := c.writes[seq]
	if w == nil {
		return
	}
	if unknown { // what is in memory may differ from the log, which is loaded again
		c.Resign(now, w.g.part.index, out)
		return
	}
	delete(c.writes, seq)
	w.failed(code)
}
