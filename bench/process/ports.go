package process

import (
	"fmt"
	"net"
	"os"
)

// FreePorts finds n TCP ports of loopback for brokers that keep them over restarts. They lie below those that the kernel gives
// to outgoing connections: among these, a client that knocks at a killed broker's port would now and then take the port, or be
// connected to itself. Several programs at once look at different ports first.
func FreePorts(n int) (ports []int, err error) {
	const first, last = 20000, 29999
	span := last - first + 1
	for i := range span {
		p := first + (os.Getpid()*64+i)%span
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, p); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("not %d free ports between %d and %d", n, first, last)
}
