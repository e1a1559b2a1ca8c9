// Package sim runs worlds: brokers made of the real core, the real storage code
// over simulated disks, and real frames over simulated connections; clients
// that speak the protocol; one clock, and one queue of events ordered by time
// and sequence. One seed decides everything, so a failure is repeated by its number.
//
// Start at run.go (Run, and what a run goes through) and plan.go (what a seed
// draws: the plan of a world, plain data that is cut down when it fails).
// world.go and queue.go are time; net.go the connections; host.go and the
// exec_*.go files one broker process, the counterpart of package node;
// client.go what clients share, and producer.go, consumer.go, reader.go and
// admin.go their kinds; faults.go what goes wrong; oracle.go what must hold at
// every step, and verify.go what must hold in the end; swarm.go and shrink.go
// many worlds and small ones; cli.go what the command line calls.
//
// Nothing here uses goroutines within a world, clocks, or the order of maps,
// and the same seed gives the same trace hash on every machine. It may import
// everything below the hosts; nothing imports it but tests and cmd.
//
// Not simulated: CPU time (steps take none), the TLS of connections, and
// node's own code: its limits on memory and its slow readers are tested there.
package sim
