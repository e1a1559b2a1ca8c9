// Package broker is one broker as a pure machine: Step takes one Input that
// happened and returns Effects to carry out. It routes to the machines in the
// other folders of core (replica, quorum, controller, …), and speaks the Kafka
// protocol in decoded form: one file handle_*.go for each API key, listed in
// handlers.go.
//
// It promises that every request is answered exactly once, or its connection
// closed; that equal inputs give equal effects; and that it never blocks.
//
// Where to look: input.go and effect.go are the contract with the host;
// broker.go dispatches; metadata_log.go carries the quorum's outputs and applies
// committed metadata; membership.go registers the broker and keeps its lease;
// partition.go joins a replica to its log and to the requests that wait on it.
//
// It may import the rest of core, kmsg, btree and the standard library.
package broker
