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
)

const (
	// depth is how many requests a connection carries: one whose answer is being read and
	// one that the host can begin with at once after it.
	depth = 2

	dialTimeout  = 15 * time.Second // TCP and TLS together
	writeTimeout = 15 * time.Second // a request is one packet
)

// errGone means that a connection was found closed before a byte of the answer came: the
// host closed it between two requests, or the neighbour on it was cancelled. Nothing is
// wrong with the request, and nothing is known about the host.
var errGone = errors.New("the connection was closed")

// conn is one TLS connection to the host. Requests are answered in the order they were
// sent; each exchange waits for its turn, reads its answer and passes the turn on.
type conn struct {
	pool *pool

	// Set by dial, before any other goroutine knows the conn.
	wire *stallConn
	tls  *tls.Conn
	br   *bufio.Reader

	gone     chan struct{} // closed by shut
	shutOnce sync.Once
	served   int // answers read completely; by the exchange whose turn it is

	sending sync.Mutex // held while a request is written: writes and tail have one order
	tail    <-chan struct{}

	// Guarded by pool.mu.
	ready    bool // dialled
	busy     int  // exchanges that claimed the conn
	retiring bool // takes no more exchanges
}

// dial connects. The certificate is judged by the Host's TLS configuration.
func (c *conn) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addr := c.pool.host.Addr()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
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

// tlsConfig keeps the Host's rules and takes away HTTP/2, and the resumption of sessions,
// which would not look at the certificate again.
func tlsConfig(base *tls.Config, addr string) *tls.Config {
	conf := base.Clone()
	conf.NextProtos = []string{"http/1.1"}
	conf.ClientSessionCache = nil
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return conf
}

func dialFault(addr string, err error) error {
	var cert *tls.CertificateVerificationError
	var known *fault.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &cert):
		return fault.New(fault.Denied, "connect to %s: %w", addr, err).
			WithHint("the certificate is not the one that was accepted; if it was replaced on purpose, give the new --fingerprint")
	case errors.As(err, &known):
		return fmt.Errorf("connect to %s: %w", addr, err)
	}
	return fault.New(fault.Unreachable, "connect to %s: %w", addr, err).
		WithHint("check that the host is up and that port 443 is open from here: curl -vk https://%s/", addr)
}

// closeSocket closes the connection under whoever uses it. It may be called more than once.
func (c *conn) closeSocket() {
	c.shutOnce.Do(func() {
		close(c.gone)
		if c.wire != nil {
			c.wire.Close()
		}
	})
}

// isGone reports whether the connection was shut.
func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// sendRequest writes a request and returns its exchange. The lock is held across the write on
// purpose: it gives requests and turns the same order, and a request always fits the
// socket's buffer.
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
