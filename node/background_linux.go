package node

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// backgroundNice is added to the niceness of the process: such a thread has every core that is idle, and about a tenth
	// of one for which others compete. Lower than that, a stop of all goroutines (two in every collection) would wait too
	// long for a thread that others keep off the cores.
	backgroundNice = 10
	leastPriority  = 19
	// backgroundSlice is more than the kernel gives by itself (up to 2.8 ms): since Linux 6.12 a thread that wakes up takes the
	// core at once from one that has a longer slice. A reader and the broker wake each other all the time. Earlier kernels
	// ignore it.
	backgroundSlice = 4 * time.Millisecond
)

// inBackground calls work on a thread that has a low priority, and with the error if it could not be given one. A thread cannot be
// given its priority back without privileges, so the goroutine stays tied to it and must end afterwards: then the runtime ends the
// thread, too, and does not give it to other goroutines. Nor does it begin threads, which would inherit the priority, from one that
// is tied.
func inBackground(work func(error)) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		work(lowerPriority())
		return
	}
	// The main thread does not end, and its priority is what tools show as that of the process. Held here, it is not what the
	// other goroutine gets.
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		inBackground(work)
	}()
	<-done
}

func lowerPriority() error {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	if a.Policy != unix.SCHED_NORMAL {
		return nil // somebody has decided on the process as a whole
	}
	a.Nice = min(a.Nice+backgroundNice, leastPriority)
	a.Runtime = uint64(backgroundSlice)
	return unix.SchedSetAttr(0, a, 0)
}

// makeRoom lets n threads run beside as many as there were. A thread in the background keeps its place among those that may run Go
// code (GOMAXPROCS) while the kernel lets others run, which would be one of two where there are two cores. Who sets that has his way.
func makeRoom(n int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
}
