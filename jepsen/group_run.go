package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupFaults are what can happen to groups. Each ends with all brokers running and as many members in each group as it should have.
var groupFaults = map[string]func(*groupRun, *team) error{
	"kill-member":       (*groupRun).killMember,
	"kill-members":      (*groupRun).killMembers,
	"pause-member":      (*groupRun).pauseMember,
	"blink-member":      (*groupRun).blinkMember,
	"join":              (*groupRun).joinMember,
	"leave":             (*groupRun).leaveMember,
	"kill-coordinator":  (*groupRun).killCoordinator,
	"pause-coordinator": (*groupRun).pauseCoordinator,
	"kill-both":         (*groupRun).killCoordinatorAndMember,
}

const (
	fewestMembers = 2
	mostMembers   = 5
	firstMembers  = 3
)

// groupRun is one run against the groups of a cluster.
type groupRun struct {
	*clusterRun
	teams []*team
	truth [][]int64
	gsum  groupSummary
	log   *os.File // what members say that is no event
}

// runGroups does a whole run: brokers, producers, groups, faults, until every group has read everything, and the checks.
func runGroups(o options) (s groupSummary, err error) {
	for _, f := range o.faults {
		if groupFaults[f] == nil {
			return s, fmt.Errorf("no fault %q of groups", f)
		}
	}
	if o.partitions < mostMembers+2 { // two may join where there are the most
		return s, fmt.Errorf("%d partitions are too few for %d members", o.partitions, mostMembers+2)
	}
	keep, err := o.prepare()
	if err != nil {
		return s, err
	}
	defer func() {
		if !keep && err == nil {
			os.RemoveAll(o.dir)
		}
	}()
	r := &groupRun{clusterRun: &clusterRun{o: o, rng: rand.New(rand.NewPCG(o.seed, 0))}}
	h, err := r.torment()
	if err != nil {
		return r.gsum, fmt.Errorf("%w\n(see %s)", err, o.dir)
	}
	s = r.gsum
	s.measure(r.teams, r.o.partitions)
	var writes summary
	writes.count(h)
	s.acked = writes.acked
	s.report = linearizability.Check(h, linearizability.Options{Sends: true})
	if s.report.Verdict == linearizability.Violated {
		err = errors.Join(fmt.Errorf("%s", s.report), save(h, &s.report, o.dir))
	}
	for _, t := range r.teams {
		if len(t.looks) == 0 {
			err = errors.Join(err, fmt.Errorf("%s: nobody could read what it committed, in %d tries", t.group, t.asked))
		}
		v := checkGroup(&groupHistory{group: t.group, lives: t.everybody(), looks: t.looks, truth: r.truth})
		s.add(v)
		err = errors.Join(err, v.err())
	}
	if err != nil {
		err = fmt.Errorf("%s\n%w\n(see %s)", s, errors.Join(err, r.saveEvents()), o.dir)
	}
	return s, err
}

// torment is a run up to the checks: it returns the history of the writes.
func (r *groupRun) torment() (h *linearizability.History, err error) {
	began := time.Now()
	if r.c, err = newCluster(r.o); err != nil {
		return nil, err
	}
	for _, p := range r.c.procs {
		p.Args = append(p.Args, "-o", "group.initial.rebalance.delay.ms=0",
			"-o", fmt.Sprintf("group.consumer.session.timeout.ms=%d", groupSession.Milliseconds()),
			"-o", fmt.Sprintf("group.consumer.heartbeat.interval.ms=%d", groupHeartbeat.Milliseconds()))
	}
	defer func() { r.c.close(err != nil) }()
	if err := r.c.startAll(); err != nil {
		return nil, err
	}
	if r.log, err = os.Create(filepath.Join(r.o.dir, "members.log")); err != nil {
		return nil, err
	}
	defer r.log.Close()
	id, err := makeTopic(r.o, r.c.procs[0].Addr)
	if err != nil {
		return nil, err
	}
	if err := r.produce(id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
		r.endMembers()
	}()
	if err := r.makeTeams(); err != nil {
		return nil, err
	}
	for _, t := range r.teams {
		watching.Go(func() { r.watch(ctx, t) })
	}
	err = r.groupRounds()
	err = errors.Join(err, r.load.finish(err == nil))
	if err == nil {
		err = r.catchUp()
	}
	if err == nil {
		err = r.readTruth()
	}
	cancel()
	watching.Wait()
	err = errors.Join(err, r.leaveAll(err == nil))
	r.gsum.took = time.Since(began)
	return r.load.r.History(), err
}

