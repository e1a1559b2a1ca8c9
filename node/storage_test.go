package node

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/disk"

	"github.com/stretchr/testify/require"
)

// TestWhoWaitsForRoomLetsOthersMakeIt: more logs wait for room than there are workers, and what deletes comes behind them.
func TestWhoWaitsForRoomLetsOthersMakeIt(t *testing.T) {
	var mu sync.Mutex
	room := false
	quit := make(chan struct{})
	stuck := time.AfterFunc(time.Minute, func() { close(quit) })
	x := &executor{quit: quit, log: slog.New(slog.DiscardHandler)}
	gaveUp := 0
	x.storage = newStorage(func(_ *queue, jobs []job) bool {
		for _, j := range jobs {
			if _, ok := j.effect.(broker.Retain); ok {
				mu.Lock()
				room = true
				mu.Unlock()
				continue
			}
			err := x.untilThereIsRoom(slow, "emptying a log", func() error {
				mu.Lock()
				defer mu.Unlock()
				if room {
					return nil
				}
				return disk.ErrNoSpace
			})
			mu.Lock()
			if err != nil {
				gaveUp++
			}
			mu.Unlock()
		}
		return false
	})
	for round := range 2 {
		room = false
		var jobs []job
		for i := range 3 * workers[slow] {
			jobs = append(jobs, job{effect: broker.ResetLog{Log: core.Partition{Index: int32(i)}}})
		}
		x.storage.submit(append(jobs, job{effect: broker.Retain{Log: core.Partition{Index: -1}}}))
		x.storage.wait()
		require.Zero(t, gaveUp, "round %d", round)
	}
	require.True(t, stuck.Stop())
	require.Eventually(t, func() bool {
		x.storage.mu.Lock()
		defer x.storage.mu.Unlock()
		return x.storage.running[slow] <= workers[slow] && x.storage.running[slow] == x.storage.idling[slow]
	}, time.Minute, time.Millisecond, "no more workers stay than there were to be")
	x.storage.close()
}
