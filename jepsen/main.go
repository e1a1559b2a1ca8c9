package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if beMember() {
		return
	}
	var o options
	groups := flag.Bool("groups", false, "torment consumer groups: processes of their own, which are killed, frozen, join and leave, as are coordinators")
	faults := flag.String("faults", "", "what happens at the end of a round, drawn from: kill (kill -9), stop (SIGTERM), pause (SIGSTOP for a while); with -brokers from: "+faultNames()+"; with -groups from: "+groupFaultNames())
	flag.IntVar(&o.brokers, "brokers", 1, "brokers: more than one are a cluster, and the topic has as many replicas")
	flag.BoolVar(&o.verbose, "v", false, "say what is done to a cluster; its brokers log at level debug")
	flag.IntVar(&o.rounds, "rounds", 100, "rounds of load and fault")
	flag.DurationVar(&o.load, "load", 300*time.Millisecond, "average time of load before a fault")
	flag.IntVar(&o.partitions, "partitions", 0, "partitions of the topic; 0 is 4, and 12 with -groups")
	flag.IntVar(&o.producers, "producers", 4, "producers: half of them idempotent, the others without, one with acks=1")
	flag.IntVar(&o.rate, "rate", 500, "records a second of each producer")
	flag.BoolVar(&o.deletes, "deletes", false, "delete records at times")
	flag.StringVar(&o.binary, "binary", "", "the binary; empty builds ./cmd/lockstep")
	flag.StringVar(&o.dir, "dir", "", "directory for data and results, which is kept; empty is a temporary one, kept after a violation")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of what is drawn; time is real, so that a run is not repeated by it")
	flag.Parse()
	if *faults == "" {
		*faults = "kill"
		switch {
		case *groups:
			*faults = groupFaultNames()
		case o.brokers > 1:
			*faults = "kill-leader,kill-controller,kill-both,pause,restart,wipe,kill-all"
		}
	}
	o.faults = strings.Split(*faults, ",")
	if o.partitions == 0 {
		o.partitions = 4
		if *groups {
			o.partitions = 12
		}
	}
	var s fmt.Stringer
	var err error
	switch {
	case *groups:
		s, err = runGroups(o)
	case o.brokers > 1:
		s, err = runCluster(o)
	default:
		s, err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jepsen:", err)
		os.Exit(1)
	}
	fmt.Println(s)
}
