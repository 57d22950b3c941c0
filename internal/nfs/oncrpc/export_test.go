package oncrpc

import (
	"bufio"
	"bytes"
	"context"
	"slices"
)

// Replay answers a stream of calls one after the other. It returns the replies and the error that ended the stream.
func Replay(ctx context.Context, s *Server, stream []byte) (replies [][]byte, err error) {
	r := &record{r: bufio.NewReader(bytes.NewReader(stream))}
	c := new(conn)
	for {
		if err := r.beginRecord(s.opts.MaxRecord); err != nil {
			return replies, err
		}
		j, err := s.readJob(ctx, r, c)
		if err != nil {
			return replies, err
		}
		if err := j.reserveReplyMemory(ctx); err != nil {
			return replies, err
		}
		j.run(ctx, func(reply []byte) { replies = append(replies, slices.Clone(reply)) })
	}
}

// Streams returns the number of connections that stream.
func Streams(s *Server) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.socket.mu.Lock()
		if c.socket.isStreaming() {
			n++
		}
		c.socket.mu.Unlock()
	}
	return n
}
