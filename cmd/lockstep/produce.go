package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func produceCommand(o *options) *cobra.Command {
	var acks, codec string
	var f lineFormat
	c := &cobra.Command{Use: "produce TOPIC", Short: "Produce the lines of standard input", Args: cobra.ExactArgs(1)}
	c.Flags().StringVarP(&f.separator, "key-separator", "k", "", "each line is KEY, this, VALUE; without it there are no keys")
	c.Flags().BoolVar(&f.tombstones, "tombstones", false, "a KEY with an empty VALUE is deleted, which a compacted topic carries out")
	c.Flags().Int32VarP(&f.partition, "partition", "p", -1, "partition; -1 chooses by key, or evenly")
	c.Flags().StringVar(&acks, "acks", "all", "all, 1 or 0")
	c.Flags().StringVarP(&codec, "codec", "z", "none", "none, gzip, snappy, lz4 or zstd")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case f.partition < -1:
			return fmt.Errorf("--partition is -1 or a partition, not %d", f.partition)
		case f.tombstones && f.separator == "":
			return errors.New("--tombstones needs --key-separator: what has no key cannot be deleted")
		}
		opts, err := producerOptions(acks, codec, f.partition)
		if err != nil {
			return err
		}
		cl, err := o.client(append(opts, kgo.DefaultProduceTopic(args[0]), kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(o.timeout))...)
		if err != nil {
			return err
		}
		defer cl.Close()
		err = produceLines(cmd.Context(), cl, cmd.InOrStdin(), f)
		if errors.Is(err, kgo.ErrRecordTimeout) {
			err = fmt.Errorf("nothing was acknowledged for %v: %s", o.timeout, o.whyTimedOut(cmd, args[0]))
		}
		return err
	}
	return c
}

// lineFormat is what a line says.
type lineFormat struct {
	separator  string // between key and value; empty: there are no keys
	tombstones bool   // an empty value is none
	partition  int32  // for all records, or -1
}

// record makes a record of a line, if it has the separator that it is to have.
func (f lineFormat) record(line string) (r *kgo.Record, ok bool) {
	r = &kgo.Record{Partition: max(f.partition, 0), Value: []byte(line)}
	if f.separator == "" {
		return r, true
	}
	key, value, ok := strings.Cut(line, f.separator)
	r.Key, r.Value = []byte(key), []byte(value)
	if value == "" && f.tombstones {
		r.Value = nil
	}
	return r, ok
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
func produceLines(ctx context.Context, cl *kgo.Client, in io.Reader, f lineFormat) error {
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
		line = strings.TrimSuffix(line, "\n")
		r, ok := f.record(line)
		if !ok {
			wrong = fmt.Errorf("line %d has no %q: the %d before it were sent, it and what follows were not: %q", n, f.separator, n-1, line)
			break
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

// whyTimedOut says why a topic may not have taken records in time, as far as can be seen now: the client tries whatever error again,
// and in the end tells only that its time is up.
func (o *options) whyTimedOut(cmd *cobra.Command, topic string) string {
	why := "the brokers' logs may say why"
	err := o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
		topics, err := a.ListTopics(ctx, topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return err
		}
		configs, err := a.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		if s := notTaking(topics[topic], minInSync(configs)); s != "" {
			why = s
			return nil
		}
		_, err = a.ListEndOffsets(ctx, topic) // asks all its leaders
		return err
	})
	if err != nil {
		return err.Error()
	}
	return why
}

// minInSync is the min.insync.replicas of the only topic described.
func minInSync(configs kadm.ResourceConfigs) int {
	for _, r := range configs {
		for _, c := range r.Configs {
			if c.Key == "min.insync.replicas" {
				n, _ := strconv.Atoi(c.MaybeValue())
				return n
			}
		}
	}
	return 0
}

// notTaking names a partition that cannot take what is to be acknowledged by all, if there is one.
func notTaking(t kadm.TopicDetail, minInSync int) string {
	for _, p := range t.Partitions.Sorted() {
		switch {
		case p.Leader < 0:
			return fmt.Sprintf("partition %d has no leader", p.Partition)
		case len(p.ISR) < min(minInSync, len(p.Replicas)):
			return fmt.Sprintf("partition %d has %d of %d replicas in sync, and min.insync.replicas is %d", p.Partition, len(p.ISR), len(p.Replicas), minInSync)
		}
	}
	return ""
}
