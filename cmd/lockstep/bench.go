package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func benchCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure the throughput and latency that a client sees"}
	c.AddCommand(benchProduce(o), benchConsume(o))
	return c
}

// benchResult is what a bench prints as JSON. Rates are per second; latencies are from Produce to its
// acknowledgement, or at a rate from the instant at which the record was due.
type benchResult struct {
	Records    int64   `json:"records"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	RecordRate float64 `json:"records_per_second"`
	ByteRate   float64 `json:"bytes_per_second"`
	P50        float64 `json:"p50_ms,omitempty"`
	P99        float64 `json:"p99_ms,omitempty"`
	Max        float64 `json:"max_ms,omitempty"`
}

func (o *options) printBench(cmd *cobra.Command, r benchResult) error {
	if o.json {
		return o.print(cmd.OutOrStdout(), r, nil, nil)
	}
	line := fmt.Sprintf("%d records, %.1f MB in %.2f s: %.0f records/s, %.1f MB/s", r.Records, float64(r.Bytes)/1e6, r.Seconds, r.RecordRate, r.ByteRate/1e6)
	if r.Max > 0 {
		line += fmt.Sprintf(", latency p50 %.2f ms, p99 %.2f ms, max %.2f ms", r.P50, r.P99, r.Max)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
	return err
}

func rates(records, bytes int64, took time.Duration) benchResult {
	s := took.Seconds()
	return benchResult{Records: records, Bytes: bytes, Seconds: s, RecordRate: float64(records) / s, ByteRate: float64(bytes) / s}
}

func benchProduce(o *options) *cobra.Command {
	var records int64
	var size, rate int
	var acks, codec string
	c := &cobra.Command{Use: "produce TOPIC", Short: "Produce random records as fast as they are taken, or at a rate", Args: cobra.ExactArgs(1)}
	c.Flags().Int64VarP(&records, "records", "n", 1_000_000, "how many")
	c.Flags().IntVar(&size, "size", 1000, "bytes of each value")
	c.Flags().IntVar(&rate, "rate", 0, "records a second; 0 is as fast as they are taken")
	c.Flags().StringVar(&acks, "acks", "all", "all, 1 or 0")
	c.Flags().StringVarP(&codec, "codec", "z", "none", "none, gzip, snappy, lz4 or zstd")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case records < 1:
			return fmt.Errorf("--records is at least 1, not %d", records)
		case size < 0 || size > math.MaxInt32:
			return fmt.Errorf("--size is from 0 to %d, not %d", math.MaxInt32, size)
		case rate < 0:
			return fmt.Errorf("--rate is not negative, not %d", rate)
		}
		opts, err := producerOptions(acks, codec, -1)
		if err != nil {
			return err
		}
		cl, err := o.client(append(opts, kgo.DefaultProduceTopic(args[0]), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))...)
		if err != nil {
			return err
		}
		defer cl.Close()
		r, err := produceLoad(cmd.Context(), cl, records, size, rate)
		if err != nil {
			return err
		}
		return o.printBench(cmd, r)
	}
	return c
}

func produceLoad(ctx context.Context, cl *kgo.Client, records int64, size, rate int) (benchResult, error) {
	noise := make([]byte, size+1<<16)
	if _, err := rand.Read(noise); err != nil {
		return benchResult{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	latencies := make([]time.Duration, 0, min(records, 1<<20))
	begin := time.Now()
	for i := range records {
		if ctx.Err() != nil {
			break
		}
		sent := time.Now()
		if rate > 0 { // latency counts from when the record was due, not from when the client got round to it
			sent = begin.Add(time.Duration(float64(i) / float64(rate) * 1e9))
			time.Sleep(time.Until(sent))
		}
		at := int(i*61) % (1 << 16)
		cl.Produce(ctx, &kgo.Record{Value: noise[at : at+size]}, func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			latencies = append(latencies, time.Since(sent))
			mu.Unlock()
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return benchResult{}, context.Cause(ctx)
	}
	r := rates(records, records*int64(size), time.Since(begin))
	slices.Sort(latencies)
	if n := len(latencies); n > 0 {
		ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
		r.P50, r.P99, r.Max = ms(latencies[n/2]), ms(latencies[n*99/100]), ms(latencies[n-1])
	}
	return r, context.Cause(ctx)
}

func benchConsume(o *options) *cobra.Command {
	var records int64
	c := &cobra.Command{Use: "consume TOPIC", Short: "Read a topic from its start as fast as it comes", Args: cobra.ExactArgs(1)}
	c.Flags().Int64VarP(&records, "records", "n", 0, "stop after so many; 0 is what the topic holds at the beginning")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if records < 0 {
			return fmt.Errorf("--records is not negative, not %d", records)
		}
		ends, starts, err := o.bounds(cmd, args[0])
		if err != nil {
			return err
		}
		held := int64(0)
		for p, end := range ends {
			held += end - starts[p]
		}
		if records == 0 {
			records = held
		}
		if held < records || records == 0 {
			return fmt.Errorf("topic %s holds %d records", args[0], held)
		}
		cl, err := o.client(kgo.ConsumeTopics(args[0]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		defer cl.Close()
		r, err := consumeLoad(cmd.Context(), cl, records)
		if err != nil {
			return err
		}
		return o.printBench(cmd, r)
	}
	return c
}

func consumeLoad(ctx context.Context, cl *kgo.Client, records int64) (benchResult, error) {
	var seen, bytes int64
	begin := time.Now()
	for seen < records {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return benchResult{}, err
		}
		for _, e := range fetches.Errors() {
			return benchResult{}, fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			seen++
			bytes += int64(len(r.Key) + len(r.Value))
		})
	}
	return rates(seen, bytes, time.Since(begin)), nil
}
