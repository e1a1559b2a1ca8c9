// Package tcp carries frames over real sockets, for many connections of which
// some are slow, idle, broken or hostile, and none of which may hurt another.
//
// A connection has one goroutine that reads it, and one that writes while there
// is something to write. What it promises:
//
//   - Answers leave in the order of the requests, coalesced where several are ready.
//   - A claimed length costs nothing: memory grows with the bytes that arrive.
//   - The memory of requests in flight is bounded over all connections (Budget).
//     Who does not fit waits in line, unread, with those of about its size, and the oldest
//     is served first. Who holds memory that others wait for must send fast, or is given up.
//   - A frame that stops arriving, an answer that is not taken and an idle
//     connection are each given up after a time.
//   - A connection is read on only while few of its answers are outstanding.
//   - Bytes of files go out by sendfile, but for short stretches, which are copied among others.
//
// It may import net, and knows neither the protocol's messages nor the broker.
package tcp
