package oncrpc

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// A Server answers calls. It may serve several listeners, whose connections share its bounds.
type Server struct {
	opts           Options             // options with defaults
	memory         *semaphore.Weighted // bytes of large replies in work
	lastRefusalLog atomic.Int64        // time of the last logged refusal, in Unix seconds

	small, large sync.Pool // pools of *xdr.Encoder, for replies below largeReply and others

	mu     sync.Mutex         // guards conns and counts
	conns  map[ends]*conn     // open connections by their ends
	counts map[netip.Addr]int // open connections of each address
}

// ends are the addresses of both ends of a connection.
type ends struct{ peer, local netip.AddrPort }

// NewServer returns a Server that does not serve anything yet.
func NewServer(o Options) *Server {
	o = o.withDefaults()
	newEncoder := func() any { return new(xdr.Encoder) }
	return &Server{
		opts:   o,
		memory: semaphore.NewWeighted(o.ReplyMemory),
		small:  sync.Pool{New: newEncoder},
		large:  sync.Pool{New: newEncoder},
		conns:  make(map[ends]*conn),
		counts: make(map[netip.Addr]int),
	}
}

// Serve accepts connections until ctx ends. Then it closes the listener and every connection, and
// returns nil after the last call has ended. It returns an error if the listener ends earlier.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for wait := time.Duration(0); ; {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				resetConn(nc)
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // usually no free file descriptors, until connections end
			wait = s.pauseAfterError(ctx, wait, err)
			continue
		}
		wait = 0
		if c := s.admitConn(nc); c != nil {
			calls.Go(func() {
				defer s.unregisterConn(c)
				c.serve(ctx)
			})
		}
	}
}

// Bounds of the pause after a connection that could not be accepted.
const (
	leastPause = 5 * time.Millisecond // first pause
	mostPause  = time.Second          // longest pause
)

// pauseAfterError logs err, waits, and returns the length of the pause: twice the last one, wait,
// within its bounds.
func (s *Server) pauseAfterError(ctx context.Context, wait time.Duration, err error) time.Duration {
	wait = min(max(2*wait, leastPause), mostPause)
	s.opts.Log.Warn("wait for calls", "err", err)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return wait
}

// admitConn returns the connection of nc. It resets nc and returns nil if the peer is not admitted or
// has too many connections. An older connection with the same ends is aborted.
func (s *Server) admitConn(nc net.Conn) *conn {
	c := newConn(s, nc)
	addr := c.ends.peer.Addr()
	if !s.opts.Admit(addr) {
		s.logRefusal("peer is not allowed", addr)
		resetConn(nc)
		return nil
	}
	old, ok := s.registerConn(c)
	if old != nil {
		old.abort()
	}
	if !ok {
		s.logRefusal("too many connections", addr)
		resetConn(nc)
		return nil
	}
	setTimeouts(nc, s.opts.Stall)
	return c
}

// registerConn adds a connection and returns an older one with the same ends, whose place it takes. ok
// is false if a bound is reached.
func (s *Server) registerConn(c *conn) (old *conn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.conns[c.ends]
	addr := c.ends.peer.Addr()
	if old == nil && (len(s.conns) >= s.opts.MaxConnections || s.counts[addr] >= s.opts.MaxPerAddress) {
		return nil, false
	}
	if old == nil {
		s.counts[addr]++
	}
	s.conns[c.ends] = c
	return old, true
}

// unregisterConn removes a connection, unless a newer one has its place.
func (s *Server) unregisterConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.ends] != c {
		return
	}
	delete(s.conns, c.ends)
	addr := c.ends.peer.Addr()
	if s.counts[addr]--; s.counts[addr] == 0 {
		delete(s.counts, addr)
	}
}

// logEvery is the shortest time between two logged refusals, in seconds: a peer that retries must not
// fill the log.
const logEvery = 10 // seconds

// logRefusal logs a refused peer, unless another refusal was logged less than logEvery ago.
func (s *Server) logRefusal(reason string, peer netip.Addr) {
	now, last := time.Now().Unix(), s.lastRefusalLog.Load()
	if now-last >= logEvery && s.lastRefusalLog.CompareAndSwap(last, now) {
		s.opts.Log.Warn("connection refused", "host", peer.String(), "err", reason)
	}
}

// findProgram returns the program with that number; nil if it is not served.
func (s *Server) findProgram(number uint32) *Program {
	for _, p := range s.opts.Programs {
		if p.Number == number {
			return p
		}
	}
	return nil
}
