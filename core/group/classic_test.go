package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneMember(t *testing.T) {
	w := newWorld(t)
	m := w.stable("g", 1)[0]
	require.EqualValues(t, 1, m.generation)
	require.Equal(t, "Stable", w.state("g"))
	require.Zero(t, m.commit(7))
	require.EqualValues(t, 7, w.fetch("g", "t"))
	for range 10 {
		w.sleep(9 * time.Second)
		require.Zero(t, m.heartbeat())
	}
	w.sleep(11 * time.Second)
	require.Equal(t, errUnknownMemberID, m.heartbeat())
	require.Equal(t, "Empty", w.state("g"))
	require.EqualValues(t, 7, w.fetch("g", "t"))
}

func TestThreeMembers(t *testing.T) {
	w := newWorld(t)
	ms := w.stable("g", 3)
	require.Equal(t, ms[0].generation, ms[2].generation)
	require.Zero(t, ms[1].leave())
	require.Equal(t, errRebalanceInProgress, ms[0].heartbeat())
	ms[0].join()
	ms[2].join()
	require.Len(t, ms[0].joined().Members, 2)
	require.Empty(t, ms[2].joined().Members)
	ms[2].sync()
	ms[0].sync()
	require.Zero(t, ms[0].synced())
	require.Zero(t, ms[2].synced())
	require.Equal(t, "Stable", w.state("g"))
}
