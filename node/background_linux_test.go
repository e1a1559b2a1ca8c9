package node

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func niceOf(t testing.TB, thread int) int {
	a, err := unix.SchedGetAttr(thread, 0)
	require.NoError(t, err)
	return int(a.Nice)
}

// lowered counts the threads of this process that do not have the niceness that a thread had before.
func lowered(t testing.TB, nice int) (n int) {
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		if a, err := unix.SchedGetAttr(id, 0); err == nil && int(a.Nice) != nice { // an error: it has just ended
			require.EqualValues(t, min(nice+backgroundNice, leastPriority), a.Nice)
			n++
		}
	}
	return n
}

// TestOnlyTheCleanerIsInTheBackground: the threads that compact have a low priority and no others, and they end with the node.
func TestOnlyTheCleanerIsInTheBackground(t *testing.T) {
	nice := niceOf(t, os.Getpid())
	if nice >= leastPriority {
		t.Skip("everything has the least priority")
	}
	require.Zero(t, lowered(t, nice))
	n := startNode(t, Config{Settings: settingsFor(t.TempDir(), "log.cleaner.threads", "3")})
	createTopic(t, clientOf(t, n), "topic", 1)
	require.Eventually(t, func() bool { return lowered(t, nice) == 3 }, 20*time.Second, time.Millisecond)
	stop(t, n)
	require.Eventually(t, func() bool { return lowered(t, nice) == 0 }, 20*time.Second, time.Millisecond, "a thread with low priority went to the pool")
}

// TestThreadsFromTheBackgroundAreNot: threads that are begun because of what a goroutine in the background does keep the priority
// of the process.
func TestThreadsFromTheBackgroundAreNot(t *testing.T) {
	nice := niceOf(t, os.Getpid())
	if nice >= leastPriority {
		t.Skip("everything has the least priority")
	}
	var begun, all, back sync.WaitGroup
	release := make(chan struct{})
	const threads = 20
	begun.Add(threads)
	back.Go(func() {
		inBackground(func(err error) {
			assert.NoError(t, err)
			for range threads {
				all.Go(func() {
					runtime.LockOSThread() // so that each has a thread of its own
					begun.Done()
					<-release
				})
			}
			begun.Wait()
			<-release
		})
	})
	begun.Wait()
	require.Eventually(t, func() bool { return lowered(t, nice) == 1 }, 20*time.Second, time.Millisecond)
	close(release)
	all.Wait()
	back.Wait()
	require.Eventually(t, func() bool { return lowered(t, nice) == 0 }, 20*time.Second, time.Millisecond)
}
