package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/bench/process"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// small is a group of one member on a connection of its own, which does what a client must and nothing else.
type small struct {
	o        *options
	name     string
	conn     net.Conn
	in       *bufio.Reader
	sent     int32
	memberID string
	epoch    int32 // or generation
	assigned []kmsg.ConsumerGroupHeartbeatRequestTopic
}

// ask sends a request and waits for the answer.
func (s *small) ask(req kmsg.Request) (kmsg.Response, error) {
	s.sent++
	if _, err := s.conn.Write(kafka.AppendRequest(nil, s.sent, "bench", req)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(s.in, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(s.in, frame); err != nil {
		return nil, err
	}
	return kafka.DecodeResponse(frame, req.Key(), req.GetVersion())
}

func (s *small) connect(addr string) (err error) {
	if s.conn, err = net.Dial("tcp", addr); err != nil {
		return err
	}
	s.in = bufio.NewReaderSize(s.conn, 512)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{s.name}
	for {
		resp, err := s.ask(req)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the offsets topic is being made
	}
}

func (s *small) joinClassic() error {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 9, s.name, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = int32(s.o.session.Milliseconds()), 60_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = []string{topic}
	protocol.Name, protocol.Metadata = "range", subscription.AppendTo(nil)
	join.Protocols = []kmsg.JoinGroupRequestProtocol{protocol}
	for {
		resp, err := s.ask(join)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.JoinGroupResponse)
		join.MemberID, s.memberID, s.epoch = r.MemberID, r.MemberID, r.Generation
		err = kerr.ErrorForCode(r.ErrorCode)
		if err == nil {
			break
		}
		if err != kerr.MemberIDRequired {
			return err
		}
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	kind, name := "consumer", "range"
	sync.Version, sync.Group, sync.MemberID, sync.Generation, sync.ProtocolType, sync.Protocol = 5, s.name, s.memberID, s.epoch, &kind, &name
	assignment := kmsg.NewConsumerMemberAssignment()
	assignment.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: []int32{0}}}
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: s.memberID, MemberAssignment: assignment.AppendTo(nil)}}
	resp, err := s.ask(sync)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.SyncGroupResponse).ErrorCode)
}

func (s *small) beatClassic() error {
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, s.name, s.memberID, s.epoch
	resp, err := s.ask(beat)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode)
}

// beatConsumer joins if the epoch is 0; else it says that there is nothing new, or what it has now.
func (s *small) beatConsumer() error {
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.MemberEpoch, beat.Topics = 1, s.name, s.name, s.epoch, s.assigned
	if s.epoch == 0 {
		beat.RebalanceTimeoutMillis, beat.SubscribedTopicNames, beat.Topics = 60_000, []string{topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	s.assigned = nil
	resp, err := s.ask(beat)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	s.epoch = r.MemberEpoch
	if r.Assignment != nil {
		for _, t := range r.Assignment.Topics {
			s.assigned = append(s.assigned, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
	}
	return kerr.ErrorForCode(r.ErrorCode)
}

// commit commits an offset, as every group that reads has.
func (s *small) commit() error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, s.name, s.memberID, s.epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := s.ask(req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// each does something for all groups, some at a time.
func each(all []*small, do func(*small) error) error {
	const atATime = 64
	var next atomic.Int64
	errs := make(chan error, atATime)
	for range atATime {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					errs <- nil
					return
				}
				if err := do(all[i]); err != nil {
					errs <- fmt.Errorf("%s: %w", all[i].name, err)
					return
				}
			}
		}()
	}
	var first error
	for range atATime {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// idle measures what a great many groups of one member cost.
func idle(o *options, p *process.Process, protocol string) error {
	all := make([]*small, o.idle)
	for i := range all {
		all[i] = &small{o: o, name: fmt.Sprintf("small-%d", i)}
	}
	defer func() {
		for _, s := range all {
			if s.conn != nil {
				s.conn.Close()
			}
		}
	}()
	if err := makeTopic(p, all[0]); err != nil {
		return err
	}
	empty, err := look(p)
	if err != nil {
		return err
	}
	if err := each(all, func(s *small) error { return s.connect(p.Addr) }); err != nil {
		return err
	}
	connected, err := look(p)
	if err != nil {
		return err
	}
	b := beating{failed: make(chan error, len(all))}
	defer b.end()
	if err := each(all, func(s *small) error { return b.begin(s, protocol) }); err != nil {
		return err
	}
	joined, err := look(p)
	if err != nil {
		return err
	}
	fmt.Printf("%d groups of one member, %s: joined and committed in %.1f s, %v of the broker's CPU\n",
		o.idle, protocol, joined.at.Sub(connected.at).Seconds(), joined.cpu-connected.cpu)
	fmt.Printf("  resident: %d MB empty, %d MB with connections, %d MB with groups\n", empty.resident>>20, connected.resident>>20, joined.resident>>20)
	if err := rest(o, p); err != nil {
		return err
	}
	return b.end()
}

// beating are the groups that have joined and send heartbeats until they are told to stop.
type beating struct {
	stop   atomic.Bool
	groups sync.WaitGroup
	failed chan error
}

// begin lets a group join, commit, and from then on send heartbeats.
func (b *beating) begin(s *small, protocol string) error {
	join, beat := (*small).joinClassic, (*small).beatClassic
	if protocol == "consumer" {
		join, beat = (*small).beatConsumer, (*small).beatConsumer
		s.memberID = s.name
	}
	if err := join(s); err != nil {
		return err
	}
	if err := s.commit(); err != nil {
		return err
	}
	b.groups.Go(func() {
		if err := s.beatUntil(&b.stop, beat); err != nil {
			b.failed <- err
		}
	})
	return nil
}

// end stops the heartbeats and returns what went wrong with one.
func (b *beating) end() error {
	b.stop.Store(true)
	b.groups.Wait()
	select {
	case err := <-b.failed:
		return err
	default:
		return nil
	}
}

// beatUntil sends heartbeats until it is to stop.
func (s *small) beatUntil(stop *atomic.Bool, beat func(*small) error) error {
	for !stop.Load() {
		time.Sleep(s.o.heartbeat)
		if err := beat(s); err != nil {
			return fmt.Errorf("%s: heartbeat: %w", s.name, err)
		}
	}
	return nil
}

// rest watches the broker while nothing but heartbeats arrives.
func rest(o *options, p *process.Process) error {
	time.Sleep(2 * o.heartbeat) // until joining is digested
	before, err := look(p)
	if err != nil {
		return err
	}
	least := before.heap
	for time.Since(before.at) < o.rest {
		time.Sleep(500 * time.Millisecond)
		f, err := look(p)
		if err != nil {
			return err
		}
		least = min(least, f.heap)
	}
	after, err := look(p)
	if err != nil {
		return err
	}
	n, each := after.since(before)
	seconds := after.at.Sub(before.at).Seconds()
	fmt.Printf("  at rest: %d MB resident, %d MB of heap after collections, %.1f%% of a core for %.0f requests/s (%s)\n",
		after.resident>>20, least>>20, 100*(after.cpu-before.cpu).Seconds()/seconds, float64(n)/seconds, each)
	return nil
}

// makeTopic makes the topic that all groups read, and the offsets topic.
func makeTopic(p *process.Process, s *small) error {
	if err := s.connect(p.Addr); err != nil {
		return err
	}
	defer s.conn.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 1
	req.Topics = append(req.Topics, t)
	resp, err := s.ask(req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}
