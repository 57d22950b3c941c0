package nfchost

import "io"

// recordSize is more than any TLS record holds: one Read of it returns one record.
const recordSize = 20 << 10

// stream takes messages from a connection. With records it behaves like a host on TLS: each
// message waits for a record to come, and what a record holds behind its message stays until
// the next record.
type stream struct {
	r       io.Reader
	records bool
	buf     []byte // received and not taken
	chunk   [recordSize]byte
}

// message takes the first n bytes of the next message. They are valid until the next call.
func (s *stream) message(n int) ([]byte, error) {
	if s.records || len(s.buf) < n {
		if err := s.more(); err != nil {
			return nil, err
		}
	}
	return s.rest(n)
}

// rest takes n more bytes of the same message.
func (s *stream) rest(n int) ([]byte, error) {
	for len(s.buf) < n {
		if err := s.more(); err != nil {
			return nil, err
		}
	}
	p := s.buf[:n:n]
	s.buf = s.buf[n:]
	return p, nil
}

func (s *stream) more() error {
	n, err := s.r.Read(s.chunk[:])
	s.buf = append(s.buf, s.chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}
