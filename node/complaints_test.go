package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"lockstep/core"
	"lockstep/disk/segment"
	"lockstep/net/kafka"
	"lockstep/net/tcp"

	"github.com/stretchr/testify/require"
)

// TestComplaintsAreFew: garbage is logged, but not for each connection, and what clients do every day is not.
func TestComplaintsAreFew(t *testing.T) {
	var out bytes.Buffer
	lg := slog.New(slog.NewTextHandler(&out, nil))
	c := complaints{rest: "more connections closed"}
	for range 1000 {
		c.add(lg, "host", fmt.Errorf("reading: %w", kafka.ErrMalformed))
		c.add(lg, "host", tcp.ErrIdle)
		c.add(lg, "host", errors.New("connection reset by peer"))
	}
	require.Equal(t, maxComplaints, strings.Count(out.String(), "\n"))
	c.report(lg)
	require.Contains(t, out.String(), "more connections closed\" count=990")
	for _, err := range []error{nil, segment.ErrNoLog, segment.ErrOffsetOutOfRange, os.ErrPermission} {
		reportDamage(nil, &c, lg, core.Partition{}, err)
	}
	require.Equal(t, 1, strings.Count(out.String(), "a log could not be read"))
	before := out.Len()
	c.report(lg)
	require.Equal(t, before, out.Len())
	c.add(lg, "host", tcp.ErrFrameSize)
	require.Greater(t, out.Len(), before)
}
