package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/core/config"
	"lockstep/node"

	"github.com/spf13/cobra"
)

// brokerFlags are the flags of the broker command; each stands for a setting that can also be in the file.
type brokerFlags struct {
	id                              int32
	data, listen, advertise, voters string
	peerListen, http                string
	file                            string
	set                             []string
	verbose                         bool
}

func brokerCommand() *cobra.Command {
	var b brokerFlags
	c := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker; with no flag at all, one that is ready for clients on 127.0.0.1:9092",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := b.settings(cmd)
			if err != nil {
				return err
			}
			// Run listens for signals itself. With a context that the first signal ends, too, that one could count twice.
			return node.Run(context.WithoutCancel(cmd.Context()), node.Config{Settings: settings, PeerListen: b.peerListen, HTTP: b.http,
				Log: b.logger(), Output: cmd.OutOrStdout()})
		},
	}
	f := c.Flags()
	f.Int32Var(&b.id, "id", 1, "node.id")
	f.StringVar(&b.data, "data", "./lockstep-data", "log.dirs: the data directory")
	f.StringVar(&b.listen, "listen", "127.0.0.1:9092", "where clients connect; port 0 takes a free one")
	f.StringVar(&b.advertise, "advertise", "", "HOST:PORT that clients are told to connect to (default: --listen)")
	f.StringVar(&b.peerListen, "peer-listen", "127.0.0.1:9093", "where other brokers connect")
	f.StringVar(&b.voters, "voters", "", "controller.quorum.voters: ID@HOST:PORT,... of the metadata quorum (default: this broker alone)")
	f.StringVar(&b.http, "http", "127.0.0.1:9094", "where /metrics, /healthz and /readyz are served; empty for nowhere")
	f.StringVar(&b.file, "config", "", "a file of settings under Kafka's names (server.properties)")
	f.StringArrayVarP(&b.set, "override", "o", nil, "one setting, key=value; repeatable, and stronger than flags and file")
	f.BoolVarP(&b.verbose, "verbose", "v", false, "log at level debug")
	return c
}

func (b *brokerFlags) logger() *slog.Logger {
	level := slog.LevelInfo
	if b.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// settings joins defaults, file, flags and overrides, the later stronger.
func (b *brokerFlags) settings(cmd *cobra.Command) (config.Values, error) {
	all := config.Values{}
	if b.file != "" {
		text, err := os.ReadFile(b.file)
		if err != nil {
			return nil, err
		}
		if all, err = config.ParseProperties(text); err != nil {
			return nil, fmt.Errorf("%s: %w", b.file, err)
		}
	}
	keys, values, err := keyValues(b.set)
	if err != nil {
		return nil, err
	}
	given := func(name string) bool {
		_, inFile := all.Get(name)
		_, overridden := values[name]
		return inFile || overridden
	}
	for _, s := range []struct{ flag, name, older, value string }{
		{"id", "node.id", "broker.id", strconv.Itoa(int(b.id))},
		{"data", "log.dirs", "log.dir", b.data},
		{"listen", "listeners", "", listener(b.listen)},
		{"advertise", "advertised.listeners", "", listener(b.advertise)},
		{"voters", "controller.quorum.voters", "", b.voters},
	} {
		if cmd.Flags().Changed(s.flag) || !given(s.name) && !given(s.older) && s.value != "" {
			all = all.With(s.name, s.value)
		}
	}
	for _, k := range keys {
		all = all.With(k, values[k])
	}
	return all, nil
}

func listener(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return "PLAINTEXT://" + address
}

func devCommand() *cobra.Command {
	var brokers int
	var data string
	var set []string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster in one process, for development: brokers on 9092, 9192, 9292 ...",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if brokers < 1 || brokers > 99 {
				return fmt.Errorf("--brokers is from 1 to 99, not %d", brokers)
			}
			if err := checkDev(data, brokers); err != nil {
				return err
			}
			return runDev(cmd, brokers, data, set)
		},
	}
	c.Flags().IntVar(&brokers, "brokers", 3, "how many brokers")
	c.Flags().StringVar(&data, "data", "./lockstep-data", "directory that gets one data directory for each")
	c.Flags().StringArrayVarP(&set, "override", "o", nil, "one setting for all of them, key=value; repeatable")
	return c
}

// checkDev refuses a data directory of another number of brokers. Fewer would be a majority of themselves, and decide
// what those that are not there contradict.
func checkDev(data string, brokers int) error {
	there := 0
	for i := range 99 {
		if _, err := os.Stat(filepath.Join(data, strconv.Itoa(i+1), "meta")); err == nil {
			there++
		}
	}
	if there != 0 && there != brokers {
		return fmt.Errorf("%s holds a cluster of %d brokers: give --brokers %d, or another --data", data, there, there)
	}
	return nil
}

// runDev runs the brokers until one fails or the process is told to stop.
func runDev(cmd *cobra.Command, brokers int, data string, set []string) (err error) {
	keys, values, err := keyValues(set)
	if err != nil {
		return err
	}
	var voters []string
	for i := range brokers {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, 9093+100*i))
	}
	nodes := make([]*node.Node, 0, brokers)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// At once: the last of them would wait for a majority to take its leaderships, and there is none.
		errs := make([]error, len(nodes))
		var stops sync.WaitGroup
		for i, n := range nodes {
			stops.Go(func() { errs[i] = n.Stop(ctx) })
		}
		stops.Wait()
		err = errors.Join(err, errors.Join(errs...))
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for i := range brokers {
		v := config.NewValues(map[string]string{
			"node.id":                  strconv.Itoa(i + 1),
			"log.dirs":                 filepath.Join(data, strconv.Itoa(i+1)),
			"listeners":                "PLAINTEXT://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(9092+100*i)),
			"controller.quorum.voters": strings.Join(voters, ","),
		})
		for _, k := range keys {
			v = v.With(k, values[k])
		}
		n, err := node.Start(node.Config{Settings: v, PeerListen: fmt.Sprintf("127.0.0.1:%d", 9093+100*i),
			HTTP: fmt.Sprintf("127.0.0.1:%d", 9094+100*i), Log: log.With("broker", i+1), Output: cmd.OutOrStdout()})
		if err != nil {
			return fmt.Errorf("broker %d: %w", i+1, err)
		}
		nodes = append(nodes, n)
	}
	ended := make(chan error, brokers)
	for _, n := range nodes {
		go func() { <-n.Done(); ended <- n.Err() }()
	}
	select {
	case <-cmd.Context().Done():
		return nil
	case err := <-ended:
		return err
	}
}
