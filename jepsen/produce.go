package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"lockstep/linearizability"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer sends records, pipelined, as fast as its rate allows.
type producer struct {
	r          *recorder
	process    int
	partitions int
	rate       int
	acks       int16
	client     *kgo.Client
	slots      chan struct{} // bounds the records that are under way
	rng        *rand.Rand

	stopped chan struct{}
	ended   chan struct{}

	mu    sync.Mutex
	wrong error // an error that no client should get
}

// Kinds of producers.
const (
	idempotent = iota // franz-go's default: retries until it is acknowledged, without duplicates
	plain             // acks=all without an idempotent producer: sent once, so that the outcome may stay unknown
	leaderOnly        // acks=1
)

// producerKind is the kind of a process: half are idempotent. In a cluster acks=1 promises nothing that could be checked.
func producerKind(process int, o options) int {
	switch {
	case process%2 == 0:
		return idempotent
	case process == 3 && o.brokers <= 1:
		return leaderOnly
	}
	return plain
}

func newProducer(r *recorder, process, kind int, o options, seeds []string) (*producer, error) {
	p := &producer{r: r, process: process, partitions: o.partitions, rate: o.rate, acks: linearizability.All,
		slots: make(chan struct{}, 200), stopped: make(chan struct{}), ended: make(chan struct{}), rng: rand.New(rand.NewPCG(o.seed, uint64(process)))}
	opts := append(clientOptions(seeds), kgo.DefaultProduceTopic(r.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(time.Duration(p.rng.IntN(4))*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if kind != idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if o.brokers > 1 && kind == plain {
		// In a cluster these see soonest that a partition takes writes again: they wait for no frozen broker.
		opts = append(opts, kgo.ProduceRequestTimeout(probePatience), kgo.RequestTimeoutOverhead(probePatience))
	}
	if kind == leaderOnly {
		p.acks = 1
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	var err error
	p.client, err = kgo.NewClient(opts...)
	return p, err
}

// clientOptions make a client find its broker again quickly.
func clientOptions(seeds []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(3 * time.Second),
	}
}

// probePatience is how long a plain producer of a cluster's load waits for an answer, and as long again.
const probePatience = 300 * time.Millisecond

// stop makes run end.
func (p *producer) stop() { close(p.stopped) }

// run produces until stop.
func (p *producer) run() {
	defer close(p.ended)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	owed := 0.0
	for {
		select {
		case <-p.stopped:
			return
		case <-tick.C:
		}
		for owed += float64(p.rate) * 0.005; owed >= 1; owed-- {
			select {
			case p.slots <- struct{}{}:
				p.send()
			case <-p.stopped:
				return
			}
		}
	}
}

func (p *producer) send() {
	v := p.r.last.Add(1)
	partition := int32(p.rng.IntN(p.partitions))
	rec := &kgo.Record{Partition: partition, Value: payload(v, 12+p.rng.IntN(600))}
	id := p.r.begin(p.process, linearizability.Op{Kind: linearizability.Produce, Acks: p.acks, Values: []int64{v}}, partition)
	p.client.Produce(context.Background(), rec, func(rec *kgo.Record, err error) {
		<-p.slots
		p.r.end(id, func(op *linearizability.Op) {
			if err == nil {
				op.Outcome, op.Offset = linearizability.OK, rec.Offset
				return
			}
			op.Note = err.Error() // whether it was stored is not known
			if errors.Is(err, kgo.ErrMaxBuffered) || errors.Is(err, kgo.ErrAborting) {
				op.Outcome = linearizability.Failed
			}
		})
		if dl := (*kgo.ErrDataLoss)(nil); errors.As(err, &dl) {
			p.fail(fmt.Errorf("producer %d: %w", p.process, err))
		}
	})
}

func (p *producer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong == nil {
		p.wrong = err
	}
}

// finish waits for the answers that are due.
func (p *producer) finish(patience time.Duration) error {
	<-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.client.Flush(ctx)
	p.client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong != nil {
		return p.wrong
	}
	if err != nil {
		return fmt.Errorf("producer %d has no answer %s after the last fault: %w", p.process, patience, err)
	}
	return nil
}
