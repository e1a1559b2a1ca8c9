// Package segment is the storage engine: a data directory (Store) of segmented
// logs (Log), plain blocking code over a disk.FS, used alike by the production
// host with goroutines and real files and by the simulator with events and
// simdisk. It starts no goroutine, reads no clock and decides nothing by the
// order of a map. It may import core, core/log, core/record and disk.
//
// # Files
//
//	lock, meta, state        lock; the host's bytes about the directory; term and vote
//	clean-stop               the last process stopped cleanly (Store.takeMarker)
//	checkpoints              of all logs: name, recovery point, start, high watermark, leader epochs (journal)
//	TOPIC-INDEX/             a log, named as Kafka's:
//	  partition.metadata     whose it is (the name does not tell, once a topic is made again)
//	  OFFSET.log             batches from the offset on, exactly as sent
//	  OFFSET.index           sparse index of the segment by offset, position and time
//	  OFFSET.snapshot        producer table as of the offset
//	  OFFSET-OFFSET.swap     what compaction made of the segments of these offsets, not yet in their place
//	….N.stray, ID.deleted    a log whose name another topic id took over; one being deleted
//
// A log without data has no segment. Small facts of all logs are in one
// journal, so that ten thousand new leader epochs are one write and one sync.
//
// # Durability
//
// Append writes to the page cache. A Round (BeginSync, Run, Finish) makes
// durable what was appended before it began: data, then the names of new files
// (rule 14), then what of the journal must be. Only then a recovery point is
// noted, in the page cache; Checkpoint and whatever else syncs the journal make it durable.
// A failed sync ends all writing (rule 13). A failed write is cut off again.
//
// Truncate and SetStart are durable when they return. They tell the journal
// first, then change files, so that a crash in between leaves files that hold
// more than the journal says, never less. After a truncation a new segment is
// begun: a position in a file never comes to hold other bytes, and a Span that
// somebody still sends can only come out short.
//
// # Recovery: what is trusted, cut and refused (rule 15)
//
// After a clean stop sizes are trusted. After any other, below the recovery
// point sizes are; from it on every batch is read and parsed, CRC and all.
// The log ends before the first one that is not whole, or whose offset or
// epoch does not follow. Whatever comes after is cut: bytes, segments,
// snapshots. That may include whole later batches: a power cut leaves any
// subset of unsynced sectors, so they prove nothing.
//
// That a torn end is no damage is known by position alone. Nothing below the
// recovery point is ever cut; a segment that is missing there or too short makes
// the log unusable (OpenLog fails, its files stay), and a wrong CRC there is
// found by whoever parses it, as a CorruptError. What rots between the last
// durable recovery point and the end, before the power is lost, cannot be told from a torn
// end; after a kill the journal's page cache is there and it can. So Checkpoint is to be called often.
// Without a readable journal no recovery point is known: then an end is only
// taken for torn if nothing good follows it, and a log that is refused stays refused.
//
// A log that had durable data and is missing as a whole is damage, too, and one
// whose metadata file is damaged is known by the journal: no empty log is ever made in their place.
// A directory that neither tells whose it is nor is known was never durable.
//
// A wrong bit may come from a single read. What looks damaged is read again, and
// no end is cut before two reads agree about it.
//
// After a failed sync Linux shows pages as clean that are not on disk, and a
// later sync that succeeds does not bring them there ("fsyncgate"). So what is
// found good above the recovery point is written again, and the journal
// replaced by a new file, before one SyncAll makes all that Open found durable.
//
// # Compaction
//
// A run (BeginCompact, Run) reads what is new since the last one and notes the last offset of each key, up to a limit, to what is too
// young, and to the last segment, which it leaves alone; then it makes all segments below anew, the oldest first, without the
// records that later ones supersede. Small ones are joined. A segment in which nothing changes is only read. How the new file takes the
// place of the old ones is told in swap.go. Offsets never change. The last batches of producers that the log's table knows stay, as
// headers if nothing else, so that the table can be rebuilt (rule 18); and a segment ends with a batch that reaches to where the
// next one begins, so that a missing end is seen in a compacted log, too.
//
// The map of keys is what takes memory, 24 bytes a slot of which four in five are used. Where it gets full the run ends with that
// record, and the next one goes on from there. Keys are held exactly up to 15 bytes, longer ones by 120 bits of SHA-256; see offsetMap
// for why that is safe. A map of all keys as they are would be exact, but bounded by what clients send.
//
// A tombstone is given a delete horizon when it is first compacted (KIP-534: the batch's base timestamp, attribute bit 6), by the
// wall clock of this replica, and goes with the first run after that for which every replica has it (CompactOptions.Covered). What it
// supersedes lies below and is gone before.
//
// The journal knows up to where a log is compacted. That need not be durable, but it must not be too high: a truncation lowers it in
// the same frame. What is replaced lies wholly below the durable recovery point, so no recovery looks for it.
//
// No lock is held while a run reads and writes; putting a file into place excludes what deletes or cuts segments, not
// appends and reads. If the log is cut meanwhile the run ends: what it knows of keys may be wrong.
//
// # What is not checked
//
// A batch's CRC does not cover its base offset and leader epoch. Where batches are
// parsed they are checked to follow on one another. Spans are not parsed: the
// bytes go to the socket unread, and CRCs are the receiver's to check.
// Log.Verify checks all. In a compacted log a base offset that is read wrong may pass for a gap; what
// writes batches down again (recovery, compaction) or cuts a log there reads twice.
//
// # Measurements behind the constants
//
// ext4 on virtio, 2 cores, Linux 6.18, the machine doing other things, too. One
// append and fdatasync, mean µs of 500 (100 at 1 MB), several runs:
//
//	bytes an append                 1 KB       16 KB      128 KB      1 MB
//	growing file                    258-312    356-390    480-760    3000-4100
//	fallocate 16 MB ahead           208-249    361-414    520-599    1000-1640
//	written with zeros before       213-233    182-233    247-288     650-760
//	zeros 256 KB ahead, included    192-206    223-259    359-572    1070-1270
//	zeros 4 MB ahead, included      204-321    292-337    497-539    1390-1516
//
// An overwrite needs no metadata to be durable. So logs that are synced at every
// append (flush.messages=1) write zeros 256 KB ahead of appends below 256 KB,
// which pays for writing twice, and allocate 16 MB ahead of larger ones, where it would not.
// A segment below 64 KB gets neither, so that many small logs take no room.
//
// n dirty files of 1 KB, ms: fdatasync one by one 0.3 (1), 0.6 (2), 1.0 (4), 1.6 (8),
// 5.8 (32), 60 (256), 225 (1000); one syncfs 0.4, 0.4, 0.4, 0.4, 0.3, 2.2, 9. But
// syncfs also writes what others have dirty on that file system. Hence SyncAllAbove 4.
//
// Ten thousand logs of 3 KB, on a machine with a load of 20 on its 2 cores: Open after a
// kill 1.9 s, OpenLog of all 0.3 s, 1.2 KB of memory each; 1 KB more appended
// to each 0.4 s and synced 0.2 s (LOGS=10000 go test -run TestManyLogs -v).
//
// # Where to start for a change
//
//	append.go    Append, rolling, room ahead     round.go     group commit, checkpoints
//	read.go      Read; span.go, lookup.go        truncate.go  Truncate; start.go SetStart, Retain, Reset
//	open.go      Open, OpenLog, DeleteLogs       find.go      which directory is which log
//	recover.go   recovery; rewrite.go            journal.go   checkpoints file; facts.go its entries
//	index.go     sparse index; scan.go parsing   files.go     bound on open files
//	compact.go   a run; offsetmap.go, thin.go    swap.go      how its files take their place
package segment
