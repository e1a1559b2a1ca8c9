// Package process starts servers as children, so that their CPU time and memory
// are their own and can be measured from outside. It is used by the programs
// under bench and interop, on Linux.
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
	"sync"
	"syscall"
	"time"
)

// Process is a server under measurement.
type Process struct {
	Addr string // where it serves
	HTTP string // of a broker: where its metrics are
	cmd  *exec.Cmd

	once sync.Once
	end  error
}

// StartBroker builds and starts a broker with an empty data directory under dir.
func StartBroker(dir string, flags []string) (*Process, error) {
	bin, err := Build(dir)
	if err != nil {
		return nil, err
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

// Quiet starts a command that does not say where it serves, nor when: the caller knows, and asks. It dies with this process.
func Quiet(cmd *exec.Cmd, addr string) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{Addr: addr, cmd: cmd}, nil
}

// stopPatience is how long a server may take to end itself.
const stopPatience = 30 * time.Second

// Stop tells the process to stop and waits until it has; one that does not is killed. The error says how it ended, if not cleanly.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.Wait(); err != nil {
		return fmt.Errorf("SIGTERM did not end %s %s cleanly: %w", p.cmd.Path, p.Addr, err)
	}
	return nil
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.Wait()
}

// Wait waits until the process has ended and says how; it may be called by several, and again.
func (p *Process) Wait() error {
	p.once.Do(func() { p.end = p.cmd.Wait() })
	return p.end
}

// Signal sends the process a signal, and says whether it was there to take it.
func (p *Process) Signal(s syscall.Signal) bool { return p.cmd.Process.Signal(s) == nil }

// Build builds the broker's binary under dir and returns its path.
func Build(dir string) (string, error) {
	bin := filepath.Join(dir, "lockstep")
	if out, err := exec.Command("go", "build", "-o", bin, "lockstep/cmd/lockstep").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	return bin, nil
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
