package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// options are what a run is made of.
type options struct {
	rounds, partitions, producers, rate int
	load                                time.Duration
	faults                              []string
	deletes                             bool
	binary, dir                         string
	seed                                uint64

	brokers int  // more than one are a cluster (cluster_run.go)
	verbose bool // the brokers log at level debug
}

const topic = "jepsen"

// summary is what came of a run.
type summary struct {
	rounds   int
	faults   map[string]int
	struck   int // faults that came while produce requests were under way
	ready    []time.Duration
	took     time.Duration
	acked    int
	unknown  int
	failed   int
	records  int
	checking time.Duration
	report   linearizability.Report
}

// String is the summary in one line.
func (s summary) String() string {
	slices.Sort(s.ready)
	return fmt.Sprintf("rounds=%d kills=%d stops=%d pauses=%d in_flight=%d ready_median=%s ready_max=%s acked=%d unknown=%d refused=%d read=%d seconds=%.1f check=%s history: %s",
		s.rounds, s.faults["kill"], s.faults["stop"], s.faults["pause"], s.struck, s.ready[len(s.ready)/2].Round(time.Millisecond),
		s.ready[len(s.ready)-1].Round(time.Millisecond), s.acked, s.unknown, s.failed, s.records, s.took.Seconds(),
		s.checking.Round(time.Millisecond), s.report)
}

// run does a whole run: a broker, load, faults, the final read, the check.
func run(o options) (s summary, err error) {
	for _, f := range o.faults {
		if !slices.Contains([]string{"kill", "stop", "pause"}, f) {
			return s, fmt.Errorf("no fault %q", f)
		}
	}
	keep, err := o.prepare()
	if err != nil {
		return s, err
	}
	defer func() {
		if !keep {
			os.RemoveAll(o.dir)
		}
	}()
	h, s, err := torment(o)
	if err != nil {
		keep = true
		return s, fmt.Errorf("%w\n(see %s)", err, o.dir)
	}
	began := time.Now()
	s.report = linearizability.Check(h, linearizability.Options{Sends: true})
	s.checking = time.Since(began)
	s.count(h)
	if s.report.Verdict == linearizability.Violated {
		keep = true
		return s, errors.Join(fmt.Errorf("%s\n(see %s)", s, o.dir), save(h, &s.report, o.dir))
	}
	return s, nil
}

// prepare makes the directory and the binary where none were given, and says whether the directory is the caller's.
func (o *options) prepare() (keep bool, err error) {
	keep = o.dir != ""
	if !keep {
		if o.dir, err = os.MkdirTemp("", "jepsen-"); err != nil {
			return false, err
		}
	}
	if o.binary != "" {
		return keep, nil
	}
	o.binary = filepath.Join(o.dir, "lockstep")
	return keep, build(o.binary)
}

// build builds the broker's binary.
func build(to string) error {
	out, err := exec.Command("go", "build", "-o", to, "lockstep/cmd/lockstep").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the broker: %w\n%s", err, out)
	}
	return nil
}

// save writes what a violation is to be judged by.
func save(h *linearizability.History, r *linearizability.Report, dir string) error {
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	page, err := os.Create(filepath.Join(dir, "history.html"))
	if err != nil {
		return err
	}
	defer page.Close()
	return errors.Join(h.Write(f), r.WriteHTML(page))
}

func (s *summary) count(h *linearizability.History) {
	for i := range h.Ops {
		op := &h.Ops[i]
		switch {
		case op.Kind == linearizability.Fetch:
			s.records += len(op.Records)
		case op.Kind != linearizability.Produce:
		case op.Outcome == linearizability.OK:
			s.acked++
		case op.Outcome == linearizability.Failed:
			s.failed++
		default:
			s.unknown++
		}
	}
}

