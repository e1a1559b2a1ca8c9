package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"lockstep/linearizability"
)

// clusterFaults are what can happen to a cluster. Each says what it does, and ends with all brokers running.
var clusterFaults = map[string]func(*clusterRun, standing) error{
	"kill-leader":     (*clusterRun).killLeader,
	"kill-controller": (*clusterRun).killController,
	"kill-both":       (*clusterRun).killBoth,
	"kill-all":        (*clusterRun).killAll,
	"pause":           (*clusterRun).pause,
	"restart":         (*clusterRun).restart,
	"wipe":            (*clusterRun).wipe,
}

// clusterRun is one run against a cluster.
type clusterRun struct {
	o      options
	c      *cluster
	load   *load
	groups *groupLoad
	rng    *rand.Rand
	sum    clusterSummary
}

// runCluster does a whole run: brokers, load, faults, the final read, the checks.
func runCluster(o options) (s clusterSummary, err error) {
	for _, f := range o.faults {
		if clusterFaults[f] == nil {
			return s, fmt.Errorf("no fault %q", f)
		}
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
	r := &clusterRun{o: o, rng: rand.New(rand.NewPCG(o.seed, 0))}
	h, err := r.torment()
	if err != nil {
		return r.sum, fmt.Errorf("%w\n(see %s)", err, o.dir)
	}
	s = r.sum
	s.count(h, o)
	began := time.Now()
	s.report = linearizability.Check(h, linearizability.Options{Sends: true})
	s.checking = time.Since(began)
	if o.verbose {
		err = save(h, &s.report, o.dir)
	}
	if s.report.Verdict == linearizability.Violated {
		return s, errors.Join(fmt.Errorf("%s\n(see %s)", s, o.dir), save(h, &s.report, o.dir))
	}
	if s.errors > 0 {
		return s, errors.Join(fmt.Errorf("%s\nidempotent producers got errors that no retry hid, the first: %s (see %s)", s, s.firstError, o.dir), save(h, &s.report, o.dir))
	}
	return s, nil
}

// torment is a run up to the check: it returns the history.
func (r *clusterRun) torment() (h *linearizability.History, err error) {
	began := time.Now()
	if r.c, err = newCluster(r.o); err != nil {
		return nil, err
	}
	defer func() { r.c.close(err != nil) }()
	if err := r.c.startAll(); err != nil {
		return nil, err
	}
	id, err := makeTopic(r.o, r.c.procs[0].Addr)
	if err != nil {
		return nil, err
	}
	r.load = &load{r: newRecorder(topic), o: r.o, seeds: r.c.seeds(), id: id}
	if err := r.load.start(); err != nil {
		return nil, err
	}
	r.groups = newGroupLoad(r.load, r.o)
	err = r.rounds()
	err = errors.Join(r.load.finish(err == nil), r.groups.finish(err == nil), err)
	if err == nil {
		err = r.load.readEverything()
	}
	if err == nil {
		err = r.converge()
	}
	r.sum.took, r.sum.committed = time.Since(began), int(r.groups.commits.Load())
	return r.load.r.History(), err
}

// converge stops the brokers cleanly and compares what they hold.
func (r *clusterRun) converge() error {
	if _, err := r.c.heal(); err != nil {
		return err
	}
	for i, p := range r.c.procs {
		if err := p.stop(); err != nil {
			return fmt.Errorf("broker %d: %w", i+1, err)
		}
	}
	return r.c.compare()
}

// rounds strikes again and again. Each round begins with all replicas in sync, so that each fault's cost is its own.
func (r *clusterRun) rounds() error {
	faults := slices.Clone(r.o.faults)
	for i := range r.o.rounds {
		if i%len(faults) == 0 { // each fault as often as any other
			r.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		now, err := r.c.heal()
		if err == nil {
			time.Sleep(r.o.load/2 + time.Duration(r.rng.Int64N(int64(r.o.load))))
			err = errors.Join(r.c.alive(), r.load.wrong())
		}
		if err != nil {
			return err
		}
		strike := struck{fault: faults[i%len(faults)], at: r.load.r.now(), busy: r.load.busy()}
		r.note("round %d: %s", i+1, strike.fault)
		if err := clusterFaults[strike.fault](r, now); err != nil {
			return fmt.Errorf("round %d, %s: %w", i+1, strike.fault, err)
		}
		began := time.Now()
		if _, err := r.c.heal(); err != nil {
			return fmt.Errorf("round %d, %s: %w", i+1, strike.fault, err)
		}
		strike.healed, strike.until = time.Since(began), r.load.r.now()
		r.sum.strikes = append(r.sum.strikes, strike)
	}
	return nil
}

// note writes into every broker's log, so that a reader of it knows what was done to them.
func (r *clusterRun) note(format string, args ...any) {
	line := fmt.Sprintf("--- %s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	for _, p := range r.c.procs {
		p.logFile.WriteString(line)
	}
	if r.o.verbose {
		fmt.Fprint(os.Stderr, line)
	}
}

// downtime is how long a broker stays down, so that the others must do without it.
func (r *clusterRun) downtime() {
	time.Sleep(time.Second + time.Duration(r.rng.Int64N(int64(time.Second))))
}

// anyLeader picks a leader of a partition, not the controller if there is another.
func (r *clusterRun) anyLeader(now standing) int {
	others := slices.DeleteFunc(slices.Clone(now.leaders), func(n int) bool { return n < 0 || n == now.controller })
	if len(others) == 0 {
		return now.controller
	}
	return others[r.rng.IntN(len(others))]
}

// strikeDown kills brokers, leaves them down for a while, and starts them again.
func (r *clusterRun) strikeDown(which ...int) error {
	r.note("kill -9 of %v", ids(which))
	r.c.kill(which...)
	r.downtime()
	r.note("start of %v", ids(which))
	return r.c.start(which...)
}

func ids(which []int) []int {
	all := make([]int, len(which))
	for i, n := range which {
		all[i] = n + 1
	}
	return all
}

func (r *clusterRun) killLeader(now standing) error { return r.strikeDown(r.anyLeader(now)) }

func (r *clusterRun) killController(now standing) error { return r.strikeDown(now.controller) }

// killBoth kills the controller and another broker that leads, at one instant. Two of three are no majority less
// one, so they come back at once.
func (r *clusterRun) killBoth(now standing) error {
	which := []int{now.controller, r.anyLeader(now)}
	if which[1] == which[0] {
		which = which[:1]
	}
	r.note("kill -9 of %v", ids(which))
	r.c.kill(which...)
	return r.c.start(which...)
}

func (r *clusterRun) killAll(standing) error {
	var which []int
	for i := range r.c.procs {
		which = append(which, i)
	}
	r.c.kill(which...)
	return r.c.start(which...)
}

// pauseTime is longer than every lease and session: the frozen broker is deposed, and finds out when it is back.
const pauseTime = 5 * time.Second

func (r *clusterRun) pause(now standing) error {
	n := r.anyLeader(now)
	if r.rng.IntN(2) == 0 {
		n = now.controller
	}
	r.note("SIGSTOP of %d", n+1)
	r.c.procs[n].pause(pauseTime)
	r.note("SIGCONT of %d", n+1)
	return nil
}

// restart restarts one broker after the other, cleanly, each when the one before is in sync again.
func (r *clusterRun) restart(standing) error {
	for i, p := range r.c.procs {
		r.note("SIGTERM of %d", i+1)
		began := time.Now()
		if err := p.stop(); err != nil {
			return err
		}
		r.sum.stops = append(r.sum.stops, time.Since(began))
		if err := r.c.start(i); err != nil {
			return err
		}
		if _, err := r.c.heal(); err != nil {
			return err
		}
	}
	return nil
}

// wipe kills a broker and takes away what it held of topics before it comes back.
func (r *clusterRun) wipe(now standing) error {
	n := r.rng.IntN(len(r.c.procs))
	for n == now.controller {
		n = r.rng.IntN(len(r.c.procs))
	}
	r.note("kill -9 and wipe of %d", n+1)
	r.c.kill(n)
	logs, err := r.c.wipe(n)
	if err != nil {
		return err
	}
	if logs == 0 {
		return errors.New("there was nothing to wipe")
	}
	if r.rng.IntN(2) == 0 { // else it is back before anybody has noticed
		r.downtime()
	}
	return r.c.start(n)
}

// faultNames lists the faults for the flag's help.
func faultNames() string {
	var names []string
	for name := range clusterFaults {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
