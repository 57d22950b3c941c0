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

// An endpoint is one listening address: the ESXi or vCenter, or one ESXi of a vCenter. It
// has its own certificate, sessions and limit on requests.
type endpoint struct {
	lab   *Lab
	name  string
	sdk   http.Handler // handler of the API; nil serves /folder only
	dcs   []*datacenter
	door  *door
	cert  atomic.Pointer[certificate]
	addr  string // fixed once first opened
	slots atomic.Int64

	mu     sync.Mutex
	ln     net.Listener // bound and not served yet
	server *http.Server // running server; nil while down
	ctx    context.Context
	cancel context.CancelFunc // ends sleeping requests
	served chan error         // one value when the server ends
}

// newEndpoint binds addr without serving it.
func (n *listeners) newEndpoint(name, addr string) (*endpoint, error) {
	e := &endpoint{lab: n.lab, name: name, addr: n.ports.reservePort(addr), door: newDoor(n.cfg)}
	cert, err := newCertificate(name)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	e.cert.Store(cert)
	return e, e.bindAddress(func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) })
}

func (e *endpoint) bindAddress(listen func(addr string) (net.Listener, error)) (err error) {
	if e.ln, err = listen(e.addr); err != nil {
		return fmt.Errorf("listen for %s: %w", e.name, err)
	}
	e.addr = e.ln.Addr().String()
	return nil
}

// openListener starts serving at e.addr; after the first time that is a fixed port.
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
		served <- s.ServeTLS(&gate{Listener: ln, lab: e.lab}, "", "")
	}(e.server, e.served)
	return nil
}

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

// closeListener stops serving and waits until every connection is gone.
func (e *endpoint) closeListener() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ln != nil {
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

// ServeHTTP dispatches without http.ServeMux, which would clean paths and redirect. A real host
// answers.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.lab.serving.RLock()
	defer e.lab.serving.RUnlock()
	if e.lab.closed {
		panic(http.ErrAbortHandler)
	}
	e.lab.powerOffDue()
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
