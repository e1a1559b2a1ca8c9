// Command lockstep is the broker, its tools and its simulator in one binary.
// Every file here turns flags into calls and answers into a table or JSON; what
// there is to know stands in the packages it calls.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lockstep:", err)
		os.Exit(1)
	}
}

// options are the flags that all commands share.
type options struct {
	bootstrap string
	json      bool
	timeout   time.Duration
}

func rootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "A distributed log that speaks the Kafka protocol, and whose every failure can be replayed from a seed",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&o.bootstrap, "bootstrap", envOr("LOCKSTEP_BOOTSTRAP", "127.0.0.1:9092"), "brokers to ask first, comma separated (or LOCKSTEP_BOOTSTRAP)")
	f.BoolVar(&o.json, "json", false, "print JSON in place of a table or of lines")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "give up an administrative request after this long")
	root.AddCommand(brokerCommand(), devCommand(), topicCommand(o), produceCommand(o), consumeCommand(o), groupCommand(o), clusterCommand(o),
		logCommand(o), simCommand(), benchCommand(o))
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if o.timeout <= 0 {
			return fmt.Errorf("--timeout is above 0, not %s", o.timeout)
		}
		return nil
	}
	for _, c := range root.Commands() {
		refuseUnknown(c)
	}
	return root
}

// refuseUnknown makes a command that only has others say which of them it does not know; by itself it prints its help.
func refuseUnknown(c *cobra.Command) {
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
}

// noArgs is for commands that have flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, not %q", cmd.CommandPath(), args[0])
	}
	return nil
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// client returns a Kafka client of the brokers that --bootstrap names.
func (o *options) client(more ...kgo.Opt) (*kgo.Client, error) {
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.ClientID("lockstep-cli"),
		kgo.RetryTimeout(o.timeout),
	}, more...)
	return kgo.NewClient(opts...)
}

// admin runs do with an administrative client, within the timeout.
func (o *options) admin(cmd *cobra.Command, do func(context.Context, *kadm.Client) error) error {
	cl, err := o.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("no broker answers at %s: %w", o.bootstrap, err)
	}
	return do(ctx, kadm.NewClient(cl))
}
