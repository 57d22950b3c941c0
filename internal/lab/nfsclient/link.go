package nfsclient

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// A link is a TCP connection to the server that is re-established when it is lost. Calls without a
// reply are sent again with the same xid, so that the server's duplicate request cache recognizes them.
type link struct {
	cfg  *Config // configuration with defaults
	addr string  // host:port of NFS

	cancel context.CancelFunc // ends serveConnections
	done   chan struct{}      // closed when serveConnections has returned

	cut atomic.Bool // whether the network is cut, for tests

	writing sync.Mutex // serializes messages; must not be locked while mu is held

	mu      sync.Mutex          // guards the fields below
	conn    net.Conn            // current connection; nil while there is no connection
	port    int                 // local port, which the next connection uses as well
	pending map[uint32]*message // calls without a reply, by xid
}

// A message is an encoded call that waits for its reply.
type message struct {
	xid     uint32         // transaction ID; a repeated call has the same
	parts   net.Buffers    // record mark and head, payload, padding; must not change until the call has ended
	replied chan replyData // receives at most one reply; buffered
}

// A replyData is a reply, or the error in place of it.
type replyData struct {
	d   *xdr.Decoder // results after the RPC header
	err error        // RPC error; nil if the call was accepted
}

// newLink opens the first connection. Unlike later connections, it is not retried.
func newLink(ctx context.Context, cfg *Config, addr string) (*link, error) {
	conn, err := dialTCP(ctx, addr, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to NFS: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	l := &link{cfg: cfg, addr: addr, cancel: cancel, done: make(chan struct{}), pending: map[uint32]*message{}}
	go func() {
		defer close(l.done)
		l.serveConnections(run, conn)
	}()
	return l, nil
}

// close ends the connection and waits for its goroutine.
func (l *link) close() {
	l.cancel()
	<-l.done
}

// setSevered cuts the network or restores it. Pending calls wait, or fail when all paths are down.
func (l *link) setSevered(cut bool) {
	l.cut.Store(cut)
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if cut && conn != nil {
		resetConn(conn)
	}
}

// serveConnections serves one connection after the other until ctx ends.
func (l *link) serveConnections(ctx context.Context, conn net.Conn) {
	for again := false; conn != nil; again = true {
		l.serveConn(ctx, conn, again)
		conn = l.reconnect(ctx)
	}
}

// reconnect dials until it succeeds. It returns nil when ctx ends.
func (l *link) reconnect(ctx context.Context) net.Conn {
	for ctx.Err() == nil {
		if l.cut.Load() {
			sleep(ctx, l.cfg.Times.Reconnect)
			continue
		}
		dial, cancel := context.WithTimeout(ctx, l.cfg.Times.Silence)
		conn, err := dialTCP(dial, l.addr, l.port) // only this goroutine writes port
		cancel()
		if err == nil {
			return conn
		}
		sleep(ctx, l.cfg.Times.Reconnect)
	}
	return nil
}

// serveConn sends pending calls again and reads replies until the connection is lost.
func (l *link) serveConn(ctx context.Context, conn net.Conn, again bool) {
	stop := context.AfterFunc(ctx, func() { resetConn(conn) })
	defer stop()
	var resending sync.WaitGroup
	calls := l.adoptConn(conn)
	if again {
		l.cfg.OnEvent(Event{Kind: ConnBack, N: len(calls)})
	}
	resending.Go(func() { l.resendCalls(conn, calls) })
	err := l.readReplies(conn)
	l.mu.Lock()
	l.conn = nil
	l.mu.Unlock()
	resetConn(conn)
	resending.Wait()
	if ctx.Err() == nil {
		l.cfg.OnEvent(Event{Kind: ConnLost, Err: err})
	}
}

// adoptConn makes conn the current connection and returns the pending calls, oldest first.
func (l *link) adoptConn(conn net.Conn) []*message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.port = conn, portOf(conn.LocalAddr())
	calls := make([]*message, 0, len(l.pending))
	for _, m := range l.pending {
		calls = append(calls, m)
	}
	slices.SortFunc(calls, func(a, b *message) int { return cmp.Compare(int32(a.xid-b.xid), 0) }) // xids wrap
	l.armSilenceDeadline()
	return calls
}

// resendCalls sends calls on conn until one fails.
func (l *link) resendCalls(conn net.Conn, calls []*message) {
	for _, m := range calls {
		if l.writeMessage(conn, m) != nil {
			return
		}
	}
}

// armSilenceDeadline gives the server Times.Silence to send data if replies are due. mu must be held.
func (l *link) armSilenceDeadline() {
	if l.conn == nil {
		return
	}
	var until time.Time
	if len(l.pending) > 0 {
		until = time.Now().Add(l.cfg.Times.Silence)
	}
	_ = l.conn.SetReadDeadline(until) // fails on a closed connection only, which read sees
}

// readReplies delivers replies until the connection fails or a reply cannot be decoded. Replies to
// unknown calls are dropped.
func (l *link) readReplies(conn net.Conn) error {
	r := bufio.NewReaderSize(conn, ioSize)
	for {
		msg, err := xdr.ReadRecord(r, maxReply)
		if err != nil {
			return readError(err)
		}
		d := xdr.NewDecoder(msg)
		xid, err := xdr.ReadReply(d)
		if err != nil && d.Err() != nil {
			return fmt.Errorf("reply that cannot be read: %w", err)
		}
		l.mu.Lock()
		m := l.pending[xid]
		delete(l.pending, xid)
		l.armSilenceDeadline()
		l.mu.Unlock()
		if m != nil { // otherwise the caller has given up, or a call that was sent twice has a second reply
			m.replied <- replyData{d, err}
		}
	}
}

// readError replaces io.EOF by an error that names the server.
func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return err
}

// writeMessage sends a message. It does not consume the parts, because the message may be sent again.
func (l *link) writeMessage(conn net.Conn, m *message) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	parts := slices.Clone(m.parts)
	_, err := parts.WriteTo(conn)
	if err != nil {
		resetConn(conn) // read sees it
	}
	return err
}

// sendCall registers a call and sends it. Without a connection the call is sent on the next one.
func (l *link) sendCall(m *message) {
	l.mu.Lock()
	l.pending[m.xid] = m
	conn := l.conn
	if len(l.pending) == 1 {
		l.armSilenceDeadline()
	}
	l.mu.Unlock()
	if conn != nil {
		_ = l.writeMessage(conn, m) // if it fails, the message is sent again on the next connection
	}
}

// forgetCall drops a call, whose later reply is ignored. The buffers may still be in use: the caller
// must not reuse them. The read deadline stays, so that a dead server is detected even if only
// heartbeats are sent.
func (l *link) forgetCall(m *message) {
	l.mu.Lock()
	delete(l.pending, m.xid)
	l.mu.Unlock()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
