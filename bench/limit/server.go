package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The plain programs. Each does only what no broker can do without: the first reads framed requests from a socket,
// checks the CRC-32C of the batch in them and appends it to a file; the second sends stretches of a file to a socket.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcFrom is where in a batch the bytes that its checksum covers begin, and crcAt where the checksum stands.
const (
	crcAt   = 17
	crcFrom = 21
)

// serve runs one of the plain programs for one connection after another. The first frame on a connection says how: for
// produce, eight bytes of batch position and batch size in every frame that follows; for fetch, eight bytes of size.
func serve(what, path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if what == "produce" {
			err = serveProduce(conn, path)
		} else {
			err = serveFetch(conn.(*net.TCPConn), path)
		}
		conn.Close()
		if err != nil && err != io.EOF {
			return err
		}
	}
}

func serveProduce(conn net.Conn, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	hello, err := readFrame(in, nil)
	if err != nil {
		return err
	}
	at, size := int(binary.BigEndian.Uint32(hello)), int(binary.BigEndian.Uint32(hello[4:]))
	var frame []byte
	answer := make([]byte, 4+4)
	binary.BigEndian.PutUint32(answer, 4)
	for {
		if frame, err = readFrame(in, frame); err != nil {
			return err
		}
		batch := frame[at : at+size]
		if crc32.Checksum(batch[crcFrom:], castagnoli) != binary.BigEndian.Uint32(batch[crcAt:]) {
			return fmt.Errorf("checksum is wrong")
		}
		if _, err := f.Write(batch); err != nil {
			return err
		}
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}

func readFrame(in *bufio.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(in, buf)
	return buf, err
}

func serveFetch(conn *net.TCPConn, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	hello, err := readFrame(in, nil)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint64(hello))
	head := make([]byte, 4)
	binary.BigEndian.PutUint32(head, uint32(size))
	var frame []byte
	for at := int64(0); ; at += size {
		if frame, err = readFrame(in, frame); err != nil {
			return err
		}
		if _, err := conn.Write(head); err != nil {
			return err
		}
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return err
		}
		if _, err := conn.ReadFrom(&io.LimitedReader{R: f, N: size}); err != nil { // sendfile
			return err
		}
	}
}

// syncLoop writes batches to a file with an fdatasync after each.
func syncLoop(path string, batch []byte, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for range n {
		if _, err := f.Write(batch); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return nil
}
