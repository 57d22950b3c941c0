package nfchost

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// errCut ends a connection that a fault or Close broke.
var errCut = errors.New("connection cut")

// A conn is one connection on port 902.
type conn struct {
	server *Server  // server that accepted the connection
	raw    net.Conn // TCP connection
	rules  Rules    // rules at the time of the connection

	closing sync.Once     // closes the connection once
	gone    chan struct{} // closed with the connection

	grant  Grant   // rights of the ticket; nil until it is redeemed
	secure bool    // whether the client requested the second TLS session
	sha256 bool    // whether THUMBPRINT_SHA2 was answered
	tag    string  // tag of THUMBPRINT_SHA2
	in     *stream // received messages, after the login
	out    *wire   // sent messages, after the login
	path   string  // path of the open disk, for faults
}

// serveProtocol runs the parts of the protocol in order: login, TLS, handshake, session.
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

// switchSession leaves the first TLS session without a close_notify and continues in clear or in a
// second TLS session.
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

// close closes the connection. It may be called more than once, also concurrently.
func (c *conn) close() {
	c.closing.Do(func() {
		close(c.gone)
		_ = c.raw.Close() // the client has disconnected or detects it
	})
}

// A wire sends messages on the raw connection. It collects the TLS records of a message and sends them
// in one system call. One goroutine may use it at a time.
type wire struct {
	net.Conn
	over    *tls.Conn // second TLS session; nil in clear
	holding bool      // whether Write collects
	held    []byte    // collected bytes
}

// Write implements the writing side of net.Conn for the TLS session.
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
