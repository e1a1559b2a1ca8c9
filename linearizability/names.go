package linearizability

// Names of anomalies. Those of Jepsen's Kafka workload (jepsen.tests.kafka)
// keep their names; where its definition had to be made narrower or wider for
// a history of single partitions with high watermarks, the comment says so.
const (
	// Malformed: the history cannot be judged. The recorder is at fault, not the system.
	Malformed Name = "malformed"

	// LostWrite: a record that was acknowledged, or seen, is not in the log in
	// the end. Jepsen infers it from consumers having read beyond an
	// acknowledged record that none of them saw; here the truth (a final read)
	// says so, and what consumers do not see in time is a StaleRead.
	LostWrite Name = "lost-write"
	// Duplicate: values stand at more places than their producer sent them, an
	// idempotent producer's call counting once.
	Duplicate Name = "duplicate"
	// InconsistentOffsets: one offset has two values over time, or an
	// acknowledgement names another offset than the one where the value is.
	InconsistentOffsets Name = "inconsistent-offsets"
	// AbortedRead: a record was seen whose producer was told that it failed (Adya's G1a).
	AbortedRead Name = "G1a"
	// PhantomRecord: a record was seen that nobody sent to this partition.
	PhantomRecord Name = "phantom-record"
	// CorruptRecord: a record was seen that its reader could not interpret.
	CorruptRecord Name = "corrupt-record"
	// OffsetGap: an offset below one that is taken is not.
	OffsetGap Name = "offset-gap"
	// TornBatch: the records of one batch do not stand one after another, or were visible apart.
	TornBatch Name = "torn-batch"
	// BeyondEnd: a fetch contradicts itself: it shows records that its own watermarks exclude.
	BeyondEnd Name = "read-beyond-end"
	// StartMismatch: the log start offset is where no deletion put it.
	StartMismatch Name = "start-mismatch"

	// StaleRead: a read that was called after the log had changed shows it as
	// it was before: an acknowledged record is missing, or the watermark fell.
	StaleRead Name = "stale-read"
	// FutureRead: an operation saw the effect of another that was called only after it had returned.
	FutureRead Name = "future-read"
	// Reordered: of two writes, the one called after the other had returned stands before it.
	Reordered Name = "reordered"
	// Contradiction: operations disagree on the order in which the log's ends moved.
	Contradiction Name = "contradiction"
	// NotLinearizable: porcupine found no order, where the near-linear checker could not decide.
	NotLinearizable Name = "not-linearizable"

	// IntPollSkip: within one fetch, a record that the log holds in between is missing.
	IntPollSkip Name = "int-poll-skip"
	// IntNonmonotonicPoll: within one fetch, offsets do not rise.
	IntNonmonotonicPoll Name = "int-nonmonotonic-poll"
	// PollSkip: between two successive fetches of one assignment, a record that the log holds was passed over.
	PollSkip Name = "poll-skip"
	// NonmonotonicPoll: of two successive fetches of one assignment, the second begins at or before the first one's last record.
	NonmonotonicPoll Name = "nonmonotonic-poll"
	// IntSendSkip: between two records of one batch stands another record. For
	// Jepsen's transactions that is normal; a batch of Kafka's is contiguous.
	IntSendSkip Name = "int-send-skip"
	// IntNonmonotonicSend: the records of one batch do not stand in the order in which they were sent.
	IntNonmonotonicSend Name = "int-nonmonotonic-send"
	// NonmonotonicSend: of two successive sends of one process, the second stands before the first.
	NonmonotonicSend Name = "nonmonotonic-send"
	// Unseen: a record was acknowledged, and no fetch ever showed it. Not a
	// violation unless consumers read everything at the end.
	Unseen Name = "unseen"
)
