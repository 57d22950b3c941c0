package oncrpc

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"sync"
)

// readBuffer is what headers and small arguments are read through. What a payload has in
// it is copied, the rest goes straight to its place.
const readBuffer = 4 << 10

// conn is one connection. That of a datagram has nothing but its ends.
type conn struct {
	srv    *Server
	socket *socket
	ends   ends
	record record
	slots  chan struct{} // one for each call in work
	calls  sync.WaitGroup

	mu sync.Mutex // held while a reply is sent: replies do not mix
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv:    s,
		socket: newSocket(nc, s.opts.Hello, s.opts.Stall),
		ends:   ends{peer: addrPort(nc.RemoteAddr()), local: addrPort(nc.LocalAddr())},
		slots:  make(chan struct{}, s.opts.MaxCalls),
	}
	c.record.r = bufio.NewReaderSize(c.socket, readBuffer)
	return c
}

// addrPort returns a socket's address; the zero one for a socket that has none.
func addrPort(a net.Addr) netip.AddrPort {
	var p netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		p = a.AddrPort()
	case *net.UDPAddr:
		p = a.AddrPort()
	}
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// serve answers the connection's calls until it ends, and returns when the last answer is
// given.
func (c *conn) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.cut)
	defer stop()
	defer c.calls.Wait()
	defer c.cut()
	for {
		err := c.next(ctx)
		if err != nil {
			c.srv.opts.Log.Debug("connection ended", "host", c.ends.peer.String(), "err", err)
			return
		}
	}
}

// next reads a call and starts its answer.
func (c *conn) next(ctx context.Context) error {
	c.socket.inside = false
	if err := c.record.next(c.srv.opts.MaxRecord); err != nil {
		return err
	}
	c.socket.inside = true
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.start(ctx); err != nil {
		<-c.slots
		return err
	}
	c.socket.spoke = true
	return nil
}

func (c *conn) start(ctx context.Context) error {
	j, err := c.srv.read(ctx, &c.record, c)
	if err != nil {
		return err
	}
	if err := j.claim(ctx); err != nil {
		return err
	}
	if c.answerNow(ctx, j) {
		c.socket.soon = true
		<-c.slots
		return nil
	}
	c.calls.Go(func() {
		defer func() { <-c.slots }()
		j.run(ctx, c.send)
	})
	return nil
}

// answerNow gives the answer of a quick call, unless another reply is being sent: for a
// client that does not take that one before more of its calls are read, nobody must wait.
func (c *conn) answerNow(ctx context.Context, j *job) bool {
	if j.call.Quick == nil || !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	j.enter()
	if !j.quick() {
		return false
	}
	j.run(ctx, c.put)
	return true
}

// send sends a reply.
func (c *conn) send(reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(reply)
}

// put sends a reply. A client that does not take it loses its connection. It needs mu.
func (c *conn) put(reply []byte) {
	if err := c.socket.put(reply); err != nil {
		c.cut()
	}
}

// isAlive reports whether both sides have the connection open.
func (c *conn) isAlive() bool { return c.socket != nil && isEstablished(c.socket.Conn) }

// cut ends the connection at once: both sides see a reset.
func (c *conn) cut() { reset(c.socket.Conn) }
