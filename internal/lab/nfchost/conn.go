package nfchost

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// errCut ends a connection that was broken on purpose.
var errCut = errors.New("connection cut")

// conn is one connection on port 902, from its banner to its end.
type conn struct {
	server *Server
	raw    net.Conn
	rules  Rules // as they were when it came

	closing sync.Once
	gone    chan struct{} // closed with the connection

	grant  Grant
	secure bool // the second TLS session was asked for
	sha256 bool // THUMBPRINT_SHA2 was answered
	tag    string
	in     *stream
	out    *wire
	path   string // of the open disk
}

// serveProtocol speaks each part of the protocol in turn.
func (c *conn) serveProtocol() error {
	if err := c.runLogin(); err != nil {
		return err
	}
	if err := c.switchSession(); err != nil {
		return err
	}
	if err := c.runHandshake(); err != nil {
		return err
	}
	return c.serveSession()
}

// switchSession leaves the first TLS session without a word and goes on in clear or in a second.
func (c *conn) switchSession() error {
	c.out = &wire{Conn: c.raw}
	if !c.secure {
		c.in = &stream{r: c.raw}
		return nil
	}
	f := c.nextFault(Op{Name: OpProxy})
	config, err := c.tlsConfig(f.isKind(FaultOtherCert))
	if err != nil {
		return err
	}
	second := tls.Server(c.out, config)
	if err := second.Handshake(); err != nil {
		return err
	}
	c.out.over = second
	c.in = &stream{r: second, records: !c.rules.LooseRecords}
	return nil
}

// resetConn breaks the connection with a TCP reset.
func (c *conn) resetConn() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // close reports what matters
	}
	c.close()
}

func (c *conn) close() {
	c.closing.Do(func() {
		close(c.gone)
		_ = c.raw.Close() // nobody to tell
	})
}

// wire sends bytes on the raw connection. While it holds, it keeps what TLS writes and sends
// it in one call: a fragment is many records.
type wire struct {
	net.Conn
	over    *tls.Conn // nil in clear
	holding bool      // one goroutine sends
	held    []byte
}

func (w *wire) Write(p []byte) (int, error) {
	if w.holding {
		w.held = append(w.held, p...)
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// send writes p as one message.
func (w *wire) send(p []byte) error {
	if w.over == nil {
		_, err := w.Write(p)
		return err
	}
	w.holding = true
	_, err := w.over.Write(p)
	w.holding = false
	if err != nil {
		return err
	}
	_, err = w.Write(w.held)
	w.held = w.held[:0]
	return err
}
