package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"lockstep/core/record"
	"lockstep/net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrMalformed says that a frame can not be understood; the connection it came
// on is of no more use.
var ErrMalformed = errors.New("malformed request")

// ErrNotServed says that the protocol has no answer to this key or version, and
// the connection is closed, as Kafka does.
var ErrNotServed = errors.New("request not served")

// Header is the header of a request.
type Header struct {
	Key, Version int16
	Correlation  int32
	ClientID     string // empty where null
}

// Request is one decoded request.
type Request struct {
	Header
	Msg kmsg.Request
	// Batches is what checking made of the records of a Produce request's
	// partitions, in the request's order, all in one slice. They refer to the frame.
	Batches []record.Checked
	// Answered says that the core need not see this request: Reply is its answer,
	// and where Reply is nil, nothing is sent.
	Answered bool
	Reply    kmsg.Response
}

// Decoder decodes the frames of one listener. Its methods may be called from
// several goroutines at once.
type Decoder struct {
	Peer bool // the peers' listener
	// Check checks the records field of a partition of a Produce request.
	Check func(records []byte) record.Checked
}

// ParseHead reads the key, version and correlation id from the first net.HeadSize bytes of a frame.
func ParseHead(b []byte) (Header, error) {
	if len(b) < net.HeadSize {
		return Header{}, fmt.Errorf("%w: %d bytes are too few for a header", ErrMalformed, len(b))
	}
	return Header{
		Key:         int16(binary.BigEndian.Uint16(b)),
		Version:     int16(binary.BigEndian.Uint16(b[2:])),
		Correlation: int32(binary.BigEndian.Uint32(b[4:])),
	}, nil
}

// Decode decodes one frame, without its length prefix. An error wraps
// ErrMalformed or ErrNotServed, and either way the connection is to be closed.
// Strings of the request are copies; its byte fields, and so the batches, refer
// to the frame.
func (d *Decoder) Decode(frame []byte) (Request, error) {
	h, err := ParseHead(frame)
	if err != nil {
		return Request{}, err
	}
	api, err := d.admit(h)
	if err != nil {
		return Request{Header: h}, err
	}
	if h.Version > api.Max {
		return Request{Header: h, Answered: true, Reply: unknownApiVersions()}, nil
	}
	msg := kmsg.RequestForKey(h.Key)
	msg.SetVersion(h.Version)
	body, err := parseRest(&h, frame[net.HeadSize:], msg.IsFlexible())
	if err != nil {
		return Request{Header: h}, err
	}
	if err := guard(h, body); err != nil {
		return Request{Header: h}, err
	}
	if err := msg.ReadFrom(body); err != nil {
		return Request{Header: h}, fmt.Errorf("%w: %s version %d: %w", ErrMalformed, kmsg.NameForKey(h.Key), h.Version, err)
	}
	r := Request{Header: h, Msg: msg}
	if p, ok := msg.(*kmsg.ProduceRequest); ok {
		if h.Version < api.Served {
			r.Answered, r.Reply = true, refuseProduce(p)
			return r, nil
		}
		r.Batches = d.check(p)
	}
	return r, nil
}

// admit finds the row for a header, or why there is none to answer by. A version
// of ApiVersions that is not known is the only one that has an answer.
func (d *Decoder) admit(h Header) (API, error) {
	api, ok := Lookup(h.Key, d.Peer)
	if !ok {
		return API{}, fmt.Errorf("%w: API key %d (%s)", ErrNotServed, h.Key, kmsg.NameForKey(h.Key))
	}
	if h.Version < api.Min || h.Version > api.Max && h.Key != kmsg.ApiVersions.Int16() {
		return API{}, fmt.Errorf("%w: %s version %d, served are %d to %d",
			ErrNotServed, kmsg.NameForKey(h.Key), h.Version, api.Served, api.Max)
	}
	return api, nil
}

// parseRest reads the rest of a request header (version 1, or 2 if flexible) and returns the body.
func parseRest(h *Header, b []byte, flexible bool) ([]byte, error) {
	r := reader{b: b}
	// The client id keeps its old encoding even in header version 2, so that
	// any broker can read it (KIP-482).
	if n := int(r.int16()); n >= 0 {
		h.ClientID = string(r.take(n))
	}
	if flexible {
		r.skipTags()
	}
	if r.bad {
		return nil, fmt.Errorf("%w: the header does not end", ErrMalformed)
	}
	return r.b, nil
}

// unknownApiVersions answers a version of ApiVersions that is too new: in the
// encoding of version 0, which any client reads, with the range that it may ask again in (KIP-511).
func unknownApiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(0)
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	api := byKey[kmsg.ApiVersions.Int16()]
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = api.Key.Int16(), api.Min, api.Max
	resp.ApiKeys = append(resp.ApiKeys, k)
	return resp
}

// refuseProduce answers a Produce whose version is advertised but not served.
func refuseProduce(p *kmsg.ProduceRequest) kmsg.Response {
	if p.Acks == 0 {
		return nil
	}
	resp := p.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range p.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, part := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = part.Partition, kerr.UnsupportedVersion.Code, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// check checks the records of every partition, in order.
func (d *Decoder) check(p *kmsg.ProduceRequest) []record.Checked {
	n := 0
	for i := range p.Topics {
		n += len(p.Topics[i].Partitions)
	}
	batches := make([]record.Checked, 0, n)
	for i := range p.Topics {
		for j := range p.Topics[i].Partitions {
			batches = append(batches, d.Check(p.Topics[i].Partitions[j].Records))
		}
	}
	return batches
}
