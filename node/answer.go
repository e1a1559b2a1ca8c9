package node

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"lockstep/core"
	"lockstep/core/broker"
	"lockstep/disk"
	"lockstep/disk/segment"
	"lockstep/net"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer gives a request's answer to its connection, which sends it in turn.
func (r *request) answer(e broker.Respond) {
	if e.Msg == nil {
		r.frame.Release()
		r.client.conn.Answer(r.seq, nil, e.Close)
		r.client.node.metrics.answered(r)
		return
	}
	r.client.conn.Answer(r.seq, &answer{request: r, msg: e.Msg, reads: e.Reads, maxBytes: e.MaxBytes}, e.Close)
}

// answer is a response on its way out. It is encoded only when it is its turn,
// so that a connection that takes nothing costs little.
type answer struct {
	*request
	msg      kmsg.Response
	reads    []broker.Read
	maxBytes int32
}

// Write implements net.Answer.
func (a *answer) Write(w net.Writer) error {
	mark("answered")
	if len(a.reads) > 0 {
		if fetch, ok := a.msg.(*kmsg.FetchResponse); ok {
			return a.writeFetch(w, fetch)
		}
	}
	buf := w.Scratch()
	if fetch, ok := a.msg.(*kmsg.FetchResponse); ok {
		var err error
		if *buf, _, err = kafka.AppendFetch(*buf, nil, a.header, fetch, nil); err != nil {
			return err
		}
	} else {
		*buf = kafka.AppendResponse(*buf, a.header, a.msg)
	}
	a.client.node.metrics.sent(len(*buf))
	_, err := w.Write(*buf)
	return err
}

// Done implements net.Answer.
func (a *answer) Done() {
	a.client.node.metrics.answered(a.request)
	a.frame.Release()
}

// fetchScratch is the memory for resolving the reads of one answer.
type fetchScratch struct {
	requests []segment.ReadRequest
	results  []segment.ReadResult
	spans    []kafka.Span
	files    []segment.Span // of spans, at the same index
	pieces   []kafka.Piece
}

var fetchScratches = sync.Pool{New: func() any { return &fetchScratch{} }}

// writeFetch finds the records of a Fetch response in the segment files and sends them from there.
func (a *answer) writeFetch(w net.Writer, resp *kmsg.FetchResponse) error {
	s := fetchScratches.Get().(*fetchScratch)
	defer s.release()
	a.resolve(s, resp)
	buf := w.Scratch()
	var err error
	if *buf, s.pieces, err = kafka.AppendFetch(*buf, s.pieces, a.header, resp, s.spans); err != nil {
		return err
	}
	total := len(*buf)
	for _, p := range s.pieces {
		if _, err := w.Write(p.Bytes); err != nil {
			return err
		}
		if p.Span < 0 {
			continue
		}
		f := &s.files[p.Span]
		if err := w.SendFile(f.File(), f.Off, int64(f.Len)); err != nil {
			return err
		}
		total += f.Len
	}
	a.client.node.metrics.sent(total)
	return nil
}

// resolve fills s with the spans of the answer's reads, in the order of the
// response. A read that fails becomes an error of its partition.
func (a *answer) resolve(s *fetchScratch, resp *kmsg.FetchResponse) {
	node := a.client.node
	inOrder := func(x, y broker.Read) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	}
	for _, r := range a.reads {
		s.requests = append(s.requests, segment.ReadRequest{
			Log: node.store.Log(r.Log), From: r.From, Limit: r.Limit, MaxBytes: r.MaxBytes, Records: r.Records,
		})
	}
	// The order of the reads is the one in which maxBytes is given to them, so it is kept until then.
	s.results = segment.ReadMany(s.requests, a.maxBytes, s.results)
	for i, r := range a.reads {
		res := &s.results[i]
		if res.Err != nil {
			p := &resp.Topics[r.Topic].Partitions[r.Partition]
			p.ErrorCode = readErrorCode(res.Err)
			reportDamage(node.inbox, &node.unread, node.cfg.Log, r.Log, res.Err)
			continue
		}
		s.spans = append(s.spans, kafka.Span{Topic: r.Topic, Partition: r.Partition, Size: res.Span.Len})
		s.files = append(s.files, res.Span)
		res.Span = segment.Span{}
	}
	if !slices.IsSortedFunc(a.reads, inOrder) {
		sort := spanSorter{s}
		sort.sort()
	}
}

// spanSorter sorts the spans of an answer, and their files with them.
type spanSorter struct{ *fetchScratch }

func (s spanSorter) sort() {
	order := make([]int, len(s.spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		x, y := s.spans[i], s.spans[j]
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	spans, files := slices.Clone(s.spans), slices.Clone(s.files)
	for to, from := range order {
		s.spans[to], s.files[to] = spans[from], files[from]
	}
}

// release lets go of the files and makes s ready for another answer.
func (s *fetchScratch) release() {
	for i := range s.files {
		s.files[i].Release()
	}
	for i := range s.results {
		s.results[i].Span.Release()
	}
	clear(s.requests)
	clear(s.results)
	clear(s.files)
	clear(s.pieces)
	s.requests, s.results, s.spans, s.files, s.pieces = s.requests[:0], s.results[:0], s.spans[:0], s.files[:0], s.pieces[:0]
	fetchScratches.Put(s)
}

// readErrorCode is what a client is told of a read that failed.
func readErrorCode(err error) int16 {
	switch {
	case errors.Is(err, segment.ErrOffsetOutOfRange):
		// The log's start is moving, and the core has not heard of it. To say so here would be to show a start that
		// the next answer takes back: this one holds nothing, and the client asks again.
		return 0
	case errors.Is(err, segment.ErrNoLog), errors.Is(err, segment.ErrClosed):
		return kerr.NotLeaderForPartition.Code
	default:
		return kerr.KafkaStorageError.Code
	}
}

// reportDamage tells the core of a log that can not be read where it should be, and the operator of what may pass, as
// that there are no descriptors left.
func reportDamage(in *inbox, unread *complaints, lg *slog.Logger, id core.Partition, err error) {
	switch {
	case err == nil, errors.Is(err, segment.ErrOffsetOutOfRange), errors.Is(err, segment.ErrNoLog), errors.Is(err, segment.ErrClosed):
	case errors.Is(err, segment.ErrCorrupt), errors.Is(err, disk.ErrIO):
		in.put(broker.LogFailed{Log: id, Err: err})
	default:
		unread.unreadable(lg, id, err)
	}
}
