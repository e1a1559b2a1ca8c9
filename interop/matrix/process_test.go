package main

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/interop/agent"
)

// shorten sets a limit for the time of a test.
func shorten(t *testing.T, limit *time.Duration, to time.Duration) {
	was := *limit
	*limit = to
	t.Cleanup(func() { *limit = was })
}

// silent is a client that never answers.
func silent(t *testing.T) *process {
	p, err := start(syscall.SIGQUIT, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A client that does not answer is ended, and the error names the request.
func TestRequestIsBounded(t *testing.T) {
	shorten(t, &answerLimit, 100*time.Millisecond)
	_, err := silent(t).Do(agent.Request{Op: "produce", Topic: "orders"})
	var lost *lostError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "no answer to produce orders") {
		t.Fatalf("got %v", err)
	}
}

// A row that waits for a client that does not answer ends, and says what the client was doing.
func TestRowIsBounded(t *testing.T) {
	shorten(t, &rowLimit, 100*time.Millisecond)
	w, c := &world{ctx: context.Background()}, &column{s: silent(t)}
	err := w.bounded(c, row{"hangs", func(w *world, c *column) error {
		_, err := c.must(agent.Request{Op: "describe", Topic: "orders"})
		return err
	}})
	if err == nil || !strings.Contains(err.Error(), `"describe orders"`) || !c.broken {
		t.Fatalf("got %v, broken %v", err, c.broken)
	}
}

// A row whose check never holds ends when its time is up, whatever it would have waited.
func TestAwaitIsBoundedByTheRow(t *testing.T) {
	shorten(t, &rowLimit, 100*time.Millisecond)
	w, c := &world{ctx: context.Background()}, &column{}
	never := errors.New("never holds")
	err := w.bounded(c, row{"waits", func(w *world, _ *column) error {
		return w.await(time.Hour, func() error { return never })
	}})
	if !errors.Is(err, never) {
		t.Fatalf("got %v", err)
	}
}
