package vsphere

import (
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/lab/socket"
)

// listeners are the endpoints of the lab, and the requests that they serve.
type listeners struct {
	lab   *Lab
	cfg   *Config
	ports *ports
	main  *endpoint
	hosts map[string]*endpoint // endpoints by inventory name; empty unless Config.HostListeners

	serving sync.RWMutex // held for reading by each request
	closed  bool         // guarded by serving
	waits   waits
}

// reserveAddresses reserves the addresses: the inventory names some of them. Nothing is served yet.
func (n *listeners) reserveAddresses() error {
	var err error
	if n.main, err = n.newEndpoint("localhost.localdomain", n.cfg.Addr); err != nil || !n.cfg.HostListeners {
		return err
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

// hostName is what the inventory calls a host: its address if it listens by itself, since
// clients with a service ticket go to the host by its name.
func (n *listeners) hostName(host string) string {
	if e := n.hosts[host]; e != nil {
		return e.addr
	}
	return host
}

// URL is the API's address, https://host:port/sdk, without user and password.
func (n *listeners) URL() string { return "https://" + n.main.addr + "/sdk" }

// Addr is the host:port of URL.
func (n *listeners) Addr() string { return n.main.addr }

// HostAddr is the host:port at which an ESXi of an emulated vCenter serves /folder.
// It is empty unless Config.HostListeners is set.
func (n *listeners) HostAddr(host string) string {
	if e := n.hosts[host]; e != nil {
		return e.addr
	}
	return ""
}

// Fingerprint is the SHA-256 of the current certificate: upper-case hex pairs with colons.
func (n *listeners) Fingerprint() string { return n.main.cert.Load().fingerprint }

// CertificatePEM is the current certificate for clients that take one as trust anchor.
func (n *listeners) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.main.cert.Load().pair.Certificate[0]})
}

// issueTicket makes a ticket known at every endpoint.
func (n *listeners) issueTicket(t ticket) string {
	id := n.main.door.issueTicket(t)
	for _, e := range n.hosts {
		e.door.mu.Lock()
		e.door.tickets[id] = t
		e.door.mu.Unlock()
	}
	return id
}

// ExpirePassword has the password be refused from now on, as one that was changed. Sessions go
// on.
func (n *listeners) ExpirePassword() {
	for _, e := range n.allEndpoints() {
		e.door.refuseLogins(true)
	}
}

// RenewPassword ends ExpirePassword.
func (n *listeners) RenewPassword() {
	for _, e := range n.allEndpoints() {
		e.door.refuseLogins(false)
	}
}

// ChangeCertificate gives the main endpoint a new certificate and drops its connections, as
// replacing one on a host does.
func (n *listeners) ChangeCertificate() error {
	cert, err := newCertificate("localhost.localdomain")
	if err != nil {
		return fmt.Errorf("new certificate: %w", err)
	}
	n.main.cert.Store(cert)
	return n.restartEndpoint(n.main)
}

func (n *listeners) restartEndpoint(e *endpoint) error {
	if err := e.closeListener(); err != nil {
		return err
	}
	return e.openListener()
}

// drainRequests waits for the requests being served. A WaitForUpdates that its client gave up on
// would go on for ever; it is cancelled until it hears.
func (n *listeners) drainRequests() {
	for !n.serving.TryLock() {
		n.waits.cancelAll()
		time.Sleep(time.Millisecond)
	}
	n.closed = true
	n.serving.Unlock()
}

// ports are those the lab has until it is closed, whether it listens at them or not: a host that
// restarts finds its own where they were.
type ports struct {
	mu   sync.Mutex
	kept []*socket.Kept
}

// reservePort returns addr with a port that the lab has reserved. An unavailable port is returned unchanged:
// the listener then reports the error.
func (p *ports) reservePort(addr string) string {
	k, err := socket.Keep(addr)
	if err != nil {
		return addr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, k)
	return k.Addr()
}

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
