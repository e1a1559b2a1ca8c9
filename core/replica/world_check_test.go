package replica

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/core/log"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
)

// authority lets the controller do something.
func (w *world) authority() {
	st := w.auth.now()
	n := w.nodes[w.rnd.IntN(3)]
	switch {
	case !n.up && w.auth.alive[n.id]:
		w.auth.fence(n.id)
		w.note("authority: %d is fenced: %v", n.id, w.describe())
	case n.up && !w.auth.alive[n.id]:
		w.auth.alive[n.id] = true
		w.auth.change(func(*PartitionState) {})
		w.note("authority: %d is unfenced: %v", n.id, w.describe())
	case n.up && n.id != st.Leader && slices.Contains(st.ISR, n.id) && (w.chance(25) || st.Leader < 0):
		w.auth.elect(n.id)
		w.note("authority: %d is elected: %v", n.id, w.describe())
	}
}

func (w *world) describe() string {
	st := w.auth.now()
	return fmt.Sprintf("leader %d epoch %d.%d isr %v", st.Leader, st.LeaderEpoch, st.PartitionEpoch, st.ISR)
}

// check looks at everything that must hold at every moment.
func (w *world) check() {
	for _, n := range w.nodes {
		if n.r.resetting {
			continue // its log will begin at the high watermark
		}
		hw := n.r.HighWatermark()
		if hw > n.counts() {
			require.Fail(w, "too early", "%d takes for committed what does not count: %d > %d", n.id, hw, n.counts())
		}
		if n.r.Role() == Leader && n.r.LeaderEpoch() == w.auth.now().LeaderEpoch {
			if n.r.LogStart() < w.deleted {
				require.Fail(w, "undeleted", "%d leads and begins at %d; records below %d were deleted", n.id, n.r.LogStart(), w.deleted)
			}
			// Reads never go back: either this leader says that it does not know yet, or it knows what was committed before.
			if d := n.r.ConsumerFetch(w.now, n.r.LogStart(), -1, -1, false); !d.Unsettled && d.Limit < w.before {
				require.Fail(w, "reads go back", "%d serves reads up to %d, %d were committed before its epoch", n.id, d.Limit, w.before)
			}
		}
		content := n.contents()
		for len(w.committed) < int(hw) {
			w.committed = append(w.committed, content[len(w.committed)])
		}
		w.agrees(n, int(hw), "knows it committed")
	}
	for _, id := range w.auth.now().ISR {
		n := w.nodes[id-1]
		if n.counts() < int64(len(w.committed)) {
			require.Fail(w, "lost", "%d is in sync, and its log counts to %d; %d are committed", id, n.counts(), len(w.committed))
		}
		w.agrees(n, len(w.committed), "is in sync")
	}
	for _, a := range w.fresh {
		if a.offset >= int64(len(w.committed)) || w.committed[a.offset] != a.value {
			require.Fail(w, "lost", "%s is acknowledged at %d and not committed there", a.value, a.offset)
		}
	}
	w.fresh = w.fresh[:0]
}

// agrees compares a member's log with what is committed, as far as they have not been compared since it was cut.
func (w *world) agrees(n *member, end int, why string) {
	content := n.contents()
	n.checked = min(n.checked, len(content))
	for ; n.checked < end; n.checked++ {
		if v := content[n.checked]; v != "" && v != w.committed[n.checked] {
			require.Fail(w, "differs", "%d %s, and has %s at %d, where %s is committed", n.id, why, content[n.checked], n.checked, w.committed[n.checked])
		}
	}
}

// counts is the end of what counts of a member's file.
func (n *node) counts() int64 {
	if n.cfg.Sync {
		return n.durable
	}
	return n.end()
}

// contents returns the values of a member's file by offset, "" where it never had them because they were deleted before.
func (n *node) contents() []string {
	for ; n.known < len(n.batches); n.known++ {
		b := n.batches[n.known]
		n.cache = n.cache[:min(len(n.cache), int(b.BaseOffset()))]
		n.pad(b.BaseOffset())
		for x := range b.Records(nil, record.Limits{}) {
			n.cache = append(n.cache, string(x.Value))
		}
	}
	n.pad(n.end())
	return n.cache
}

func (n *node) pad(end int64) {
	for int64(len(n.cache)) < end {
		n.cache = append(n.cache, "")
	}
}

// finish heals everything and sees that it comes to rest in one state.
func (w *world) finish() {
	w.calm = true
	w.note("healed")
	for _, n := range w.nodes { // patience enough for a world in which little happens in a second
		n.cfg.LagMax, n.most = time.Minute, 50
		n.r.Configure(w.now, n.cfg, &n.out)
		n.carryOut()
	}
	for range 4000 {
		w.step()
	}
	st := w.auth.now()
	require.Len(w, st.ISR, 3, "everybody is in sync again")
	for _, p := range w.producers {
		require.Positive(w, p.seq, "producer %d has never succeeded", p.id)
	}
	w.quiet = true // and then nobody writes
	for range 1500 {
		w.step()
	}
	want := w.nodes[0]
	for _, n := range w.nodes { // who begins the latest has what all have
		if n.start > want.start {
			want = n
		}
	}
	for _, n := range w.nodes {
		values := n.values()
		require.Equal(w, want.values(), values[max(0, len(values)-len(want.values())):], "%d", n.id)
		require.Equal(w, n.end(), n.r.HighWatermark(), "%d does not know all of it committed", n.id)
		require.Equal(w, w.tableOf(want), w.tableOf(n), "%d: producer table", n.id)
	}
	seen := map[string]bool{}
	for _, v := range w.committed {
		require.False(w, seen[v] && !strings.HasPrefix(v, "noise"), "%s is in the log twice", v)
		seen[v] = true
	}
}

// tableOf is what a replica would say to the producers' last batches and their next.
func (w *world) tableOf(n *member) (list []log.Verdict) {
	for _, p := range w.producers {
		for seq := p.seq - 1; seq <= p.seq+1; seq++ {
			h := record.Header{ProducerID: p.id, BaseSequence: seq}
			list = append(list, n.r.Log().Producers().Check(&h))
		}
	}
	return list
}
