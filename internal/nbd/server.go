package nbd

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/fault"
)

// A Server serves disks to NBD clients. Its fields must not change after the first call of Serve or
// ServeConn.
type Server struct {
	Exports []Export     // exports; a client that requests no name gets the first
	TLS     *tls.Config  // certificates; if it is not nil, clients must start TLS
	Log     *slog.Logger // log; nil for none
	Limits  Limits       // limits of memory and time; zero fields have default values

	once    sync.Once // guards the preparation of the fields below
	err     error     // why the fields above are invalid
	exports []*export // Exports in service
	tls     *tls.Config
	memory  *buffers      // memory of all connections
	free    chan struct{} // holds a token for each open connection

	mu      sync.Mutex // guards refused
	refused time.Time  // time of the last logged refusal

	now func() time.Time // clock of the log; tests replace it
}

// Limits are the limits of a Server.
type Limits struct {
	Connections int           // open connections, also those in the handshake; default 64
	Requests    int           // requests in work of one connection; default 64
	Memory      int64         // bytes of all requests in work; default and minimum 16 MiB
	Handshake   time.Duration // duration of a handshake; default 30 s
	Stall       time.Duration // time until a client has sent 16 MiB of a write, or read 1 MiB of replies; default 2 min
}

// prepare checks the fields of the server.
func (s *Server) prepare() error {
	s.once.Do(func() {
		l := &s.Limits
		l.Connections, l.Requests, l.Memory = cmp.Or(l.Connections, 64), cmp.Or(l.Requests, 64), max(l.Memory, maxServed)
		l.Handshake, l.Stall = cmp.Or(l.Handshake, 30*time.Second), cmp.Or(l.Stall, 2*time.Minute)
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		if s.now == nil {
			s.now = time.Now
		}
		if s.TLS != nil {
			s.tls = s.TLS.Clone()
			s.tls.MinVersion = max(s.tls.MinVersion, tls.VersionTLS12)
		}
		s.memory = newBuffers(l.Memory)
		s.free = make(chan struct{}, l.Connections)
		s.exports, s.err = newExports(s.Exports, s.Log, s.now)
	})
	return s.err
}

// Serve serves clients that connect to l, until ctx ends. Then it closes l and all connections, and
// returns nil after the last request has ended. It returns an error if the listener fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	if err := s.prepare(); err != nil {
		return err
	}
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return nil
		}
		if err != nil && isTemporary(err) {
			s.logRefusal("", err)
			s.pause(ctx)
			continue
		}
		if err != nil {
			return err
		}
		all.Go(func() { _ = s.ServeConn(ctx, nc) }) // it logs its error
	}
}

// isTemporary reports whether a listener may work again: the process or the system has too many open
// files, or the client has gone already.
func isTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// pause waits a short time, or until ctx ends.
func (s *Server) pause(ctx context.Context) {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// logRefusal logs a refused connection, at most once in 10 seconds.
func (s *Server) logRefusal(client string, err error) {
	const every = 10 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.refused) >= every {
		s.refused = now
		s.Log.Warn("NBD client refused", "client", client, "err", err)
	}
}

// ServeConn serves the client on nc until it disconnects or ctx ends, and closes nc. It returns nil if
// the connection ends, whatever the reason, and an error if the client violates the protocol or does not
// answer in time. It logs the error, too.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) error {
	defer nc.Close()
	if err := s.prepare(); err != nil {
		return err
	}
	client := nc.RemoteAddr().String()
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	default:
		err := fault.New(fault.Conflict, "%d clients are connected", s.Limits.Connections)
		s.logRefusal(client, err)
		return err
	}
	err := s.serveClient(ctx, nc, client)
	switch {
	case errors.Is(err, errAborted) || errors.Is(err, io.EOF) || ctx.Err() != nil:
		return nil
	case isLost(err):
		s.Log.Info("NBD client lost", "client", client, "err", err)
		return nil
	case err != nil:
		s.Log.Warn("NBD client disconnected", "client", client, "err", err)
	}
	return err
}

// isLost reports whether err is the end of a connection that the client did not announce.
func isLost(err error) bool {
	for _, e := range []error{io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// serveClient makes the handshake and answers requests. It returns the first error of the connection.
func (s *Server) serveClient(ctx context.Context, nc net.Conn, client string) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if err := nc.SetDeadline(time.Now().Add(s.Limits.Handshake)); err != nil {
		return err
	}
	h := &handshake{exports: s.exports, tls: s.tls, conn: nc, in: bufio.NewReader(nc)}
	if err := h.negotiate(ctx); err != nil {
		return timeoutError(err, "the handshake takes too long")
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.Log.Debug("NBD client connected", "client", client, "export", h.chosen.Name)
	c := &session{
		export: h.chosen, structured: h.structured, described: h.described != nil,
		ctx: ctx, conn: h.conn, in: h.in, out: &sendQueue{conn: h.conn, stall: s.Limits.Stall, fail: fail}, stall: s.Limits.Stall,
		memory: s.memory, unsent: semaphore.NewWeighted(maxUnsent), slots: make(chan struct{}, s.Limits.Requests),
	}
	err := c.serveRequests()
	if err == nil && h.secure {
		_ = h.conn.Close() // sends the end of TLS, so that the client knows that nothing is missing
	}
	if ctx.Err() != nil { // sending has failed before
		err = timeoutError(context.Cause(ctx), "the client does not read its replies")
	}
	fail(err)
	c.work.Wait()
	return err
}
