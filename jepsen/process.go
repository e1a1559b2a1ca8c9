package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	servers "lockstep/bench/process"
)

// process is one broker: the binary with its data directory and its address.
type process struct {
	servers.Member // the same in all its lives
	binary         string

	cmd     *exec.Cmd
	logFile *os.File
	exited  chan error // closed after the life's end
	starts  int
}

// readyPatience is how long a broker may take until it serves.
const readyPatience = 30 * time.Second

// newProcesses lays out n brokers that are one cluster.
func newProcesses(o options, n int) (all []*process, err error) {
	var flags []string
	if o.verbose {
		flags = append(flags, "--verbose")
	}
	members, err := servers.Cluster(o.dir, n, flags...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	for _, m := range members {
		log, err := os.Create(m.Log)
		if err != nil {
			return nil, err
		}
		all = append(all, &process{Member: m, binary: o.binary, logFile: log})
	}
	return all, nil
}

// start starts a life and waits until it serves. It returns how long that took.
func (p *process) start() (time.Duration, error) {
	p.starts++
	fmt.Fprintf(p.logFile, "--- start %d\n", p.starts)
	cmd := exec.Command(p.binary, p.Args...)
	cmd.Stderr = p.logFile
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the broker: %w", err)
	}
	p.cmd, p.exited = cmd, make(chan error, 1)
	ready := make(chan struct{})
	go p.watch(out, ready)
	select {
	case <-ready:
		return time.Since(began), nil
	case err := <-p.exited:
		return 0, fmt.Errorf("the broker ended before it was ready: %v%s", err, p.lastWords())
	case <-time.After(readyPatience):
		p.kill()
		return 0, fmt.Errorf("the broker was not ready after %s%s", readyPatience, p.lastWords())
	}
}

// watch copies what a life prints, tells of its being ready, and of its end.
func (p *process) watch(out io.Reader, ready chan<- struct{}) {
	cmd, exited := p.cmd, p.exited
	lines := bufio.NewScanner(out)
	for told := false; lines.Scan(); {
		fmt.Fprintln(p.logFile, lines.Text())
		if !told && strings.Contains(lines.Text(), "ready") {
			told = true
			close(ready)
		}
	}
	exited <- cmd.Wait()
	close(exited)
}

// alive says that the life has not ended by itself.
func (p *process) alive() error {
	select {
	case err := <-p.exited:
		return fmt.Errorf("the broker ended by itself: %v%s", err, p.lastWords())
	default:
		return nil
	}
}

// kill ends the life as kill -9 does.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.exited
}

// stop ends the life by SIGTERM, which must end it cleanly.
func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.exited:
		if err != nil {
			return fmt.Errorf("SIGTERM did not end the broker cleanly: %w%s", err, p.lastWords())
		}
		return nil
	case <-time.After(readyPatience):
		p.kill()
		return errors.New("the broker did not stop on SIGTERM")
	}
}

// pause stops the life's clock for a while.
func (p *process) pause(d time.Duration) {
	p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	p.cmd.Process.Signal(syscall.SIGCONT)
}

// lastWords is the end of the log.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.logFile.Name())
	if err != nil || len(text) == 0 {
		return ""
	}
	const most = 3000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return "\n" + string(text)
}
