package segment

import (
	"fmt"
	"testing"

	"lockstep/core/log"
	"lockstep/sim/simdisk"

	"github.com/stretchr/testify/require"
)

// scenario is a bit of everything, in which the next test dies in every single disk call.
func scenario(w *world) {
	w.append(0, spec{size: 300}, spec{records: 3, size: 50, producer: 1})
	w.append(1, spec{size: 900})
	w.commit(nil)
	w.checkpoint()
	w.newEpoch()
	w.append(0, spec{records: 2, size: 700, producer: 1}, spec{size: 300})
	w.commit(func() { w.append(0, spec{size: 900, producer: 2}) })
	w.saveProducers(0, 5)
	w.append(2, spec{size: 10})
	w.append(0, spec{size: 900}, spec{size: 800})
	w.commit(nil) // many at once: a SyncAll
	w.saveState([]byte("vote"))
	w.truncate(0, 5)
	w.newEpoch()
	w.append(0, spec{size: 900}, spec{size: 100, producer: 1})
	w.append(0, spec{size: 900})
	w.commit(nil)
	w.setStart(0, 3)
	w.append(1, spec{size: 900})
	w.append(1, spec{size: 900})
	w.commit(nil)
	w.retain(1, 1000, 0)
	w.retain(2, -1, 2_000_000)
	w.setStart(2, 100)
	w.delete(1)
	w.append(1, spec{size: 500})
	w.append(2, spec{size: 500})
	w.commit(nil)
	w.stop()
	w.append(0, spec{size: 500})
	w.truncate(0, 1)
	w.append(0, spec{size: 500})
	w.stop()
	w.read(0)
}

func TestDieInEveryCall(t *testing.T) {
	for round, how := range []simdisk.Effect{simdisk.Crash, simdisk.PowerCut, simdisk.PowerCut} {
		calls := 0
		for fired := true; fired; calls++ {
			d := simdisk.New(uint64(3*calls+round), simdisk.Options{})
			d.AddRule(simdisk.Rule{Op: simdisk.OpAll, Nth: calls + 1, Effect: how, Seed: uint64(3*calls + round)})
			w := newWorld(named{t, fmt.Sprintf("%v in call %d", how, calls+1)}, d, smallLog)
			fs := d.Mount()
			if end := d.Run(func() { w.boot(fs, true) }); end != simdisk.Returned {
				w.crash(end == simdisk.Cut, simdisk.Rule{})
			}
			scenario(w)
			w.crash(true, simdisk.Rule{})
			fired = d.Stats().Fired[how] > 0
		}
		if calls < 300 {
			t.Errorf("the scenario takes only %d calls", calls)
		}
	}
}

// TestBeginWithProducersInEveryCall: a log that is to begin above its end begins there with its producers, or not at all.
func TestBeginWithProducersInEveryCall(t *testing.T) {
	table := log.NewProducers(0)
	table.Replay(build(spec{base: 77, producer: 5}).Header())
	producers := table.Below(100).Snapshot()
	for round, how := range []simdisk.Effect{simdisk.Crash, simdisk.PowerCut, simdisk.PowerCut} {
		begun := 0
		for nth, fired := 1, true; fired; nth++ {
			d := newDisk()
			s := openStore(t, d.Mount())
			l, _ := openLog(t, s, 0, smallLog)
			fill(t, l, 12, 300)
			require.NoError(t, l.SaveProducers(9, log.NewProducers(0).Snapshot()))
			commit(t, s)
			d.AddRule(simdisk.Rule{Op: simdisk.OpAll, Nth: nth, Effect: how, Seed: uint64(nth + 1000*round)})
			d.Run(func() {
				_, err := l.SetStart(100, producers)
				require.NoError(t, err)
			})
			fired = d.Stats().Fired[how] > 0
			d.ClearRules()
			d.PowerLoss()
			l, st := openLog(t, openStore(t, d.Mount()), 0, smallLog)
			if st.Start == 100 {
				begun++
				require.EqualValues(t, 100, st.End)
				require.Equal(t, table.Below(100).Snapshot(), st.Producers.Below(100).Snapshot(), "%v in call %d", how, nth)
			} else {
				require.EqualValues(t, 12, st.End)
				require.Zero(t, st.Producers.Len())
			}
			require.NoError(t, l.Verify())
		}
		require.Greater(t, begun, 1)
	}
}

// named says in which variant a test fails.
type named struct {
	*testing.T
	name string
}

func (n named) Errorf(format string, args ...any) {
	n.T.Helper()
	n.T.Errorf("%s: "+format, append([]any{n.name}, args...)...)
}
