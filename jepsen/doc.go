// Command jepsen torments real brokers: it runs the real binary as real
// processes, kills them in the middle of load and starts them again, and
// judges by package linearizability what the clients saw.
//
//	go run ./jepsen -rounds 100            one broker, kill -9 under acks=all load
//	go run ./jepsen -faults kill,stop,pause -deletes
//	go run ./jepsen -brokers 3 -rounds 30  a cluster: leaders and controllers killed, frozen, wiped, restarted
//	go run ./jepsen -groups -brokers 3 -rounds 50  consumer groups: members and coordinators killed and frozen, joins and leaves
//
// Clients are real, too: producers are franz-go's, idempotent and not, and one
// of the consumers is. Others send single Fetch and ListOffsets requests, so that the history
// has the exact windows in which they were answered. In the end everything is
// read: that is the truth by which what was acknowledged is checked. Nothing
// acknowledged may be missing, nothing sent once may be twice, offsets have no
// gaps, and every read fits one order of all operations.
//
// It prints one line of figures, and on a violation the reason and where the
// history (history.jsonl, for linearizability.Read) and its picture are. The same
// runs for a few rounds as a test.
//
// With a cluster each partition has a replica on every broker, a consumer group
// commits as it reads, each round begins with all replicas in sync, and in the
// end all of them hold the same bytes. docs/cluster.md says what each fault is.
//
// Members of groups under torment are processes, too: the same binary, told by its environment to be a member, which tells
// every assignment, poll and commit on its standard output (member.go). What they may tell stands at checkGroup.
//
// Start at run.go (a run), process.go (a broker), produce.go and read.go (the clients), main.go (flags);
// for a cluster at cluster_run.go (rounds and faults), cluster.go (the brokers), cluster_group.go (the group), cluster_summary.go;
// for groups at group_run.go (rounds and faults), members.go (the processes), group_check.go (the checks), group_summary.go.
package main
