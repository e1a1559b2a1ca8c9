package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupFlags are those flags of consume that speak of a group.
type groupFlags struct {
	group, protocol, instance string
}

func (f *groupFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.group, "group", "g", "", "read as a member of this consumer group, and commit what was printed")
	c.Flags().StringVar(&f.protocol, "group-protocol", typeClassic, "with -g: classic or consumer")
	c.Flags().StringVar(&f.instance, "instance-id", "", "with -g: be this static member, whose partitions wait for it to come back")
}

// options are the options of the client of a member, or why there can be none.
func (f *groupFlags) options(cmd *cobra.Command, topic string, at kgo.Offset) ([]kgo.Opt, error) {
	if cmd.Flags().Changed("partition") {
		return nil, errors.New("--partition and --group exclude each other: a group shares all partitions out")
	}
	opts := []kgo.Opt{kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(at), kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second)}
	switch f.protocol {
	case typeClassic: // members of every other client have one of these in common with it
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer(), kgo.RoundRobinBalancer()))
	case typeConsumer:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.ServerSideBalancer())
	default:
		return nil, fmt.Errorf("--group-protocol is classic or consumer, not %q", f.protocol)
	}
	if f.instance != "" {
		opts = append(opts, kgo.InstanceID(f.instance))
	}
	return opts, nil
}

// check says whether group flags were given without a group.
func (f *groupFlags) check(cmd *cobra.Command) error {
	for _, name := range []string{"group-protocol", "instance-id"} {
		if f.group == "" && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s needs --group", name)
		}
	}
	return nil
}

// groupReader prints records as a member of a group. What is marked is committed every second, when partitions are taken
// away, and at the end; only what has been written out is marked.
type groupReader struct {
	topic string
	groupFlags
	ends          *groupEnds // nil: without end
	left          int64      // 0: without bound
	out           *bufio.Writer
	format        func([]byte, *kgo.Record) []byte
	closingWithin time.Duration
}

// consumeGroup reads a topic as a member of a group.
func (o *options) consumeGroup(cmd *cobra.Command, f *groupFlags, topic string, r *groupReader, from string, at kgo.Offset, exit bool) error {
	opts, err := f.options(cmd, topic, at)
	if err != nil {
		return err
	}
	ends, starts, err := o.bounds(cmd, topic)
	if err != nil {
		return err
	}
	r.topic, r.groupFlags, r.closingWithin = topic, *f, o.timeout
	if exit {
		r.ends = newGroupEnds(starts, ends, from)
	}
	opts = append(opts, kgo.OnOffsetsFetched(r.ends.fetched), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost))
	cl, err := o.client(opts...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	err = r.run(cmd.Context(), cl)
	cl.AllowRebalance()
	if left := r.leave(cl); err == nil { // else that says why leaving did not go well either
		err = left
	}
	return err
}

// leave commits what was printed and leaves the group, also when the command was interrupted.
func (r *groupReader) leave(cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.closingWithin)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil {
		return fmt.Errorf("group %s: what was printed last could not be committed and will be read again: %w", r.group, err)
	}
	member, _ := cl.GroupMetadata()
	err := cl.LeaveGroupContext(ctx)
	if r.protocol == typeConsumer && r.instance != "" && member != "" {
		err = r.leaveForNow(ctx, cl, member)
	}
	return detail("leave group "+r.group, err, "")
}

// leaveForNow says that a static member will be back. The library does not name the instance when it says so, which
// brokers must refuse; whoever came back would be shut out until the session has timed out.
func (r *groupReader) leaveForNow(ctx context.Context, cl *kgo.Client, member string) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = r.group, member, &r.instance, -2
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); !errors.Is(err, kerr.UnknownMemberID) { // it is not there any more
		return err
	}
	return nil
}

func (r *groupReader) run(ctx context.Context, cl *kgo.Client) error {
	for {
		if done, err := r.atEnds(ctx, cl); done || err != nil {
			return err
		}
		fetches := r.poll(ctx, cl)
		if ctx.Err() != nil {
			return nil // interrupted: what was printed is committed
		}
		if err := fatal(fetches); err != nil {
			return fmt.Errorf("group %s: %w", r.group, err)
		}
		done, err := r.print(cl, fetches.Records())
		if done || err != nil {
			return err
		}
		cl.AllowRebalance()
	}
}

// poll waits for records; where the ends count, not for long, since a member may get nothing to read.
func (r *groupReader) poll(ctx context.Context, cl *kgo.Client) kgo.Fetches {
	if r.ends != nil {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		ctx = short
	}
	return cl.PollFetches(ctx)
}

