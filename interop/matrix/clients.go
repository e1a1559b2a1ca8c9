package main

import (
	"maps"
	"path/filepath"
	"slices"
	"syscall"
)

// clients are all that the matrix knows, in the order of its columns.
var clients = []driver{
	idempotent(goClient("franz-go", ".", "./interop/franzgo")),
	goClient("sarama", "interop/go", "./sarama"),
	limited(goClient("kafka-go", "interop/go", "./kafkago"), limits{emptyIsNull: true, stopsInBatch: true}),
	{name: "kcat", install: (*installer).kcat, open: openKcat, limits: limits{noTimestamps: true, textHeaders: true}, gaps: notATool(nil)},
	pythonClient("confluent-kafka", "confluent.py"),
	idempotent(limited(pythonClient("kafka-python", "kafkapython.py"), limits{noNullHeaders: true})),
	pythonClient("aiokafka", "aiokafka_agent.py"),
	{name: "kafkajs", install: (*installer).node, limits: limits{noNullHeaders: true, noMetadata: true}, hides: "trim",
		gaps: map[string]string{"error: offset out of range": "it always goes on where its group would begin"}, open: func(in *installer, addr string) (session, error) {
			return start(0, "node", filepath.Join(in.root, "interop/node/agent.js"), addr, filepath.Join(in.cache, "node"))
		}},
	idempotent(driver{name: "Java", install: (*installer).java, open: openJava}),
	idempotent(driver{name: "Java tools", install: (*installer).java, open: openTools, limits: limits{noTimestamps: true, textHeaders: true, bigSegments: true},
		gaps: notATool(map[string]string{"error: offset out of range": "the console consumer tells its log only"})}),
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
	for _, d := range slices.Concat(clients, frameworks) {
		ns = append(ns, d.name)
	}
	return ns
}

func limited(d driver, l limits) driver {
	d.limits = l
	return d
}

func idempotent(d driver) driver {
	d.idempotent = true
	return d
}

func goClient(name, module, pkg string) driver {
	return driver{name: name,
		install: func(in *installer) error { return in.goAgent(module, pkg) },
		open: func(in *installer, addr string) (session, error) {
			return start(syscall.SIGQUIT, in.goBinary(pkg), addr)
		}}
}

func pythonClient(name, file string) driver {
	return driver{name: name, install: (*installer).python, open: func(in *installer, addr string) (session, error) {
		return start(syscall.SIGUSR1, filepath.Join(in.cache, "python/venv/bin/python"), filepath.Join(in.root, "interop/python", file), addr)
	}}
}

func openJava(in *installer, addr string) (session, error) { return startJava(in, addr) }

func startJava(in *installer, addr string) (*process, error) {
	return start(syscall.SIGQUIT, "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+DisplayVMOutputToStderr",
		"-Djava.io.tmpdir="+agentTemp, "-cp",
		filepath.Join(in.cache, "java-agent")+":"+filepath.Join(in.cache, "java/jars/*"), "Agent", addr)
}
