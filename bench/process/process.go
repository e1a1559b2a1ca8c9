// Package process starts servers as children, so that their CPU time and memory
// are their own and can be measured from outside. It is used by the programs
// under bench, on Linux.
package process

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

// Process is a server under measurement.
type Process struct {
	Addr string // where it serves
	HTTP string // of a broker: where its metrics are
	cmd  *exec.Cmd
}

// StartBroker builds and starts a broker with an empty data directory under dir.
func StartBroker(dir string, flags []string) (*Process, error) {
	bin := filepath.Join(dir, "lockstep")
	build := exec.Command("go", "build", "-o", bin, "lockstep/cmd/lockstep")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	args := append([]string{"broker", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
		"--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, flags...)
	var http string
	p, err := Start(exec.Command(bin, args...), func(line string) string {
		// The ready line names the addresses: "… ready: clients on HOST:PORT, …, http on HOST:PORT …".
		http = wordAfter(line, "http on ")
		return wordAfter(line, "clients on ")
	})
	if err != nil {
		return nil, err
	}
	p.HTTP = http
	return p, nil
}

// wordAfter returns what stands between a text and the next comma or space.
func wordAfter(line, text string) string {
	_, rest, _ := strings.Cut(line, text)
	word, _, _ := strings.Cut(rest, " ")
	return strings.TrimSuffix(word, ",")
}

// Start runs a command and reads its address off the first line of output that has one.
func Start(cmd *exec.Cmd, addr func(line string) string) (*Process, error) {
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
			return &Process{Addr: a, cmd: cmd}, nil
		}
	}
	err = cmd.Wait()
	return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", cmd.Path, err, log.String())
}

// Stop tells the process to stop and waits until it has.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// CPU returns the CPU time that the process has used so far, user and system.
func (p *Process) CPU() (time.Duration, error) {
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

// ResidentBytes returns how much memory of the process is resident.
func (p *Process) ResidentBytes() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
