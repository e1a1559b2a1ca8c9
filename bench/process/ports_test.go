package process

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePortsAreFree(t *testing.T) {
	ports, err := FreePorts(6)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, p := range ports {
		require.False(t, seen[p])
		seen[p] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		require.NoError(t, err)
		defer l.Close()
	}
	more, err := FreePorts(1)
	require.NoError(t, err)
	require.False(t, seen[more[0]], "those are taken now")
}
