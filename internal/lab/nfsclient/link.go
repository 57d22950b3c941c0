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

// A link is one TCP connection to the server that is made again whenever it is lost. What
// was not answered by then is sent again with the same xid, so that the server's duplicate
// request cache can tell.
type link struct {
	cfg  *Config
	addr string

	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	cut atomic.Bool // the network is away

	writing sync.Mutex // one message at a time; never taken while mu is held

	mu      sync.Mutex
	conn    net.Conn // nil while there is none
	port    int      // our side of it; the next connection comes from there too
	pending map[uint32]*message
}

// A message is one call on its way.
type message struct {
	xid     uint32
	parts   net.Buffers    // mark and head, payload, padding; not changed until the call has ended
	replied chan replyData // takes one value
}

type replyData struct {
	d   *xdr.Decoder
	err error
}

// newLink connects for the first time; a server that is not there is an error then.
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

func (l *link) close() {
	l.cancel()
	<-l.done
}

// setSevered takes the network away, or brings it back. What is under way waits, or fails once all
// paths count as down.
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

func (l *link) reconnect(ctx context.Context) net.Conn {
	for ctx.Err() == nil {
		if l.cut.Load() {
			sleep(ctx, l.cfg.Times.Reconnect)
			continue
		}
		dial, cancel := context.WithTimeout(ctx, l.cfg.Times.Silence)
		conn, err := dialTCP(dial, l.addr, l.port) // port: nobody else writes it now
		cancel()
		if err == nil {
			return conn
		}
		sleep(ctx, l.cfg.Times.Reconnect)
	}
	return nil
}

// serveConn reads replies until the connection is lost.
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

// adoptConn makes conn the connection and returns the calls that were made on an earlier one,
// oldest first.
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

func (l *link) resendCalls(conn net.Conn, calls []*message) {
	for _, m := range calls {
		if l.writeMessage(conn, m) != nil {
			return
		}
	}
}

// armSilenceDeadline gives the server until Silence to say anything if it owes an answer. The caller
// holds mu.
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

// readReplies hands out replies until the connection fails or one makes no sense.
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
		if m != nil { // else the caller gave up, or it is the second answer to a call sent twice
			m.replied <- replyData{d, err}
		}
	}
}

func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return err
}

// writeMessage sends a message; it may be sent again, so the buffers are not consumed.
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

// sendCall makes a call and returns its message, whose reply will come unless the caller
// forgets it.
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

// forgetCall drops a call; a reply to it that comes later is ignored. Its buffers may still be
// being sent: the caller must not use them again. The deadline stays, so that a server
// that has vanished is noticed even if heartbeats are all there is.
func (l *link) forgetCall(m *message) {
	l.mu.Lock()
	delete(l.pending, m.xid)
	l.mu.Unlock()
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
