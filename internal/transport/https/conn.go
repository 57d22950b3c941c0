package https

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/proxy"
)

const (
	// depth is the number of requests that a connection carries: one whose answer is being read, and one
	// that the host can start on at once after it.
	depth = 2

	dialTimeout  = 15 * time.Second // limit for TCP and TLS together
	writeTimeout = 15 * time.Second // limit for sending a request, which is one packet
)

// errGone reports a connection that was closed before a byte of the answer came: the host closed it
// between two requests, or the request before was canceled. The request itself is valid, and the host
// need not be in trouble.
var errGone = errors.New("the connection was closed")

// conn is one TLS connection to the host. Requests are answered in the order in which they were sent.
// Each exchange waits for its turn, reads its answer, and passes the turn on.
type conn struct {
	pool *pool // pool that the connection belongs to

	// socket below TLS; nil before dial
	wire *stallConn
	tls  *tls.Conn     // TLS session over wire
	br   *bufio.Reader // buffered reader of tls; the exchange with the turn uses it

	gone     chan struct{} // closed by closeSocket
	shutOnce sync.Once     // closes gone and wire once
	served   int           // answers that were read completely; the exchange with the turn uses it

	sending sync.Mutex      // held while a request is written, so that writes and tail have the same order
	tail    <-chan struct{} // done of the last exchange; nil before the first

	// dial has succeeded
	ready    bool // dialled
	busy     int  // exchanges that use the connection, or wait for dial
	retiring bool // the connection accepts no more exchanges
}

// dial connects. The Host's TLS configuration verifies the certificate.
func (c *conn) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addr := c.pool.host.Addr()
	raw, err := proxy.Dial(ctx, new(net.Dialer), addr)
	if err != nil {
		return dialFault(addr, err)
	}
	c.wire = newStallConn(raw, c.pool.opts.Stall, c.pool.countReceived)
	c.tls = tls.Client(c.wire, tlsConfig(c.pool.host.TLS(), addr))
	if err := c.tls.HandshakeContext(ctx); err != nil {
		raw.Close()
		return dialFault(addr, err)
	}
	c.br = bufio.NewReaderSize(c.tls, headBuffer)
	return nil
}

// tlsConfig returns base without HTTP/2, and without resumption of sessions, which would skip the
// verification of the certificate.
func tlsConfig(base *tls.Config, addr string) *tls.Config {
	conf := base.Clone()
	conf.NextProtos = []string{"http/1.1"}
	conf.ClientSessionCache = nil
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return conf
}

// dialFault returns the fault for a failed connection, with a remedy.
func dialFault(addr string, err error) error {
	var cert *tls.CertificateVerificationError
	var known *fault.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &cert):
		return fault.New(fault.Denied, "connect to %s: %w", addr, err).
			WithHint("the certificate differs from the accepted one; if an administrator replaced it, accept the new one with --fingerprint")
	case errors.As(err, &known):
		return fmt.Errorf("connect to %s: %w", addr, err)
	}
	return fault.New(fault.Unreachable, "connect to %s: %w", addr, err).
		WithHint("check that the host is up and that port 443 is open from here: curl -vk https://%s/", addr)
}

// closeSocket closes the connection, also during reads and writes. It may be called more than once.
func (c *conn) closeSocket() {
	c.shutOnce.Do(func() {
		close(c.gone)
		if c.wire != nil {
			c.wire.Close()
		}
	})
}

// isGone reports whether closeSocket was called.
func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// sendRequest writes a request and returns its exchange. The lock is held during the write on purpose:
// requests and turns must have the same order, and a request always fits into the socket's buffer.
func (c *conn) sendRequest(request []byte) (*exchange, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	x := &exchange{conn: c, turn: c.tail, done: make(chan struct{})}
	if err := c.wire.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return nil, errGone
	}
	if _, err := c.tls.Write(request); err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	c.tail = x.done
	return x, nil
}
