// Package kafka turns frames of the Kafka protocol into kmsg values and back.
// It holds the one table of API versions (versions.go), from which the answer
// to ApiVersions, the dispatch of requests and docs/protocol.md are made.
//
// Everything here is a pure function of bytes and values, so the production
// host and the simulator speak through the same code. What comes in is not
// trusted: no frame makes it panic, and none makes it allocate more than a
// small multiple of the bytes that really arrived.
//
// It may import core/record, net (for its types) and kmsg, and nothing that does I/O.
package kafka
