package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	var o options
	faults := flag.String("faults", "", "what happens at the end of a round, drawn from: kill (kill -9), stop (SIGTERM), pause (SIGSTOP for a while); with -brokers from: "+faultNames())
	flag.IntVar(&o.brokers, "brokers", 1, "brokers: more than one are a cluster, and the topic has as many replicas")
	flag.BoolVar(&o.verbose, "v", false, "say what is done to a cluster; its brokers log at level debug")
	flag.IntVar(&o.rounds, "rounds", 100, "rounds of load and fault")
	flag.DurationVar(&o.load, "load", 300*time.Millisecond, "average time of load before a fault")
	flag.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	flag.IntVar(&o.producers, "producers", 4, "producers: half of them idempotent, the others without, one with acks=1")
	flag.IntVar(&o.rate, "rate", 500, "records a second of each producer")
	flag.BoolVar(&o.deletes, "deletes", false, "delete records at times")
	flag.StringVar(&o.binary, "binary", "", "the binary; empty builds ./cmd/lockstep")
	flag.StringVar(&o.dir, "dir", "", "directory for data and results, which is kept; empty is a temporary one, kept after a violation")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of what is drawn; time is real, so that a run is not repeated by it")
	flag.Parse()
	if *faults == "" {
		*faults = "kill"
		if o.brokers > 1 {
			*faults = "kill-leader,kill-controller,kill-both,pause,restart,wipe,kill-all"
		}
	}
	o.faults = strings.Split(*faults, ",")
	var s fmt.Stringer
	var err error
	if o.brokers > 1 {
		s, err = runCluster(o)
	} else {
		s, err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jepsen:", err)
		os.Exit(1)
	}
	fmt.Println(s)
}
