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
	faults := flag.String("faults", "kill", "what happens at the end of a round, drawn from: kill (kill -9), stop (SIGTERM), pause (SIGSTOP for a while)")
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
	o.faults = strings.Split(*faults, ",")
	s, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jepsen:", err)
		os.Exit(1)
	}
	fmt.Println(s)
}
