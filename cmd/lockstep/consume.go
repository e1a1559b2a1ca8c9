package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func consumeCommand(o *options) *cobra.Command {
	var from, format string
	var partition int32
	var count int64
	var exit bool
	var member groupFlags
	c := &cobra.Command{Use: "consume TOPIC", Short: "Print the records of a topic", Args: cobra.ExactArgs(1)}
	c.Flags().StringVar(&from, "from", "start", "start, end or an offset; in a group, where nothing is committed")
	member.register(c)
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "one partition; -1 for all")
	c.Flags().Int64VarP(&count, "count", "n", 0, "stop after this many records; 0 for no bound")
	c.Flags().BoolVarP(&exit, "exit", "e", false, "stop at what is the end when it begins")
	c.Flags().StringVarP(&format, "format", "f", "%v\n", "%t topic, %p partition, %o offset, %k key, %v value, %h{%k=%v } headers, %d timestamp")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		formatter, err := kgo.NewRecordFormatter(format)
		if err != nil {
			return fmt.Errorf("--format: %w", err)
		}
		switch {
		case partition < -1:
			return fmt.Errorf("--partition is -1 or a partition, not %d", partition)
		case count < 0:
			return fmt.Errorf("--count is not negative, not %d", count)
		}
		at, err := startOffset(from)
		if err == nil {
			err = member.check(cmd)
		}
		if err != nil {
			return err
		}
		out, appendRecord := bufio.NewWriter(cmd.OutOrStdout()), formatter.AppendRecord
		if o.json {
			appendRecord = appendJSON
		}
		if member.group != "" {
			r := &groupReader{left: count, out: out, format: appendRecord}
			return o.consumeGroup(cmd, &member, args[0], r, from, at, exit)
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
		cl, err := o.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args[0]: assign}), kgo.KeepRetryableFetchErrors())
		if err != nil {
			return err
		}
		defer cl.Close()
		r := reader{cl: cl, out: out, format: appendRecord, left: count, patience: o.timeout}
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
		e, err := retrying(ctx, func() (kadm.ListedOffsets, error) { return a.ListEndOffsets(ctx, topic) })
		if err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
		s, err := retrying(ctx, func() (kadm.ListedOffsets, error) { return a.ListStartOffsets(ctx, topic) })
		if err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
		e.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset })
		s.Each(func(l kadm.ListedOffset) { starts[l.Partition] = l.Offset })
		return nil
	})
	return ends, starts, err
}

// retrying lists offsets until all are known. A partition between two leaders has its own in a moment.
func retrying(ctx context.Context, list func() (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	for {
		l, err := list()
		if shards := (*kadm.ShardErrors)(nil); errors.As(err, &shards) && len(shards.Errs) > 0 {
			err = shards.Errs[0].Err
		}
		if err == nil {
			err = l.Error()
		}
		if !errors.Is(err, kerr.OffsetNotAvailable) && !errors.Is(err, kerr.LeaderNotAvailable) && !errors.Is(err, kerr.NotLeaderForPartition) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return l, err
		case <-time.After(50 * time.Millisecond):
		}
	}
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

// consumedRecord is a record as JSON; see text for keys and values.
type consumedRecord struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Offset    int64            `json:"offset"`
	Timestamp int64            `json:"timestamp"`
	Key       any              `json:"key"`
	Value     any              `json:"value"`
	Headers   []consumedHeader `json:"headers,omitempty"`
}

type consumedHeader struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// appendJSON appends a record as one line of JSON.
func appendJSON(to []byte, r *kgo.Record) []byte {
	line := consumedRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: text(r.Key), Value: text(r.Value)}
	for _, h := range r.Headers {
		line.Headers = append(line.Headers, consumedHeader{h.Key, text(h.Value)})
	}
	b, err := json.Marshal(line)
	if err != nil {
		panic(err) // there is nothing in it that has no JSON
	}
	return append(append(to, b...), '\n')
}

// text is bytes as JSON has them: null, a string, or an object with the base64 of what is no text.
func text(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string][]byte{"base64": b}
}

// reader prints records until the count or the ends are reached.
type reader struct {
	cl     *kgo.Client
	out    *bufio.Writer
	format func([]byte, *kgo.Record) []byte
	left   int64           // 0: without bound
	ends   map[int32]int64 // nil: without end

	patience time.Duration // how long errors that may pass, as while leaders change, are waited out
	failing  time.Time     // since when nothing but such errors came
}

func (r *reader) run(ctx context.Context) (err error) {
	defer func() { err = cmp.Or(err, r.out.Flush()) }()
	var buf []byte
	for r.ends == nil || len(r.ends) > 0 {
		fetches := r.cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // interrupted: what was read is printed
		}
		if err := r.check(fetches); err != nil {
			return err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			rec := it.Next()
			buf = r.format(buf[:0], rec)
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

// check returns an error that will not pass, or has not passed for long.
func (r *reader) check(fetches kgo.Fetches) error {
	if fetches.NumRecords() > 0 {
		r.failing = time.Time{}
	}
	for _, e := range fetches.Errors() {
		if r.failing.IsZero() {
			r.failing = time.Now()
		}
		if !kerr.IsRetriable(e.Err) || time.Since(r.failing) >= r.patience {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
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
