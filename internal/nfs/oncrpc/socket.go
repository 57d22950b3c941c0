package oncrpc

import (
	"net"
	"sync"
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

	hadCall     bool   // a whole call has come
	beforeWait  func() // called before a stream waits for bytes
	inRecord    bool   // a record has begun and not ended
	hasDeadline bool   // a deadline is set

	// sending is held while a reply is sent: replies do not mix. It is also held while the
	// way of waiting changes.
	sending sync.Mutex

	mu      sync.Mutex // of what follows, against cut and isEstablished
	conn    net.Conn   // while it rests
	fd      int        // while it streams
	aborted bool       // it was cut
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
	if err := s.setReadDeadline(); err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

func (s *socket) setReadDeadline() error {
	switch {
	case s.inRecord:
		s.hasDeadline = true
		return s.conn.SetReadDeadline(time.Now().Add(s.stall))
	case !s.hadCall:
		s.hasDeadline = true
		return s.conn.SetReadDeadline(s.hello)
	case s.hasDeadline:
		s.hasDeadline = false
		return s.conn.SetReadDeadline(time.Time{})
	}
	return nil
}

func (s *socket) writeAll(p []byte) error {
	if s.fd != noFD {
		return s.writeStream(p)
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

// abort ends the connection: both sides see a reset.
func (s *socket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	if s.fd == noFD {
		if s.conn != nil {
			resetConn(s.conn)
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
