package oncrpc

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// readBuffer is the buffer for headers and small arguments, in bytes. Payload bytes in it are copied;
// the rest is read directly into the payload's memory.
const readBuffer = 4 << 10

// maxHeld is the number of replies to quick calls that are held back while more calls can be read.
// Sending each one would wake the client, on the processor that the next call needs. A client with
// eight calls in flight still sends (ESXi was seen with 11 to 30).
const maxHeld = 6

// conn is one connection. For a datagram only ends is set.
type conn struct {
	srv    *Server        // server that accepted the connection
	socket *socket        // socket of the connection; nil for a datagram
	ends   ends           // addresses of both ends
	record record         // record that is being read; only the reader uses it
	slots  chan struct{}  // a token for each call in work and each held reply; MaxCalls at most
	calls  sync.WaitGroup // counts goroutines that answer calls

	heldReplies []byte // replies to quick calls; only the reader uses it
	heldCount   int    // quick calls since the last flush; each has a slot, even without a reply
}

// newConn returns the connection of nc. It owns nc, but starts no goroutine.
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

// addrPort returns the address of a socket; zero if it is neither TCP nor UDP.
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

// serve answers calls until the connection or ctx ends. It returns after the last reply was sent.
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

// startNextCall reads one call and starts its answer. An error ends the connection.
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

// acquireSlot waits for a slot. Before it waits, it flushes held replies, which use slots too.
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

// releaseSlots releases n slots.
func (c *conn) releaseSlots(n int) {
	for range n {
		<-c.slots
	}
}

// startCall decodes a call and answers it: at once if it is quick, else in a goroutine that releases
// the slot.
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

// answerNow executes a quick call and holds its reply back. It flushes if enough replies are held, or
// the connection cannot stream. It returns false if the call must be answered in a goroutine.
func (c *conn) answerNow(ctx context.Context, j *job) bool {
	if j.call.Quick == nil {
		return false
	}
	j.enterCache()
	if !j.tryQuick() {
		return false
	}
	j.run(ctx, c.holdReply)
	c.heldCount++ // the call keeps its slot, even without a reply
	c.socket.startStreaming()
	if c.heldCount == maxHeld || !c.socket.isStreaming() {
		c.flush()
	}
	return true
}

// holdReply appends a reply to those held back.
func (c *conn) holdReply(reply []byte) { c.heldReplies = append(c.heldReplies, reply...) }

// flush sends the held replies. It waits for the client to read them, but not for another reply that is
// being sent: the client may read that one only after the server has read more of its calls. Only the
// reader may call it.
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

// send sends replies. It waits for other replies on the connection.
func (c *conn) send(replies []byte) {
	c.socket.sending.Lock()
	defer c.socket.sending.Unlock()
	c.sendLocked(replies)
}

// sendLocked sends replies. If the client does not read them, it aborts the connection. The socket's
// sending must be held.
func (c *conn) sendLocked(replies []byte) {
	if err := c.socket.writeAll(replies); err != nil {
		c.abort()
	}
}

// isAlive reports whether neither side has closed the connection. It returns false for a datagram.
func (c *conn) isAlive() bool { return c.socket != nil && c.socket.isEstablished() }

// abort ends the connection at once: both sides see a reset.
func (c *conn) abort() { c.socket.abort() }
