// Package replica is one partition's replica as a pure machine: the leader
// and the follower role, the in-sync set and the high watermark, for any
// number of replicas. A single broker is the case where the set is {self}.
//
// It promises rules 1-7, 9, 10, 16 and 18 of the rules of safety; the code
// names them where they are kept. It does no I/O: what it wants done it puts
// into an Out, and what happened it is told. It may import core, core/log and
// core/record, and knows nothing of core/broker.
//
// What the caller owes it:
//   - everything in an Out is carried out, on the partition's log in the order
//     of Out's fields, before the next call's;
//   - Written, Durable, AppendFailed and Truncated come in the order in which
//     they happened, none from before a truncation after its Truncated;
//   - time does not go back;
//   - Deadline is looked at after every call, and Tick called when it comes.
package replica
