package kafka

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AppendResponse appends the whole frame of a response, length prefix included.
// The response is encoded in the version of the request it answers.
func AppendResponse(dst []byte, h Header, msg kmsg.Response) []byte {
	start := len(dst)
	dst = appendResponseHead(dst, h, msg)
	dst = msg.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// appendResponseHead sets the version of msg and appends room for the length, and the
// response header: version 1 (with tags) if the response is flexible, else
// version 0. The header of ApiVersions is always version 0, since the client
// does not know yet what the broker speaks (KIP-511).
func appendResponseHead(dst []byte, h Header, msg kmsg.Response) []byte {
	apiVersions := msg.Key() == kmsg.ApiVersions.Int16()
	if apiVersions && h.Version > byKey[h.Key].Max {
		msg.SetVersion(0)
	} else {
		msg.SetVersion(h.Version)
	}
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Correlation))
	if msg.IsFlexible() && !apiVersions {
		dst = append(dst, 0)
	}
	return dst
}