// torment is a run up to the check: it returns the history.
func torment(o options) (h *linearizability.History, s summary, err error) {
	began := time.Now()
	s.faults = map[string]int{}
	procs, err := newProcesses(o, 1)
	if err != nil {
		return nil, s, err
	}
	p := procs[0]
	defer p.kill()
	took, err := p.start()
	if err != nil {
		return nil, s, err
	}
	s.ready = append(s.ready, took)
	id, err := makeTopic(o, p.Addr)
	if err != nil {
		return nil, s, err
	}
	l := &load{r: newRecorder(topic), o: o, seeds: []string{p.Addr}, id: id}
	if err := l.start(); err != nil {
		return nil, s, err
	}
	err = s.strike(p, l, o)
	err = errors.Join(l.finish(err == nil), err)
	if err == nil {
		err = l.readEverything()
	}
	s.took = time.Since(began)
	return l.r.History(), s, err
}

// strike is the rounds.
func (s *summary) strike(p *process, l *load, o options) error {
	rng := rand.New(rand.NewPCG(o.seed, 0))
	for range o.rounds {
		time.Sleep(o.load/2 + time.Duration(rng.Int64N(int64(o.load))))
		if err := errors.Join(p.alive(), l.wrong()); err != nil {
			return err
		}
		if l.busy() {
			s.struck++
		}
		fault := o.faults[rng.IntN(len(o.faults))]
		s.faults[fault]++
		switch fault {
		case "kill":
			p.kill()
		case "stop":
			if err := p.stop(); err != nil {
				return err
			}
		case "pause":
			p.pause(time.Duration(rng.Int64N(int64(o.load))))
		}
		s.rounds++
		if fault == "pause" {
			continue
		}
		took, err := p.start()
		if err != nil {
			return err
		}
		s.ready = append(s.ready, took)
	}
	return nil
}

// makeTopic makes the topic and returns its id.
func makeTopic(o options, seed string) (id [16]byte, err error) {
	client, err := kgo.NewClient(clientOptions([]string{seed})...)
	if err != nil {
		return id, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, int32(o.partitions), int16(max(1, o.brokers))
	// Small segments, so that kills meet rolls.
	rc := kmsg.NewCreateTopicsRequestTopicConfig()
	rc.Name, rc.Value = "segment.bytes", kmsg.StringPtr("262144")
	rt.Configs = append(rt.Configs, rc)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return id, fmt.Errorf("creating the topic: %w", err)
	}
	return resp.Topics[0].TopicID, nil
}

// load is the clients.
type load struct {
	r     *recorder
	o     options
	seeds []string
	id    [16]byte

	producers []*producer
	verifier  *reader
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu  sync.Mutex
	err error
}

const readers = 2

func (l *load) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i := range l.o.producers {
		p, err := newProducer(l.r, i, producerKind(i, l.o), l.o, l.seeds)
		if err != nil {
			return err
		}
		l.producers = append(l.producers, p)
		l.wg.Go(p.run)
	}
	next := l.o.producers
	for i := range readers + 1 {
		c, err := newReader(l.r, next+i, l.o, l.seeds, l.id)
		if err != nil {
			return err
		}
		if l.verifier = c; i < readers {
			l.wg.Go(func() { l.fail(c.run(ctx)) })
		}
	}
	l.wg.Go(func() { l.fail(consume(ctx, l.r, next+readers+1, l.o, l.seeds)) })
	return nil
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *load) wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// busy says that some record is under way.
func (l *load) busy() bool {
	return slices.ContainsFunc(l.producers, func(p *producer) bool { return len(p.slots) > 0 })
}

// finish ends the load; patient waits for all answers.
func (l *load) finish(patient bool) error {
	patience := time.Millisecond
	if patient {
		patience = 20 * time.Second
	}
	var all error
	for _, p := range l.producers {
		p.stop()
	}
	for _, p := range l.producers {
		if err := p.finish(patience); patient {
			all = errors.Join(all, err)
		}
	}
	l.cancel()
	l.wg.Wait()
	return errors.Join(all, l.wrong())
}

// readEverything reads all partitions to the end.
func (l *load) readEverything() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for p := range int32(l.o.partitions) {
		if err := l.verifier.everything(ctx, p); err != nil {
			return fmt.Errorf("reading partition %d in the end: %w", p, err)
		}
	}
	return nil
}
