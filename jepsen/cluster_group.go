package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupName is the consumer group of a run.
const groupName = "jepsen-group"

// groupLoad is a consumer group whose members commit what they have read. What was committed must stay so, whichever
// broker coordinates the group (rule 20).
type groupLoad struct {
	l       *load
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	commits atomic.Int64

	mu        sync.Mutex
	committed map[int32]int64 // the highest offset whose commit was acknowledged
	wrong     error
}

const groupMembers = 2

func newGroupLoad(l *load, o options) *groupLoad {
	ctx, cancel := context.WithCancel(context.Background())
	g := &groupLoad{l: l, cancel: cancel, committed: map[int32]int64{}}
	for i := range groupMembers {
		g.wg.Go(func() { g.fail(g.member(ctx, o.producers+readers+2+i)) })
	}
	return g
}

func (g *groupLoad) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrong == nil {
		g.wrong = err
	}
}

// member reads what it is assigned, and commits.
func (g *groupLoad) member(ctx context.Context, process int) error {
	var mu sync.Mutex
	sessions := map[int32]int64{}
	begins := func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range assigned[topic] {
			sessions[p]++
		}
	}
	client, err := kgo.NewClient(append(clientOptions(g.l.seeds), kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(begins),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.HeartbeatInterval(500*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for polled := newPolls(g.l.r); ctx.Err() == nil; {
		called := g.l.r.now()
		fetches := client.PollFetches(ctx)
		mu.Lock()
		polled.record(process, called, fetches, func(p int32) int64 { return sessions[p] })
		mu.Unlock()
		if !fetches.Empty() {
			g.commit(ctx, client, fetches)
		}
		client.AllowRebalance()
	}
	return nil
}

// commit commits what was polled. One that fails says nothing; what was read is read again by whoever has the partition next.
func (g *groupLoad) commit(ctx context.Context, client *kgo.Client, fetches kgo.Fetches) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if client.CommitRecords(ctx, fetches.Records()...) != nil {
		return
	}
	g.commits.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		if n := len(t.Records); n > 0 {
			g.committed[t.Partition] = max(g.committed[t.Partition], t.Records[n-1].Offset+1)
		}
	})
}

// finish ends the members; patient looks at what the coordinator has of their commits.
func (g *groupLoad) finish(patient bool) error {
	g.cancel()
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrong != nil || !patient {
		return g.wrong
	}
	client, err := kgo.NewClient(clientOptions(g.l.seeds)...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	have, err := kadm.NewClient(client).FetchOffsets(ctx, groupName)
	if err != nil {
		return fmt.Errorf("asking what group %s committed: %w", groupName, err)
	}
	if len(g.committed) == 0 {
		return errors.New("the group committed nothing")
	}
	for p, want := range g.committed {
		if o, ok := have.Lookup(topic, p); !ok || o.At < want {
			return fmt.Errorf("partition %d: offset %d was committed, and the coordinator has %d", p, want, o.At)
		}
	}
	return nil
}
