package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockstep/interop/agent"
)

// Every wait of the driver ends: a request to a client by answerLimit, a row by rowLimit, an installation by installLimit.
var (
	answerLimit  = 90 * time.Second // agents bound what they do themselves by less
	rowLimit     = 5 * time.Minute  // longer than all that a row awaits, one after the other
	stuckLimit   = time.Minute      // what is left to a row whose clients were killed
	installLimit = 15 * time.Minute
)

// process is a client in a process of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	// stacks is the signal on which it prints where each of its threads is; 0 where its language has none.
	stacks syscall.Signal

	mu    sync.Mutex
	doing string // the request that it was sent last
	since time.Time
	idle  bool // that request is answered
}

// running are all clients' processes, so that a row whose time is up can say what each was doing.
var running struct {
	sync.Mutex
	processes []*process
}

// agentLog takes what clients print.
var agentLog = os.Stderr

// agentTemp is where clients put what they unpack.
var agentTemp = os.TempDir()

// start starts a client. Of the signal stacks see process.
func start(stacks syscall.Signal, name string, args ...string) (*process, error) {
	p := &process{name: name, stacks: stacks, cmd: exec.Command(name, args...), doing: "starting", since: time.Now()}
	p.cmd.Stderr = agentLog
	p.cmd.Env = append(os.Environ(), "TMPDIR="+agentTemp)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	running.Lock()
	defer running.Unlock()
	running.processes = append(running.processes, p)
	return p, nil
}

// lostError says that a client's process has ended, or was ended because it did not answer.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

// Do asks the agent for one thing.
func (p *process) Do(q agent.Request) (r agent.Response, err error) {
	p.mu.Lock()
	p.doing, p.since, p.idle = describeRequest(q), time.Now(), false
	p.mu.Unlock()
	silent := make(chan struct{})
	timer := time.AfterFunc(answerLimit, func() {
		close(silent)
		p.printStacks()
		p.Kill()
	})
	defer timer.Stop()
	err = json.NewEncoder(p.in).Encode(q)
	if err == nil {
		err = p.out.Decode(&r)
	}
	if err != nil {
		select {
		case <-silent:
			return r, &lostError{fmt.Sprintf("no answer to %s within %s; where it was is in %s", describeRequest(q), answerLimit, agentLog.Name())}
		default:
			return r, &lostError{fmt.Sprintf("the client's process ended during %s: %v; what it printed is in %s", describeRequest(q), err, agentLog.Name())}
		}
	}
	p.mu.Lock()
	p.idle = true
	p.mu.Unlock()
	return r, nil
}

// describeRequest is what a person needs of a request.
func describeRequest(q agent.Request) string {
	words := []string{q.Op}
	for _, w := range []string{q.Topic, q.Group, q.Codec, q.Class} {
		if w != "" {
			words = append(words, w)
		}
	}
	if len(q.Records) > 0 {
		words = append(words, fmt.Sprintf("(%d records)", len(q.Records)))
	}
	return strings.Join(append(words, q.Args...), " ")
}

// describe says what the client is doing.
func (p *process) describe() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	verb := "has been doing"
	if p.idle {
		verb = "idles since"
	}
	return fmt.Sprintf("pid %d %s %q for %.0f s", p.cmd.Process.Pid, verb, p.doing, time.Since(p.since).Seconds())
}

// printStacks has the process print to the clients' log where it is; some languages' processes end thereby.
func (p *process) printStacks() {
	if p.stacks == 0 {
		return
	}
	fmt.Fprintf(agentLog, "\n== where pid %d is, which %s\n", p.cmd.Process.Pid, p.describe())
	_ = p.cmd.Process.Signal(p.stacks)
	time.Sleep(time.Second) // there is no word of when it is done
}

// killClients has all clients say where they are, ends them, and returns what each was doing.
func killClients() string {
	running.Lock()
	ps := slices.Clone(running.processes)
	running.Unlock()
	var doing []string
	for _, p := range ps {
		doing = append(doing, p.describe())
		p.printStacks()
	}
	for _, p := range ps {
		p.Kill()
	}
	if len(doing) == 0 {
		return "no client was running"
	}
	return strings.Join(doing, ", ")
}

// Kill ends the process as a crash does.
func (p *process) Kill() { _ = p.cmd.Process.Kill() }

// Close lets the agent end by itself, and ends it if it does not.
func (p *process) Close() {
	p.in.Close()
	timer := time.AfterFunc(5*time.Second, p.Kill)
	defer timer.Stop()
	_ = p.cmd.Wait()
	running.Lock()
	defer running.Unlock()
	running.processes = slices.DeleteFunc(running.processes, func(o *process) bool { return o == p })
}
