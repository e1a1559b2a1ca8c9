package node

import (
	"context"
	"fmt"
	gonet "net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// freePorts returns ports that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
	var ports []int
	for range n {
		l, err := gonet.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*gonet.TCPAddr).Port)
	}
	return ports
}

// startCluster starts n brokers that are all voters.
func startCluster(t *testing.T, n int, more ...string) []*Node {
	ports := freePorts(t, n)
	var voters []string
	for i, p := range ports {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, p))
	}
	var nodes []*Node
	for i, p := range ports {
		more := append([]string{"node.id", fmt.Sprint(i + 1), "controller.quorum.voters", strings.Join(voters, ",")}, more...)
		settings := settingsFor(t.TempDir(), more...)
		node, err := Start(Config{Settings: settings, PeerListen: fmt.Sprintf("127.0.0.1:%d", p), Log: quiet})
		require.NoError(t, err)
		t.Cleanup(node.Kill)
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		select {
		case <-node.Ready():
		case <-time.After(30 * time.Second):
			t.Fatal("a broker is not ready")
		}
	}
	return nodes
}

// TestClusterSurvivesAKilledBroker: what was acknowledged by three is there when one is gone, and writing goes on.
func TestClusterSurvivesAKilledBroker(t *testing.T) {
	nodes := startCluster(t, 3)
	var seeds []string
	for _, n := range nodes {
		seeds = append(seeds, n.Addr().String())
	}
	c := clientOf(t, nodes[0], kgo.RequiredAcks(kgo.AllISRAcks()), kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(20*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := kadm.NewClient(c).CreateTopic(ctx, 3, 3, nil, "topic")
	require.NoError(t, err)
	produce(t, c, "topic", 0, 300)
	nodes[0].Kill()
	produce(t, c, "topic", 300, 600)
	consume(t, nodes[1], "topic", 600)
}
