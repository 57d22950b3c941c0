package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab/xdr"
)

const (
	sinkBuffer   = 1<<20 + 4<<10 // a WRITE of 1 MiB with its head
	lastFragment = 1 << 31
	fileSync     = 2
	writeHead    = 512 // bytes of a WRITE that its count is among, at least
)

// sink answers the WRITEs of one connection. It blocks in the system, as streams do.
func sink(conn *net.TCPConn) error {
	file, err := conn.File()
	conn.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	s := &sinkConn{fd: int(file.Fd()), buf: make([]byte, sinkBuffer)}
	for err == nil {
		err = s.next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sinkConn is one connection.
type sinkConn struct {
	fd  int
	buf []byte
	n   int // bytes in buf
}

// next reads one record, and answers it.
func (s *sinkConn) next() error {
	var mark [4]byte
	if err := s.fill(len(mark)); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(s.buf)&^lastFragment) + len(mark)
	if size > len(s.buf) {
		return fmt.Errorf("record of %d bytes", size)
	}
	if err := s.fill(size); err != nil {
		return err
	}
	reply, err := sinkReply(s.buf[len(mark):min(size, writeHead)])
	if err != nil {
		return err
	}
	s.n = copy(s.buf, s.buf[size:s.n])
	_, err = unix.Write(s.fd, reply)
	return err
}

func (s *sinkConn) fill(n int) error {
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

// sinkReply says that all of a WRITE was written.
func sinkReply(head []byte) ([]byte, error) {
	d := xdr.NewDecoder(head)
	call := xdr.ReadCall(d)
	_ = d.Opaque(64) // the handle
	_ = d.Uint64()   // the offset
	count := d.Uint32()
	e := xdr.Encoder{B: make([]byte, 4, 128)}
	xdr.AppendReply(&e, call.XID, xdr.Success)
	e.Uint32(0)   // NFS3_OK
	e.Bool(false) // no attributes before,
	e.Bool(false) // nor after
	e.Uint32(count)
	e.Uint32(fileSync)
	e.Uint64(1) // the write verifier
	mark := xdr.Mark(len(e.B) - 4)
	copy(e.B, mark[:])
	return e.B, nil
}
