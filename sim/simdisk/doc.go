// Package simdisk is a simulated disk: a disk.FS in memory that forgets,
// tears, rots, fills up, stalls and dies as a seed and a list of rules say.
//
// It keeps two images. The volatile one is what running processes see. The
// durable one is what is surely there after a power loss: file contents and
// sizes as of the file's last Sync (or SyncAll), directory entries as of the
// directory's last SyncDir (or SyncAll). Between them anything may happen:
// a power loss keeps any subset of the unsynced 512-byte sectors (whole 4 KB
// pages at times), any size that the file had or passed, and any subset of the
// unsynced creates, renames and removes in which no operation comes without
// the earlier ones on the same name. A rename is atomic. That is what POSIX
// promises on a device that honours write barriers, and no more; it is less
// than ext4 gives in practice, where a sync of a new file carries its name.
// Sectors are written wholly or not at all, and what was synced stays, unless
// a rule damages it.
//
// A crash is made inside a call: the call panics with a value that only Run
// recognises, and from then on every call on that mount panics again, so code
// that recovers or defers can change nothing any more.
//
// It is deterministic: one seed, one sequence of calls, one outcome, on any
// machine. It is not safe for concurrent use: order between goroutines is
// chance that no seed controls. It imports disk, sim/seed and the standard library.
//
// Not simulated: sectors torn within, a device that lies about a sync, links,
// permissions, atime, and reads that see other than the page cache.
package simdisk
