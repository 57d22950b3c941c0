package oncrpc

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection with its deadlines, and waits in one of two ways. One that is
// idle, or only knocks, rests in the runtime's poller and has no thread. One that brings
// quick calls in a row streams: it is taken out of the poller, which would wake a thread
// for every segment and acknowledgement that arrives, whether somebody waits for it or not,
// and its reader blocks in the system. After a lull it rests again.
//
// Read, stream and close are for the reader, put for whoever has sending, cut and
// isEstablished for everybody.
type socket struct {
	hello time.Time // until when something must have been said
	stall time.Duration

	spoke  bool   // a whole call has come
	idle   func() // called before a stream waits for bytes
	inside bool   // a record has begun and not ended
	timed  bool   // a deadline is set

	// sending is held while a reply is sent: replies do not mix. It is also held while the
	// way of waiting changes.
	sending sync.Mutex

	mu   sync.Mutex // of what follows, against cut and isEstablished
	conn net.Conn   // while it rests
	fd   int        // while it streams
	over bool       // it was cut
}

// noFD is the fd of a socket that does not stream.
const noFD = -1

func newSocket(nc net.Conn, hello, stall time.Duration) *socket {
	return &socket{conn: nc, fd: noFD, hello: time.Now().Add(hello), stall: stall}
}

// Read is part of io.Reader. Time that the server takes between two reads does not count
// against the client.
func (s *socket) Read(p []byte) (int, error) {
	if s.fd != noFD {
		return s.readStream(p)
	}
	if s.conn == nil {
		return 0, net.ErrClosed
	}
	if err := s.await(); err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

func (s *socket) await() error {
	switch {
	case s.inside:
		s.timed = true
		return s.conn.SetReadDeadline(time.Now().Add(s.stall))
	case !s.spoke:
		s.timed = true
		return s.conn.SetReadDeadline(s.hello)
	case s.timed:
		s.timed = false
		return s.conn.SetReadDeadline(time.Time{})
	}
	return nil
}

func (s *socket) put(p []byte) error {
	if s.fd != noFD {
		return s.putStream(p)
	}
	if s.conn == nil {
		return net.ErrClosed
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	_, err := s.conn.Write(p)
	return err
}

// lull is after how long without a byte a stream rests. An emulated host that waits for its
// own disk pauses for milliseconds; heartbeats come every ten seconds.
const lull = time.Second

// stream takes the connection out of the poller. Where that fails it stays there, which is
// only slower.
func (s *socket) stream() {
	if s.fd != noFD || s.conn == nil || !s.sending.TryLock() {
		return
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	fd, ok := unpolled(s.conn, min(lull, s.stall), s.stall)
	if !ok {
		return
	}
	_ = s.conn.Close() // the connection lives on in fd
	s.conn, s.fd = nil, fd
}

func (s *socket) streams() bool { return s.fd != noFD }

// rest gives the connection back to the poller, unless a reply is being sent.
func (s *socket) rest() error {
	if !s.sending.TryLock() {
		return nil
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return net.ErrClosed
	}
	var err error
	s.conn, err = polled(s.fd, s.stall)
	s.fd = noFD
	s.timed = true // there is no deadline, but the next read must see to it
	return err
}

// readStream reads as package net does, by the package that the race detector knows: it
// would not see that reads and writes of x/sys/unix come one after the other.
func (s *socket) readStream(p []byte) (int, error) {
	wait := min(lull, s.stall)
	for quiet := wait; ; {
		n, _, err := syscall.Recvfrom(s.fd, p, syscall.MSG_DONTWAIT)
		if errors.Is(err, syscall.EAGAIN) {
			s.idle()
			n, err = syscall.Read(s.fd, p)
		}
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN) && s.inside:
			if quiet >= s.stall {
				return 0, os.ErrDeadlineExceeded
			}
			quiet += wait
		case errors.Is(err, syscall.EAGAIN):
			if err := s.rest(); err != nil {
				return 0, err
			}
			if s.fd == noFD {
				return s.Read(p)
			}
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (s *socket) putStream(p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(s.fd, p)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return os.ErrDeadlineExceeded
		case err != nil:
			return os.NewSyscallError("write", err)
		default:
			p = p[n:]
		}
	}
	return nil
}

// cut ends the connection: both sides see a reset.
func (s *socket) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.fd == noFD {
		if s.conn != nil {
			reset(s.conn)
		}
		return
	}
	// The reader is in the system, with fd, and so may be the one who sends. This ends
	// their waiting, and close does the rest.
	_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
}

// close frees the connection, which was cut.
func (s *socket) close() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd != noFD {
		_ = unix.Close(s.fd)
		s.fd = noFD
	}
}

// isEstablished reports whether neither side has closed the connection, as far as the
// kernel knows: it knows before anybody has read so far.
func (s *socket) isEstablished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd != noFD:
		return isEstablished(s.fd)
	case s.conn != nil:
		return connEstablished(s.conn)
	}
	return false
}
