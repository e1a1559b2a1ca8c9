package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"lockstep/bench/process"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "work"

// member is one client of the large group.
type member struct {
	g     *largeGroup
	cl    *kgo.Client
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

// dial connects, unless the member has crashed.
func (m *member) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.dead {
		conn.Close()
		return nil, errors.New("crashed")
	}
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

// crash takes the member's connections away for good, so that it can tell nobody.
func (m *member) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		c.Close()
	}
}

// largeGroup knows which member has what, from what the clients are told.
type largeGroup struct {
	o        *options
	broker   *process.Process
	protocol string
	mu       sync.Mutex
	has      map[*member]map[int32]bool // of those that count
	changes  int
	changed  time.Time
	news     chan struct{} // something changed
}

// join starts one more member.
func (g *largeGroup) join() (*member, error) {
	m := &member{g: g}
	g.mu.Lock()
	g.has[m] = map[int32]bool{}
	g.mu.Unlock()
	opts := []kgo.Opt{kgo.SeedBrokers(g.broker.Addr), kgo.ConsumerGroup("large"), kgo.ConsumeTopics(topic), kgo.Dialer(m.dial),
		kgo.HeartbeatInterval(g.o.heartbeat), kgo.SessionTimeout(g.o.session),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { g.note(m, p[topic], true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { g.note(m, p[topic], false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { g.note(m, p[topic], false) })}
	switch g.protocol {
	case "eager":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case "consumer":
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	var err error
	m.cl, err = kgo.NewClient(opts...)
	return m, err
}

// gone says that a member does not count any more.
func (g *largeGroup) gone(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.has, m)
}

func (g *largeGroup) note(m *member, partitions []int32, has bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	set := g.has[m]
	if set == nil || len(partitions) == 0 {
		return
	}
	for _, p := range partitions {
		if has {
			set[p] = true
		} else {
			delete(set, p)
		}
	}
	g.changes++
	g.changed = time.Now()
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// settled is whether each partition has one member and the members as many as each other, give or take one.
func (g *largeGroup) settled() (bool, int, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	owned, least, most := map[int32]int{}, g.o.partitions, 0
	for _, set := range g.has {
		least, most = min(least, len(set)), max(most, len(set))
		for p := range set {
			owned[p]++
		}
	}
	for _, n := range owned {
		if n != 1 {
			return false, g.changes, g.changed
		}
	}
	return len(owned) == g.o.partitions && most-least <= 1, g.changes, g.changed
}

// quiet is how long nothing may change in a group that has settled.
const quiet = 5 * time.Second

// measure does something to the group, waits until it has settled and prints what that took.
func (g *largeGroup) measure(what string, do func() error) error {
	before, err := look(g.broker)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	limit := time.After(3 * time.Minute)
	for {
		ok, changes, at := g.settled()
		if !ok {
			select {
			case <-g.news:
			case <-limit:
				return fmt.Errorf("%s: the group does not settle", what)
			}
			continue
		}
		after, err := look(g.broker)
		if err != nil {
			return err
		}
		time.Sleep(quiet)
		if ok, now, _ := g.settled(); !ok || now != changes {
			continue
		}
		n, each := after.since(before)
		fmt.Printf("%-10s %-14s %10.2f %10d %12v  %s\n", g.protocol, what, max(at.Sub(began), 0).Seconds(), n, after.cpu-before.cpu, each)
		return nil
	}
}

// settle measures how a large group settles.
func settle(o *options, p *process.Process, protocol string) error {
	admin, err := kgo.NewClient(kgo.SeedBrokers(p.Addr))
	if err != nil {
		return err
	}
	defer admin.Close()
	a, ctx := kadm.NewClient(admin), context.Background()
	if _, err := a.CreateTopic(ctx, int32(o.partitions), 1, nil, topic); err != nil {
		return err
	}
	if _, err := a.FetchOffsets(ctx, "large"); err != nil { // makes the offsets topic, which is not what is measured
		return err
	}
	g := &largeGroup{o: o, broker: p, protocol: protocol, has: map[*member]map[int32]bool{}, news: make(chan struct{}, 1)}
	var all []*member
	join := func() error {
		m, err := g.join()
		if err == nil {
			all = append(all, m)
		}
		return err
	}
	take := func() *member {
		m := all[0]
		all = all[1:]
		g.gone(m)
		return m
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"first balance", func() error {
			for range o.members {
				if err := join(); err != nil {
					return err
				}
			}
			return nil
		}},
		{"one join", join},
		{"one leave", func() error { take().cl.Close(); return nil }},
		{"one crash", func() error { m := take(); m.crash(); go m.cl.Close(); return nil }},
	} {
		if err := g.measure(step.what, step.do); err != nil {
			return err
		}
	}
	var left sync.WaitGroup
	for _, m := range all {
		left.Go(func() { m.crash(); m.cl.Close() })
	}
	left.Wait()
	return nil
}
