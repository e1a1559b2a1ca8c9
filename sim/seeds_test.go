package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeedsThatFoundBugs runs the worlds in which the swarm found something. What a seed draws changes as the simulator
// grows, so an old seed may no longer lead to its bug; the room where the bug was has a test of its own.
func TestSeedsThatFoundBugs(t *testing.T) {
	for _, x := range []struct {
		seed uint64
		cut  string
		was  string
	}{
		{1753896717035291, "f0.f1.f4.c0.c1.c3.c4.c5.c7.o82.d5170.x", "a producer was forgotten with the records that retention deleted"},
		{40213, "", "every durable producer snapshot was deleted for ones that were not"},
		{740, "", "the same"},
		{207, "", "the same"},
		{1045, "", "a log that retention emptied kept no durable producer snapshot"},
		{375, "", "an unreadable topic id made a log be taken for a new one"},
		{698, "", "the same, of the metadata log"},
		{915, "", "the same"},
		{1520, "", "the same, of a partition"},
		{1091, "", "a truncation without room was given up"},
		{15, "b3", "a clean stop was taken for an unclean one, and unsynced partitions had no leader for ever"},
		{175, "b3", "all replicas of an unsynced topic stopped uncleanly, and it had no leader for ever"},
		{196, "b3", "a follower stored what records said of producers before it had appended them, and then deleted them"},
		{303, "b5", "a damaged leader alone in sync kept its partition from an eligible replica that was alive"},
		{312, "b3", "a broker that was started again from a metadata snapshot opened none of its partitions, and removed their logs; a new leader refused to delete records that it did not know to be committed"},
		{378, "b3", "the same"},
		{313, "b3", "a follower of a topic without syncs began above where its leader's log ended, and never came in sync again"},
		{457, "b5", "a controller with a full disk tried to fence a broker a million times a second"},
		{1760, "b5", "partitions that waited for a nudged leader's calls to come back were never asked for again"},
		{2763, "b3", "a follower that begins inside a batch, where its leader's log starts, was sent nothing for ever"},
		{3375, "b3", "a member whose rebalance timeout was below the initial delay made the coordinator look at its group for ever"},
		{342, "b3", "a cooperative member that had been removed joined an upgraded group with what others had by then, and committed for it"},
		{761, "b3", "a replica whose log was begun anew was let into the in-sync set by what its damaged log had"},
		{1233, "f0.f1.f2.f3.f4.f5.f6.f7.f10.f11.c1.c2.c3.o37.d21639.x", "a refused append that could not be cut off came back, which is allowed: the oracle said no"},
		{369, "b3.f0.f1.f2.f4.f6.f7.f9.f12.f13.f14.f15.c1.o23.d7079.x", "a leader that was deposed and did not know it refused a sequence as out of order"},
		{2754, "", "a start that was still moving was shown to a reader"},
		{29, "b7", "a group that changed its protocol while nobody was in it counted from the beginning again, and two members had a partition in one epoch"},
		{638, "b5", "an initial delay beyond a member's rebalance timeout made the coordinator spin"},
		{864, "b3", "a new coordinator removed members that the former one, which did not know that it was deposed, still answered"},
		{2075, "b3", "classic members left alone in a group of KIP-848 never got the partitions that a topic grew by"},
		{2141, "b4", "a member that had not given up everything that it was told to was assigned what it did not want to read any more"},
		{1375, "b5", "a deposed leader's log start was held against it: the oracle said no"},
		{208, "b5", "a replica that was away for longer than tombstones stay kept what was deleted meanwhile"},
		{22245, "b5", "what was stored of producers went with a tail that was cut off, after the records that told of them were deleted"},
		{1205, "", "a replica that is set aside knows no producers: the oracle said that it should"},
		{2036, "b3.c4.c7.d14500.z17", "what is below a log's start is deleted, though it may still be in a file: the oracle said no"},
		{865, "b3", "a whole batch of another log in the place of one, by a misdirected write, cannot be told: the oracle said that it should"},
		{1427, "b1", "a process whose place in an upgraded group was taken was told that it is unknown when it committed, and took the place back, and so did the other"},
		{2618, "b3", "a follower that took no batch beyond a gap above the high watermark never came to the next one"},
		{3828, "b3", "a process that leads by the place of another one believed that it had assigned what it once did in an earlier life: the simulated member's mistake"},
		{9374, "b4", "what a cooperative member of an upgraded group still had was given away when it joined again before it had heard its assignment"},
		{14133, "b5", "a leader committed without its predecessor, which had not heard of it and answered reads under its lease (rule 6)"},
		{16174, "b1", "what a cooperative member had been told to give up, and had still, was given away when its group became one of KIP-848"},
		{18497, "b1", "the simulator's leader of a group, started anew, assigned nothing as it had not yet asked what partitions there are"},
		{3089, "b7", "the simulator's member that was put out while it looked for partitions waited for ever"},
		{10513, "b5", "a replica out of sync that nobody leads holds what was never committed: the oracle said that it should not"},
		{12632, "b3", "one damaged batch kept a follower from taking anything of what that leader leads"},
		{13313, "b3", "a member asked the broker to wait longer for records than it waited for the answer: the simulated member's mistake"},
		{299, "", "a segment of which compaction has left nothing was deleted as old, which is allowed: the check of histories said no"},
	} {
		t.Run(fmt.Sprint(x.seed), func(t *testing.T) {
			cut, err := ParseCut(x.cut)
			if cut.Brokers == 0 {
				cut.Brokers = 1 // older seeds were drawn before there were clusters
			}
			require.NoError(t, err)
			r := RunPlan(cut.Plan(x.seed), Options{})
			require.Nil(t, r.Failure, x.was)
		})
	}
}