// produce starts the producers, and has a reader for the end.
func (r *groupRun) produce(id [16]byte) error {
	r.load = &load{r: newRecorder(topic), o: r.o, seeds: r.c.seeds(), id: id, cancel: func() {}}
	for i := range r.o.producers {
		p, err := newProducer(r.load.r, i, idempotent, r.o, r.c.seeds())
		if err != nil {
			return err
		}
		r.load.producers = append(r.load.producers, p)
		r.load.wg.Go(p.run)
	}
	var err error
	r.load.verifier, err = newReader(r.load.r, r.o.producers, r.o, r.c.seeds(), id)
	return err
}

// makeTeams starts the groups: one of each kind, and one of static members.
func (r *groupRun) makeTeams() error {
	for _, kind := range []string{eager, cooperative, consumer, "static"} {
		t := &team{group: "jepsen-" + kind, kind: kind, log: r.log, seeds: r.c.seeds(), topicID: r.load.id}
		if kind == "static" {
			t.kind, t.static = cooperative, true
		}
		r.teams = append(r.teams, t)
		for range firstMembers {
			if err := t.join(""); err != nil {
				return err
			}
		}
	}
	_, err := r.settle(monotonic())
	return err
}

// lookEvery is how often somebody reads what a group committed, and lookPatience how long he waits for an answer.
const (
	lookEvery    = 100 * time.Millisecond
	lookPatience = 4 * pauseTime
)

// watch reads what a group committed, again and again.
func (r *groupRun) watch(ctx context.Context, t *team) {
	// It waits for a frozen coordinator, to see what that says when it is back.
	client, err := kgo.NewClient(append(clientOptions(r.c.seeds()), kgo.RequestTimeoutOverhead(lookPatience))...)
	if err != nil {
		return // the run has then no looks, and says so
	}
	defer client.Close()
	for admin := kadm.NewClient(client); ctx.Err() == nil; time.Sleep(lookEvery) {
		one, cancel := context.WithTimeout(ctx, lookPatience)
		from := monotonic()
		have, err := admin.FetchOffsets(one, t.group)
		cancel()
		if err == nil {
			err = have.Error()
		}
		t.mu.Lock()
		if t.asked++; err == nil {
			l := look{from: from, to: monotonic(), offsets: map[int32]int64{}}
			have.Each(func(o kadm.OffsetResponse) { l.offsets[o.Partition] = max(0, o.At) })
			t.looks = append(t.looks, l)
		}
		t.mu.Unlock()
	}
}

