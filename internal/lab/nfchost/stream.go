package nfchost

import "io"

// recordSize is more than the largest TLS record: one Read of this size returns one record.
const recordSize = 20 << 10

// A stream reads messages from a connection. With records it behaves as a host does on TLS: each
// message waits for a new record, and data after the message in its record stays until then.
type stream struct {
	r       io.Reader        // raw connection or TLS session
	records bool             // whether each message waits for a new record
	buf     []byte           // received bytes that are not consumed
	chunk   [recordSize]byte // buffer of one Read
}

// startMessage returns the first n bytes of the next message, valid until the next call.
func (s *stream) startMessage(n int) ([]byte, error) {
	if s.records || len(s.buf) < n {
		if err := s.readMore(); err != nil {
			return nil, err
		}
	}
	return s.readRest(n)
}

// readRest returns n more bytes of the same message.
func (s *stream) readRest(n int) ([]byte, error) {
	for len(s.buf) < n {
		if err := s.readMore(); err != nil {
			return nil, err
		}
	}
	p := s.buf[:n:n]
	s.buf = s.buf[n:]
	return p, nil
}

// readMore reads one record or one piece of the connection.
func (s *stream) readMore() error {
	n, err := s.r.Read(s.chunk[:])
	s.buf = append(s.buf, s.chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}
