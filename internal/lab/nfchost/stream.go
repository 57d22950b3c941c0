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

// startMessage takes the first n bytes of the next message. They are valid until the next call.
func (s *stream) startMessage(n int) ([]byte, error) {
	if s.records || len(s.buf) < n {
		if err := s.readMore(); err != nil {
			return nil, err
		}
	}
	return s.readRest(n)
}

// readRest takes n more bytes of the same message.
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

func (s *stream) readMore() error {
	n, err := s.r.Read(s.chunk[:])
	s.buf = append(s.buf, s.chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}
