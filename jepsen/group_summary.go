package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/linearizability"
)

// groupStruck is one fault of groups and what it cost.
type groupStruck struct {
	fault, group      string
	at, over, settled int64 // when it began, when it was over, and when all groups had settled
	unread            time.Duration
}

// measure finds the longest time, from each fault to its groups' being settled, in which some partition came to no member of the
// group that was struck.
func (s *groupSummary) measure(teams []*team, partitions int) {
	for _, t := range teams {
		came := make([][]int64, partitions)
		for _, l := range t.everybody() {
			for _, e := range l.events {
				if e.Kind == polled {
					came[e.Partition] = append(came[e.Partition], e.At)
				}
			}
		}
		for p := range came {
			slices.Sort(came[p])
		}
		for i := range s.strikes {
			if k := &s.strikes[i]; k.group == t.group {
				for _, of := range came {
					k.unread = max(k.unread, longestGap(of, k.at, k.settled))
				}
			}
		}
	}
}

// groupSummary is what came of a run.
type groupSummary struct {
	strikes        []groupStruck
	took, caughtUp time.Duration
	acked, members int
	groups         int
	verdict        groupVerdict // the sums over all groups
	report         linearizability.Report
}

func (s *groupSummary) add(v groupVerdict) {
	t := &s.verdict
	t.delivered, t.again, t.commits, t.refused = t.delivered+v.delivered, t.again+v.again, t.commits+v.commits, t.refused+v.refused
	t.owners, t.twice, t.awake, t.lost, t.looks = t.owners+v.owners, t.twice+v.twice, t.awake+v.awake, t.lost+v.lost, t.looks+v.looks
	t.wrong = append(t.wrong, v.wrong...)
	s.groups, s.members = s.groups+1, s.members+v.lives
}

// String is the summary in one line. Times are median/99th percentile/longest over the faults of a kind; groups have settled so
// long after the fault was over.
func (s groupSummary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rounds=%d groups=%d members=%d", len(s.strikes), s.groups, s.members)
	faults := map[string][]struck{}
	for _, k := range s.strikes {
		faults[k.fault] = append(faults[k.fault], struck{healed: time.Duration(k.settled - k.over), pause: k.unread})
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, " %s[n=%d unread %s settled %s]", name, len(faults[name]), quantiles(faults[name], func(k struck) time.Duration { return k.pause }),
			quantiles(faults[name], func(k struck) time.Duration { return k.healed }))
	}
	v := s.verdict
	fmt.Fprintf(&b, " acked=%d delivered=%d again=%d commits=%d refused=%d assignments=%d lost=%d overlaps=%d overlaps_unfrozen=%d looks=%d lag=0 after %s seconds=%.1f load=%s violations=%d history: %s",
		s.acked, v.delivered, v.again, v.commits, v.refused, v.owners, v.lost, v.twice, v.awake, v.looks, s.caughtUp.Round(time.Millisecond),
		s.took.Seconds(), loadAverage(), len(v.wrong), s.report)
	return b.String()
}

// saveEvents writes what members told, for whoever looks for the reason: a line an event, in order of time.
func (r *groupRun) saveEvents() error {
	type line struct {
		Life string `json:"life"`
		event
	}
	var all []line
	for _, t := range r.teams {
		for _, l := range t.everybody() {
			l.mu.Lock()
			for _, e := range l.events {
				all = append(all, line{l.name, e})
			}
			for _, p := range l.pauses {
				all = append(all, line{l.name, event{At: p.from, Kind: "SIGSTOP"}}, line{l.name, event{At: p.to, Kind: "SIGCONT"}})
			}
			if l.ended != 0 {
				all = append(all, line{l.name, event{At: l.ended, Kind: "end"}})
			}
			l.mu.Unlock()
		}
		for _, o := range t.looks {
			all = append(all, line{t.group, event{At: o.from, Kind: fmt.Sprintf("committed offsets, as read until %d", o.to), Commits: o.offsets}})
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(min(1, max(-1, a.At-b.At))) })
	f, err := os.Create(filepath.Join(r.o.dir, "groups.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	out := json.NewEncoder(f)
	for _, l := range all {
		err = errors.Join(err, out.Encode(l))
	}
	return err
}
