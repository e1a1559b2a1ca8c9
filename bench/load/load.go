// Package load drives a server of Kafka frames as hard as one machine can:
// requests are built before the clock starts, several are always in flight on
// each connection, and answers are only counted. It is used against the broker
// and against the plain programs of bench/limit alike, so that what it costs
// itself is the same on both sides.
package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"lockstep/core/record"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RecordBytes is the size of one record in its batch, the overhead of a few bytes included.
const RecordBytes = 1024

// Batch builds a batch of about size bytes, of records of RecordBytes that do not compress.
func Batch(size int, seed uint64) ([]byte, int, error) {
	n := max(1, size/RecordBytes)
	b := record.NewBuilder()
	b.Grow(size)
	noise := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	value := make([]byte, RecordBytes-10)
	for range n {
		_, _ = noise.Read(value)
		b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Value: value})
	}
	built, err := b.Build()
	return built.Bytes(), n, err
}

// ProduceFrame builds the frame of a Produce request with one batch.
func ProduceFrame(topic string, partition int32, acks int16, batch []byte) []byte {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, acks, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return kafka.AppendRequest(nil, 1, "load", r)
}

// FetchFrame builds the frame of a Fetch request of one partition, without a session.
func FetchFrame(topic string, partition int32, offset int64, maxBytes int32) []byte {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = 12, 500, 1, maxBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, maxBytes, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return kafka.AppendRequest(nil, 1, "load", r)
}

// Run is one run over one connection.
type Run struct {
	Addr     string
	Requests int                // how many
	Window   int                // how many are in flight at most
	Frame    func(i int) []byte // the frame of request i; not changed by the run
	// Check looks at an answer's frame without its length prefix. Answers longer than CheckBytes are cut to it.
	Check func(head []byte, size int) error
}

// CheckBytes is how much of an answer Check sees.
const CheckBytes = 4096

// Window keeps some megabytes in flight, whatever the size of a request.
func Window(size int) int { return min(64, max(4, 4<<20/size)) }

// patience is how long an answer, or room for a request, may be waited for: a server that never answers is an error, not a benchmark
// that never ends.
const patience = time.Minute

// Do runs it and returns the bytes received.
func (r *Run) Do() (received int64, err error) {
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	slots := make(chan struct{}, r.Window)
	sent := make(chan error, 1)
	stop := make(chan struct{})
	go func() { sent <- r.send(conn, slots, stop) }()
	received, err = r.receive(conn, slots)
	close(stop)
	if err != nil {
		conn.Close() // so that the sender ends, too, wherever it waits
		return received, errors.Join(err, ignoreClosed(<-sent))
	}
	return received, <-sent
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (r *Run) send(conn net.Conn, slots chan<- struct{}, stop <-chan struct{}) error {
	for i := range r.Requests {
		select {
		case slots <- struct{}{}:
		case <-stop:
			return nil
		}
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := conn.Write(r.Frame(i)); err != nil {
			return fmt.Errorf("send request %d: %w", i, err)
		}
	}
	return nil
}

func (r *Run) receive(conn net.Conn, slots <-chan struct{}) (total int64, err error) {
	in := bufio.NewReaderSize(conn, 256<<10)
	head := make([]byte, CheckBytes)
	var size [4]byte
	for i := range r.Requests {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return total, fmt.Errorf("answer %d: %w", i, err)
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		h := head[:min(n, len(head))]
		if _, err := io.ReadFull(in, h); err != nil {
			return total, fmt.Errorf("answer %d: %w", i, err)
		}
		if _, err := in.Discard(n - len(h)); err != nil {
			return total, fmt.Errorf("answer %d: %w", i, err)
		}
		total += int64(n) + 4
		if err := r.Check(h, n); err != nil {
			return total, fmt.Errorf("answer %d: %w", i, err)
		}
		<-slots
	}
	return total, nil
}

// CheckProduced is a Check for ProduceFrame's answers: no error code.
func CheckProduced(head []byte, _ int) error {
	resp, err := kafka.DecodeResponse(head, kmsg.Produce.Int16(), 9)
	if err != nil {
		return err
	}
	if p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		return fmt.Errorf("produce was refused with code %d", p.ErrorCode)
	}
	return nil
}

// CheckFetched makes a Check for FetchFrame's answers: one batch of so many bytes.
func CheckFetched(batch int) func(head []byte, size int) error {
	return func(_ []byte, n int) error {
		if n < batch || n > batch+512 {
			return fmt.Errorf("answer of %d bytes in place of one batch of %d", n, batch)
		}
		return nil
	}
}