// groupRounds strikes again and again, each time when all groups have settled.
func (r *groupRun) groupRounds() error {
	faults, teams := slices.Clone(r.o.faults), slices.Clone(r.teams)
	for i := range r.o.rounds {
		if i%len(faults) == 0 { // each fault as often as any other
			r.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		if i%len(teams) == 0 {
			r.rng.Shuffle(len(teams), func(i, j int) { teams[i], teams[j] = teams[j], teams[i] })
		}
		time.Sleep(r.o.load/2 + time.Duration(r.rng.Int64N(int64(r.o.load))))
		if err := r.sound(); err != nil {
			return err
		}
		fault, t := faults[i%len(faults)], teams[i%len(teams)]
		r.note("round %d: %s of %s", i+1, fault, t.group)
		at := monotonic()
		if err := groupFaults[fault](r, t); err != nil {
			return fmt.Errorf("round %d, %s of %s: %w", i+1, fault, t.group, err)
		}
		over := monotonic()
		settled, err := r.settle(over)
		if err != nil {
			return fmt.Errorf("round %d, %s of %s: %w", i+1, fault, t.group, err)
		}
		r.gsum.strikes = append(r.gsum.strikes, groupStruck{fault: fault, group: t.group, at: at, over: over, settled: settled})
		if _, err := r.c.heal(); err != nil {
			return fmt.Errorf("round %d, %s of %s: %w", i+1, fault, t.group, err)
		}
	}
	return r.sound()
}

// sound says what went wrong that nobody did.
func (r *groupRun) sound() error {
	all := errors.Join(r.c.alive(), r.load.wrong())
	for _, t := range r.teams {
		all = errors.Join(all, t.wrong())
	}
	return all
}

// settlePatience is how long groups may take to settle. It is generous for loaded machines.
const settlePatience = 90 * time.Second

// settle waits until each partition is had by one member of each group that gets something of it, and returns since when.
func (r *groupRun) settle(after int64) (at int64, err error) {
	until := time.Now().Add(settlePatience)
	for {
		var why []string
		for _, t := range r.teams {
			if u := t.unsettled(r.o.partitions, after); u != "" {
				why = append(why, t.group+": "+u)
			}
		}
		if len(why) == 0 {
			return monotonic(), nil
		}
		if time.Now().After(until) {
			return 0, fmt.Errorf("groups have not settled within %s: %s", settlePatience, strings.Join(why, "; "))
		}
		time.Sleep(backoff)
	}
}

// coordinator finds the broker that coordinates a group, by its position.
func (r *groupRun) coordinator(t *team) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), healPatience)
	defer cancel()
	for {
		found := r.c.admin.FindGroupCoordinators(ctx, t.group)
		c, ok := found[t.group]
		if ok && c.Err == nil {
			return int(c.NodeID) - 1, nil
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("finding the coordinator of %s: %w", t.group, cmp.Or(c.Err, ctx.Err()))
		}
		time.Sleep(backoff)
	}
}

func (r *groupRun) any(t *team) *life {
	all := t.living()
	return all[r.rng.IntN(len(all))]
}

// replace starts another member in place of one, at once or when the others have had to do without it. A static one comes
// back as who it was.
func (r *groupRun) replace(t *team, gone *life) error {
	t.gone(gone)
	if r.rng.IntN(2) == 0 {
		r.downtime()
	}
	return t.join(gone.o.Instance)
}

func (r *groupRun) killMember(t *team) error {
	l := r.any(t)
	r.note("kill -9 of %s", l.name)
	l.kill()
	return r.replace(t, l)
}

// killMembers kills all of them at one instant.
func (r *groupRun) killMembers(t *team) error {
	all := t.living()
	r.note("kill -9 of all of %s", t.group)
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(l.kill)
	}
	wg.Wait()
	for _, l := range all {
		t.gone(l)
	}
	for _, l := range all {
		if err := t.join(l.o.Instance); err != nil {
			return err
		}
	}
	return nil
}

func (r *groupRun) freezeFor(t *team, d time.Duration) error {
	l := r.any(t)
	r.note("SIGSTOP of %s for %s", l.name, d)
	l.freeze()
	time.Sleep(d)
	l.thaw()
	return nil
}

// pauseMember freezes a member for longer than its session: it is removed, and finds out when it is back.
func (r *groupRun) pauseMember(t *team) error {
	return r.freezeFor(t, groupSession+time.Second+time.Duration(r.rng.Int64N(int64(2*time.Second))))
}

// blinkMember freezes it for a shorter time, or about as long.
func (r *groupRun) blinkMember(t *team) error {
	return r.freezeFor(t, time.Duration(r.rng.Int64N(int64(groupSession+groupHeartbeat))))
}

// joinMember adds a member, or two at once; where there are enough already, some leave at the same time.
func (r *groupRun) joinMember(t *team) error {
	for range 1 + r.rng.IntN(2) {
		if err := t.join(""); err != nil {
			return err
		}
	}
	for len(t.living()) > mostMembers {
		if err := r.dismiss(t); err != nil {
			return err
		}
	}
	return nil
}

func (r *groupRun) dismiss(t *team) error {
	l := r.any(t)
	r.note("SIGTERM of %s", l.name)
	t.gone(l)
	return l.leave()
}

