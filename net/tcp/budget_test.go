package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRequestsWaitForTheirLikeOnly: large requests that have taken all they may keep no small ones waiting, nor those them.
func TestRequestsWaitForTheirLikeOnly(t *testing.T) {
	h := &echo{hold: true}
	s := start(t, h, Config{Budget: NewBudget(8 << 20)})
	sizes := []int{40 << 10, 1 << 20, 8 << 20, 17 << 20}
	for i, size := range []int{sizes[3], sizes[3], sizes[2], sizes[2], sizes[1], sizes[1], sizes[1], sizes[1], sizes[0]} {
		go dial(t, s).Write(frameBytes(numbered(i, size)))
	}
	require.Eventually(t, func() bool { return h.heldCount() == 1+1+3+1 && s.cfg.Budget.Waiting() == 1+1+1 }, 10*time.Second, time.Millisecond)
}

// TestSlowSendersGiveWay: frames that come in steadily but slowly lose their connections where others wait for the memory they hold.
func TestSlowSendersGiveWay(t *testing.T) {
	h := &echo{}
	s := start(t, h, Config{StallTimeout: time.Second, Budget: NewBudget(8 << 20)})
	for range 6 {
		slow := dial(t, s)
		go func() {
			rest := frameBytes(numbered(0, 2<<20))
			for err := error(nil); err == nil && len(rest) > 0; time.Sleep(40 * time.Millisecond) {
				n := min(len(rest), 34<<10) // 850 KiB/s
				_, err = slow.Write(rest[:n])
				rest = rest[n:]
			}
		}()
	}
	require.Eventually(t, func() bool { return s.cfg.Budget.Waiting() > 0 }, 10*time.Second, time.Millisecond)
	closedWith(t, h, ErrSlowSender)
	c := dial(t, s)
	go c.Write(frameBytes(numbered(1, 1<<20)))
	expect(t, c, numbered(1, 1<<20))
}