// fatal returns the first error that the client does not get over by itself.
func fatal(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		group := (*kgo.ErrGroupSession)(nil)
		switch {
		case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, context.Canceled):
		case errors.As(e.Err, &group) && joinsAgain(group.Err):
		default:
			return e.Err
		}
	}
	return nil
}

// joinsAgain is whether a member that lost its place in the group with an error may simply join again.
func joinsAgain(err error) bool {
	for _, e := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch} {
		if errors.Is(err, e) {
			return true
		}
	}
	return kerr.IsRetriable(err) || !isKafka(err)
}

func isKafka(err error) bool {
	k := (*kerr.Error)(nil)
	return errors.As(err, &k)
}

// print writes records out and then marks them, and says whether the last that is wanted was among them.
func (r *groupReader) print(cl *kgo.Client, records []*kgo.Record) (done bool, err error) {
	var buf []byte
	if r.left > 0 && int64(len(records)) >= r.left {
		records, done = records[:r.left], true
	}
	for _, rec := range records {
		buf = r.format(buf[:0], rec)
		if _, err := r.out.Write(buf); err != nil {
			return false, err
		}
	}
	if err := r.out.Flush(); err != nil {
		return false, err
	}
	if r.left > 0 {
		r.left -= int64(len(records))
	}
	r.ends.printed(records)
	cl.MarkCommitRecords(records...)
	return done, nil
}

// revoked commits before partitions go to somebody else.
func (r *groupReader) revoked(ctx context.Context, cl *kgo.Client, partitions map[string][]int32) {
	_ = cl.CommitMarkedOffsets(ctx) // what cannot be committed any more is read again by whoever has the partition next
	r.lost(ctx, cl, partitions)
}

func (r *groupReader) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	r.ends.forget(partitions[r.topic])
}

// atEnds is whether everything this member has, or if it has nothing the whole group, is at the ends.
func (r *groupReader) atEnds(ctx context.Context, cl *kgo.Client) (bool, error) {
	if r.ends == nil {
		return false, nil
	}
	has, reached := r.ends.reached()
	if has || ctx.Err() != nil {
		return reached, nil
	}
	if time.Since(r.ends.asked) < time.Second {
		return false, nil
	}
	r.ends.asked = time.Now()
	committed, err := kadm.NewClient(cl).FetchOffsets(ctx, r.group)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, detail("group "+r.group, err, "")
	}
	for p, end := range r.ends.ends {
		at := int64(-1)
		if c, ok := committed.Lookup(r.topic, p); ok {
			at = c.At
		}
		if r.ends.next(p, at) < end {
			return false, nil
		}
	}
	return true, nil
}

// groupEnds knows how far the partitions that a member has are read. A nil one knows nothing.
type groupEnds struct {
	starts, ends map[int32]int64 // when it began
	atEnd        bool            // where nothing is committed, the end is where to begin
	min          int64           // or this offset
	asked        time.Time       // when the group's offsets were last asked for

	mu sync.Mutex      // the client calls back from goroutines of its own
	at map[int32]int64 // next offset of each partition that this member has
}

func newGroupEnds(starts, ends map[int32]int64, from string) *groupEnds {
	e := &groupEnds{starts: starts, ends: ends, at: map[int32]int64{}, atEnd: from == "end"}
	if n, err := strconv.ParseInt(from, 10, 64); err == nil {
		e.min = n
	}
	return e
}

// next is where a partition is gone on with of which this offset is committed, or none if it is negative.
func (e *groupEnds) next(p int32, committed int64) int64 {
	switch {
	case committed >= 0:
		return max(committed, e.starts[p]) // what lay between may be deleted
	case e.atEnd:
		return e.ends[p]
	}
	return max(e.min, e.starts[p])
}

// fetched takes where the partitions that were just assigned are begun.
func (e *groupEnds) fetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			e.at[p.Partition] = e.next(p.Partition, p.Offset)
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				e.at[p.Partition] = e.next(p.Partition, p.Offset)
			}
		}
	}
	return nil
}

func (e *groupEnds) forget(partitions []int32) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range partitions {
		delete(e.at, p)
	}
}

func (e *groupEnds) printed(records []*kgo.Record) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range records {
		e.at[r.Partition] = r.Offset + 1
	}
}

// reached is whether there are partitions, and whether all of them are read to their ends.
func (e *groupEnds) reached() (has, all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p, at := range e.at {
		if at < e.ends[p] {
			return true, false
		}
	}
	return len(e.at) > 0, true
}
