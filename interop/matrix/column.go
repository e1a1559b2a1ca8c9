package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"lockstep/interop/agent"
)

// driver is how a client is installed and started.
type driver struct {
	name string
	// framework is which of the Java frameworks it is, "" for a client.
	framework string
	install   func(*installer) error
	// open starts the client against a broker.
	open func(*installer, string) (session, error)
	// idempotent says that its producer is, unless told otherwise.
	idempotent bool
	// limits are what the client's own nature leaves out of records.
	limits limits
	// gaps are rows that the client cannot pass with any broker, with the reason.
	gaps map[string]string
	// hides is what the client reports errors of without Kafka's code.
	hides string
}

// limits of a client as a writer and reader of records.
type limits struct {
	noTimestamps  bool // it cannot set them
	textHeaders   bool // header values are text
	noNullHeaders bool // it cannot write a header whose value is null
	noMetadata    bool // it commits offsets without metadata
	emptyIsNull   bool // it makes no difference between an empty key or value and null
	bigSegments   bool // it refuses a topic with small segments, without asking the broker
	stopsInBatch  bool // it stays for ever at a compressed batch of which the last record is compacted away, if the answer ends there
}

// session is a running client.
type session interface {
	agent.Client
	Close()
}

// column is one client and what came of its rows.
type column struct {
	driver
	in      *installer
	s       session
	version string
	missing string
	results map[string]result
	broken  bool
}

// result is ok when both fields are empty.
type result struct{ gap, failure string }

func (r result) String() string {
	switch {
	case r.failure != "":
		return "FAIL " + r.failure
	case r.gap != "":
		return "gap " + r.gap
	}
	return "ok"
}

// gap is the error of a row that the client cannot do.
type gap string

func (g gap) Error() string { return string(g) }

func (c *column) install(in *installer) error {
	c.in = in
	return c.driver.install(in)
}

func (c *column) start(addr string) (err error) {
	if c.s, err = c.open(c.in, addr); err != nil {
		return err
	}
	r, err := c.do(agent.Request{Op: "hello"})
	if c.version == "" { // an application of a framework says its own
		c.version = r.Client
	}
	return err
}

func (c *column) stop() { c.s.Close() }

// do has the client do something; the error is a *agent.Error when the client reported one, a gap when it cannot.
func (c *column) do(q agent.Request) (agent.Response, error) {
	r, err := ask(c.s, q)
	var lost *lostError
	c.broken = errors.As(err, &lost)
	return r, err
}

func ask(s session, q agent.Request) (agent.Response, error) {
	r, err := s.Do(q)
	switch {
	case err != nil:
		return r, err
	case r.Gap != "":
		return r, gap(r.Gap)
	case r.Error != nil:
		return r, r.Error
	}
	return r, nil
}

// must is do with the request named in the error.
func (c *column) must(q agent.Request) (agent.Response, error) {
	r, err := c.do(q)
	if _, isGap := err.(gap); err != nil && !isGap {
		err = fmt.Errorf("%s: %w", q.Op, err)
	}
	return r, err
}

// refused checks that a request fails with Kafka's error code.
func (c *column) refused(q agent.Request, code int) error {
	_, err := c.do(q)
	var e *agent.Error
	switch {
	case err == nil:
		return fmt.Errorf("%s succeeded, error %d was due", q.Op, code)
	case !errors.As(err, &e):
		return err
	case e.Code == -1 && q.Op == c.hides:
		return nil
	case e.Code != code:
		return fmt.Errorf("%s: error %d (%s) in place of %d", q.Op, e.Code, oneLine(e.Text), code)
	}
	return nil
}

func (c *column) check(w *world, r row) (res result) {
	if reason := c.gaps[r.name]; reason != "" {
		return result{gap: reason}
	}
	err := w.bounded(c, r)
	if c.broken {
		// The process ended or hung; the next row gets a new one.
		c.stop()
		if e := c.start(w.addr); e != nil {
			err = errors.Join(err, e)
		}
	}
	var g gap
	switch {
	case err == nil:
		return result{}
	case errors.As(err, &g):
		return result{gap: string(g)}
	}
	return result{failure: oneLine(err.Error())}
}

// bounded runs a row. When its time is up, clients and brokers are made to say where they are, and the clients are ended, so
// that the row ends too.
func (w *world) bounded(c *column, r row) error {
	ctx, cancel := context.WithTimeout(context.Background(), rowLimit)
	defer cancel()
	w.ctx = ctx
	defer func() { w.ctx = context.Background() }()
	done := make(chan error, 1)
	go func() { done <- r.run(w, c) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	doing := killClients()
	w.printStacks()
	select {
	case err := <-done:
		c.broken = true
		return errors.Join(fmt.Errorf("not over after %s (%s); stacks are in %s", rowLimit, doing, w.dir), err)
	case <-time.After(stuckLimit):
		// Nothing that the row waits for is left: the driver itself is wrong. Its stacks say where.
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s, %s: not over after %s, nor after its clients were killed (%s)", c.name, r.name, rowLimit, doing))
	}
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return s
}

// topic names a topic of this client's own.
func (c *column) topic(what string) string {
	return strings.ReplaceAll(strings.ToLower(c.name), " ", "-") + "-" + what
}
