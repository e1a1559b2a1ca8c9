// Package file is disk.FS over real files: pwritev, fdatasync, fallocate,
// syncfs and flock on Linux, and what comes nearest on other Unix systems.
//
// It adds nothing to the calls but disk's errors, and failpoints (package
// github.com/pingcap/failpoint) that make them fail or wait in a real binary.
// They are looked at only if GO_FAILPOINTS or GO_FAILPOINTS_HTTP is set:
//
//	lockstep/disk/file/open      before Open may make a file
//	lockstep/disk/file/write     before WriteAt and WriteVAt
//	lockstep/disk/file/allocate  before Allocate
//	lockstep/disk/file/sync      before Sync
//	lockstep/disk/file/syncdir   before SyncDir
//	lockstep/disk/file/syncall   before SyncAll
//
// Their terms: return("EIO") or return("ENOSPC") makes the call fail with that
// error, return("short") makes a write stop half way without one, sleep(ms)
// makes it slow; 1*return("EIO") once, 5%return("EIO") at times.
//
// It may import disk, golang.org/x/sys and the failpoint package.
package file
