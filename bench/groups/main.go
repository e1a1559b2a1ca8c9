// Command groups measures what consumer groups cost: how long a large group
// takes to settle and how many requests that needs, with each protocol, and what
// a great many small groups cost a broker that has nothing else to do.
//
// The members of the large group are real clients (kgo) in this process; a crash
// is a client whose connections are gone and which gets no new ones. Requests are
// those that the broker counted, its CPU time is that of its process alone.
//
//	go run ./bench/groups [-members 100] [-partitions 1000] [-protocols classic,eager,consumer] [-idle 10000] [-rest 30s]
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lockstep/bench/process"
)

// options are the flags.
type options struct {
	members, partitions int
	protocols           []string
	idle                int
	rest                time.Duration
	heartbeat, session  time.Duration
	dir                 string
}

func main() {
	var o options
	var protocols string
	flag.IntVar(&o.members, "members", 100, "members of the large group; 0 leaves that part out")
	flag.IntVar(&o.partitions, "partitions", 1000, "partitions of the topic it reads")
	flag.StringVar(&protocols, "protocols", "classic,eager,consumer", "classic (cooperative-sticky), eager (classic, range), consumer (KIP-848)")
	flag.IntVar(&o.idle, "idle", 10_000, "groups of one member; 0 leaves that part out")
	flag.DurationVar(&o.rest, "rest", 30*time.Second, "how long the small groups are watched at rest")
	flag.DurationVar(&o.heartbeat, "heartbeat", 3*time.Second, "heartbeat interval of both protocols")
	flag.DurationVar(&o.session, "session", 10*time.Second, "session timeout of both protocols")
	flag.StringVar(&o.dir, "dir", "", "where to put files (default: a temporary directory, removed at the end)")
	flag.Parse()
	o.protocols = strings.Split(protocols, ",")
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "groups:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	if o.dir == "" {
		tmp, err := os.MkdirTemp("", "lockstep-groups-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		o.dir = tmp
	}
	for _, protocol := range o.protocols {
		if !slices.Contains([]string{"classic", "eager", "consumer"}, protocol) {
			return fmt.Errorf("-protocols: there is no %q", protocol)
		}
	}
	if o.members > 0 {
		fmt.Printf("%d members over %d partitions, heartbeat %v, session %v\n", o.members, o.partitions, o.heartbeat, o.session)
		fmt.Printf("%-10s %-14s %10s %10s %12s  %s\n", "protocol", "what", "seconds", "requests", "broker cpu", "of which")
		for _, protocol := range o.protocols {
			if err := withBroker(o, func(p *process.Process) error { return settle(o, p, protocol) }); err != nil {
				return fmt.Errorf("%s: %w", protocol, err)
			}
		}
	}
	if o.idle == 0 {
		return nil
	}
	for _, protocol := range []string{"classic", "consumer"} {
		if !slices.Contains(o.protocols, protocol) {
			continue
		}
		if err := withBroker(o, func(p *process.Process) error { return idle(o, p, protocol) }); err != nil {
			return fmt.Errorf("%d groups, %s: %w", o.idle, protocol, err)
		}
	}
	return nil
}

// withBroker runs do with a fresh broker.
func withBroker(o *options, do func(*process.Process) error) error {
	dir, err := os.MkdirTemp(o.dir, "broker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := process.StartBroker(dir, []string{
		"-o", fmt.Sprintf("group.consumer.heartbeat.interval.ms=%d", o.heartbeat.Milliseconds()),
		"-o", fmt.Sprintf("group.consumer.session.timeout.ms=%d", o.session.Milliseconds()),
	})
	if err != nil {
		return err
	}
	defer p.Stop()
	return do(p)
}
