package cli

import (
	"bytes"
	"io"
	"sync"
)

// spool stores the output of a process until the test reads it. The process never waits for the test, as it does
// when a pipe is full.
type spool struct {
	mu      sync.Mutex
	changed *sync.Cond   // signals that more can be read
	unread  bytes.Buffer // output that Read has not returned yet
	err     error        // io.EOF or another error after the last byte; nil while the process writes
}

func newSpool() *spool {
	s := &spool{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// copyFrom copies the output of a process to the spool until its end.
func (s *spool) copyFrom(from io.Reader) {
	_, err := io.Copy(s, from)
	if err == nil {
		err = io.EOF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.changed.Broadcast()
}

// Write appends p.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
	return s.unread.Write(p)
}

// Read waits for output. At the end it returns the error of the process's pipe.
func (s *spool) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.unread.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.changed.Wait()
	}
	return s.unread.Read(p)
}
