package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func produceCommand(o *options) *cobra.Command {
	var separator, acks, codec string
	var partition int32
	c := &cobra.Command{Use: "produce TOPIC", Short: "Produce the lines of standard input", Args: cobra.ExactArgs(1)}
	c.Flags().StringVarP(&separator, "key-separator", "k", "", "each line is KEY, this, VALUE; without it there are no keys")
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "partition; -1 chooses by key, or evenly")
	c.Flags().StringVar(&acks, "acks", "all", "all, 1 or 0")
	c.Flags().StringVarP(&codec, "codec", "z", "none", "none, gzip, snappy, lz4 or zstd")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if partition < -1 {
			return fmt.Errorf("--partition is -1 or a partition, not %d", partition)
		}
		opts, err := producerOptions(acks, codec, partition)
		if err != nil {
			return err
		}
		cl, err := o.client(append(opts, kgo.DefaultProduceTopic(args[0]), kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(o.timeout))...)
		if err != nil {
			return err
		}
		defer cl.Close()
		return produceLines(cmd.Context(), cl, cmd.InOrStdin(), separator, partition)
	}
	return c
}

func producerOptions(acks, codec string, partition int32) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks is all, 1 or 0, not %q", acks)
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	z, ok := codecs[codec]
	if !ok {
		return nil, fmt.Errorf("--codec is none, gzip, snappy, lz4 or zstd, not %q", codec)
	}
	opts = append(opts, kgo.ProducerBatchCompression(z))
	if partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

// produceLines sends every line and waits until all are acknowledged; the first error ends it, and what was read before a line
// that cannot be sent is sent.
func produceLines(ctx context.Context, cl *kgo.Client, in io.Reader, separator string, partition int32) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed sync.Once
	lines := bufio.NewReader(in)
	var wrong error
	for n := 1; ctx.Err() == nil; n++ {
		line, err := lines.ReadString('\n')
		if line == "" && err != nil {
			if !errors.Is(err, io.EOF) {
				wrong = err
			}
			break
		}
		r := &kgo.Record{Partition: max(partition, 0), Value: []byte(strings.TrimSuffix(line, "\n"))}
		if separator != "" {
			key, value, ok := strings.Cut(string(r.Value), separator)
			if !ok {
				wrong = fmt.Errorf("line %d has no %q: the %d before it were sent, it and what follows were not: %q", n, separator, n-1, r.Value)
				break
			}
			r.Key, r.Value = []byte(key), []byte(value)
		}
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Do(func() { cancel(err) })
			}
		})
	}
	if err := cl.Flush(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return wrong
}
