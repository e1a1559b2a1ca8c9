package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// asMain makes the test binary be the command itself.
const asMain = "LOCKSTEP_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestOneSignalStopsCleanly: also one that comes while the broker starts, where it is heard in two places before anybody looks.
func TestOneSignalStopsCleanly(t *testing.T) {
	for range 8 {
		data := t.TempDir()
		c := exec.Command(os.Args[0], "broker", "--data", data, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "")
		c.Env = append(os.Environ(), asMain+"=1")
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(data, "lock"))
			return err == nil
		}, 20*time.Second, 100*time.Microsecond)
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		require.NoError(t, c.Wait())
		require.FileExists(t, filepath.Join(data, "clean-stop"))
	}
}

// TestOlderNamesCountAsGiven: a file that has Kafka's older names is not contradicted by the flags' defaults.
func TestOlderNamesCountAsGiven(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	require.NoError(t, os.WriteFile(file, []byte("broker.id=9\nlog.dir=/in/file\n"), 0o644))
	settings := func(b brokerFlags, args ...string) map[string]string {
		b.id, b.data, b.listen = 1, "./lockstep-data", "127.0.0.1:9092"
		c := &cobra.Command{}
		c.Flags().StringVar(&b.data, "data", b.data, "")
		require.NoError(t, c.ParseFlags(args))
		v, err := b.settings(c)
		require.NoError(t, err)
		got := map[string]string{}
		for _, name := range []string{"node.id", "broker.id", "log.dirs", "log.dir"} {
			if value, ok := v.Get(name); ok {
				got[name] = value
			}
		}
		return got
	}
	require.Equal(t, map[string]string{"node.id": "1", "log.dirs": "./lockstep-data"}, settings(brokerFlags{}))
	require.Equal(t, map[string]string{"broker.id": "9", "log.dir": "/in/file"}, settings(brokerFlags{file: file}))
	require.Equal(t, map[string]string{"broker.id": "3", "log.dirs": "/flag"}, settings(brokerFlags{set: []string{"broker.id=3"}}, "--data", "/flag"))
}

func TestDevRefusesAnotherNumberOfBrokers(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, checkDev(filepath.Join(data, "new"), 1))
	for i := range 3 {
		dir := filepath.Join(data, strconv.Itoa(i+1))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "meta"), nil, 0o644))
	}
	require.NoError(t, checkDev(data, 3))
	for _, n := range []int{1, 2, 4} {
		require.ErrorContains(t, checkDev(data, n), "a cluster of 3 brokers")
	}
}
