package node

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// descriptors is how many the system allows the process.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 2048
	}
	return int(min(limit.Cur, 1<<30))
}

// maxOpenFiles is how many segment files are kept open: a part of what the
// system allows, since connections need descriptors too.
func maxOpenFiles() int { return min(4096, max(64, descriptors()/4)) }

// connectionsThatFit is how many connections are accepted, of clients and on the peers' listener. A log that cannot be
// opened for want of a descriptor ends the process, as a failed sync does, and a peer that cannot connect leaves the in-sync set.
func connectionsThatFit() (clients, peers int) {
	d := descriptors()
	return max(16, d/2), max(16, d/8)
}

// recoverers is how many logs are recovered at once. They wait for the disk more than they compute.
const recoverers = 16

// inParallel calls do for 0 to n-1, several at once.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(n, recoverers) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	work.Wait()
}

// deviceSize returns the size in bytes of the file system that holds a directory.
func deviceSize(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Blocks) * int64(st.Bsize), nil
}
