package https

import (
	"context"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/disk"
)

// stream reads one range of the disk's file from front to back, over as many connections as necessary.
// It is not safe for concurrent use.
type stream struct {
	ctx    context.Context // ends the stream
	src    *Source         // disk that is read
	left   disk.Range      // range that was not read yet
	urgent bool            // its requests are served before those of other streams
	retry  retry           // failures since the last progress
	x      *exchange       // answer that is being read; nil between two
}

// openStream returns a stream whose first answer has begun. The caller closes it.
func (s *Source) openStream(ctx context.Context, r disk.Range, urgent bool) (*stream, error) {
	if err := disk.CheckRange(s.size, r); err != nil {
		return nil, fmt.Errorf("read %v: %w", s.path, err)
	}
	st := &stream{ctx: ctx, src: s, left: r, urgent: urgent}
	if r.Empty() {
		return st, nil
	}
	return st, st.connect()
}

// Read reads the next bytes of the range, straight from the connection into p.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for !s.left.Empty() {
		if s.x == nil {
			if err := s.connect(); err != nil {
				return 0, err
			}
		}
		n, err := s.x.Read(p)
		if n > 0 {
			s.advance(n)
			return n, nil
		}
		if err := s.resume(err); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// advance counts n bytes as read. After the last byte of an answer, it passes the connection on.
func (s *stream) advance(n int) {
	s.left.Off += int64(n)
	s.left.Len -= int64(n)
	s.src.pool.body.Add(int64(n))
	s.src.counts.body.Add(int64(n))
	s.retry.reset()
	if s.x.left == 0 {
		s.x.finish()
		s.x = nil
	}
}

// resume closes the connection that failed. The next Read continues on another one.
func (s *stream) resume(err error) error {
	err = s.x.explainLoss(s.ctx, err)
	s.x.abort()
	s.x = nil
	s.src.counts.resumes.Add(1)
	return s.waitRetry(err)
}

// connect requests the remaining range until an answer has begun.
func (s *stream) connect() error {
	for {
		err := s.tryRequest()
		if err == nil {
			return nil
		}
		if err := s.waitRetry(err); err != nil {
			return err
		}
	}
}

// waitRetry waits before the next attempt, or returns the final error.
func (s *stream) waitRetry(err error) error {
	s.src.counts.failures.Add(1)
	if err := s.retry.wait(s.ctx, s.src.pool, err); err != nil {
		return fmt.Errorf("read %v at %d: %w", s.src.path, s.left.Off, err)
	}
	return nil
}

// tryRequest sends one request for the remaining range, or its beginning, and reads the head of the
// answer.
func (s *stream) tryRequest() error {
	r := s.src.limitRequest(s.left, s.urgent)
	cookie, err := s.src.pool.host.Cookie(s.ctx, s.retry.stale)
	if err != nil {
		return err
	}
	request, err := appendRequest(nil, s.src.pool.host.Addr(), s.src.uri, cookie, r)
	if err != nil {
		return err
	}
	x, err := s.src.pool.startExchange(s.ctx, s.src.queue, newTicket(s.urgent, r.Len), request)
	if err != nil {
		return err
	}
	s.src.counts.requests.Add(1)
	resp, err := x.readAnswer(s.ctx)
	if err != nil {
		return err
	}
	if err := resp.checkRange(r, s.src.size); err != nil {
		x.drain()
		return s.retryUnauthorized(resp, cookie, err)
	}
	s.x = x
	s.src.begun.Store(s.src.begun.Load() || !s.urgent)
	return nil
}

// retryUnauthorized makes another attempt with a renewed session after the first 401 since the last
// progress. Otherwise it returns err.
func (s *stream) retryUnauthorized(resp response, cookie string, err error) error {
	if resp.status != 401 || s.retry.renewed {
		return err
	}
	s.retry.stale, s.retry.renewed = cookie, true
	return s.tryRequest()
}

// Close releases the connection if the range was read to its end, and otherwise closes it.
func (s *stream) Close() error {
	if s.x != nil {
		s.x.drain()
		s.x = nil
	}
	s.left.Len = 0
	return nil
}

// readFull fills p from off with one urgent request.
func (s *Source) readFull(ctx context.Context, p []byte, off int64) error {
	st, err := s.openStream(ctx, disk.Range{Off: off, Len: int64(len(p))}, true)
	if err != nil {
		return err
	}
	defer st.Close()
	_, err = io.ReadFull(st, p)
	return err
}
