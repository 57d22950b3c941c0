package oncrpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"time"
)

// maxDatagram is the largest UDP datagram, in bytes.
const maxDatagram = 64 << 10

// ServePacket answers the calls in datagrams, one after the other, until ctx ends; then it closes the
// socket and returns nil. It suits programs that answer without waiting.
func (s *Server) ServePacket(ctx context.Context, pc net.PacketConn) error {
	stop := context.AfterFunc(ctx, func() { _ = pc.Close() })
	defer stop()
	buf := make([]byte, maxDatagram)
	for wait := time.Duration(0); ; {
		n, from, err := pc.ReadFrom(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // usually an earlier reply that could not be delivered
			wait = s.pauseAfterError(ctx, wait, err)
			continue
		}
		wait = 0
		c := &conn{ends: ends{peer: addrPort(from), local: addrPort(pc.LocalAddr())}}
		if addr := c.ends.peer.Addr(); !s.opts.Admit(addr) {
			s.logRefusal("peer is not admitted", addr)
			continue
		}
		s.serveDatagram(ctx, buf[:n], c, func(reply []byte) {
			_, _ = pc.WriteTo(reply[markSize:], from) // datagrams may be lost
		})
	}
}

// serveDatagram answers the call in p. It ignores datagrams that are not calls.
func (s *Server) serveDatagram(ctx context.Context, p []byte, c *conn, send func(reply []byte)) {
	r := &record{r: bufio.NewReaderSize(bytes.NewReader(p), readBuffer), left: len(p), last: true}
	j, err := s.readJob(ctx, r, c)
	if err != nil || j.reserveReplyMemory(ctx) != nil {
		return
	}
	j.run(ctx, send)
}
