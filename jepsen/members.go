package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// life is one member's process from its start to its end, with what it told.
type life struct {
	o    memberOptions
	name string // of the group, and a number
	cmd  *exec.Cmd
	done chan struct{} // closed when all is read that it told

	mu      sync.Mutex
	events  []event
	held    map[int32]int64 // what it has, and when it was given it
	polled  map[int32]int64 // when it last got something of a partition
	pauses  []span          // when it was frozen
	ended   int64           // when it was killed or ended; 0 while it lives
	stopped bool            // it was asked to leave
	wrong   error
}

// span is a time on the monotonic clock; an open one ends never.
type span struct{ from, to int64 }

const never = int64(1<<63 - 1)

// birth starts a member's process.
func birth(o memberOptions, name string, log io.Writer) (*life, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	l := &life{o: o, name: name, cmd: exec.Command(self), done: make(chan struct{}), held: map[int32]int64{}, polled: map[int32]int64{}}
	l.cmd.Env = append(os.Environ(), memberVariable+"="+string(told))
	l.cmd.Stderr = log
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting member %s: %w", name, err)
	}
	go l.listen(out)
	return l, nil
}

// listen takes what the member tells until its end. A line that the kill cut is none.
func (l *life) listen(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			l.mu.Lock()
			l.wrong = fmt.Errorf("member %s told %q: %w", l.name, line, err)
			l.mu.Unlock()
			continue
		}
		l.note(e)
	}
	err := l.cmd.Wait()
	l.mu.Lock()
	if l.ended == 0 {
		l.ended = monotonic()
		if !l.stopped {
			l.wrong = errors.Join(l.wrong, fmt.Errorf("member %s ended by itself: %v", l.name, err))
		}
	}
	l.mu.Unlock()
	close(l.done)
}

func (l *life) note(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	switch e.Kind {
	case assigned:
		for _, p := range e.Partitions {
			l.held[p] = e.At
		}
	case revoked, lost:
		for _, p := range e.Partitions {
			delete(l.held, p)
		}
	case polled:
		l.polled[e.Partition] = e.At
	}
}

// kill ends it as kill -9 does.
func (l *life) kill() {
	l.mu.Lock()
	l.ended = monotonic()
	l.mu.Unlock()
	l.cmd.Process.Signal(syscall.SIGKILL)
	<-l.done
}

// leavePatience is how long a member may take to leave.
const leavePatience = 40 * time.Second

// leave has it leave its group, and end.
func (l *life) leave() error {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.done:
		return nil
	case <-time.After(leavePatience):
		l.kill()
		return fmt.Errorf("member %s did not leave within %s", l.name, leavePatience)
	}
}

// freeze stops its clock, until thaw.
func (l *life) freeze() {
	l.mu.Lock()
	l.pauses = append(l.pauses, span{monotonic(), never})
	l.mu.Unlock()
	l.cmd.Process.Signal(syscall.SIGSTOP)
}

func (l *life) thaw() {
	l.cmd.Process.Signal(syscall.SIGCONT)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pauses[len(l.pauses)-1].to = monotonic()
}

// team is a group and its members.
type team struct {
	group, kind string
	static      bool
	log         io.Writer
	seeds       []string
	topicID     [16]byte

	mu    sync.Mutex
	all   []*life // that ever were
	alive []*life
	looks []look
	asked int // looks that got no answer
}

// look is one reading of what a group committed.
type look struct {
	from, to int64 // when it was asked and answered
	offsets  map[int32]int64
}

// join starts a member; instance is that of one that comes back, or empty.
func (t *team) join(instance string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.all) + 1
	if t.static && instance == "" {
		instance = fmt.Sprintf("%s-instance-%d", t.group, n)
	}
	l, err := birth(memberOptions{t.seeds, t.group, t.kind, instance, t.topicID}, fmt.Sprintf("%s/%d", t.group, n), t.log)
	if err != nil {
		return err
	}
	t.all, t.alive = append(t.all, l), append(t.alive, l)
	return nil
}

// gone takes a member off the list of the living.
func (t *team) gone(l *life) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alive = slices.DeleteFunc(t.alive, func(o *life) bool { return o == l })
}

func (t *team) living() []*life {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.alive)
}

// everybody is every member that ever was.
func (t *team) everybody() []*life {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// unsettled says what keeps the group from being settled: each partition is had by one living member, which got something of it
// after the instant, and no member has nothing. It is empty if nothing does.
func (t *team) unsettled(partitions int, after int64) string {
	holders := make([][]string, partitions)
	read := make([]bool, partitions)
	var why []string
	for _, l := range t.living() {
		l.mu.Lock()
		if len(l.held) == 0 {
			why = append(why, l.name+" has nothing")
		}
		for p := range l.held {
			holders[p] = append(holders[p], l.name)
			read[p] = read[p] || l.polled[p] > max(after, l.held[p])
		}
		l.mu.Unlock()
	}
	for p := range partitions {
		switch {
		case len(holders[p]) != 1:
			why = append(why, fmt.Sprintf("partition %d is with %d members %v", p, len(holders[p]), holders[p]))
		case !read[p]:
			why = append(why, fmt.Sprintf("%s got nothing of partition %d", holders[p][0], p))
		}
	}
	return strings.Join(why, ", ")
}

// wrong is what a member did that none may.
func (t *team) wrong() (all error) {
	for _, l := range t.everybody() {
		l.mu.Lock()
		all = errors.Join(all, l.wrong)
		l.mu.Unlock()
	}
	return all
}
