// Package quorum is the consensus on the cluster's metadata log: who leads it,
// and what of it is committed. It is Raft in Kafka's dress: leaders are elected
// by a majority of voters (KIP-595) after a pre-vote (KIP-996), followers and
// observers pull the log by Fetch, and take a snapshot by FetchSnapshot where
// the log no longer reaches back (KIP-630). The set of voters is fixed; one
// voter is a quorum too, and leads as soon as its log is open and its vote durable.
//
// The machine is pure. It is told what happened and when, and answers with an
// Out: what to save, to append, to send, and which records are now committed.
//
// It promises, of the rules of safety in docs/architecture.md: terms and votes
// are durable before anything is sent that depends on them, only durable
// entries count, and only those of the leader's own term commit by counting
// (rule 11); an answer belongs to the role and term in which it was asked
// (rule 4); a follower truncates only where histories diverge, durably, and
// never below what is committed (rules 3, 5, 16); records are delivered when
// committed, once, in order (rule 12).
//
// Departures from Raft, and from Kafka:
//   - A pre-vote carries the sender's current term, not the next one. Who hears a
//     live leader ignores it altogether, so it cannot raise a term.
//   - Where two voters ask for pre-votes at once, the one with the worse claim
//     (shorter log, then higher id) yields, so that a leader's death seen by all
//     at the same instant does not split the vote.
//   - A leader whose disk refuses an append takes its own unwritten proposals
//     back and goes on leading: nobody has seen them.
//   - A voter whose disk was wiped must not return under its old id, for it has
//     forgotten its votes (KIP-853's directory ids are not checked yet).
//
// It may import core, core/log, core/record, kmsg and the standard library.
package quorum
