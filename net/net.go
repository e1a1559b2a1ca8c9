// Package net says what a host needs of a network that carries frames: a
// connection that hands over whole requests in order and takes their answers
// back in any order, counted memory for what came in, and a way to send
// stretches of files. net/tcp implements it with sockets; net/kafka gives the
// frames their meaning. Nothing here knows the broker.
package net

import "io"

// Acceptor is told of the connections of a listener.
type Acceptor interface {
	// Opened returns who handles a new connection.
	Opened(c Conn) Handler
}

// Handler is told what happens on one connection. The calls come one after
// another, on a goroutine of the connection. A call that blocks stops its reading.
type Handler interface {
	// Admit sees the first HeadSize bytes of a frame of size bytes before the rest is
	// read. An error closes the connection.
	Admit(head []byte, size int) (Admission, error)
	// Frame takes a whole frame, and one reference to it. seq counts the frames of the
	// connection from 0; each must be answered, by Conn.Answer. An error closes the connection.
	Frame(seq uint64, f Frame) error
	// Closed is the last call. err is nil if the other side closed the connection between two frames.
	Closed(err error)
}

// HeadSize is how many bytes of a frame Admit sees. A shorter frame closes its connection.
const HeadSize = 8

// Admission says how to receive a frame.
type Admission struct {
	// Cost is about how many bytes of memory the request takes until it is answered.
	Cost int64
	// Pipelined requests may follow each other without waiting for an answer; after
	// any other the connection is read on only when its answer is out.
	Pipelined bool
	// Reuse says that nothing refers to the frame's bytes once it is released, so
	// that their memory may serve again.
	Reuse bool
}

// Frame is the bytes of one request, without the length prefix. They stay valid
// and unchanged until as many calls of Release as it has references.
type Frame interface {
	Bytes() []byte
	Retain()
	Release()
}

// Conn is a connection to a client. Its methods may be called from any goroutine.
type Conn interface {
	// ID is unique in the life of the process.
	ID() uint64
	// Host is the remote address without the port.
	Host() string
	// Answer gives the answer to the frame seq; nil sends nothing. Answers leave in
	// the order of the frames. last closes the connection once this one is out.
	Answer(seq uint64, a Answer, last bool)
	// Close closes the connection at once, because of err.
	Close(err error)
}

// Answer is a response that is yet to be encoded.
type Answer interface {
	// Write writes the whole response, on a goroutine of the connection. After an error the
	// connection is closed.
	Write(w Writer) error
	// Done is called exactly once, when the response is out or never will be.
	Done()
}

// Writer is where an answer goes.
type Writer interface {
	// Scratch is an empty slice to encode into. What it becomes is kept for the next
	// answer, so its bytes are valid until the next call.
	Scratch() *[]byte
	// Write sends bytes. It may keep them until the end of Answer.Write, no longer.
	io.Writer
	// SendFile sends the n bytes of a file at off, past the program's memory where it can.
	SendFile(f File, off, n int64) error
}

// File is a file that can be sent from; a disk.File is one.
type File interface {
	io.ReaderAt
	// Fd returns the descriptor for sendfile, or false where there is none.
	Fd() (uintptr, bool)
}
