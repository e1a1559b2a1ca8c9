package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Member is one broker of a cluster as it is to be started, again and again on the same ports.
type Member struct {
	ID   int
	Addr string // where it serves clients
	Data string // its data directory
	Log  string // where what it says goes
	Args []string
}

// Cluster lays out n brokers under dir that are the voters of one metadata quorum; of one alone, none are named. The extra flags go to each.
func Cluster(dir string, n int, extra ...string) (all []Member, err error) {
	ports, err := FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	loopback := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, loopback(n+i)))
	}
	for i := range n {
		m := Member{ID: i + 1, Addr: loopback(i), Data: filepath.Join(dir, fmt.Sprintf("data-%d-of-%d", i+1, n)),
			Log: filepath.Join(dir, fmt.Sprintf("broker-%d-of-%d.log", i+1, n))}
		m.Args = append([]string{"broker", "--id", fmt.Sprint(m.ID), "--data", m.Data, "--listen", m.Addr, "--peer-listen", loopback(n + i), "--http", ""}, extra...)
		if n > 1 {
			m.Args = append(m.Args, "--voters", strings.Join(voters, ","))
		}
		all = append(all, m)
	}
	return all, nil
}

// readyPatience is how long a broker may take until it serves.
const readyPatience = 60 * time.Second

// Launch starts the broker's process, which dies with this one, and returns it with what waits for the broker's word that it is
// ready. The brokers of a cluster all have to be launched before any is waited for: a quorum needs its majority.
func (m Member) Launch(binary string) (p *Process, wait func() error, err error) {
	log, err := os.OpenFile(m.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, m.Args...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	ready := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	return &Process{Addr: m.Addr, cmd: cmd}, func() error { return m.await(ready) }, nil
}

func (m Member) await(ready <-chan error) error {
	select {
	case err := <-ready:
		if err != nil {
			text, _ := os.ReadFile(m.Log)
			return fmt.Errorf("broker %d ended before it was ready: %s", m.ID, strings.Join(strings.Fields(string(text)), " "))
		}
		return nil
	case <-time.After(readyPatience):
		return fmt.Errorf("broker %d was not ready after %s (see %s)", m.ID, readyPatience, m.Log)
	}
}

// LaunchAll launches all members and waits until they serve. What was started is returned with an error, too.
func LaunchAll(binary string, members []Member) (all []*Process, err error) {
	var waits []func() error
	for _, m := range members {
		p, wait, err := m.Launch(binary)
		if err != nil {
			return all, err
		}
		all, waits = append(all, p), append(waits, wait)
	}
	for _, wait := range waits {
		err = errors.Join(err, wait())
	}
	return all, err
}
