package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lockstep/bench/process"
)

// broker is one broker's process.
type broker struct {
	addr string
	log  string
	cmd  *exec.Cmd
}

// readyPatience is how long brokers may take until they serve.
const readyPatience = 60 * time.Second

// startBrokers starts a fresh cluster at default settings and waits until it serves.
func startBrokers(binary, dir string, n int) (all []*broker, err error) {
	ports, err := process.FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, ports[n+i]))
	}
	var waits []func() error
	for i := range n {
		b := &broker{addr: fmt.Sprintf("127.0.0.1:%d", ports[i]), log: filepath.Join(dir, fmt.Sprintf("broker-%d-of-%d.log", i+1, n))}
		args := []string{"broker", "--id", fmt.Sprint(i + 1), "--data", filepath.Join(dir, fmt.Sprintf("data-%d-of-%d", i+1, n)),
			"--listen", b.addr, "--peer-listen", fmt.Sprintf("127.0.0.1:%d", ports[n+i]), "--http", ""}
		if n > 1 {
			args = append(args, "--voters", strings.Join(voters, ","))
		}
		wait, err := b.start(binary, args)
		if err != nil {
			return all, err
		}
		all, waits = append(all, b), append(waits, wait)
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// start starts the process and returns what waits for its word that it is ready.
func (b *broker) start(binary string, args []string) (wait func() error, err error) {
	log, err := os.Create(b.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b.cmd = exec.Command(binary, args...)
	b.cmd.Stderr = log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	return func() error {
		select {
		case err := <-ready:
			if err != nil {
				return fmt.Errorf("the broker on %s ended before it was ready (see %s)", b.addr, b.log)
			}
			return nil
		case <-time.After(readyPatience):
			return fmt.Errorf("the broker on %s was not ready after %s (see %s)", b.addr, readyPatience, b.log)
		}
	}, nil
}

// stop ends the process cleanly, and says if it cannot.
func (b *broker) stop() error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(30*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	if err := b.cmd.Wait(); err != nil {
		return fmt.Errorf("SIGTERM did not end the broker on %s cleanly: %w (see %s)", b.addr, err, b.log)
	}
	return nil
}
