package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under measurement: a child, so that its CPU time is its own.
type process struct {
	cmd  *exec.Cmd
	addr string
}

// startPlain starts one of this program's own servers.
func startPlain(what, file string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(exec.Command(self, "-serve", what, "-file", file), func(line string) string { return line })
}

// startBroker builds and starts a broker with an empty data directory.
func startBroker(dir string, flags []string) (*process, error) {
	bin := filepath.Join(dir, "lockstep")
	build := exec.Command("go", "build", "-o", bin, "lockstep/cmd/lockstep")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	args := append([]string{"broker", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
		"--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, flags...)
	return start(exec.Command(bin, args...), func(line string) string {
		// The ready line names the addresses: "… ready: clients on HOST:PORT, …".
		_, rest, _ := strings.Cut(line, "clients on ")
		addr, _, _ := strings.Cut(rest, ",")
		addr, _, _ = strings.Cut(addr, " ")
		return addr
	})
}

// start runs a command and reads its address off the first line of output that has one.
func start(cmd *exec.Cmd, addr func(line string) string) (*process, error) {
	var log bytes.Buffer // shown only if it does not come up
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if a := addr(lines.Text()); a != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &process{cmd, a}, nil
		}
	}
	err = cmd.Wait()
	return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", cmd.Path, err, log.String())
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// cpu returns the CPU time that the process has used so far, user and system.
func (p *process) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15, counted behind the command's name, which is in parentheses; in ticks of 10 ms.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("cannot read %q", b)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}
