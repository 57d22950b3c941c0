package oncrpc

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// readBuffer is what headers and small arguments are read through. What a payload has in
// it is copied, the rest goes straight to its place.
const readBuffer = 4 << 10

// maxHeld is how many answers of quick calls are held back while more calls are there to be
// read: sending each would wake the client, on the processor that the next call needs. A
// client with as few calls in flight as eight (ESXi was seen with 11 to 30) goes on sending.
const maxHeld = 6

// conn is one connection. That of a datagram has nothing but its ends.
type conn struct {
	srv    *Server
	socket *socket
	ends   ends
	record record
	slots  chan struct{} // one for each call in work, and each answer that is held back
	calls  sync.WaitGroup

	heldReplies []byte // answers of quick calls, which the reader holds back
	heldCount   int
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv:    s,
		socket: newSocket(nc, s.opts.Hello, s.opts.Stall),
		ends:   ends{peer: addrPort(nc.RemoteAddr()), local: addrPort(nc.LocalAddr())},
		slots:  make(chan struct{}, s.opts.MaxCalls),
	}
	c.socket.beforeWait = c.flush
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
	stop := context.AfterFunc(ctx, c.abort)
	defer stop()
	defer c.calls.Wait()
	defer c.socket.close()
	defer c.abort()
	for {
		err := c.startNextCall(ctx)
		if err != nil {
			c.flush()
			c.srv.opts.Log.Debug("connection ended", "host", c.ends.peer.String(), "err", err)
			return
		}
	}
}

// startNextCall reads a call and starts its answer.
func (c *conn) startNextCall(ctx context.Context) error {
	c.socket.inRecord = false
	if err := c.record.beginRecord(c.srv.opts.MaxRecord); err != nil {
		return err
	}
	c.socket.inRecord = true
	if err := c.acquireSlot(ctx); err != nil {
		return err
	}
	if err := c.startCall(ctx); err != nil {
		c.releaseSlots(1)
		return err
	}
	c.socket.hadCall = true
	return nil
}

func (c *conn) acquireSlot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
		c.flush()
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) releaseSlots(n int) {
	for range n {
		<-c.slots
	}
}

func (c *conn) startCall(ctx context.Context) error {
	j, err := c.srv.readJob(ctx, &c.record, c)
	if err != nil {
		return err
	}
	if err := j.reserveReplyMemory(ctx); err != nil {
		return err
	}
	if c.answerNow(ctx, j) {
		return nil
	}
	c.calls.Go(func() {
		defer c.releaseSlots(1)
		j.run(ctx, c.send)
	})
	return nil
}

// answerNow gives the answer of a quick call. On a stream it is held back until the reader
// has to wait for something, or there are enough of them.
func (c *conn) answerNow(ctx context.Context, j *job) bool {
	if j.call.Quick == nil {
		return false
	}
	j.enterCache()
	if !j.tryQuick() {
		return false
	}
	j.run(ctx, c.holdReply)
	c.heldCount++ // its slot, also where there is no reply
	c.socket.startStreaming()
	if c.heldCount == maxHeld || !c.socket.isStreaming() {
		c.flush()
	}
	return true
}

func (c *conn) holdReply(reply []byte) { c.heldReplies = append(c.heldReplies, reply...) }

// flush sends the answers that are held back. It waits for the client to take them, but not
// for another reply that is being sent, perhaps to a client that takes that one only after
// more of its calls were read.
func (c *conn) flush() {
	if c.heldCount == 0 {
		return
	}
	n := c.heldCount
	c.heldCount = 0
	if c.socket.sending.TryLock() {
		c.sendLocked(c.heldReplies)
		c.socket.sending.Unlock()
		c.releaseSlots(n)
	} else {
		held := slices.Clone(c.heldReplies)
		c.calls.Go(func() {
			defer c.releaseSlots(n)
			c.send(held)
		})
	}
	c.heldReplies = c.heldReplies[:0]
}

// send sends replies.
func (c *conn) send(replies []byte) {
	c.socket.sending.Lock()
	defer c.socket.sending.Unlock()
	c.sendLocked(replies)
}

// sendLocked sends replies. A client that does not take them loses its connection. It needs the
// socket's sending.
func (c *conn) sendLocked(replies []byte) {
	if err := c.socket.writeAll(replies); err != nil {
		c.abort()
	}
}

// isAlive reports whether both sides have the connection open.
func (c *conn) isAlive() bool { return c.socket != nil && c.socket.isEstablished() }

// abort ends the connection at once: both sides see a reset.
func (c *conn) abort() { c.socket.abort() }
