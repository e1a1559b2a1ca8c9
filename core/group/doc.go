// Package group is the consumer-group coordinator as a pure machine: the
// classic protocol and that of KIP-848, committed offsets, and the state of
// groups in the records of the offsets topic, in Kafka's own formats.
//
// The coordinator has the groups of those partitions of the offsets topic that
// its broker leads. A partition is led, loaded from its log, served, and given
// up; its groups go with it, and whoever leads it next goes on with them.
//
// It promises, of the rules of safety in docs/architecture.md:
//
//   - Nothing of a partition is answered before all of it is loaded (rule 20).
//   - What a request changes is answered, and seen by others, when its record is
//     committed (rules 12, 20). Committed offsets are set when their write is
//     committed. Of a group's membership one change is under way at a time: it
//     is applied, undone if its write fails, and whatever else concerns the
//     group waits in order until it is known (write.go).
//   - Stale generations, member epochs and instances are refused (rule 20).
//   - A new coordinator judges nobody by silence before it knows that the former one has ceased (alone.go).
//   - A coordinator that cannot know whether it still is one (its broker has no lease) answers nobody, and its time
//     stands still (core/broker/groups.go).
//   - Under KIP-848 a partition is given to a member when no other member has it,
//     and a member has it until it says that it has not (consumer_reconcile.go).
//   - A group costs memory by what is configured, and nobody waits for a member
//     longer than that member's own timeouts.
//
// What is not in records is soft: sessions, and in the classic protocol who has
// joined for the next generation. A new coordinator gives every member a full
// session timeout.
//
// Departures from Kafka:
//   - A member whose connection closes while it waits in JoinGroup has not joined.
//   - An id handed out with MEMBER_ID_REQUIRED holds a rebalance up for a second, not for a session timeout.
//   - A heartbeat of KIP-848 to a group that is gone gets UNKNOWN_MEMBER_ID, from which clients recover, not
//     GROUP_ID_NOT_FOUND.
//   - A static consumer that returns with other topics causes a rebalance, also where the assignor stays the same.
//   - A group without members that changes its protocol goes on counting: generations from epochs, epochs from generations.
//   - Nobody who joins an empty group waits for others longer than its own rebalance timeout, whatever the initial delay is.
//   - Offsets of a deleted topic are dropped also if it was deleted while nobody led the partition, and if a topic of the
//     same name exists again. Until that is written they are not shown either.
//   - The offsets of a group without members expire from when its last one left, also under KIP-848, where Kafka counts from the
//     commit: a group that had nothing to commit for long would lose its place whenever its members are replaced. An offset
//     that is committed for a group without members counts from then.
//
// Start at coordinator.go, then classic.go, consumer.go, offsets.go. It may
// import core, core/config, kmsg, btree and the standard library.
package group
