package segment

import (
	"maps"
	"testing"

	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestModel does to a Store what a broker, a disk and a power plant may, and compares it with plain lists.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, simdisk.New(rapid.Uint64().Draw(t, "disk"), simdisk.Options{}), smallLog)
		w.boot(w.d.Mount(), true)
		actions := w.changes()
		maps.Copy(actions, w.reads())
		maps.Copy(actions, w.faults())
		actions[""] = func(t *rapid.T) { w.checkBounds() }
		t.Repeat(actions)
	})
}

type actions = map[string]func(*rapid.T)

func drawLog(t *rapid.T) int { return rapid.IntRange(0, 2).Draw(t, "log") }

// drawOffset draws an offset of a log, or the one after its end.
func (w *world) drawOffset(t *rapid.T, n int) int64 {
	if w.cur[n] == nil {
		return 0
	}
	return rapid.Int64Range(0, w.cur[n].end+1).Draw(t, "offset")
}

// onOffset is an action on a log at an offset.
func (w *world) onOffset(f func(n int, off int64)) func(*rapid.T) {
	return func(t *rapid.T) {
		n := drawLog(t)
		f(n, w.drawOffset(t, n))
	}
}

func (w *world) changes() actions {
	return actions{
		"append": func(t *rapid.T) { w.append(drawLog(t), drawSpecs(t)...) },
		"more":   func(t *rapid.T) { w.append(drawLog(t), drawSpecs(t)...) },
		"commit": func(t *rapid.T) { w.commit(nil) },
		"commit one": func(t *rapid.T) {
			if l := w.logs[drawLog(t)]; l != nil {
				w.commit(nil, l)
			}
		},
		"append while syncing": func(t *rapid.T) {
			w.commit(func() { w.append(drawLog(t), drawSpecs(t)...) })
		},
		"truncate while syncing": func(t *rapid.T) {
			n := drawLog(t)
			w.commit(func() { w.truncate(n, w.drawOffset(t, n)) })
		},
		"truncate":       w.onOffset(w.truncate),
		"set start":      w.onOffset(w.setStart),
		"reset":          w.onOffset(w.reset),
		"retain":         func(t *rapid.T) { w.retain(drawLog(t), rapid.Int64Range(0, 5000).Draw(t, "bytes"), 0) },
		"retain by time": func(t *rapid.T) { w.retain(drawLog(t), -1, 1_001_500) },
		"epoch":          func(t *rapid.T) { w.newEpoch() },
		"producers":      w.onOffset(w.saveProducers),
		"checkpoint":     func(t *rapid.T) { w.checkpoint() },
		"state":          func(t *rapid.T) { w.saveState(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "state")) },
		"delete":         func(t *rapid.T) { w.delete(drawLog(t)) },
	}
}

func (w *world) reads() actions {
	return actions{
		"read": func(t *rapid.T) { w.read(drawLog(t)) },
		"look up": func(t *rapid.T) {
			n := drawLog(t)
			w.lookup(n, rapid.SampledFrom([]int64{MaxTimestamp, 0, 500, 1500, 3000}).Draw(t, "time"), w.drawOffset(t, n))
		},
	}
}

func (w *world) faults() actions {
	return actions{
		"stop":       func(t *rapid.T) { w.stop() },
		"kill":       func(t *rapid.T) { w.crash(false, dying(t, 0)) },
		"power loss": func(t *rapid.T) { w.crash(true, dying(t, 0)) },
		"misread":    func(t *rapid.T) { w.crash(rapid.Bool().Draw(t, "power"), misreading(t)) },
		"die later":  func(t *rapid.T) { w.d.AddRule(dying(t, 1)) },
		"fail a write": func(t *rapid.T) {
			w.d.AddRule(failing(t, simdisk.OpWrite, "*.log", simdisk.NoSpace, simdisk.IOError, simdisk.Short))
		},
		"fail a sync": func(t *rapid.T) {
			w.d.AddRule(failing(t, simdisk.OpSyncs, "", simdisk.IOError, simdisk.IOErrorStale))
		},
	}
}

func dying(t *rapid.T, least int) simdisk.Rule {
	return simdisk.Rule{
		Op: simdisk.OpAll, Nth: rapid.IntRange(least, 60).Draw(t, "calls"), Seed: rapid.Uint64().Draw(t, "seed"),
		Effect: rapid.SampledFrom([]simdisk.Effect{simdisk.Crash, simdisk.PowerCut}).Draw(t, "how"),
	}
}

func misreading(t *rapid.T) simdisk.Rule {
	return simdisk.Rule{
		Op: simdisk.OpRead, Nth: rapid.IntRange(1, 20).Draw(t, "calls"), Seed: rapid.Uint64().Draw(t, "seed"),
		Times: rapid.IntRange(0, 2).Draw(t, "times"), Effect: simdisk.RotRead,
	}
}

func failing(t *rapid.T, op simdisk.Op, path string, effects ...simdisk.Effect) simdisk.Rule {
	return simdisk.Rule{
		Op: op, Path: path, Nth: rapid.IntRange(1, 4).Draw(t, "calls"), Seed: rapid.Uint64().Draw(t, "seed"),
		Effect: rapid.SampledFrom(effects).Draw(t, "how"),
	}
}

func drawSpecs(t *rapid.T) []spec {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spec {
		return spec{
			records:  rapid.IntRange(1, 4).Draw(t, "records"),
			size:     rapid.SampledFrom([]int{0, 1, 50, 300, 900}).Draw(t, "size"),
			time:     rapid.Int64Range(0, 2000).Draw(t, "time"),
			producer: rapid.Int64Range(0, 2).Draw(t, "producer"),
		}
	}), 1, 3).Draw(t, "batches")
}

func (w *world) checkBounds() {
	for n, l := range w.logs {
		start, end := l.Bounds()
		require.Equal(w.t, w.cur[n].start, start)
		require.Equal(w.t, w.cur[n].end, end)
	}
}
