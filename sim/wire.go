package sim

import (
	"cmp"
	"errors"

	"lockstep/core/broker"
	"lockstep/disk/segment"
	"lockstep/net"
	"lockstep/net/kafka"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hostConn is a broker's end of a connection.
type hostConn struct {
	h       *host
	id      broker.ConnID
	conn    *conn
	in      []byte
	seq     uint64 // of the next request
	first   uint64 // the oldest one that is not answered
	answers []answer
	peer    bool  // another broker has made it
	from    int32 // which one, once it has said so
	waiting bool  // for the answer to a request after which nothing is read (as Kafka does for all but produce and fetch)
}

// answer is a place in the order of a connection's answers.
type answer struct {
	header kafka.Header
	resp   broker.Respond
	done   bool
	blocks bool
	refuse string // why it may not grant what is a pre-vote
}

const maxRequest = 100 << 20 // socket.request.max.bytes

// accept takes a connection, if there is a process that listens.
func (h *host) accept(c *conn) endpoint {
	if c.by == nil && !h.serving || c.by != nil && !h.listening {
		return nil
	}
	h.nextConn++
	hc := &hostConn{h: h, id: h.nextConn, conn: c, peer: c.by != nil}
	h.conns[hc.id] = hc
	h.accepted = append(h.accepted, hc)
	return hc
}

func (hc *hostConn) opened(*conn) {}

// closed is the news that the client or the network has closed the connection.
func (hc *hostConn) closed(*conn) {
	h := hc.h
	if h.conns[hc.id] != hc {
		return
	}
	h.dropConn(hc)
	life := h.life
	h.step(broker.ConnClosed{Conn: hc.id})
	if hc.from != 0 && h.life == life {
		h.step(broker.PeerClosed{Peer: hc.from})
	}
}

func (h *host) dropConn(hc *hostConn) {
	delete(h.conns, hc.id)
	for i, x := range h.accepted {
		if x == hc {
			h.accepted = append(h.accepted[:i], h.accepted[i+1:]...)
			break
		}
	}
}

// closeConn closes a connection from the broker's side. Its owner hears of that like of any other end.
func (h *host) closeConn(hc *hostConn) {
	h.dropConn(hc)
	hc.conn.close(acceptor)
	x := h.later(0, evInput)
	x.more = broker.ConnClosed{Conn: hc.id}
	if hc.from != 0 {
		y := h.later(0, evInput)
		y.more = broker.PeerClosed{Peer: hc.from}
	}
}

func (hc *hostConn) arrived(c *conn, data []byte) {
	if hc.h.conns[hc.id] != hc {
		return
	}
	if len(hc.in) > 0 {
		hc.in = append(hc.in, data...)
	} else {
		hc.in = data
	}
	hc.read()
}

// read takes whole frames off what has arrived.
func (hc *hostConn) read() {
	h := hc.h
	for !hc.waiting && h.conns[hc.id] == hc {
		frame, rest, ok, err := kafka.SplitFrame(hc.in, maxRequest)
		if err == nil && !ok {
			if len(hc.in) >= 4+net.HeadSize { // node looks at the head before the rest is there
				_, err = hc.decoder().Admit(hc.in[4:4+net.HeadSize], frameSize(hc.in))
			}
			if err == nil {
				return
			}
		}
		if err != nil {
			h.closeConn(hc)
			return
		}
		hc.in = rest
		hc.request(frame)
	}
	if len(hc.in) == 0 {
		hc.in = nil
	}
}

func (hc *hostConn) decoder() *kafka.Decoder {
	if hc.peer {
		return &hc.h.peerDecoder
	}
	return &hc.h.decoder
}

func frameSize(b []byte) int {
	return int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
}

func (hc *hostConn) request(frame []byte) {
	h := hc.h
	if len(frame) < net.HeadSize {
		h.closeConn(hc)
		return
	}
	admission, err := hc.decoder().Admit(frame[:net.HeadSize], len(frame))
	if err != nil {
		h.closeConn(hc)
		return
	}
	r, err := hc.decoder().Decode(frame)
	if err != nil {
		h.closeConn(hc)
		return
	}
	seq := hc.seq
	hc.seq++
	hc.waiting = !admission.Pipelined && !hc.peer
	if hc.peer && hc.from == 0 {
		hc.from = peerOf(r.ClientID)
	}
	hc.answers = append(hc.answers, answer{header: r.Header, blocks: hc.waiting})
	if r.Answered {
		h.respond(&broker.Respond{Conn: hc.id, Seq: seq, Msg: r.Reply})
		return
	}
	h.w.stats.Requests++
	hc.answers[len(hc.answers)-1].refuse = h.mustRefuse(r.Msg)
	if hc.from > 0 && broker.LaneOf(r.Msg) == broker.MetadataLane {
		h.reign.heard[hc.from-1] = h.w.now
	}
	h.step(broker.Request{Conn: hc.id, Seq: seq, Peer: hc.peer, Client: broker.Client{ID: r.ClientID, Host: "client"}, Wall: h.wall(),
		Msg: r.Msg, Batches: r.Batches})
}

// respond puts an answer in its place and sends all that have nothing before them.
func (h *host) respond(r *broker.Respond) {
	hc := h.conns[r.Conn]
	if hc == nil {
		return
	}
	i := int(r.Seq - hc.first)
	if r.Seq < hc.first || i >= len(hc.answers) || hc.answers[i].done {
		h.w.fail("protocol", "broker answers request %d of a connection twice, or one that never came", r.Seq)
		return
	}
	hc.answers[i].resp, hc.answers[i].done = *r, true
	if why := hc.answers[i].refuse; why != "" {
		h.w.oracle.refuses(h, r.Msg, why)
	}
	if !hc.peer && r.Msg != nil {
		h.w.oracle.answering(h, r.Msg)
	}
	life, resume := h.life, false
	for len(hc.answers) > 0 && hc.answers[0].done {
		a := hc.answers[0]
		hc.answers = hc.answers[1:]
		hc.first++
		if a.resp.Msg != nil && !hc.send(&a) {
			return
		}
		if h.life != life {
			return
		}
		if a.resp.Close {
			h.closeConn(hc)
			return
		}
		resume = resume || a.blocks
	}
	if resume {
		hc.waiting = false
		if len(hc.in) > 0 { // what waits is read once this step is over
			x := h.later(0, evRead)
			x.more = hc
		}
	}
}

// send encodes an answer and gives it to the connection; the records of a fetch come from the disk only now.
func (hc *hostConn) send(a *answer) bool {
	h := hc.h
	w := h.w
	fetch, ok := a.resp.Msg.(*kmsg.FetchResponse)
	if !ok {
		hc.conn.send(acceptor, kafka.AppendResponse(w.takeBuf(), a.header, a.resp.Msg))
		return true
	}
	var frame []byte
	if !h.do(func() { frame = h.fetchFrame(a, fetch) }) {
		return false
	}
	h.cost() // reading delays this answer alone, by less than the network's jitter
	if frame == nil {
		h.closeConn(hc)
		return false
	}
	hc.conn.send(acceptor, frame)
	return true
}

// fetchFrame reads what a Fetch response carries and builds its frame.
func (h *host) fetchFrame(a *answer, resp *kmsg.FetchResponse) []byte {
	s := &h.w.scratch
	s.reads = s.reads[:0]
	for i := range a.resp.Reads { // in this order maxBytes is given to them
		r := &a.resp.Reads[i]
		req := segment.ReadRequest{From: r.From, Limit: r.Limit, MaxBytes: r.MaxBytes, Records: r.Records}
		if q := h.logs[r.Log]; q != nil {
			req.Log = q.log
		}
		s.reads = append(s.reads, req)
	}
	s.results = segment.ReadMany(s.reads, a.resp.MaxBytes, s.results[:0])
	s.spans = s.spans[:0]
	s.found = s.found[:0]
	for i := range s.results {
		r, res := &a.resp.Reads[i], &s.results[i]
		if res.Err != nil {
			h.readFailed(r, &resp.Topics[r.Topic].Partitions[r.Partition], res.Err)
			continue
		}
		if res.Span.Len > 0 {
			s.spans = append(s.spans, kafka.Span{Topic: r.Topic, Partition: r.Partition, Size: res.Span.Len})
			s.found = append(s.found, i)
		}
	}
	s.sortSpans()
	var err error
	s.head, s.pieces, err = kafka.AppendFetch(s.head[:0], s.pieces, a.header, resp, s.spans)
	if err != nil {
		h.w.fail("protocol", "encoding a fetch response: %v", err)
		return nil
	}
	return h.joinPieces()
}

// joinPieces puts the records between the pieces of a response; nil if they cannot be read.
func (h *host) joinPieces() []byte {
	s := &h.w.scratch
	frame, broken := h.w.takeBuf(), false
	for _, p := range s.pieces {
		frame = append(frame, p.Bytes...)
		if p.Span < 0 {
			continue
		}
		span := &s.results[s.found[p.Span]].Span
		at := len(frame)
		frame = grow(frame, span.Len)
		if err := span.ReadInto(frame[at:]); err != nil {
			h.w.event(h.lane, "log", "reading a span: "+err.Error())
			broken = true // the head is out already: all that is left is to close
		}
	}
	for i := range s.results {
		s.results[i].Span.Release()
	}
	if broken {
		return nil
	}
	return frame
}

// grow makes b longer by n bytes.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = append(make([]byte, 0, 2*(len(b)+n)), b...)
	}
	return b[:len(b)+n]
}

