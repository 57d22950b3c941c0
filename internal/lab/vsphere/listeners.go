package vsphere

import (
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/lab/socket"
)

// listeners are the endpoints and the requests that they serve.
type listeners struct {
	lab   *Lab                 // emulator that they serve
	cfg   *Config              // configuration with defaults
	ports *ports               // reserved ports
	main  *endpoint            // endpoint of the API
	hosts map[string]*endpoint // endpoints by inventory name; empty without Config.HostListeners

	serving sync.RWMutex // locked for reading by each request
	closed  bool         // whether requests are rejected; guarded by serving
	waits   waits        // WaitForUpdates calls in progress
}

// reserveAddresses binds the endpoints before the inventory is built, because it contains their
// addresses. No request is served yet.
func (n *listeners) reserveAddresses() error {
	var err error
	if n.main, err = n.newEndpoint("localhost.localdomain", n.cfg.Addr); err != nil {
		return err
	}
	if n.cfg.Certificate != nil {
		n.main.cert.Store(certificateOf(*n.cfg.Certificate))
	}
	if !n.cfg.HostListeners {
		return nil
	}
	for _, dc := range n.cfg.Datacenters {
		for _, host := range dc.Hosts {
			if n.hosts[host], err = n.newEndpoint(host, "127.0.0.1:0"); err != nil {
				return err
			}
		}
	}
	return nil
}

// allEndpoints returns the endpoints that exist.
func (n *listeners) allEndpoints() []*endpoint {
	var all []*endpoint
	if n.main != nil {
		all = append(all, n.main)
	}
	for _, e := range n.hosts {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// hostName returns the name of a host in the inventory: its address if it has its own endpoint, because
// clients with a service ticket connect to the host's name.
func (n *listeners) hostName(host string) string {
	if e := n.hosts[host]; e != nil {
		return e.addr
	}
	return host
}

// URL returns the URL of the API, https://host:port/sdk, without user and password.
func (n *listeners) URL() string { return "https://" + n.main.addr + "/sdk" }

// Addr returns the host:port of URL.
func (n *listeners) Addr() string { return n.main.addr }

// HostAddr returns the host:port at which an ESXi host of a vCenter serves /folder. It is empty without
// Config.HostListeners.
func (n *listeners) HostAddr(host string) string {
	if e := n.hosts[host]; e != nil {
		return e.addr
	}
	return ""
}

// Fingerprint returns the SHA-256 of the current certificate: upper-case hex pairs with colons.
func (n *listeners) Fingerprint() string { return n.main.cert.Load().fingerprint }

// CertificatePEM returns the current certificate, for clients that accept it as a trust anchor.
func (n *listeners) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.main.cert.Load().pair.Certificate[0]})
}

// issueTicket returns the ID of a new ticket, which all endpoints accept.
func (n *listeners) issueTicket(t ticket) string {
	id := n.main.auth.issueTicket(t)
	for _, e := range n.hosts {
		e.auth.mu.Lock()
		e.auth.tickets[id] = t
		e.auth.mu.Unlock()
	}
	return id
}

// ExpirePassword makes all endpoints reject the password, as after a change of it. Sessions continue.
func (n *listeners) ExpirePassword() {
	for _, e := range n.allEndpoints() {
		e.auth.refuseLogins(true)
	}
}

// RenewPassword reverts ExpirePassword.
func (n *listeners) RenewPassword() {
	for _, e := range n.allEndpoints() {
		e.auth.refuseLogins(false)
	}
}

// ChangeCertificate installs a new certificate at the main endpoint and breaks its connections, as on a
// real host.
func (n *listeners) ChangeCertificate() error {
	cert, err := newCertificate("localhost.localdomain")
	if err != nil {
		return fmt.Errorf("new certificate: %w", err)
	}
	n.main.cert.Store(cert)
	return n.restartEndpoint(n.main)
}

// restartEndpoint closes an endpoint and opens it again.
func (n *listeners) restartEndpoint(e *endpoint) error {
	if err := e.closeListener(); err != nil {
		return err
	}
	return e.openListener()
}

// drainRequests waits for all requests and rejects later ones. It cancels WaitForUpdates calls, which
// would otherwise never return.
func (n *listeners) drainRequests() {
	for !n.serving.TryLock() {
		n.waits.cancelAll()
		time.Sleep(time.Millisecond)
	}
	n.closed = true
	n.serving.Unlock()
}

// ports are the ports that the emulator owns until Close, so that restarted services listen at the same
// address.
type ports struct {
	mu   sync.Mutex             // guards kept
	kept []*socket.ReservedPort // reserved ports
}

// reservePort reserves a port and returns its address. An unavailable address is returned unchanged:
// the listener then reports the error.
func (p *ports) reservePort(addr string) string {
	k, err := socket.ReservePort(addr)
	if err != nil {
		return addr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, k)
	return k.Addr()
}

// close releases all ports.
func (p *ports) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.Close())
	}
	p.kept = nil
	return errors.Join(errs...)
}
