package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func consumeCommand(o *options) *cobra.Command {
	var from, format string
	var partition int32
	var count int64
	var exit bool
	c := &cobra.Command{Use: "consume TOPIC", Short: "Print the records of a topic", Args: cobra.ExactArgs(1)}
	c.Flags().StringVar(&from, "from", "start", "start, end or an offset")
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "one partition; -1 for all")
	c.Flags().Int64VarP(&count, "count", "n", 0, "stop after this many records")
	c.Flags().BoolVarP(&exit, "exit", "e", false, "stop at what is the end when it begins")
	c.Flags().StringVarP(&format, "format", "f", "%v\n", "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %d timestamp")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		formatter, err := kgo.NewRecordFormatter(format)
		if err != nil {
			return fmt.Errorf("--format: %w", err)
		}
		at, err := startOffset(from)
		if err != nil {
			return err
		}
		ends, starts, err := o.bounds(cmd, args[0])
		if err != nil {
			return err
		}
		assign := map[int32]kgo.Offset{}
		for p := range ends {
			if partition < 0 || p == partition {
				assign[p] = at
			}
		}
		if len(assign) == 0 {
			return fmt.Errorf("topic %s has no partition %d", args[0], partition)
		}
		cl, err := o.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args[0]: assign}))
		if err != nil {
			return err
		}
		defer cl.Close()
		r := reader{cl: cl, out: bufio.NewWriter(cmd.OutOrStdout()), format: formatter, left: count, ends: nil}
		if exit {
			r.ends = openEnds(assign, starts, ends, from)
		}
		return r.run(cmd.Context())
	}
	return c
}

func startOffset(from string) (kgo.Offset, error) {
	switch from {
	case "start":
		return kgo.NewOffset().AtStart(), nil
	case "end":
		return kgo.NewOffset().AtEnd(), nil
	}
	n, err := strconv.ParseInt(from, 10, 64)
	if err != nil || n < 0 {
		return kgo.Offset{}, fmt.Errorf("--from is start, end or an offset, not %q", from)
	}
	return kgo.NewOffset().At(n), nil
}

// bounds returns the first and the end offset of each partition of a topic.
func (o *options) bounds(cmd *cobra.Command, topic string) (ends, starts map[int32]int64, err error) {
	ends, starts = map[int32]int64{}, map[int32]int64{}
	err = o.admin(cmd, func(ctx context.Context, a *kadm.Client) error {
		e, err1 := a.ListEndOffsets(ctx, topic)
		s, err2 := a.ListStartOffsets(ctx, topic)
		if err := errors.Join(err1, err2, e.Error(), s.Error()); err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
		e.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset })
		s.Each(func(l kadm.ListedOffset) { starts[l.Partition] = l.Offset })
		return nil
	})
	return ends, starts, err
}

// openEnds returns where -e stops, without the partitions in which there is nothing to read.
func openEnds(assign map[int32]kgo.Offset, starts, ends map[int32]int64, from string) map[int32]int64 {
	open := map[int32]int64{}
	for p := range assign {
		begin := starts[p]
		if n, err := strconv.ParseInt(from, 10, 64); err == nil {
			begin = max(begin, n)
		}
		if from != "end" && begin < ends[p] {
			open[p] = ends[p]
		}
	}
	return open
}

// reader prints records until the count or the ends are reached.
type reader struct {
	cl     *kgo.Client
	out    *bufio.Writer
	format *kgo.RecordFormatter
	left   int64           // 0: without bound
	ends   map[int32]int64 // nil: without end
}

func (r *reader) run(ctx context.Context) error {
	defer r.out.Flush()
	var buf []byte
	for r.ends == nil || len(r.ends) > 0 {
		fetches := r.cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // interrupted: what was read is printed
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			rec := it.Next()
			buf = r.format.AppendRecord(buf[:0], rec)
			if _, err := r.out.Write(buf); err != nil {
				return err
			}
			if r.done(rec) {
				return nil
			}
		}
		if err := r.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// done counts a record that was printed and says whether it was the last.
func (r *reader) done(rec *kgo.Record) bool {
	if r.left > 0 {
		if r.left--; r.left == 0 {
			return true
		}
	}
	if end, ok := r.ends[rec.Partition]; ok && rec.Offset+1 >= end {
		delete(r.ends, rec.Partition)
	}
	return r.ends != nil && len(r.ends) == 0
}
