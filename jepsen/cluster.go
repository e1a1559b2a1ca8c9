package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is brokers that are voters of one metadata quorum.
type cluster struct {
	procs []*process // broker 1 is the first
	admin *kadm.Client
}

// newCluster makes the brokers' directories and picks their ports.
func newCluster(o options) (*cluster, error) {
	procs, err := newProcesses(o, o.brokers)
	if err != nil {
		return nil, err
	}
	c := &cluster{procs: procs}
	client, err := kgo.NewClient(clientOptions(c.seeds())...)
	if err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(client)
	return c, nil
}

func (c *cluster) seeds() (all []string) {
	for _, p := range c.procs {
		all = append(all, p.Addr)
	}
	return all
}

// start starts brokers, given by their positions, at once, and waits until all of them serve.
func (c *cluster) start(which ...int) error {
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for i, n := range which {
		wg.Go(func() { _, errs[i] = c.procs[n].start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *cluster) startAll() error {
	all := make([]int, len(c.procs))
	for i := range all {
		all[i] = i
	}
	return c.start(all...)
}

// kill ends brokers as kill -9 does, at once.
func (c *cluster) kill(which ...int) {
	var wg sync.WaitGroup
	for _, n := range which {
		wg.Go(c.procs[n].kill)
	}
	wg.Wait()
}

// close ends what still runs; told why, with the stacks of its goroutines in the log.
func (c *cluster) close(failed bool) {
	c.admin.Close()
	for _, p := range c.procs {
		if failed && p.cmd != nil && p.alive() == nil {
			p.cmd.Process.Signal(syscall.SIGQUIT)
			select {
			case <-p.exited:
			case <-time.After(5 * time.Second):
			}
		}
	}
	for i := range c.procs {
		c.kill(i)
	}
}

func (c *cluster) alive() error {
	for i, p := range c.procs {
		if err := p.alive(); err != nil {
			return fmt.Errorf("broker %d: %w", i+1, err)
		}
	}
	return nil
}

// standing is who does what, as a broker told.
type standing struct {
	controller int   // position of the controller, -1 if none is known
	leaders    []int // position of each partition's leader, -1 if it has none
	whole      bool  // every replica of every topic is in sync
}

// standing asks until it is answered.
func (c *cluster) standing(ctx context.Context) (standing, error) {
	for {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := c.admin.Metadata(one)
		cancel()
		if err == nil {
			return c.standingOf(m), nil
		}
		if ctx.Err() != nil {
			return standing{}, fmt.Errorf("asking for metadata: %w", err)
		}
		time.Sleep(backoff)
	}
}

func (c *cluster) standingOf(m kadm.Metadata) standing {
	s := standing{controller: int(max(0, m.Controller)) - 1, whole: len(m.Brokers) == len(c.procs) && m.Controller > 0}
	for name, t := range m.Topics {
		for _, p := range t.Partitions.Sorted() {
			s.whole = s.whole && p.Leader > 0 && len(p.ISR) == len(p.Replicas)
			if name == topic {
				s.leaders = append(s.leaders, int(max(0, p.Leader))-1)
			}
		}
	}
	return s
}

// healPatience is how long replicas may take to be in sync again after a fault. It is generous for loaded machines.
const healPatience = 60 * time.Second

// heal waits until every replica is in sync, and returns what is then so.
func (c *cluster) heal() (standing, error) {
	ctx, cancel := context.WithTimeout(context.Background(), healPatience)
	defer cancel()
	for {
		s, err := c.standing(ctx)
		if err == nil && s.whole {
			return s, nil
		}
		if ctx.Err() != nil {
			return s, fmt.Errorf("replicas are not in sync %s after a fault: %s", healPatience, c.describe())
		}
		time.Sleep(5 * backoff)
	}
}

// describe lists the partitions that lack a leader or a replica.
func (c *cluster) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m, err := c.admin.Metadata(ctx)
	if err != nil {
		return err.Error()
	}
	lines := []string{fmt.Sprintf("%d brokers, controller %d", len(m.Brokers), m.Controller)}
	for _, t := range m.Topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				lines = append(lines, fmt.Sprintf("%s-%d: leader %d in epoch %d, replicas %v, in sync %v", t.Topic, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// wipe deletes what a broker that is down holds of topics. Its vote and its copy of the metadata log stay: a voter
// that forgot its vote could vote twice in one term (rule 11), so one must not return under its old id.
func (c *cluster) wipe(n int) (logs int, err error) {
	dirs, err := os.ReadDir(c.procs[n].Data)
	if err != nil {
		return 0, err
	}
	for _, d := range dirs {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), topic+"-") && !strings.HasPrefix(d.Name(), "__consumer_offsets-") {
			continue
		}
		logs++
		if err := os.RemoveAll(filepath.Join(c.procs[n].Data, d.Name())); err != nil {
			return logs, err
		}
	}
	return logs, nil
}

// compare says whether brokers that stopped cleanly hold the same bytes of every partition.
func (c *cluster) compare() error {
	var want map[string][]byte
	for i, p := range c.procs {
		have, err := logBytes(p.Data)
		if err != nil {
			return err
		}
		if i == 0 {
			want = have
			continue
		}
		for name, bytes := range want {
			if !slices.Equal(bytes, have[name]) {
				return fmt.Errorf("brokers 1 and %d hold different bytes of %s: %d and %d", i+1, name, len(bytes), len(have[name]))
			}
		}
	}
	return nil
}

// logBytes is what a broker holds of each partition of the topic: its segments one after the other.
func logBytes(data string) (map[string][]byte, error) {
	segments, err := filepath.Glob(filepath.Join(data, topic+"-*", "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(segments)
	all := map[string][]byte{}
	for _, s := range segments {
		bytes, err := os.ReadFile(s)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(filepath.Dir(s))
		all[name] = append(all[name], bytes...)
	}
	return all, nil
}