// leaveMember has a member leave; where few are left, another joins at the same time.
func (r *groupRun) leaveMember(t *team) error {
	if len(t.living()) <= fewestMembers {
		if err := t.join(""); err != nil {
			return err
		}
	}
	return r.dismiss(t)
}

func (r *groupRun) killCoordinator(t *team) error {
	n, err := r.coordinator(t)
	if err != nil {
		return err
	}
	return r.strikeDown(n)
}

// pauseCoordinator freezes it for longer than a broker's session: another takes the group, and the old one finds out.
func (r *groupRun) pauseCoordinator(t *team) error {
	n, err := r.coordinator(t)
	if err != nil {
		return err
	}
	r.note("SIGSTOP of %d", n+1)
	r.c.procs[n].pause(pauseTime)
	r.note("SIGCONT of %d", n+1)
	return nil
}

// killCoordinatorAndMember kills both at one instant, or the coordinator while the group rebalances without the member.
func (r *groupRun) killCoordinatorAndMember(t *team) error {
	n, err := r.coordinator(t)
	if err != nil {
		return err
	}
	l := r.any(t)
	r.note("kill -9 of %s", l.name)
	l.kill()
	t.gone(l)
	if err := t.join(l.o.Instance); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(groupSession))))
	return r.strikeDown(n)
}

// catchUp waits until no group has any lag.
func (r *groupRun) catchUp() error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	for behind := "nobody answered"; ; time.Sleep(lookEvery) {
		lag, err := r.lag(ctx)
		switch {
		case err == nil && len(lag) == 0:
			r.gsum.caughtUp = time.Since(began)
			return nil
		case err == nil:
			behind = strings.Join(lag, "; ")
		case ctx.Err() == nil:
			behind = err.Error()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("groups have not caught up within %s: %s", settlePatience, behind)
		}
	}
}

// lag says what the topic holds that a group has not committed, a line for each partition of each.
func (r *groupRun) lag(ctx context.Context) (all []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	ends, err := r.c.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("where %s ends: %w", topic, err)
	}
	for _, t := range r.teams {
		have, err := r.c.admin.FetchOffsets(ctx, t.group)
		if err == nil {
			err = have.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("what %s has committed: %w", t.group, err)
		}
		for p := range int32(r.o.partitions) {
			end, ok := ends.Lookup(topic, p)
			if !ok {
				return nil, fmt.Errorf("partition %d has no end", p)
			}
			o, _ := have.Lookup(topic, p) // a group that has committed nothing is at the start
			if at := max(0, o.At); at != end.Offset {
				all = append(all, fmt.Sprintf("%s is at %d of partition %d, which ends at %d", t.group, at, p, end.Offset))
			}
		}
	}
	return all, nil
}

// readTruth reads what the topic holds.
func (r *groupRun) readTruth() error {
	if err := r.load.readEverything(); err != nil {
		return err
	}
	truth := r.load.r.History().Truth
	for p := range int32(r.o.partitions) {
		var values []int64
		for _, rec := range truth[linearizability.Key{Topic: topic, Partition: p}].Records {
			if rec.Offset != int64(len(values)) {
				return fmt.Errorf("partition %d holds offset %d where %d is next", p, rec.Offset, len(values))
			}
			values = append(values, rec.Value)
		}
		r.truth = append(r.truth, values)
	}
	return nil
}

// leaveAll has all members leave, the rest of them at once.
func (r *groupRun) leaveAll(patient bool) error {
	if !patient {
		return nil
	}
	var mu sync.Mutex
	var all error
	var wg sync.WaitGroup
	for _, t := range r.teams {
		for _, l := range t.living() {
			wg.Go(func() {
				err := l.leave()
				mu.Lock()
				defer mu.Unlock()
				all = errors.Join(all, err)
			})
			t.gone(l)
		}
	}
	wg.Wait()
	return all
}

// endMembers ends whoever is left.
func (r *groupRun) endMembers() {
	for _, t := range r.teams {
		for _, l := range t.living() {
			l.kill()
			t.gone(l)
		}
	}
}

func groupFaultNames() string {
	return strings.Join(slices.Sorted(maps.Keys(groupFaults)), ",")
}
