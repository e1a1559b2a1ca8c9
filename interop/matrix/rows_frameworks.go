package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"lockstep/interop/agent"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The frameworks that stand on Kafka's Java clients: each runs one application that reads a topic and writes another
// (java/Frameworks.java). What Spring Kafka and Kafka Connect read they send on; Kafka Streams counts it.
var frameworks = []driver{
	framework("Spring Kafka", "spring"),
	framework("Kafka Connect", "connect"),
	framework("Kafka Streams", "streams"),
}

func framework(name, class string) driver {
	return driver{name: name, framework: class, install: (*installer).java, open: openJava}
}

var frameworkRows = []row{{"processes, stops, goes on where it was", appLife}}

var frameworkClusterRows = []row{{"three brokers, leader killed", appLeaderKilled}}

const (
	appPartitions = 3
	appValues     = 20
	appStart      = 90 * time.Second // of a JVM with everything in it, on a busy machine
)

// app is an application of a framework.
type app struct {
	w       *world
	c       *column
	in, out string
	dir     string
}

func (w *world) newApp(c *column, name string) (*app, error) {
	a := &app{w: w, c: c, in: c.topic(name + "-in"), out: c.topic(name + "-out"), dir: filepath.Join(w.dir, c.topic(name))}
	if err := os.Mkdir(a.dir, 0o755); err != nil {
		return nil, err
	}
	if err := w.create(agent.Request{Topic: a.in, Partitions: appPartitions}); err != nil {
		return nil, err
	}
	return a, w.create(agent.Request{Topic: a.out, Partitions: appPartitions})
}

func (a *app) run() error {
	r, err := a.c.must(agent.Request{Op: "run", Class: a.c.framework, Topic: a.in, Group: a.in + "-app", Args: []string{a.out, a.dir}})
	if err == nil {
		a.c.version = r.Client
	}
	return err
}

// quit stops the application as its users do.
func (a *app) quit() error {
	_, err := a.c.must(agent.Request{Op: "quit"})
	return err
}

// appLife has an application process records, stops it, writes more, and starts it again: it goes on where it was.
func appLife(w *world, c *column) error {
	defer func() { c.broken = true }() // the next row has a process of its own
	a, err := w.newApp(c, "life")
	if err != nil {
		return err
	}
	for times := range 2 {
		if times > 0 {
			c.stop()
			if err := c.start(w.addr); err != nil {
				return err
			}
		}
		if err := w.write(a.in, appPartitions, appValues); err != nil {
			return err
		}
		if err := a.run(); err != nil {
			return err
		}
		// Each value is in each partition. An application that forgot where it was would send, or count, more than that.
		due := (times + 1) * appPartitions
		if err := w.await(appStart, func() error { return a.wrote(due, false) }); err != nil {
			return fmt.Errorf("run %d: %w", times+1, err)
		}
		if err := a.quit(); err != nil {
			return err
		}
		if err := a.wrote(due, true); err != nil {
			return fmt.Errorf("run %d, stopped: %w", times+1, err)
		}
	}
	return nil
}

// wrote checks that the application has sent, or counted, each value so many times: exactly, or at least.
func (a *app) wrote(times int, exactly bool) error {
	ends, err := a.w.ends(a.out)
	if err != nil {
		return err
	}
	sent := map[string]int{}
	for p, end := range ends {
		rs, err := a.w.readAll(a.out, p, 0, int(end))
		if err != nil {
			return err
		}
		for _, r := range rs {
			if a.c.framework != "streams" {
				sent[string(r.Value)]++
			} else if sent[string(r.Key)], err = strconv.Atoi(string(r.Value)); err != nil {
				return fmt.Errorf("the count of %q: %w", r.Key, err)
			}
		}
	}
	for i := range appValues {
		v := fmt.Sprint("record ", i)
		if n := sent[v]; n < times || exactly && n != times {
			return fmt.Errorf("%q came out %d times, %d were due", v, n, times)
		}
	}
	return nil
}

// appLeaderKilled kills the leader of a partition that an application reads, while records are written.
func appLeaderKilled(w *world, c *column) error {
	defer func() { c.broken = true }()
	a, err := w.newApp(c, "failover")
	if err != nil {
		return err
	}
	if err := w.write(a.in, appPartitions, appValues); err != nil {
		return err
	}
	if err := a.run(); err != nil {
		return err
	}
	if err := w.await(appStart, func() error { return a.wrote(appPartitions, false) }); err != nil {
		return fmt.Errorf("before the leader is killed: %w", err)
	}
	victim, err := w.leader(a.in, 0)
	if err != nil {
		return err
	}
	killed := time.AfterFunc(500*time.Millisecond, victim.kill)
	defer w.revive(victim, killed, a.in)
	if err := w.writePaced(a.in, 25*time.Millisecond); err != nil {
		return err
	}
	if err := w.await(appStart, func() error { return a.wrote(2*appPartitions, false) }); err != nil {
		return fmt.Errorf("the leader was killed: %w", err)
	}
	return a.quit()
}

// writePaced writes each value to each partition, one after the other.
func (w *world) writePaced(topic string, pause time.Duration) error {
	for i := range appValues {
		for p := range int32(appPartitions) {
			_, ctx, cancel := w.adm()
			err := w.ref.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(fmt.Sprint("record ", i))}).FirstErr()
			cancel()
			if err != nil {
				return err
			}
			time.Sleep(pause)
		}
	}
	return nil
}
