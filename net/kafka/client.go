package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"lockstep/core/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrFrameSize says that a frame's length prefix is negative or beyond what is allowed.
var ErrFrameSize = errors.New("frame size out of bounds")

// SplitFrame takes the first whole frame off b, which holds what has arrived of
// a stream of frames. ok is false if more has to arrive first.
func SplitFrame(b []byte, maxBytes int) (frame, rest []byte, ok bool, err error) {
	if len(b) < 4 {
		return nil, b, false, nil
	}
	size := int32(binary.BigEndian.Uint32(b))
	if size < 0 || int(size) > maxBytes {
		return nil, b, false, fmt.Errorf("%w: %d bytes, allowed are %d", ErrFrameSize, size, maxBytes)
	}
	if len(b)-4 < int(size) {
		return nil, b, false, nil
	}
	end := 4 + int(size)
	return b[4:end:end], b[end:], true, nil
}

// AppendRequest appends the whole frame of a request, length prefix included.
func AppendRequest(dst []byte, correlation int32, clientID string, req kmsg.Request) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = req.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// ResponseCorrelation returns the correlation id of a response's frame, by which
// its request is found.
func ResponseCorrelation(frame []byte) (int32, error) {
	if len(frame) < 4 {
		return 0, fmt.Errorf("%w: response of %d bytes", ErrMalformed, len(frame))
	}
	return int32(binary.BigEndian.Uint32(frame)), nil
}

// DecodeResponse decodes the frame, without its length prefix, of the answer to
// a request of the given key and version. Byte fields, and so records, refer to the frame.
func DecodeResponse(frame []byte, key, version int16) (kmsg.Response, error) {
	if len(frame) < 4 {
		return nil, fmt.Errorf("%w: response of %d bytes", ErrMalformed, len(frame))
	}
	resp := kmsg.ResponseForKey(key)
	if resp == nil {
		return nil, fmt.Errorf("%w: response to unknown API key %d", ErrMalformed, key)
	}
	resp.SetVersion(version)
	body := reader{b: frame[4:]}
	if key == kmsg.ApiVersions.Int16() {
		// The answer to a version that the broker does not know is in version 0.
		if len(body.b) >= 2 && int16(binary.BigEndian.Uint16(body.b)) == kerr.UnsupportedVersion.Code {
			resp.SetVersion(0)
		}
	} else if resp.IsFlexible() {
		body.skipTags()
	}
	if body.bad {
		return nil, fmt.Errorf("%w: the response header does not end", ErrMalformed)
	}
	if err := resp.ReadFrom(body.b); err != nil {
		return nil, fmt.Errorf("%w: %s response version %d: %w", ErrMalformed, kmsg.NameForKey(key), version, err)
	}
	return resp, nil
}

// FetchBatches parses the records of every partition of a Fetch response, in its
// order, as a follower or a consumer needs them. A batch that the response ends
// inside of is left out, and so is one that is damaged, with all after it
// (rule 17); where nothing is left for that, the partition's error becomes
// CORRUPT_MESSAGE, and the other partitions are none the worse. The batches refer
// to the response's bytes.
func FetchBatches(resp *kmsg.FetchResponse) [][]record.Batch {
	var all [][]record.Batch
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			batches, _, err := record.ParseAll(p.RecordBatches)
			if err != nil && len(batches) == 0 && p.ErrorCode == 0 {
				p.ErrorCode = kerr.CorruptMessage.Code
			}
			all = append(all, batches)
		}
	}
	return all
}
