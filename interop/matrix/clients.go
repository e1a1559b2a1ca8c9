package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"lockstep/interop/agent"
)

// clients are all that the matrix knows, in the order of its columns.
var clients = []driver{
	goClient("franz-go", ".", "./interop/franzgo"),
	goClient("sarama", "interop/go", "./sarama"),
	limited(goClient("kafka-go", "interop/go", "./kafkago"), limits{emptyIsNull: true}),
	{name: "kcat", install: (*installer).kcat, open: openKcat, limits: limits{noTimestamps: true, textHeaders: true}, gaps: notATool(nil)},
	pythonClient("confluent-kafka", "confluent.py"),
	kafkaPython(),
	pythonClient("aiokafka", "aiokafka_agent.py"),
	{name: "kafkajs", install: (*installer).node, limits: limits{noNullHeaders: true, noMetadata: true}, hides: "trim",
		gaps: map[string]string{"error: offset out of range": "it always goes on where its group would begin"}, open: func(in *installer, addr string) (session, error) {
			return start("node", filepath.Join(in.root, "interop/node/agent.js"), addr, filepath.Join(in.cache, "node"))
		}},
	{name: "Java", install: (*installer).java, open: openJava},
	{name: "Java tools", install: (*installer).java, open: openTools, limits: limits{noTimestamps: true, textHeaders: true},
		gaps: notATool(map[string]string{"error: offset out of range": "the console consumer tells its log only"})},
}

// notATool adds the rows that a command line tool is not asked for: it has a process for each call.
func notATool(gaps map[string]string) map[string]string {
	all := map[string]string{}
	for _, p := range phases {
		for _, r := range p.rows {
			if p.library {
				all[r.name] = "a tool that has a process for each call; its library is asked"
			}
		}
	}
	maps.Copy(all, gaps)
	return all
}

func names() (ns []string) {
	for _, d := range clients {
		ns = append(ns, d.name)
	}
	return ns
}

func kafkaPython() driver {
	d := limited(pythonClient("kafka-python", "kafkapython.py"), limits{noNullHeaders: true})
	// It joins before it knows the topic, then learns of it and joins again at once. Having got its assignment from that
	// second SyncGroup it now and then sends no heartbeat any more, nor anything else about the group (seen in version 3.0.12
	// with every request on the wire answered).
	d.again = "it may fall silent after joining twice"
	return d
}

func limited(d driver, l limits) driver {
	d.limits = l
	return d
}

func goClient(name, module, pkg string) driver {
	return driver{name: name,
		install: func(in *installer) error { return in.goAgent(module, pkg) },
		open:    func(in *installer, addr string) (session, error) { return start(in.goBinary(pkg), addr) }}
}

func pythonClient(name, file string) driver {
	return driver{name: name, install: (*installer).python, open: func(in *installer, addr string) (session, error) {
		return start(filepath.Join(in.cache, "python/venv/bin/python"), filepath.Join(in.root, "interop/python", file), addr)
	}}
}

func openJava(in *installer, addr string) (session, error) { return startJava(in, addr) }

func startJava(in *installer, addr string) (*process, error) {
	return start("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
		filepath.Join(in.cache, "java-agent")+":"+filepath.Join(in.cache, "java/jars/*"), "Agent", addr)
}

// process is a client in a process of its own.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// answerTimeout bounds one request to an agent; agents bound what they do themselves by less.
const answerTimeout = 90 * time.Second

func start(name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Stderr = agentLog
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, json.NewDecoder(out)
	return p, p.cmd.Start()
}

// agentLog takes what clients print.
var agentLog = io.Writer(os.Stderr)

// lostError says that a client's process has ended, or was ended because it did not answer.
type lostError struct{ err error }

func (e *lostError) Error() string {
	return "the client's process ended or did not answer: " + e.err.Error()
}

// Do asks the agent for one thing.
func (p *process) Do(q agent.Request) (r agent.Response, err error) {
	timer := time.AfterFunc(answerTimeout, p.Kill)
	defer timer.Stop()
	if err := json.NewEncoder(p.in).Encode(q); err != nil {
		return r, &lostError{err}
	}
	if err := p.out.Decode(&r); err != nil {
		return r, &lostError{err}
	}
	return r, nil
}

// Kill ends the process as a crash does.
func (p *process) Kill() { _ = p.cmd.Process.Kill() }

// Close lets the agent end by itself, and ends it if it does not.
func (p *process) Close() {
	p.in.Close()
	timer := time.AfterFunc(5*time.Second, p.Kill)
	defer timer.Stop()
	_ = p.cmd.Wait()
}
