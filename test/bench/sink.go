package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/lab/xdr"
)

const (
	sinkBuffer   = 1<<20 + 4<<10 // bytes of a buffer: a WRITE of 1 MiB with its header
	lastFragment = 1 << 31       // flag of a record mark (RFC 5531 section 11)
	fileSync     = 2             // stability FILE_SYNC of a reply (RFC 1813 section 3.3.7)
	writeHead    = 512           // bytes of a WRITE that contain at least its count
)

// sinkJob is the input of childSink.
type sinkJob struct {
	// File is the path to which the server writes all data behind its replies. If it is
	// empty, the data is discarded.
	File string `json:"file"`
}

// serveConn replies to the WRITEs of one connection until it is closed. It uses
// blocking system calls, like the client's streams.
func (job sinkJob) serveConn(conn *net.TCPConn) error {
	file, err := conn.File()
	conn.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	s := &sinkConn{fd: int(file.Fd()), buf: make([]byte, sinkBuffer)}
	if job.File != "" {
		if s.behind, err = newSinkFile(job.File); err != nil {
			return err
		}
		defer s.behind.close()
	}
	for err == nil {
		err = s.serveRecord()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sinkConn is one connection.
type sinkConn struct {
	fd     int       // descriptor of the connection
	buf    []byte    // start of the next record
	n      int       // bytes in buf
	behind *sinkFile // file to write behind; nil discards the data
}

// serveRecord reads one record and replies to it.
func (s *sinkConn) serveRecord() error {
	var mark [4]byte
	if err := s.fillBuffer(len(mark)); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(s.buf)&^lastFragment) + len(mark)
	if size > len(s.buf) {
		return fmt.Errorf("record of %d bytes", size)
	}
	if err := s.fillBuffer(size); err != nil {
		return err
	}
	reply, off, count := sinkReply(s.buf[len(mark):min(size, writeHead)])
	if count > size {
		return fmt.Errorf("WRITE of %d bytes in %d", count, size)
	}
	// Without a file, the connection keeps its buffer.
	next := s.buf
	if s.behind != nil {
		next = s.behind.queueWrite(s.buf, size-count, size, off)
	}
	// Bytes of the next record may already be in the buffer.
	s.n = copy(next, s.buf[size:s.n])
	s.buf = next
	_, err := unix.Write(s.fd, reply)
	return err
}

// fillBuffer reads until the buffer contains n bytes. It returns io.EOF if the client
// closed the connection.
func (s *sinkConn) fillBuffer(n int) error {
	for s.n < n {
		got, err := unix.Read(s.fd, s.buf[s.n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("read", err)
		case got == 0:
			return io.EOF
		default:
			s.n += got
		}
	}
	return nil
}

// sinkReply returns the successful reply to a WRITE, with the WRITE's offset and
// length.
func sinkReply(head []byte) (reply []byte, off int64, count int) {
	d := xdr.NewDecoder(head)
	call := xdr.ReadCall(d)
	_ = d.Opaque(64) // the handle
	off = int64(d.Uint64())
	count = int(d.Uint32())
	e := xdr.Encoder{B: make([]byte, 4, 128)}
	xdr.AppendReply(&e, call.XID, xdr.Success)
	e.Uint32(0)   // NFS3_OK
	e.Bool(false) // no attributes before,
	e.Bool(false) // nor after
	e.Uint32(uint32(count))
	e.Uint32(fileSync)
	e.Uint64(1) // the write verifier
	mark := xdr.Mark(len(e.B) - 4)
	copy(e.B, mark[:])
	return e.B, off, count
}

// sinkFile writes behind with minimal means: some buffers and one goroutine.
type sinkFile struct {
	file *os.File       // file to write
	free chan []byte    // buffers that are not in use
	full chan sinkWrite // data to write; closed by close
	done chan error     // result of the goroutine
}

// sinkWrite is data for the file.
type sinkWrite struct {
	buf        []byte // buffer, returned to free after the write
	start, end int    // offsets of the payload
	off        int64  // offset in the file
}

// sinkBuffers is the number of buffers. More make no difference.
const sinkBuffers = 32

// newSinkFile creates the file and starts the goroutine.
func newSinkFile(path string) (*sinkFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	s := &sinkFile{file: file, free: make(chan []byte, sinkBuffers), full: make(chan sinkWrite, sinkBuffers), done: make(chan error, 1)}
	for range sinkBuffers {
		s.free <- disk.AlignedMemory(2 * 1 << 20)[:sinkBuffer]
	}
	go func() { s.done <- s.runWrites() }()
	return s, nil
}

// queueWrite takes ownership of buf, queues a part of it for writing, and returns
// another buffer.
func (s *sinkFile) queueWrite(buf []byte, start, end int, off int64) []byte {
	s.full <- sinkWrite{buf, start, end, off}
	return <-s.free
}

// runWrites writes all queued data and returns the first error.
func (s *sinkFile) runWrites() (err error) {
	for w := range s.full {
		if _, e := s.file.WriteAt(w.buf[w.start:w.end], w.off); e != nil && err == nil {
			err = e // continue, so that senders do not wait for buffers
		}
		s.free <- w.buf
	}
	return err
}

// close waits for all writes and removes the file.
func (s *sinkFile) close() {
	close(s.full)
	_ = errors.Join(<-s.done, s.file.Close(), os.Remove(s.file.Name())) // the connection is over
}
