package vsphere

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/decamp/decamp/internal/lab/socket"
)

// An endpoint is one listening address: the ESXi host or vCenter, or one ESXi host of a vCenter. It has
// its own certificate, sessions and limit of requests.
type endpoint struct {
	lab   *Lab                        // emulator that it serves
	name  string                      // name of the host, in the certificate
	sdk   http.Handler                // handler of the API; nil serves /folder only
	dcs   []*datacenter               // datacenters that /folder shows
	auth  *authState                  // sessions, account lock and tickets
	cert  atomic.Pointer[certificate] // current certificate
	addr  string                      // host:port; fixed after the first bind
	slots atomic.Int64                // number of /folder requests in progress

	mu     sync.Mutex         // guards the fields below
	ln     net.Listener       // listener that is bound and not served
	server *http.Server       // running server; nil while down
	ctx    context.Context    // base context of requests; ends with the server
	cancel context.CancelFunc // ends ctx and thereby sleeping requests
	served chan error         // receives one value when the server ends
}

// newEndpoint binds addr and creates a certificate. It serves no request yet.
func (n *listeners) newEndpoint(name, addr string) (*endpoint, error) {
	e := &endpoint{lab: n.lab, name: name, addr: n.ports.reservePort(addr), auth: newAuthState(n.cfg)}
	cert, err := newCertificate(name)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	e.cert.Store(cert)
	return e, e.bindAddress(func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) })
}

// bindAddress listens at e.addr and records the port.
func (e *endpoint) bindAddress(listen func(addr string) (net.Listener, error)) (err error) {
	if e.ln, err = listen(e.addr); err != nil {
		return fmt.Errorf("listen for %s: %w", e.name, err)
	}
	e.addr = e.ln.Addr().String()
	return nil
}

// openListener starts to serve. After the first time the port is fixed.
func (e *endpoint) openListener() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		return errors.New("open " + e.name + ": already open")
	}
	if e.ln == nil {
		if err := e.bindAddress(socket.Listen); err != nil {
			return err
		}
	}
	ln := e.ln
	e.ln = nil
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.server = e.newServer()
	e.served = make(chan error, 1)
	go func(s *http.Server, served chan<- error) {
		served <- s.ServeTLS(&limitListener{Listener: ln, lab: e.lab}, "", "")
	}(e.server, e.served)
	return nil
}

// newServer returns an HTTP server for the endpoint.
func (e *endpoint) newServer() *http.Server {
	s := &http.Server{
		Handler:     e,
		TLSConfig:   e.tlsConfig(),
		ErrorLog:    log.New(io.Discard, "", 0), // handshakes that clients break off are what tests do
		BaseContext: func(net.Listener) context.Context { return e.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, wireKey{}, c.(*tls.Conn).NetConn())
		},
	}
	if !e.lab.cfg.HTTP2 {
		s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // not nil: no h2
	}
	return s
}

// tlsConfig returns the TLS configuration. Sessions cannot be resumed, so that each connection shows
// the current certificate.
func (e *endpoint) tlsConfig() *tls.Config {
	protos := []string{"http/1.1"}
	if e.lab.cfg.HTTP2 {
		protos = []string{"h2", "http/1.1"}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protos,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &e.cert.Load().pair, nil },
		// A resumed session would not show the certificate after a change of it.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// closeListener stops serving and waits until all connections are closed.
func (e *endpoint) closeListener() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ln != nil { // bound and not served
		return e.ln.Close()
	}
	if e.server == nil {
		return nil
	}
	e.cancel()
	err := e.server.Close()
	if serveErr := <-e.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	e.server = nil
	return err
}

// ServeHTTP dispatches a request by its path. http.ServeMux would clean paths and redirect; a real host
// answers.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.lab.serving.RLock()
	defer e.lab.serving.RUnlock()
	if e.lab.closed {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	e.lab.powerOffDue() // requests advance guest shutdowns
	switch path := r.URL.Path; {
	case path == "/folder" || strings.HasPrefix(path, "/folder/"):
		e.serveFolder(w, r)
	case path == hostKeyPath && e == e.lab.main && !e.lab.cfg.VCenter && !e.lab.cfg.SSH.SecretKey:
		e.serveHostKey(w, r)
	case isREST(path) && e == e.lab.main && e.lab.cfg.VCenter:
		e.serveTags(w, r)
	case e.sdk != nil:
		e.serveSDK(w, r)
	default:
		e.lab.stats.countRequest(r)
		http.NotFound(w, r)
	}
}