// readFailed turns a failed read into an error for its partition.
func (h *host) readFailed(r *broker.Read, p *kmsg.FetchResponseTopicPartition, err error) {
	h.w.event(h.lane, "log", "read: "+err.Error())
	switch {
	case errors.Is(err, segment.ErrOffsetOutOfRange):
		// The log's start is moving, and the core has not heard of it. To say so here would be to show a
		// start that the next answer takes back: this one holds nothing, and the client asks again.
	case errors.Is(err, segment.ErrNoLog), errors.Is(err, segment.ErrClosed):
		p.ErrorCode = kerr.NotLeaderForPartition.Code
	default:
		p.ErrorCode = kerr.KafkaStorageError.Code
		h.w.oracle.setAside(h, r.Log)
		x := h.later(0, evInput)
		x.more = broker.LogFailed{Log: r.Log, Err: err}
	}
}

// sortSpans brings the spans into the order of the response, from which they hardly ever differ.
func (s *scratch) sortSpans() {
	for i := 1; i < len(s.spans); i++ {
		for j := i; j > 0 && cmp.Or(cmp.Compare(s.spans[j].Topic, s.spans[j-1].Topic), cmp.Compare(s.spans[j].Partition, s.spans[j-1].Partition)) < 0; j-- {
			s.spans[j], s.spans[j-1] = s.spans[j-1], s.spans[j]
			s.found[j], s.found[j-1] = s.found[j-1], s.found[j]
		}
	}
}
